"""Commands without ``--json``: what people are shown, by every command that has both forms."""

import json

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from belated.commands.main import app
from belated.ledger.tools.showing import show

# Words of each command; {ledger} is the URL of a ledger, {folder} an empty folder.
LINES = {
    "lift": "shop --ledger {ledger}",
    "retrain": "shop --ledger {ledger} --policy thompson",
    "rewards": "{folder}/rewards.csv --ledger {ledger} --bandit shop",
    "ledger export": "{ledger} --out {folder}/events.jsonl",
    "ledger import": "sqlite:///{folder}/other.db {folder}/events.jsonl",
    "ledger verify": "{ledger}",
    "ledger replay": "{ledger} --bandit shop --policy greedy",
    "ledger snapshot": "{ledger} --folder {folder}/snapshots",
    "ledger backup": "{ledger} --out {folder}/copy.db",
    "ledger restore": "{ledger} --until 2023-11-15 --out sqlite:///{folder}/then.db",
    "ledger retain": "{ledger} --older-than 1d",
    "ledger compact": "{ledger} --older-than 1d",
}
ELSEWHERE = {
    *("delays", "evaluate", "plan"),  # test_bad_rows.py
    "list",  # test_cli.py
    *("bandits create", "bandits list", "bandits show"),  # test_service_commands.py
    *("keys create", "keys list"),
}


def with_json(command, path=""):
    """Yields the path of every command that has an option ``--json``."""
    if any("--json" in parameter.opts for parameter in command.params):
        yield path
    for name, sub in getattr(command, "commands", {}).items():
        yield from with_json(sub, f"{path} {name}".strip())


def test_every_command_is_tested_in_both_forms():
    assert set(with_json(get_command(app))) == set(LINES) | ELSEWHERE


@pytest.fixture
def said(shop, tmp_path):
    """Runs a command on a ledger that is the same for every call; returns what it prints."""
    ledger = tmp_path / "shop.db"
    kept = ledger.read_bytes()

    def run(path, *more):
        folder = tmp_path / "-".join(["for", *more])
        folder.mkdir()
        ledger.write_bytes(kept)
        (folder / "rewards.csv").write_text("decision_id,reward\nnobody,1\n")
        if path == "ledger import":
            made = CliRunner().invoke(app, f"ledger export {shop} --out {folder}/events.jsonl")
            assert made.exit_code == 0, made.output
        line = LINES[path].format(ledger=shop, folder=folder)
        done = CliRunner().invoke(
            app, [*path.split(), *line.split(), *more], env={"COLUMNS": "200"}
        )
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.stdout

    return run


@pytest.mark.parametrize("path", LINES)
def test_people_are_shown_what_machines_are(path, said):
    code, found = said(path, "--json")
    again, shown = said(path)
    assert code == again
    for name, value in json.loads(found).items():
        if value not in ([], 0) and name != "sentence":  # the sentence is printed as it is
            assert name.replace("_", " ").removesuffix(" not shown") in shown


def test_a_promotion_is_said_and_written(said, shop):
    code, shown = said("retrain", "--promote")
    assert (code, "changed: policy" in shown, "promoted: yes" in shown) == (0, True, True)
    back = CliRunner().invoke(app, f"retrain shop --ledger {shop} --back")
    assert "changed: policy" in back.output


def test_lists_without_rows_are_one_line(capsys):
    show({"changed": ["features", "dim"], "against": [], "sizes": [1000, 2.5]}, as_json=False)
    assert capsys.readouterr().out == "changed: features; dim\nsizes: 1,000; 2.5\n"
