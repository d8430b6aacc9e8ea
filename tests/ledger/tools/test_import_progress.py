"""Imports say how far they are and how fast they go, also from a small file with many rows."""

import os
import pty
import re
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from belated.families import Bernoulli
from belated.ledger import open_ledger
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.tools import progress as module
from belated.ledger.tools.progress import Share, progress
from belated.ledger.tools.tables import rows_of
from belated.policies import Greedy


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""

    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_what_is_quick_needs_no_words(clock, capsys):
    with progress("importing", 10) as told:
        clock.now += 2.9
        told(10)
    assert capsys.readouterr().err == ""


def test_a_line_now_and_then_where_nobody_looks(clock, capsys):
    share = Share()
    with progress("importing rows", share=share) as told:
        for second in range(1, 13):
            clock.now = float(second)
            share.position = lambda second=second: second / 24
            told(1000)
    assert capsys.readouterr().err.splitlines() == [
        "importing rows: 12%, 3,000, 1,000 a second",
        "importing rows: 33%, 8,000, 1,000 a second",
        "importing rows: 12,000 in 12 seconds, 1,000 a second",
    ]


def test_totals_and_none(clock, capsys):
    for total in (8, None):
        with progress("replaying", total) as told:
            clock.now += 4.0
            told(4)
    assert capsys.readouterr().err.splitlines() == [
        "replaying: 50%, 4 of 8, 1 a second",
        "replaying: 4 in 4 seconds, 1 a second",
        "replaying: 4, 1 a second",
        "replaying: 4 in 4 seconds, 1 a second",
    ]


def test_lines_are_those_of_an_editor(tmp_path):
    """The header is line 1, and a row with a line break in a cell is where it begins."""
    file = tmp_path / "log.csv"
    file.write_text('id,note\n1,"two\nlines"\n2,one\n3\n')
    share = Share()
    rows = list(rows_of(file, "csv", {"id"}, share))
    assert [row.line for row in rows] == [2, 4, 5]
    assert rows[2].problem == "1 cells: expected 2, as in the first line"
    assert share() == 1.0


@pytest.fixture
def small_file(tmp_path):
    """Two million rows in a few kilobytes: equal cells cost nothing."""
    n, pieces = 100_000, 20
    table = pa.table(
        {
            "id": pa.array(["one"] * n).dictionary_encode(),
            "time": pa.array([1_700_000_000] * n),
            "action": pa.array(["a"] * n).dictionary_encode(),
            "reward": pa.array([1.0] * n),
        }
    )
    path = tmp_path / "small.parquet"
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        for _ in range(pieces):
            writer.write_table(table)
    assert path.stat().st_size < 100_000
    return path


@pytest.fixture
def shop(tmp_path):
    ledger = open_ledger(f"sqlite:///{tmp_path}/shop.db")
    replica = Replica(ledger)
    replica.configure("shop", Spec.of(1, Bernoulli(), Greedy()))
    replica.register("shop", {"a": [1.0]})
    ledger.close()
    return f"sqlite:///{tmp_path}/shop.db"


def test_a_small_file_with_many_rows_shows_how_far_it_is_and_can_be_interrupted(
    small_file, shop, tmp_path
):
    command = [sys.executable, "-m", "belated", "ledger", "import", shop, str(small_file)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        first = process.stderr.readline()
        found = re.match(r"checking rows: (\d+)%, ([\d,]+), [\d,]+ a second", first)
        assert found, first
        part, rows = int(found[1]) / 100, int(found[2].replace(",", ""))
        assert part == pytest.approx(rows / 2_000_000, abs=0.011)
        process.send_signal(2)
        process.communicate(timeout=60)
        assert process.returncode != 0
    finally:
        process.kill()


def test_a_terminal_shows_a_bar(small_file, shop):
    """With what part is done, how many rows that is, and how fast it goes."""
    command = [sys.executable, "-m", "belated", "ledger", "import", shop, str(small_file)]
    ours, theirs = pty.openpty()
    size = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL, env=size)
    os.close(theirs)
    said = ""
    while not re.search(r"checking rows.*\d+%.*[\d,]+ a second", said):
        said += os.read(ours, 4096).decode(errors="replace")
        assert len(said) < 1_000_000, said[-500:]
    process.kill()
    process.wait()
    os.close(ours)
