"""Rows that cannot be used, as whoever runs a command on a log meets them."""

import csv
import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from belated import Bandit
from belated.commands.main import app
from belated.core.times import iso
from belated.ledger import open_ledger
from belated.ledger.events import Draft, Kind
from belated.ledger.ids import from_text
from belated.ledger.replica import Replica

COMMANDS = {
    "delays": (),
    "evaluate": ("--policy", "uniform"),
    "plan": ("--policy", "uniform", "--copies", "2", "--decisions", "100", "--threads", "1"),
}
FORMS = {
    "csv": lambda rows, path: pd.DataFrame(rows).to_csv(path, index=False),
    "parquet": lambda rows, path: pd.DataFrame(rows).to_parquet(path),
    "jsonl": lambda rows, path: path.write_text("".join(json.dumps(r) + "\n" for r in rows)),
}


def rows_with_bad_ones():
    """Three hundred decisions, a minute apart; the first of them are wrong in six ways."""
    rows = [
        {
            "id": f"d{i}",
            "time": f"2026-03-01T{i // 60:02}:{i % 60:02}:00Z",
            "action": "ab"[i % 2],
            "propensity": 0.5,
            "reward": float(i % 3 == 0),
            "reward_time": f"2026-03-01T{i // 60 + 1:02}:{7 * i % 60:02}:00Z",
        }
        for i in range(300)
    ]
    rows[2]["reward_time"] = "2026-02-01T00:00:00Z"
    rows[3]["reward"] = float("nan")
    rows[4]["id"] = "d0"
    rows[5]["propensity"] = 1.5
    rows[6]["propensity"] = 0.0
    rows[7]["time"] = "2026-03-01T00:07:00"
    return rows


def called(command, *args):
    return CliRunner().invoke(app, [command, *map(str, args), *COMMANDS[command]])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("form", FORMS)
def test_strict_counts_them_and_writes_them_down(form, command, tmp_path):
    path = tmp_path / f"log.{form}"
    FORMS[form](rows_with_bad_ones(), path)
    refused = called(command, path, "--strict")
    assert refused.exit_code != 0
    first = 2 if form == "csv" else 1  # an editor counts the header
    assert f"6 bad rows, the first in line {2 + first} (" in str(refused.exception)
    assert f"they are in {path}.bad.csv" in str(refused.exception)
    with (tmp_path / f"log.{form}.bad.csv").open(newline="") as file:
        aside = list(csv.DictReader(file))
    assert [int(row["bad_line"]) - first for row in aside] == [2, 3, 4, 5, 6, 7]
    no_number = "the row cannot be read" if form == "jsonl" else "the reward is not a finite number"
    assert [row["bad_reason"] for row in aside] == [
        "the reward is before the decision",
        no_number,  # JSON has no NaN
        "the id was met before",
        *["the propensity is not in (0, 1]"] * 2,
        "mixed zones: the first time has a zone",
    ]


@pytest.mark.parametrize(
    "command", ["delays", "evaluate", pytest.param("plan", marks=pytest.mark.slow)]
)
def test_all_commands_say_what_they_left_out(command, tmp_path):
    path = tmp_path / "log.csv"
    FORMS["csv"](rows_with_bad_ones(), path)
    done = called(command, path)
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "rows left out: 6 rows (" in said
    assert "2: the propensity is not in (0, 1]" in said
    assert f"All of them are in {path}.bad.csv" in said
    assert "columns: " in said
    found = json.loads(called(command, path, "--json").stdout)
    assert sum(found["bad_rows"].values()) == 6
    assert [row["line"] for row in found["first_bad_rows"]] == [4, 5, 6, 7, 8, 9]
    assert found["bad_file"] == f"{path}.bad.csv"


@pytest.mark.parametrize("command", COMMANDS)
def test_where_no_row_is_good_the_reasons_are_said(command, tmp_path):
    rows = [row | {"propensity": 2.0} for row in rows_with_bad_ones()[8:20]]
    FORMS["csv"](rows, tmp_path / "log.csv")
    assert "12 bad rows, the first in line 2 (the prop" in str(
        called(command, tmp_path / "log.csv").exception
    )
    FORMS["csv"](rows, tmp_path / "log.csv")
    (tmp_path / "log.csv").write_text((tmp_path / "log.csv").read_text().splitlines()[0] + "\n")
    refused = called(command, tmp_path / "log.csv")
    assert str(refused.exception) == "log: expected decisions, and it has no rows"


@pytest.mark.parametrize("command", ["evaluate", "plan"])
def test_an_error_has_the_rows_that_were_left_out(command, tmp_path):
    """All rewards have times in a zone, and decisions have none: none of the good rows has one."""
    rows = [row | {"time": row["time"][:-1]} for row in rows_with_bad_ones()]
    for row in rows[:20]:
        row["reward"] = row["reward_time"] = None
    FORMS["csv"](rows, tmp_path / "log.csv")
    said = str(called(command, tmp_path / "log.csv").exception)
    assert said.startswith("log: expected rewards, and none has come")
    assert "Rows left out of the log: 284 rows (" in said
    assert "280: mixed zones: the first time has no zone" in said


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["log.csv", "./log.csv", "link.csv", "hard.csv"])
def test_the_log_is_not_replaced_by_its_bad_rows(command, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "log.csv"
    FORMS["csv"](rows_with_bad_ones(), path)
    before = path.read_bytes()
    (tmp_path / "link.csv").symlink_to(path)
    (tmp_path / "hard.csv").hardlink_to(path)
    for option in {"delays": ("--bad", "--law", "--page"), "plan": ("--bad", "--page")}.get(
        command, ("--bad",)
    ):
        refused = called(command, path, option, name)
        assert f"{option} = " in str(refused.exception)
        assert "a file other than the one that is read" in str(refused.exception)
        assert path.read_bytes() == before


@pytest.mark.parametrize("by", ["sqlite:///{}", "env:THE_LEDGER"])
def test_nor_is_a_ledger(by, tmp_path, monkeypatch):
    path = tmp_path / "shop.db"
    bandit = Bandit(2, family="bernoulli", ledger=f"sqlite:///{path}", seed=1)
    bandit.decide([[1.0, 0.0], [0.0, 1.0]])
    bandit.close()
    monkeypatch.setenv("THE_LEDGER", f"sqlite:///{path}")
    refused = called("delays", by.format(path), "--bad", path)
    assert "a file other than the one that is read" in str(refused.exception)
    assert path.stat().st_size > 0


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_put_aside_whole_and_can_be_mended_and_read(form, tmp_path):
    path, aside = tmp_path / f"log.{form}", tmp_path / f"log.{form}.bad.csv"
    rows = [row | {"note": "to one, two\nand all"} for row in rows_with_bad_ones()]
    FORMS[form](rows, path)
    called("delays", path)
    text = aside.read_text()
    assert text.splitlines()[0] == (
        "bad_line,bad_reason,bad_value,id,time,action,propensity,reward,reward_time,note"
    )
    if form == "jsonl":  # a line that is no JSON is there as it was
        assert "NaN" in text
        return
    found = pd.read_csv(aside)
    assert (found["note"] == "to one, two\nand all").all()
    mended = found.assign(propensity=0.5, reward=1.0, id=[f"e{k}" for k in range(6)])
    mended["time"] = "2026-03-01T00:00:00Z"
    mended["reward_time"] = "2026-03-01T01:00:00Z"
    mended.to_csv(aside, index=False)
    again = json.loads(called("delays", aside, "--json").stdout)
    assert (again["rows"], again["bad_rows"]) == (6, {})


@pytest.mark.parametrize(
    "command", ["delays", "evaluate", pytest.param("plan", marks=pytest.mark.slow)]
)
def test_that_most_rows_were_left_out_is_said_first(command, tmp_path):
    rows = rows_with_bad_ones()
    worse = rows + [row | {"id": f"f{k}", "propensity": 2.0} for k, row in enumerate(rows)]
    FORMS["csv"](worse, tmp_path / "log.csv")
    said = called(command, tmp_path / "log.csv").stdout  # progress is told beside it
    assert said.startswith(
        "careful: Most of the log was left out: 306 of 600 rows. What follows is of the other 294."
    )


CARRIAGE = "log.csv: its lines end with carriage returns alone"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lambda text: "", "log.csv: the file is empty"),
        (lambda text: text.replace("\n", "\r"), CARRIAGE),
    ],
)
def test_files_without_rows(command, content, said, tmp_path):
    path = tmp_path / "log.csv"
    FORMS["csv"](rows_with_bad_ones(), path)
    path.write_bytes(content(path.read_text()).encode())
    assert said in str(called(command, path).exception)


@pytest.mark.parametrize(
    "command", ["delays", "evaluate", pytest.param("plan", marks=pytest.mark.slow)]
)
def test_decisions_that_are_not_used_are_counted(command, tmp_path):
    """Those after --now, and those of a ledger that were cancelled."""
    clock, url = [1_750_000_000.0], f"sqlite:///{tmp_path}/shop.db"
    made = {"policy": "uniform", "ledger": url, "seed": 1, "clock": lambda: clock[0]}
    bandit, cancelled = Bandit(2, family="bernoulli", **made), []
    for k in range(400):
        decision = bandit.decide([[1.0, 0.0], [0.0, 1.0]])
        clock[0] += 30.0
        if k in (2, 3, 5):
            cancelled.append(from_text(decision.id))
        else:
            bandit.learn(decision.id, float(k % 3 == 0))
        clock[0] += 30.0
    bandit.close()
    ledger = open_ledger(url)
    replica, end = Replica(ledger), int(clock[0] * 1e6)
    replica.catch_up()
    replica.commit([Draft(Kind.CANCELLED, "", id, end) for id in cancelled])
    ledger.close()
    now = iso(end - 30 * 60_000_000 - 1)
    found = json.loads(called(command, url, "--now", now, "--json").stdout)
    assert (found["decisions_after_now"], found["cancelled_decisions"]) == (30, 3)
    done = called(command, url, "--now", now)
    assert "decisions not used: 30 made after --now, 3 cancelled" in " ".join(done.output.split())


@pytest.mark.parametrize("command", ["evaluate", "plan"])
def test_a_window_is_of_conversions(command, tmp_path):
    FORMS["csv"](rows_with_bad_ones(), tmp_path / "log.csv")
    said = str(called(command, tmp_path / "log.csv", "--window", "7d").exception)
    assert said.startswith("--window = '7d': expected --loop conversion with it")


def test_a_time_before_the_first_decision(tmp_path):
    FORMS["csv"](rows_with_bad_ones(), tmp_path / "log.csv")
    said = str(called("delays", tmp_path / "log.csv", "--now", "1767225600").exception)
    assert said.startswith(
        "--now = '1767225600': expected a time after the first decision, "
        "2026-03-01T00:00:00.000000Z. Rows left out of the log: 6 rows ("
    )
