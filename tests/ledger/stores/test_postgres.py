"""The ledger in PostgreSQL: what only a shared server and several writers can do wrong."""

import os
import random
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import count
from multiprocessing import get_context
from threading import Barrier, Event

import msgspec
import psycopg
import pytest
from msgspec.structs import replace

import belated.ledger.stores.postgres as store
from belated.core.events import Status
from belated.ledger import LedgerError, StoreUnavailableError, open_ledger
from belated.ledger.checks import LEDGER_CHECKS
from belated.ledger.events import START, Decided, Draft, Kind, Position
from belated.ledger.ids import Ids
from belated.ledger.protocol import Importer
from belated.ledger.stores import postgres_session
from belated.ledger.stores.migrations import scripts
from belated.ledger.stores.postgres import PostgresLedger
from support.postgres_server import foreign_transactions

NOW = 1_700_000_000_000_000
ROUNDS = int(os.environ.get("POSTGRES_ROUNDS", "80"))  # transactions of each of four writers
names = (f"ledger_{k}" for k in count())
new_id = Ids(lambda: NOW, seed=1)


@pytest.fixture
def new(postgres):
    """Makes ledgers, each empty and in a schema of its own."""
    made = []

    def make(schema=None, kind=PostgresLedger):
        made.append(kind(postgres.url, schema=schema or next(names)))
        return made[-1]

    yield make
    for ledger in made:
        ledger.close()


def decided(id=None, request="", subject="", digest=b""):
    body = Decided(b"", "", 0, None, 0, "", 0.0, 0.0, 0.0, request=request, subject=subject)
    packed = msgspec.msgpack.encode(body)
    return Draft(
        Kind.DECIDED, "shop", id or new_id(), NOW, None, None, packed, request, digest, subject
    )


def about(kind, id, value=None):
    return Draft(kind, "", id, NOW, value)


def status(ledger, draft):
    (outcome,) = ledger.commit([draft])
    return outcome.status


def whole(ledger):
    return ledger.follow(START, limit=10**6)[0]


@pytest.mark.parametrize("check", LEDGER_CHECKS)
def test_it_is_a_ledger(check, new):
    check(new)


def test_it_is_opened_by_its_url(postgres):
    ledger = open_ledger(postgres.url)
    assert ledger._session.schema == "belated"
    ledger.close()


# -------------------------------------------------------------------- two writers, one decision


class Interrupted(PostgresLedger):
    """Lets something happen between reading what the log says and writing to it."""

    meanwhile = None

    def _write(self, db, parts):
        if self.meanwhile:
            action, self.meanwhile = self.meanwhile, None
            action()
        super()._write(db, parts)


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        ((Kind.REWARDED, 1.0), (Kind.REWARDED, 1.0), Status.DUPLICATE),
        ((Kind.REWARDED, 1.0), (Kind.REWARDED, 0.0), Status.CONFLICT),
        ((Kind.REWARDED, 1.0), (Kind.CANCELLED, None), Status.CONFLICT),
        ((Kind.CANCELLED, None), (Kind.REWARDED, 1.0), Status.CONFLICT),
        ((Kind.CANCELLED, None), (Kind.CANCELLED, None), Status.DUPLICATE),
        ((Kind.CANCELLED, None), (Kind.EXPIRED, None), Status.CONFLICT),
        ((Kind.EXPIRED, None), (Kind.CANCELLED, None), Status.CONFLICT),
        ((Kind.EXPIRED, None), (Kind.EXPIRED, None), Status.DUPLICATE),
    ],
)
def test_who_comes_second_is_judged_again(new, theirs, ours, expected):
    schema = next(names)
    first, second = new(schema), new(schema, Interrupted)
    decision = decided()
    first.commit([decision])
    second.meanwhile = lambda: first.commit([about(theirs[0], decision.id, theirs[1])])
    stranger = decided()
    outcomes = second.commit([stranger, about(ours[0], decision.id, ours[1])])
    assert [outcome.status for outcome in outcomes] == [Status.ACCEPTED, expected]
    assert [event.kind for event in second.story(decision.id)] == [Kind.DECIDED, theirs[0]]
    assert [event.id for event in whole(first)] == [decision.id, decision.id, stranger.id]


def test_rewards_from_two_places_all_add_up(new):
    """Each sum contains all before it: one that was made beside another would lose a reward."""
    schema, decision = next(names), replace(decided(), combine="sum")
    ledgers = [new(schema) for _ in range(2)]
    ledgers[0].commit([decision])

    def add(place):
        for k in range(15):
            draft = about(Kind.REWARDED, decision.id, 1.0)
            assert status(ledgers[place], replace(draft, event_id=f"{place} {k}")) == "accepted"

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(add, range(2)))
    values = [event.value for event in ledgers[0].story(decision.id)[1:]]
    assert values == [float(k) for k in range(1, 31)]


def test_one_request_made_in_two_places_gets_one_decision(new):
    schema = next(names)
    first, second = new(schema), new(schema, Interrupted)
    one, two = decided(request="r", digest=b"1"), decided(request="r", digest=b"1")
    second.meanwhile = lambda: first.commit([one])
    (outcome,) = second.commit([two])
    assert outcome.status == Status.DUPLICATE
    assert outcome.earlier == whole(first)[0]
    assert outcome.earlier.id == one.id


def test_writers_of_the_same_in_opposite_orders_both_get_through(new):
    schema = next(names)
    ledgers = [new(schema), new(schema)]
    batches = [[new_id() for _ in range(50)] for _ in range(10)]
    ledgers[0].commit([decided(id) for ids in batches for id in ids])
    barrier = Barrier(2)

    def write(ledger, order):
        counts = {}
        for ids in batches:
            barrier.wait(10)
            for o in ledger.commit([about(Kind.REWARDED, id, 1.0) for id in ids[::order]]):
                counts[o.status] = counts.get(o.status, 0) + 1
        return counts

    with ThreadPoolExecutor() as pool:
        one, two = pool.map(write, ledgers, [1, -1])
    assert one.get("accepted", 0) + two.get("accepted", 0) == 500
    assert one.get("duplicate", 0) + two.get("duplicate", 0) == 500
    assert len(whole(ledgers[0])) == 1000


def test_who_commits_first_comes_first_whoever_began_first(new):
    """What was committed meanwhile may be what a draft builds on: it comes before it."""
    schema, decision, between = next(names), decided(), decided()
    first, second = new(schema), new(schema, Interrupted)
    first.commit([decision])
    _, position = first.follow(START)
    second.meanwhile = lambda: first.commit([between])
    assert status(second, about(Kind.REWARDED, decision.id, 1.0)) == Status.ACCEPTED
    assert [event.id for event in first.follow(position)[0]] == [between.id, decision.id]


def test_a_batch_is_not_tried_for_ever(new):
    ledger = new()

    def fails(db, parts):
        raise psycopg.errors.UniqueViolation

    ledger._write = fails
    with pytest.raises(StoreUnavailableError, match="in a row"):
        ledger.commit([decided()])
    del ledger._write
    assert whole(ledger) == []


def early_rewards(new):
    """Decisions and their rewards, at the same moment on two connections; what stayed parked."""
    schema = next(names)

    class Slow(PostgresLedger):
        def _write(self, db, parts):
            time.sleep(0.002)
            super()._write(db, parts)

    one, two = new(schema, Slow), new(schema, Slow)
    ids = [new_id() for _ in range(40)]
    barrier = Barrier(2)

    def write(ledger, drafts):
        for draft in drafts:
            barrier.wait(10)
            assert status(ledger, draft) in (Status.ACCEPTED, Status.PARKED)

    with ThreadPoolExecutor() as pool:
        rewards = [about(Kind.REWARDED, id, 1.0) for id in ids]
        list(pool.map(write, (one, two), ([decided(id) for id in ids], rewards)))
    kinds = [event.kind for event in whole(one)]
    assert kinds.count(Kind.DECIDED) == 40
    assert kinds.count(Kind.REWARDED) + len(one.parked()) == 40
    return len(one.parked())


def test_a_reward_is_never_left_parked_when_its_decision_comes(new):
    assert early_rewards(new) == 0


def test_without_the_lock_it_would_be(new, monkeypatch):
    monkeypatch.setattr(store, "_ALONE", store._SHARE)
    assert early_rewards(new) > 0


def test_a_reward_cannot_slip_in_while_its_decision_is_erased(new):
    schema = next(names)
    first, second = new(schema, Interrupted), new(schema)
    decision = decided(subject="me")
    first.commit([decision])
    with ThreadPoolExecutor() as pool:

        def reward():
            futures.append(pool.submit(status, second, about(Kind.REWARDED, decision.id, 1.0)))
            time.sleep(0.1)

        futures = []
        first.meanwhile = reward
        assert first.forget("shop", "me", NOW) == 1
        assert futures[0].result(10) == Status.PARKED  # nobody knows the decision any more
    assert all(event.id == b"" for event in whole(first))


# ------------------------------------------------------------------------- readers and writers


class Unreliable(PostgresLedger):
    """Commits late, with the turn of all writers in its hands, and often not at all."""

    def _write(self, db, parts):
        super()._write(db, parts)
        if random.random() < 0.5:
            db.execute("select 1").fetchone()  # until now nothing was sent
            time.sleep(random.expovariate(400))
        if random.random() < 0.2:
            raise ZeroDivisionError


def keep_writing(url, schema, seed):
    """Decisions, and rewards of those that the log shows, whoever made them."""
    random.seed(seed)
    ledger = Unreliable(url, schema=schema)
    ids = Ids(lambda: time.time_ns() // 1000)
    position, open_ids, aborted = START, [], 0
    for _ in range(ROUNDS):
        events, position = ledger.follow(position)
        open_ids += [event.id for event in events if event.kind == Kind.DECIDED]
        drafts = [decided(ids()) for _ in range(random.randrange(1, 4))]
        drafts += [about(Kind.REWARDED, random.choice(open_ids), 1.0) for _ in open_ids[:2]]
        try:
            ledger.commit(drafts)
        except ZeroDivisionError:
            aborted += 1
    ledger.close()
    return aborted


def read_to_the_end(url, schema):
    ledger = PostgresLedger(url, schema=schema)
    seen, position = [], START
    while not seen or seen[-1].kind != Kind.CONFIGURED:
        events, position = ledger.follow(position, limit=50)
        seen += events
    ledger.close()
    return seen


def test_readers_see_every_event_once_whoever_commits_when(new, postgres):
    """Beside foreign transactions that stay open, and with writers that fail in theirs."""
    schema = next(names)
    ledger = new(schema)
    elsewhere = postgres.new_database("busy")
    context = get_context("forkserver")
    context.set_forkserver_preload(["test_postgres"])
    with (
        foreign_transactions(postgres.url, elsewhere),
        ProcessPoolExecutor(6, mp_context=context) as pool,
    ):
        readers = [pool.submit(read_to_the_end, postgres.url, schema) for _ in range(2)]
        writers = [pool.submit(keep_writing, postgres.url, schema, seed) for seed in range(4)]
        aborted = sum(writer.result(120 + ROUNDS) for writer in writers)
        ledger.commit([Draft(Kind.CONFIGURED, "shop", b"", NOW)])  # the readers stop at this
        first, second = (reader.result(60) for reader in readers)
    log = whole(ledger)
    assert first == second == log
    with psycopg.connect(postgres.url) as connection:
        rows = connection.execute(f"select tx, seq from {schema}.events order by tx, seq")
        assert rows.fetchall() == [(event.tx, event.seq) for event in log]
    assert len(log) == ledger.behind(START) > 3 * ROUNDS
    assert aborted > ROUNDS / 3
    assert sorted({event.tx for event in log}) == [*range(1, 4 * ROUNDS - aborted + 2)]
    check_causes(log)
    print(f"{len(log)} events seen once by each reader; {aborted} transactions rolled back")


def check_causes(log):
    """Every decision is there once, and before its one reward."""
    rewarded = [event.id for event in log if event.kind == Kind.REWARDED]
    assert len(rewarded) == len(set(rewarded)) > 50
    places = {}
    for place, event in enumerate(log):
        if event.kind == Kind.DECIDED:
            assert places.setdefault(event.id, place) == place
        elif event.kind == Kind.REWARDED:
            assert places[event.id] < place


def test_transactions_of_somebody_else_hold_nothing_back(new, postgres):
    ledger = new()
    drafts = [decided() for _ in range(5)]
    ledger.commit(drafts[:1])
    _, position = ledger.follow(START)
    with foreign_transactions(postgres.url, postgres.new_database("foreign")):
        for draft in drafts[1:]:
            ledger.commit([draft])
            (event,), position = ledger.follow(position)
            assert event.id == draft.id
        assert status(ledger, about(Kind.REWARDED, drafts[4].id, 1.0)) == Status.ACCEPTED
        assert ledger.behind(position) == 1
    events, position = ledger.follow(position)
    assert [event.kind for event in events] == [Kind.REWARDED]
    assert ledger.behind(position) == 0


def test_a_writer_that_stops_in_its_transaction_is_cut_off(new, monkeypatch):
    """It holds back those who want to be alone, such as who parks a reward; not for long."""
    timeouts = "set lock_timeout = '10s'; set idle_in_transaction_session_timeout = '300ms'"
    monkeypatch.setattr(postgres_session, "TIMEOUTS", timeouts)
    schema = next(names)
    stopped, other = new(schema, Interrupted), new(schema)

    def meanwhile():
        assert status(other, decided()) == Status.ACCEPTED  # at once
        parked.append(status(other, about(Kind.REWARDED, new_id(), 1.0)))

    parked, stopped.meanwhile = [], meanwhile
    with pytest.raises(StoreUnavailableError):
        stopped.commit([decided()])
    assert parked == [Status.PARKED]
    assert len(whole(other)) == 1
    assert status(stopped, decided()) == Status.ACCEPTED


# --------------------------------------------------------------------------- a server that dies


def commit_until(ledger, stop, ids):
    """Commits decisions and rewards; what failed is tried again, as a caller would."""
    acknowledged = []
    while not stop.is_set():
        decisions = [decided(ids()) for _ in range(5)]
        rewards = [about(Kind.REWARDED, draft.id, 0.5) for draft in decisions[:2]]
        for drafts in (decisions, rewards):
            while True:
                try:
                    outcomes = ledger.commit(drafts)
                    break
                except StoreUnavailableError:
                    time.sleep(0.02)
            assert {outcome.status for outcome in outcomes} <= {"accepted", "duplicate"}
            acknowledged += drafts
    return acknowledged


def test_a_server_killed_under_load_has_all_that_it_acknowledged(new, postgres):
    """POSTGRES_KILLS=20 for the long run."""
    kills, rng, stop = int(os.environ.get("POSTGRES_KILLS", "3")), random.Random(1), Event()
    schema = next(names)
    ledgers = [new(schema) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        clock = lambda: time.time_ns() // 1000  # noqa: E731
        work = [pool.submit(commit_until, ledger, stop, Ids(clock)) for ledger in ledgers]
        for _ in range(kills):
            time.sleep(rng.uniform(0.1, 0.6))
            postgres.kill()
            postgres.start()
        time.sleep(0.2)
        stop.set()
        acknowledged = [draft for future in work for draft in future.result(60)]
    log = whole(ledgers[0])
    found = {(event.kind, event.id, event.value, event.body) for event in log}
    assert len(found) == len(log)
    lost = [d for d in acknowledged if (d.kind, d.id, d.value, d.body) not in found]
    print(f"{kills} kills, {len(acknowledged)} acknowledged, {len(lost)} lost")
    assert lost == []
    assert len(acknowledged) > 50 * kills


def test_a_server_that_was_away_is_found_again_by_the_same_object(new, postgres):
    ledger = new()
    draft = decided()
    ledger.commit([draft])
    postgres.stop()
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            ledger.commit([decided()])
        with pytest.raises(StoreUnavailableError):
            ledger.follow(START)
    postgres.start()
    assert [event.id for event in whole(ledger)] == [draft.id]
    assert status(ledger, about(Kind.REWARDED, draft.id, 1.0)) == Status.ACCEPTED
    postgres.stop()
    postgres.start()
    with pytest.raises(StoreUnavailableError):  # the connection was lost while nobody looked
        ledger.behind(START)
    assert ledger.behind(START) == 2


def test_another_ledger_in_its_place_is_not_written_to(new, postgres):
    ledger = new()
    with psycopg.connect(postgres.url) as connection:
        connection.execute(f"update {ledger._session.schema}.ledger set identity = 'another'")
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where pid <> pg_backend_pid() and backend_type = 'client backend'"
        )
    with pytest.raises(StoreUnavailableError):
        ledger.parked()
    with pytest.raises(StoreUnavailableError, match="another ledger"):
        ledger.commit([decided()])


def test_tables_that_are_gone_are_not_made_again(new, postgres):
    ledger = new()
    with psycopg.connect(postgres.url) as connection:
        connection.execute(f"drop schema {ledger._session.schema} cascade")
    for match in ("does not exist", "the tables are gone"):
        with pytest.raises(StoreUnavailableError, match=match):
            ledger.commit([decided()])


def test_it_does_not_trust_the_defaults_of_the_server(postgres):
    """With these, a crash would lose commits and a writer would judge by an old snapshot."""
    url = postgres.new_database("careless")
    with psycopg.connect(url, autocommit=True) as connection:
        for setting in ("synchronous_commit = off", "default_transaction_isolation = serializable"):
            connection.execute(f"alter database careless set {setting}")
    ledger = PostgresLedger(url)
    with ledger._session.connected() as db:
        assert db.execute("show synchronous_commit").fetchone() == ("on",)
        assert db.execute("show transaction_isolation").fetchone() == ("read committed",)
    ledger.close()


def test_a_writer_that_waits_too_long_gives_up(new, postgres, monkeypatch):
    monkeypatch.setattr(postgres_session, "TIMEOUTS", "set lock_timeout = '50ms'")
    ledger = new()
    with psycopg.connect(postgres.url) as other:
        other.execute(f"set search_path = {ledger._session.schema}")
        other.execute(store._ALONE)
        with pytest.raises(StoreUnavailableError, match="lock timeout"):
            ledger.commit([decided()])
    assert status(ledger, decided()) == Status.ACCEPTED


# ------------------------------------------------------------------------- schemas and addresses


def test_decisions_are_looked_up_in_the_index_of_a_log_without_statistics(new):
    ledger = new()
    ledger.commit([decided() for _ in range(2000)])
    with ledger._session.connected() as db:
        ids = [new_id() for _ in range(100)]
        plan = "".join(line for (line,) in db.execute("explain " + store._FACTS, [ids]))
    assert "events_id" in plan
    assert "Seq Scan on events" not in plan  # the base is one row


def test_many_may_open_a_new_ledger_at_once(new):
    schema = next(names)
    with ThreadPoolExecutor(6) as pool:
        ledgers = list(pool.map(lambda _: new(schema), range(6)))
    assert len({ledger.identity for ledger in ledgers}) == 1
    assert new().identity != ledgers[0].identity


def test_a_newer_schema_is_refused(new, postgres):
    schema = new()._session.schema
    with psycopg.connect(postgres.url) as connection:
        connection.execute(f"update {schema}.ledger set version = 99")
    with pytest.raises(LedgerError, match="has schema 99: expected at most"):
        new(schema)


def test_the_log_goes_on_after_a_dump_was_restored_elsewhere(new, postgres):
    ledger = new()
    for _ in range(3):
        ledger.commit([decided(), decided()])
    old, restored = whole(ledger), PostgresLedger(postgres.copied(ledger._session.schema))
    assert whole(restored) == old
    assert restored.identity == ledger.identity
    late = decided()
    restored.commit([late])
    assert [event.id for event in restored.follow(Position(old[-1].tx, old[-1].seq))[0]] == [
        late.id
    ]
    restored.close()


OLD_INSERT = """
    insert into events select pg_current_xact_id()::text::bigint + tx_offset, nextval('event_seq'),
    %s, 'shop', %b, %s, %s, null, %b from ledger
"""
# what version 0.1 sends with every commit, and whenever it follows the log
OLD_STATEMENTS = (
    "select pg_current_xact_id()::text::bigint + tx_offset, nextval('event_seq') from ledger",
    "select * from events where tx < (select tx_offset from ledger)",
)


def test_a_ledger_of_version_0_1_goes_on(new, postgres):
    schema, decisions = next(names), [decided() for _ in range(3)]
    with psycopg.connect(postgres.url, autocommit=True) as old:
        old.execute(f"create schema {schema}; set search_path = {schema}")
        old.execute(scripts("postgres")[0])
        old.execute("insert into ledger values ('theirs', 1, 1000000)")
        for d in decisions:
            old.execute(OLD_INSERT, [0, d.id, NOW, None, d.body])
        old.execute(OLD_INSERT, [1, decisions[0].id, NOW, 1.0, b""])
        before = old.execute("select tx, seq from events order by tx, seq").fetchall()
        ledger = new(schema)
        assert ledger.identity == "theirs"
        log = whole(ledger)
        assert [(event.tx, event.seq) for event in log] == before
        position = Position(*before[2])  # as of a snapshot
        rewards = [about(Kind.REWARDED, draft.id, 1.0) for draft in decisions[:2]]
        assert [o.status for o in ledger.commit(rewards)] == [Status.DUPLICATE, Status.ACCEPTED]
        later, _ = ledger.follow(position)
        assert [event.id for event in later] == [decisions[0].id, decisions[1].id]
        assert later[1].tx == later[0].tx + 1
        for statement in OLD_STATEMENTS:  # a process of version 0.1 that was not stopped
            with pytest.raises(psycopg.errors.UndefinedColumn):
                old.execute(statement)
    assert [event.tx for event in whole(new(schema))] == [event.tx for event in whole(ledger)]


def test_what_postgres_cannot_hold_is_named_and_changes_nothing(new):
    ledger = new()
    for draft in (decided(request="a\0b"), replace(decided(), time=2**63)):
        with pytest.raises(ValueError, match="cannot hold"):
            ledger.commit([decided(), draft])
    assert whole(ledger) == []
    assert status(ledger, replace(decided(), value=1)) == Status.ACCEPTED


def test_a_callers_error_leaves_nothing_behind(new):
    ledger = new()
    decision = decided()
    ledger.commit([decision])

    def accepts(bandit, kind, value):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ledger.commit([decided(), about(Kind.REWARDED, decision.id, 1.0)], Importer(accepts))
    assert len(whole(ledger)) == 1


def test_no_password_in_an_error(tmp_path):
    for url in (f"postgresql://u:secret@/x?host={tmp_path}", "postgresql://u:secret@[host/x"):
        with pytest.raises((ValueError, StoreUnavailableError)) as caught:
            PostgresLedger(url)
        assert "secret" not in str(caught.value)
