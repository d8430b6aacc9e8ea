import os
import random
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice
from multiprocessing import get_context

import apsw
import msgspec
import psycopg
import pytest
from msgspec.structs import replace

from belated.core.events import Status
from belated.ledger.events import START, Decided, Draft, Kind, Waiting
from belated.ledger.ids import Ids
from belated.ledger.rules import WRITTEN
from belated.ledger.stores.sqlite import SQLiteLedger
from support.postgres_server import running
from support.power_loss import Disk, run
from support.unsynced_file import SECTOR, Content

EMPTY = msgspec.msgpack.encode(Decided(b"", "", 0, None, 0, "", 0.0, 0.0, 0.0))


class Certain(random.Random):
    """Draws that keep everything (1) or lose everything (0)."""

    def __init__(self, kept):
        super().__init__(0)
        self.kept = kept

    def choice(self, options):
        return self.kept if 0.5 in options else options[0]

    def random(self):
        return 0.5

    def randrange(self, stop):
        return stop - 1


def changed_file(rng):
    """A file with random writes, truncations and syncs, the last of them somewhere in between."""
    file = Content()
    for _ in range(rng.randrange(1, 30)):
        kind = rng.random()
        if kind < 0.7:
            file.write(rng.randbytes(rng.randrange(1, 1500)), rng.randrange(3000))
        elif kind < 0.9:
            file.truncate(rng.randrange(len(file.now) + 1))
        else:
            file.sync()
    return file


def test_what_was_synced_stays_and_what_was_not_may_go():
    for seed in range(300):
        file = changed_file(random.Random(seed))
        assert file.after_a_cut(Certain(1.0)).safe == file.now
        assert file.after_a_cut(Certain(0.0)).safe == file.safe
        file.sync()
        assert file.after_a_cut(random.Random(seed)).safe == file.now


def test_any_subset_of_sectors_survives_and_some_are_torn():
    """Four sectors, all 16 subsets of them, and mixtures; neighbours of a write never change."""
    seen, torn = set(), 0
    for seed in range(3_000):
        file = Content(bytes(6 * SECTOR))
        file.write(b"\1" * (4 * SECTOR), SECTOR)
        left = file.after_a_cut(random.Random(seed)).safe
        assert left[:SECTOR] == left[-SECTOR:] == bytes(SECTOR)
        sectors = [set(left[k * SECTOR : (k + 1) * SECTOR]) for k in range(1, 5)]
        if all(len(sector) == 1 for sector in sectors):
            seen.add(tuple(sector.pop() for sector in sectors))
        else:
            torn += 1
    assert len(seen) == 16
    assert torn > 500


def inserting(synchronous, journal="wal"):
    """Commits of one to forty rows, checkpoints in between, now and then a clean close."""

    def workload(disk, rng):
        while True:
            db = disk.connect()
            db.pragma("journal_mode", journal)
            db.pragma("synchronous", synchronous)
            db.pragma("wal_autocheckpoint", 20)
            db.execute("create table if not exists fact (id integer primary key, body blob)")
            for _ in range(rng.randrange(60)):
                n = rng.choice([1, 1, 5, 40])
                facts = [(rng.getrandbits(62), rng.randbytes(rng.randrange(700))) for _ in range(n)]
                with db:
                    db.executemany("insert into fact values (?, ?)", facts)
                yield from facts
            db.close()

    return workload


def facts_of(disk):
    db = disk.connect()
    complaints = list(db.execute("pragma integrity_check"))
    if complaints != [("ok",)]:
        raise apsw.CorruptError(str(complaints[0]))
    has_table = db.execute("select count(*) from sqlite_schema where name = 'fact'").get
    found = list(db.execute("select id, body from fact")) if has_table else []
    db.close()
    return found


def verdicts(synchronous, journal="wal", seeds=150, **options):
    runs = [run(s, inserting(synchronous, journal), facts_of, **options) for s in range(seeds)]
    assert sum(one.acknowledged for one in runs) > 50 * seeds
    return runs


# SQLite promises durability for these, and only for these: the simulator must tell them apart.


@pytest.mark.parametrize(
    ("synchronous", "journal"), [("full", "wal"), ("extra", "delete"), ("full", "truncate")]
)
def test_a_safe_setting_loses_nothing(synchronous, journal):
    assert all(one.is_good for one in verdicts(synchronous, journal))


@pytest.mark.parametrize(("synchronous", "journal"), [("normal", "wal"), ("full", "delete")])
def test_a_setting_that_may_lose_the_last_commits_does_and_damages_nothing(synchronous, journal):
    runs = verdicts(synchronous, journal)
    assert sum(bool(one.lost) for one in runs) > len(runs) / 5
    assert not any(one.damage for one in runs)


@pytest.mark.parametrize(("synchronous", "honest"), [("off", True), ("full", False)])
def test_without_syncs_databases_break(synchronous, honest):
    runs = verdicts(synchronous, honest=honest)
    assert sum(bool(one.damage) for one in runs) > len(runs) / 20
    assert sum(one.is_good for one in runs) < len(runs) / 3


def test_a_seed_decides_everything():
    again = [run(7, inserting("normal"), facts_of) for _ in range(2)]
    assert again[0] == again[1]
    assert len({run(s, inserting("full"), facts_of).acknowledged for s in range(20)}) > 10


@pytest.mark.parametrize("step", range(1, 40))
def test_the_power_goes_inside_the_step_asked_for(step):
    """From the first write of a new database on: nothing works until the power is back."""
    with Disk(step) as disk:
        disk.cut_at(step)
        facts = []
        with pytest.raises(apsw.IOError):
            facts.extend(inserting("full")(disk, random.Random(step)))
        with pytest.raises(apsw.Error):
            disk.connect().execute("create table another (x)")
        disk.cut()
        assert set(facts) <= set(facts_of(disk))


def test_two_connections_share_one_log_and_a_cut_closes_both():
    with Disk(1) as disk:
        writer, reader = disk.connect(), disk.connect()
        writer.pragma("journal_mode", "wal")
        writer.execute("create table fact (id, body); insert into fact values (1, 'a')")
        assert list(reader.execute("select * from fact")) == [(1, "a")]
        writer.execute("begin immediate")
        with pytest.raises(apsw.BusyError):
            reader.execute("begin immediate")
        disk.cut()
        with pytest.raises(apsw.ConnectionClosedError):
            reader.execute("select 1")
        assert facts_of(disk) == [(1, "a")]


def test_a_default_disk_is_used_by_who_knows_nothing_of_it(tmp_path):
    path = str(tmp_path / "ledger.db")
    with Disk(1, default=True) as disk:
        apsw.Connection(path).execute("create table fact (x)")
        assert set(disk.files) == {path}
    assert not (tmp_path / "ledger.db").exists()
    apsw.Connection(path).close()
    assert (tmp_path / "ledger.db").exists()


def test_a_workload_that_fails_of_itself_is_not_excused():
    def broken(disk, rng):
        raise ValueError("of itself")
        yield

    with pytest.raises(ValueError, match="of itself"):
        run(3, broken, facts_of)


# -------------------------------------------------------------------------- the SQLite ledger


def drafts_of_a_life(rng, clock, open_ids):
    """Decisions, some with a request; rewards, on time, late or early; expiries.

    Rewards happened before they were handed in. A decision in two has several, each with a name.
    """
    ids = Ids(lambda: next(clock), seed=rng.getrandbits(32))
    while True:
        drafts = []
        for _ in range(rng.choice([1, 1, 4, 30])):
            kind, now = rng.random(), next(clock)
            if kind < 0.5 or not open_ids:
                id, body = ids(), rng.randbytes(rng.randrange(400))
                request = id.hex() if rng.random() < 0.3 else ""
                window = now + 20_000, now + 40_000  # the end, and that of the grace
                decision = Draft(Kind.DECIDED, "shop", id, now, None, window[0], body, request)
                combine = rng.choice([None, None, None, None, "first", "last", "sum", "max"])
                drafts.append(replace(decision, closes=window[1], combine=combine))
                open_ids.append(id)
            elif kind < 0.6:
                drafts.append(reward_of(rng, ids(), now))  # parked
            elif kind < 0.7:
                drafts.append(Draft(Kind.EXPIRED, "", rng.choice(open_ids), now))
            else:
                drafts.append(reward_of(rng, rng.choice(open_ids[-40:]), now))
        yield drafts


def reward_of(rng, id, now):
    """Returns a reward that is handed in now, and happened now or a little earlier."""
    ago, name = rng.choice([0, 700, 5_000, 30_000]), rng.choice("abc")
    received = now if ago else None
    return Draft(Kind.REWARDED, "", id, now - ago, rng.random(), received=received, event_id=name)


def ledger_on(disk, synchronous="full"):
    ledger = SQLiteLedger(disk.path, vfs=disk.name)
    if synchronous != "full":
        ledger._db.pragma("synchronous", synchronous)
    ledger._db.pragma("wal_autocheckpoint", 20)  # or no run would be long enough for one
    return ledger


def committing(synchronous):
    """A workload whose facts are events as they are in the log, early rewards and requests."""
    clock, open_ids = count(1_700_000_000_000_000, 700), []

    def workload(disk, rng):
        while True:
            ledger = ledger_on(disk, synchronous)
            position = START
            while (more := ledger.follow(position))[0]:
                position = more[1]
            for drafts in islice(drafts_of_a_life(rng, clock, open_ids), rng.randrange(1, 40)):
                outcomes = ledger.commit(drafts)
                events, position = ledger.follow(position)
                written = [one for one in outcomes if one.status in WRITTEN]
                assert len(events) == len(written)
                yield from events
                for draft, outcome in zip(drafts, outcomes, strict=True):
                    if outcome.status == Status.PARKED:
                        times = draft.time, draft.value, draft.received
                        yield Waiting(draft.id, *times, draft.event_id)
                    elif draft.request and outcome.status == Status.ACCEPTED:
                        yield draft.id, draft.request
            if rng.random() < 0.3:
                ledger.commit(
                    [Draft(Kind.DECIDED, "shop", rng.randbytes(16), 0, body=EMPTY, subject="me")]
                )
                ledger.forget("shop", "me", next(clock))
                yield ledger.rare(Kind.FORGOTTEN, position)[-1]
            ledger.close()

    return workload


def facts_of_ledger(disk):
    ledger = ledger_on(disk)
    assert list(ledger._db.execute("pragma integrity_check")) == [("ok",)]
    events, _ = ledger.follow(START, limit=10**9)
    assert [event.seq for event in events] == [*range(1, len(events) + 1)]
    requests = []
    for event in events:
        found = ledger.requested("shop", event.id.hex()) if event.kind == Kind.DECIDED else None
        if found:
            assert found[0] == event
            requests.append((event.id, event.id.hex()))
    waiting = ledger.parked(10**9)
    ledger.close()
    return [*events, *waiting, *requests]


def lost_by_the_ledger(seed, synchronous="full"):
    verdict = run(seed, committing(synchronous), facts_of_ledger)
    return seed, verdict.acknowledged, verdict.lost, verdict.damage


def test_the_ledger_loses_nothing_when_the_power_goes():
    """POWER_CUT_SEEDS=10000 runs as many, on all cores."""
    seeds = int(os.environ.get("POWER_CUT_SEEDS", "200"))
    if seeds <= 200:
        verdicts = [lost_by_the_ledger(seed) for seed in range(seeds)]
    else:
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            verdicts = list(pool.map(lost_by_the_ledger, range(seeds), chunksize=50))
    assert [verdict for verdict in verdicts if verdict[2] or verdict[3]] == []
    facts = sum(verdict[1] for verdict in verdicts)
    assert facts > 100 * seeds
    print(f"{seeds} seeds, {facts} acknowledged facts, 0 lost")


def test_a_ledger_that_does_not_sync_is_found_out():
    assert any(lost_by_the_ledger(seed, "normal")[2] for seed in range(20))


# ------------------------------------------------------------------------------- PostgreSQL


def numbers(url):
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("select n from number order by n")]


def test_a_killed_postgres_has_what_it_acknowledged_and_starts_again(postgres):
    url = postgres.new_database("killed")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table number (n int)")
    acknowledged = []
    for life in range(3):
        connection = psycopg.connect(url, autocommit=True)
        for n in range(life * 50, life * 50 + 50):
            connection.execute("insert into number values (%s)", [n])
            acknowledged.append(n)
        unfinished = psycopg.connect(url)
        unfinished.execute("insert into number values (-1)")
        processes = {postgres.postmaster(), connection.info.backend_pid}
        assert processes <= running().keys()
        postgres.kill()
        assert processes.isdisjoint(running())
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
        connection.close()
        unfinished.close()
        postgres.start()
        assert numbers(url) == acknowledged


def test_a_stopped_postgres_refuses_and_starts_again(postgres):
    url = postgres.new_database("stopped")
    with psycopg.connect(url) as connection:
        assert connection.execute("show fsync").fetchone() == ("on",)
        assert connection.execute("show synchronous_commit").fetchone() == ("on",)
        connection.execute("create table number (n int)")
        connection.execute("insert into number values (1)")
    postgres.stop()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    postgres.start()
    assert numbers(url) == [1]
