"""A compacted log leads to the same state, bit for bit, and what was dropped stays known."""

import shutil
from contextlib import contextmanager

import numpy as np
import pytest
from msgspec.structs import replace

from belated.core.events import Status
from belated.ledger import base as bases
from belated.ledger import snapshots
from belated.ledger.events import START
from belated.ledger.proposing import Ask
from belated.ledger.protocol import CompactedError, LedgerError, StoreUnavailableError, TooOldError
from belated.ledger.replica import Replica
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.ledger.tools.compacting import compacted
from belated.ledger.tools.verifying import verify
from support.compacting import LOOPS, check_compacted_is_live, old_and_young
from support.replicas import (
    HOUR,
    decide,
    replayed,
    same,
)
from support.shop_ledger import rebuilt


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_replica_that_starts_from_the_base_is_the_live_one(loop, store, tmp_path):
    ledger = MemoryLedger() if store == "memory" else SQLiteLedger(tmp_path / "a.db")
    check_compacted_is_live(ledger, LOOPS[loop])


def compact(replica):
    return compacted(replica.ledger, replica.clock())


def test_what_was_dropped_is_unknown_and_what_was_open_goes_on(tmp_path):
    replica, ids = old_and_young()
    found = compact(replica)
    # settings, a key, nine decisions and six rewards; the key and three decisions are carried
    wanted = {"events": 17, "deleted": 17, "carried": 4, "bandits": 1, "written": True}
    assert {name: found[name] for name in wanted} == wanted
    assert replica.reward([(id, 1.0) for id in ids[:6]]) == [Status.UNKNOWN] * 6
    assert "were compacted" in bases.too_old(replica.ledger, ids[0])
    assert bases.too_old(replica.ledger, ids[-1]) == ""
    assert replica.reward([(id, 1.0) for id in ids[6:8]]) == [Status.ACCEPTED] * 2
    assert replica.reward([(id, 1.0) for id in ids[6:8]]) == [Status.DUPLICATE] * 2
    replica.clock.now += 3 * HOUR
    assert replica.expire() == 4  # one that is carried, and the three young ones
    fresh = replayed(replica)
    assert same(replica, fresh)
    assert list(fresh.keys) == ["k"]
    assert fresh.keys_changed
    with pytest.raises(TooOldError, match="may have been in it"):
        replica.commit([replace(replica.propose("shop", Ask(matrix=np.eye(3))).draft, id=ids[0])])
    assert not bases.is_whole(replica.ledger, "shop")
    assert bases.is_whole(replica.ledger, "other")
    with pytest.raises(LedgerError, match="a promotion needs the whole log of 'shop'"):
        bases.refuse_compacted(replica.ledger, "shop", "a promotion")
    bases.refuse_compacted(replica.ledger, "other", "a promotion")


def test_the_bound_is_kept_and_the_last_transaction_stays():
    replica, _ = old_and_young()
    early = compacted(replica.ledger, replica.clock() - 2 * HOUR)
    assert (early["events"], early["written"], early["log_begins_after"]) == (0, False, None)
    assert replica.ledger.base() is None
    before = replica.ledger.follow(START)[0]
    assert compacted(replica.ledger, replica.clock() + 1, dry_run=True)["events"] == len(before) - 1
    assert replica.ledger.follow(START)[0] == before
    compacted(replica.ledger, replica.clock() + 1)
    base = replica.ledger.base()
    assert replica.ledger.follow(base.position)[0] == before[-1:]
    assert base.until == before[-2].time
    decide(replica, np.random.default_rng(1))
    assert replica.ledger.follow(base.position)[0][-1].seq == len(before) + 1
    assert same(replica, replayed(replica))


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_a_replica_that_is_behind_starts_again_from_the_base(store, tmp_path):
    ledger = MemoryLedger() if store == "memory" else SQLiteLedger(tmp_path / "a.db")
    replica, _ = old_and_young(ledger)
    behind = Replica(ledger if store == "memory" else SQLiteLedger(tmp_path / "a.db"))
    behind.at_once = 4
    behind.take_in_next()
    half = behind.folds["shop"]
    assert half.version < replica.folds["shop"].version
    compact(replica)
    behind.catch_up()
    assert same(replica, behind)
    assert behind.folds["shop"] is not half
    assert list(behind.keys) == ["k"]
    assert behind.ledger.behind(behind.position) == 0
    with pytest.raises(CompactedError):  # the state in between cannot be had any more
        behind.replayed("shop", replica.ledger.base().position._replace(tx=2, seq=2))


def test_an_erasure_reaches_what_was_not_compacted(tmp_path):
    replica, ids = old_and_young(SQLiteLedger(tmp_path / "a.db"))
    compact(replica)
    assert replica.ledger.forget("shop", "s0", replica.clock()) == 0
    assert replica.ledger.forget("shop", "s1", replica.clock()) == 3
    replica.catch_up()
    fold = replica.folds["shop"]
    assert (fold.n_rows, fold.counts.erased) == (9, 3)
    assert same(replica, replayed(replica))
    assert replica.ledger.story(ids[6]), "a decision that is carried has no subject"
    assert b"s0" not in (tmp_path / "a.db").read_bytes()
    assert "stay" in bases.not_erased(replica.ledger)
    assert verify(replica.ledger, None)["sound"]


def test_an_erasure_while_the_base_is_folded_is_not_missed(monkeypatch):
    replica, _ = old_and_young()
    packing = bases.packed

    def erased_meanwhile(fold):
        replica.ledger.forget("shop", "s0", replica.clock())
        return packing(fold)

    monkeypatch.setattr("belated.ledger.tools.compacting.packed", erased_meanwhile)
    with pytest.raises(StoreUnavailableError, match="a subject was erased meanwhile: try again"):
        compact(replica)
    assert replica.ledger.base() is None
    monkeypatch.undo()
    compact(replica)
    replica.catch_up()
    assert replica.folds["shop"].counts.erased == 5
    assert same(replica, replayed(replica))


def test_an_older_snapshot_is_not_used(tmp_path):
    replica, _ = old_and_young()
    snapshots.save(replayed(replica), tmp_path)
    decide(replica, np.random.default_rng(1))
    decide(replica, np.random.default_rng(1))
    compacted(replica.ledger, replica.clock() + 1)
    fresh = Replica(replica.ledger)
    assert snapshots.load(fresh, tmp_path) == START
    fresh.catch_up()
    assert same(replica, fresh)
    snapshots.save(fresh, tmp_path)
    again = Replica(replica.ledger)
    assert snapshots.load(again, tmp_path) == fresh.position
    assert same(replica, again)


class Photographed(SQLiteLedger):
    """Keeps a copy of its file after every write: what a process that is killed then leaves."""

    def __init__(self, path, folder):
        self.folder, self.copies = folder, []
        super().__init__(path)

    @contextmanager
    def _writing(self):
        with super()._writing() as execute:
            yield execute
        copy = self.folder / f"{len(self.copies)}.db"
        for suffix in ("", "-wal"):
            shutil.copy(f"{self.path}{suffix}", f"{copy}{suffix}")
        self.copies.append(copy)


def test_whenever_it_is_killed_nothing_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr("belated.ledger.stores.sqlite.RETAIN_ROWS", 5)
    monkeypatch.setattr("belated.ledger.upkeep.PIECE", 4000)
    replica, _ = old_and_young(SQLiteLedger(tmp_path / "a.db"))
    ledger = Photographed(tmp_path / "a.db", tmp_path)
    compacted(ledger, replica.clock())
    bases_seen = set()
    for copy in ledger.copies:
        left = SQLiteLedger(copy)
        bases_seen.add(left.base() is not None)
        assert verify(left, None)["violations"] == []
        assert same(replica, rebuilt(left))
        compacted(left, replica.clock())
        assert left.base() == ledger.base()
        assert [table_size(left, table) for table in TABLES] == [
            table_size(ledger, table) for table in TABLES
        ]
        assert same(replica, rebuilt(left))
    assert bases_seen == {False, True}
    assert len(ledger.copies) > 8


TABLES = ("events", "base_content", "carried", "requests", "subjects")


def table_size(ledger, table):
    return ledger._db.execute(f"select count(*) from {table}").get


def test_a_base_that_cannot_be_read_back_deletes_nothing(tmp_path, monkeypatch):
    replica, _ = old_and_young(SQLiteLedger(tmp_path / "a.db"))
    events = table_size(replica.ledger, "events")
    monkeypatch.setattr(SQLiteLedger, "base_content", lambda self, base, bandit: b"?")
    with pytest.raises(LedgerError, match="cannot be read back, so nothing was deleted: 'shop'"):
        compact(replica)
    assert table_size(replica.ledger, "events") == events
