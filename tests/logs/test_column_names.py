"""Columns that are guessed, and guesses that are refused."""

import pytest

from belated.ledger.tools.joining import JoinedRow
from belated.logs.column_names import FIELDS, guessed_columns, spelled


def test_a_joined_export_needs_no_words():
    columns = guessed_columns(JoinedRow.__struct_fields__)
    assert columns == {
        field: field.replace("-", "_") for field in FIELDS if field not in ("subject", "segment")
    }


def test_what_was_told_is_not_guessed_again():
    names = ["ts", "timestamp", "converted_at", "city"]
    columns = guessed_columns(names, "time=timestamp,segment=city")
    assert columns == {"time": "timestamp", "reward-time": "converted_at", "segment": "city"}
    assert guessed_columns(names, spelled(columns)) == columns


def test_no_name_stands_for_two_fields():
    names = [name for names in FIELDS.values() for name in names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("names", [["reward", "time", "Reward"], ["Reward", "time", "reward"]])
def test_the_exact_name_comes_first(names):
    assert guessed_columns(names)["reward"] == "reward"
    assert guessed_columns(names, "reward=Reward")["reward"] == "Reward"
    others = [name.replace("eward", "eward_at") for name in names]
    assert guessed_columns(others)["reward-time"] == "reward_at"


@pytest.mark.parametrize(
    ("names", "given", "message"),
    [
        (
            ["time", "Reward", "REWARD"],
            "",
            "reward: the columns Reward and REWARD look like it; say --map reward=Reward or --map",
        ),
        (["time", "reward", "reward"], "", "reward: 2 columns are called 'reward': rename one of"),
        (["time", "sale", "sale"], "reward=sale", "reward: 2 columns are called 'sale': rename"),
        (
            ["ts", "shown_at"],
            "",
            "time: the columns ts and shown_at look like it; say --map time=ts",
        ),
        (["when"], "", "time: no column looks like it; say --map time=COLUMN, with one of the co"),
        (["time"], "time=when", "--map time = 'when': expected one of the columns time"),
        (["time"], "when=time", "--map = 'when=time': expected field=column, with a field of id"),
    ],
)
def test_errors(names, given, message):
    with pytest.raises(ValueError, match=message):
        guessed_columns(names, given)
