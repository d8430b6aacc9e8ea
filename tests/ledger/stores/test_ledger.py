"""Every store keeps the same promises; and what only a file can do wrong."""

import random
from itertools import count
from uuid import RFC_4122, UUID

import apsw
import pytest

from belated.ledger import LedgerError, StoreUnavailableError, open_ledger
from belated.ledger.checks import LEDGER_CHECKS
from belated.ledger.checks.trials import NOW, Writer
from belated.ledger.events import START
from belated.ledger.ids import Ids, all_from_texts, from_text, time_of, to_text
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.stores.migrations import scripts
from belated.ledger.stores.sqlite import SQLiteLedger


@pytest.mark.parametrize("check", LEDGER_CHECKS)
def test_memory(check):
    check(MemoryLedger)


@pytest.mark.parametrize("check", LEDGER_CHECKS)
def test_sqlite(check, tmp_path):
    names = (tmp_path / f"{k}.db" for k in count())
    check(lambda: SQLiteLedger(next(names)))


def test_a_newer_schema_is_refused(tmp_path):
    SQLiteLedger(tmp_path / "a.db").close()
    db = apsw.Connection(str(tmp_path / "a.db"))
    assert db.execute("pragma user_version").get == len(scripts("sqlite"))
    db.execute("pragma user_version = 99")
    db.close()
    with pytest.raises(LedgerError, match=r"a\.db has schema 99: expected at most \d"):
        SQLiteLedger(tmp_path / "a.db")


def test_what_is_no_ledger_is_refused(tmp_path):
    (tmp_path / "a.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(LedgerError, match="damaged, or no SQLite file"):
        SQLiteLedger(tmp_path / "a.db")
    with pytest.raises(StoreUnavailableError, match="there is no folder"):
        SQLiteLedger(tmp_path / "missing" / "a.db")


def test_a_file_that_is_moved_away_is_noticed(tmp_path):
    """SQLite itself would go on writing into a file that nobody can find."""
    path, aside = tmp_path / "a.db", tmp_path / "b.db"
    ledger = SQLiteLedger(path)
    writer = Writer(ledger)
    first = writer.decide()
    ledger.close()
    ledger = SQLiteLedger(path)
    writer.ledger = ledger
    path.rename(aside)
    with pytest.raises(StoreUnavailableError, match="the file is gone"):
        writer.decide()
    SQLiteLedger(path).close()  # somebody makes another one
    with pytest.raises(StoreUnavailableError, match="another ledger"):
        writer.decide()
    path.unlink()
    aside.rename(path)
    second = writer.decide()
    assert [event.id for event in ledger.follow(START)[0]] == [first, second]
    assert SQLiteLedger(path).identity == ledger.identity


def test_everything_is_flushed_to_the_disk(tmp_path):
    db = SQLiteLedger(tmp_path / "a.db")._db
    assert db.execute("pragma journal_mode").get == "wal"
    assert db.execute("pragma synchronous").get == 2  # FULL


def test_what_a_reader_follows_does_not_depend_on_who_wrote(tmp_path):
    """A ledger hands on what it wrote itself without reading it back."""
    ours, theirs = (SQLiteLedger(tmp_path / "a.db") for _ in range(2))
    mine, other = Writer(ours), Writer(theirs)
    other._ids = Ids(lambda: NOW, seed=9)
    rng, seen, position = random.Random(1), [], START
    for _ in range(200):
        rng.choice((mine, other)).decide()
        if rng.random() < 0.4:
            events, position = ours.follow(position)
            seen += events
    seen += ours.follow(position)[0]
    assert seen == theirs.follow(START)[0]
    assert len(seen) == 200


def test_ids_sort_by_time_even_if_the_clock_does_not():
    times = iter([5_000_000, 5_000_000, 4_000_000, 5_000_900, 6_000_000, 1])
    ids = Ids(lambda: next(times), seed=1)
    made = [ids() for _ in range(6)]
    assert made == sorted(made)
    assert len(set(made)) == 6
    assert [time_of(id) for id in made] == [5_000_000] * 4 + [6_000_000] * 2
    for id in made:
        assert from_text(to_text(id)) == id
        assert UUID(bytes=id).version == 7
        assert UUID(bytes=id).variant == RFC_4122
    for text in ("", "x" * 36, to_text(made[0]).upper(), to_text(made[0]) + "\n", "0" * 32):
        assert from_text(text) is None
    good = [to_text(id) for id in made]
    assert all_from_texts(good) == made
    assert all_from_texts([]) == []
    swapped = good[0][:-1] + "-", good[1][:8] + good[1][9:] + "-"
    spaced = good[0][:6] + "  " + good[0][8:]
    for text in (
        *swapped,
        "",
        "x" * 36,
        good[0].upper(),
        good[0] + "\n",
        "0" * 32,
        "\u0660" * 36,
        spaced,
    ):
        several = [good[0], text, good[1]]
        assert all_from_texts(several) == [from_text(each) for each in several]
    assert all_from_texts([good[0][:-1], good[1] + "0"]) == [None, None]  # as long, together


@pytest.mark.parametrize("url", ["shop.db", "sqlite://", "sqlite:shop.db", "mysql://x", 3, ""])
def test_urls_that_are_none(url):
    with pytest.raises(ValueError, match="ledger = "):
        open_ledger(url)
