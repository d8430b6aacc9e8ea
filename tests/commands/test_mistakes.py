"""Plausible mistakes of people who are new here: one line that says what was expected."""

import os
import sys
import warnings

import pytest

from belated import Bandit, Bernoulli
from belated.commands.main import main

LOG = "id,time,action,reward,reward_time,propensity\n1,2026-01-01,a,1,2026-01-02,0.5\n"
NONE = "sqlite:///none.db"  # a ledger that has a bandit and no decisions


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in: a log, files of other kinds, a folder, and a ledger."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text(LOG)
    (tmp_path / "semicolons.csv").write_text("decision_id;reward\n1;2\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("id,time,action,decision_id,reward\n")
    (tmp_path / "folder").mkdir()
    Bandit(dim=2, family=Bernoulli(), ledger=NONE, name="shop").close()
    return tmp_path


@pytest.fixture
def said(folder, monkeypatch, capsys):
    """Returns the exit code of a command, and the lines that it writes to stderr."""

    def run(command):
        monkeypatch.setattr(sys, "argv", ["belated", *command.split()])
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        shows_warnings = warnings.catch_warnings(action="default", category=UserWarning)
        with shows_warnings, pytest.raises(SystemExit) as stopped:
            main()
        lines = capsys.readouterr().err.splitlines()
        # a slow machine is told how far it is
        return stopped.value.code or 0, [line for line in lines if not line.endswith(" a second")]

    return run


IS_FOLDER = "it is a folder, expected a file"
NO_FOLDER = "nowhere/l.db: there is no folder nowhere"
EMPTY = "empty.csv: expected the names of columns in the first line, it is empty"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        # a folder in the place of a file, and the other way round
        ("delays folder", f"log = 'folder': {IS_FOLDER}"),
        ("delays log.csv --law folder", "--law = 'folder': expected a file, and it is a folder"),
        ("delays log.csv --bad folder", "--bad = 'folder': expected a file, and it is a folder"),
        (f"rewards folder --ledger {NONE}", f"file = 'folder': {IS_FOLDER}"),
        (f"ledger import {NONE} folder", f"file = 'folder': {IS_FOLDER}"),
        ("ledger verify sqlite:///folder", f"ledger = 'sqlite:///folder': {IS_FOLDER}"),
        ("bandits list --ledger sqlite:///folder", f"ledger = 'sqlite:///folder': {IS_FOLDER}"),
        ("bandits create x --family bernoulli --dim 2 --ledger sqlite:///folder", IS_FOLDER),
        ("bandits create x --family bernoulli --dim 2 --ledger sqlite:///nowhere/l.db", NO_FOLDER),
        (f"retrain shop --features folder --ledger {NONE}", "belated: folder: Is a directory"),
        (f"retrain shop --features no.toml --ledger {NONE}", "belated: no.toml: No such file"),
        (f"serve --ledger {NONE} --port 0 --snapshots log.csv", "'log.csv': expected a folder"),
        # files that are not what they are taken for
        ("delays none.db", "log = 'none.db': expected sqlite:///none.db, if it is a ledger"),
        ("delays log.csv --format parquet", "belated: log.csv: Parquet magic bytes not found"),
        ("delays log.csv --format jsonl", "belated: log: line 1: JSON is malformed"),
        ("score log.csv", "belated: log.csv: the document is not a model of belated"),
        (f"rewards semicolons.csv --ledger {NONE}", "expected commas between columns"),
        (f"rewards empty.csv --ledger {NONE}", EMPTY),
        (f"ledger import {NONE} empty.csv", EMPTY),
        (f"delays {NONE}", "log: expected decisions, and it has no rows"),
        (f"evaluate {NONE} --policy uniform", "log: expected decisions, and it has no rows"),
        # names that there are not
        (
            "evaluate log.csv --policy uniform --bandit shop",
            "expected the URL of a ledger as the log",
        ),
        (f"lift nobody --ledger {NONE}", "name = 'nobody': expected one of shop"),
        (f"retrain nobody --back --ledger {NONE}", "name = 'nobody': expected one of shop"),
        ("simulate --policy thomson", "policy = 'thomson': expected one of adaptive-thompson"),
        ("simulate --delay exponentail", "delay = 'exponentail': expected one of exponential"),
        # what would only fail after long work
        ("delay-cost never --per-day 9 --dim 2 --out x.no", "expected a name that ends in .png"),
        ("delay-cost never --per-day 9 --dim 2 --out no/x.png", "a name in a folder that exists"),
    ],
)
def test_a_mistake_is_named_in_one_line(said, command, expected):
    code, lines = said(command)
    assert code == 2
    assert len(lines) == 1
    assert expected in lines[0]


@pytest.mark.parametrize("name", ["header.csv", "empty.jsonl"])
def test_a_file_without_rows_is_pointed_at(said, folder, name):
    """It is no error: a shop may have a day without sales."""
    (folder / "empty.jsonl").write_text("")
    for command, what in (
        (f"rewards {name} --ledger {NONE}", "handed in"),
        (f"ledger import {NONE} {name}", "imported"),
    ):
        assert said(command) == (0, [f"belated: {name}: it has no rows, so nothing was {what}"])


def test_a_bandit_that_is_to_be_served_and_is_not_there(folder, caplog):
    from belated.service.service import Service

    service = Service(NONE, only={"shop", "shpo"})
    service.read_log()
    service.ledger.close()
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "bandits: 'shpo' is to be served, and this ledger has none of that name"
    ]


def test_a_wrong_name_costs_nothing(said, folder):
    before = sorted(os.listdir(folder))
    assert said(f"ledger export {NONE} --out x.jsonl --bandit nobody")[0] == 2
    assert said(f"ledger restore {NONE} --until 2001-01-01 --out sqlite:///x.db")[0] == 2
    assert sorted(os.listdir(folder)) == before
