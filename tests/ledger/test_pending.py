"""Open decisions as columns: the same as a dict of objects, in a few bytes each."""

import sys
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from belated.learner.learner import Learner
from belated.ledger import pending, row_table
from belated.ledger.batch import Plan
from belated.ledger.events import START, Decided, Draft, Event, Kind
from belated.ledger.fold import Fold
from belated.ledger.hearing import Hearing
from belated.ledger.ids import Ids
from belated.ledger.pending import OpenDecisions
from belated.ledger.row_table import RowTable
from belated.monitoring.histogram import AGES
from belated.policies.adaptive_thompson import AdaptiveThompson
from naive import ledger as naive_ledger
from naive import pending as naive_pending
from support.replicas import (
    DIM,
    HOUR,
    SECOND,
    conversion,
    decide,
    explicit,
    new_replica,
    replayed,
)

DAY = 24 * HOUR


@pytest.fixture(params=["together", "one by one"])
def small_blocks(request):
    """Blocks and tables that are cut, packed and made anew all the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pending, "MANY", 0 if request.param == "together" else 10**9)
        patch.setattr(pending, "SEVERAL", 0)
        patch.setattr(pending, "ROWS", 8)
        patch.setattr(pending, "FEW", 2)
        patch.setattr(row_table, "LEAST", 4)
        yield


# ---------------------------------------------------------------------------------- the columns


def check_equal(decisions, twin, now):
    assert dict(decisions.items()) == twin.all
    assert [*dict(decisions.items())] == [*twin.all], "oldest first"
    n_held = sum(decision.held is not None for decision in twin.all.values())
    counts = len(decisions), decisions.n_held, decisions.n_waiting
    assert counts == (len(twin.all), n_held, len(twin.all) - n_held)
    due = decisions.due(now)
    assert len(due) == len(set(due))
    assert set(due) == twin.due(now)
    assert decisions.due(now, 3) == due[:3]
    assert decisions.first_due() == twin.first_due()
    assert decisions.by_age(now).counts == twin.by_age(now)


windows = st.one_of(st.none(), st.integers(-50, 10**6))  # seconds; a clock may be behind another
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), windows, st.one_of(st.none(), st.integers(1, 500))),
        st.tuples(st.sampled_from(["close", "hold", "mark_late"]), st.integers(0, 10**6)),
        st.tuples(st.just("close_all"), st.integers(1, 5)),
        st.tuples(st.just("wait"), st.integers(-500, 10**5)),
    ),
    max_size=120,
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=steps)
def test_columns_are_as_good_as_objects(small_blocks, steps):
    now, ids = [10**15], bytearray()
    make = Ids(lambda: now[0], seed=1)
    decisions, twin, closed = OpenDecisions(ids), naive_pending.OpenDecisions(AGES), []
    for what, *how in steps:
        if what == "wait":
            now[0] += how[0] * SECOND
        elif what == "add":
            window, grace = how
            due = None if window is None else now[0] + window * SECOND
            closes = None if due is None or grace is None else due + grace * SECOND
            id = make()
            ids += id
            row = len(ids) // 16 - 1
            decisions.add_all(row, [now[0]], [due], [closes])
            twin.add(id, row, now[0], due, closes)
        elif what == "close_all":  # some of all blocks, the newest first
            ids_closed = [*twin.all][:: -how[0]]
            decisions.close_all([twin.all[id].row for id in ids_closed])
            for id in ids_closed:
                twin.close(id)
            closed += ids_closed
        elif twin.all:
            id = [*twin.all][how[0] % len(twin.all)]
            rest = [float(how[0] % 2)] if what == "hold" else []
            getattr(decisions, what)(decisions.get(id).row, *rest)
            getattr(twin, what)(id, *rest)
            closed += [id] if what == "close" else []
    check_equal(decisions, twin, now[0])
    assert all(decisions.get(id) == twin.get(id) for id in twin.all)
    assert not any(map(decisions.get, [*closed, make(), b""]))
    assert decisions.get_all([*closed, *twin.all, make(), b""]) == twin.all
    again = OpenDecisions(ids)
    again.restore(decisions.arrays())
    check_equal(again, twin, now[0])


def test_closed_decisions_make_room(small_blocks):
    """Nothing stays of a block that is closed, and little of one that nearly is."""
    ids = bytearray(np.random.default_rng(1).bytes(16 * 80))
    decisions = OpenDecisions(ids)
    decisions.add_all(0, range(30), [None] * 30, [None] * 30)
    decisions.add_all(30, range(30, 80), [None] * 50, [None] * 50)
    for row in set(range(80)) - {3, 42}:
        decisions.close(row)
    assert [*decisions._blocks] == [0, 5]
    assert {len(block.columns.time) for block in decisions._blocks.values()} <= {1, 2}
    assert [decision.row for _, decision in decisions.items()] == [3, 42]


# ----------------------------------------------------------------------------------- found by id


@given(
    n=st.integers(0, 200), m=st.integers(0, 50), seed=st.integers(0, 100), bits=st.integers(1, 64)
)
def test_rows_are_found_by_id(n, m, seed, bits):
    """Also where few bits differ, so that many ids want one place, the last one as well."""
    rng = np.random.default_rng(seed)
    halves = (
        rng.integers(0, 2**bits, n + m, np.uint64, endpoint=False)
        if bits < 64
        else (np.full(n + m, 2**64 - 1, np.uint64))
    )
    all_ids = [
        row.to_bytes(8, "big") + int(half).to_bytes(8, "big") for row, half in enumerate(halves)
    ]
    ids = bytearray(b"".join(all_ids))
    there = np.flatnonzero(rng.random(n) < 0.7)
    table = RowTable(ids, there)
    for row in range(n, n + m):
        table.add(all_ids[row], row)
    expected = {int(row): int(row) for row in [*there, *range(n, n + m)]}
    assert [table.find(id) for id in all_ids] == [expected.get(row) for row in range(n + m)]
    assert table.find(b"") is None
    assert table.find_all(all_ids).tolist() == [expected.get(row, -1) for row in range(n + m)]


def test_tables_suit_a_number_of_rows():
    """There is room for two thirds of the places, and no fewer than a quarter are needed."""
    make = Ids(lambda: 10**15, seed=1)
    all_ids = [make() for _ in range(400)]
    table = RowTable(bytearray(b"".join(all_ids)), range(300))
    added = 300
    while table.has_room(1):
        table.add(all_ids[added], added)
        added += 1
    assert added == 400
    table = RowTable(bytearray(b"".join(all_ids)), range(300))
    assert table.suits(150)
    assert not table.suits(149)
    assert RowTable(bytearray()).suits(0)


# -------------------------------------------------------------------------- the state of a bandit

SPECS = [
    explicit(window=50.0, late="revise"),
    explicit(window=500.0, grace=60.0),
    conversion(),
    conversion(late="revise", grace=1800.0),
    conversion(late="revise", open="silence", policy=AdaptiveThompson()),
]


def restored(fold, arrays=None):
    again = Fold(fold.name, fold.spec)
    header = msgspec.json.decode(msgspec.json.encode(fold.header()))
    dense = getattr(fold.learner.history, "x", np.zeros((0, DIM)))
    again.restore(header, arrays or fold.arrays(), dense.copy())
    return again


def before_columns(fold, in_parts):
    """The arrays of a snapshot of version 0.1, or of one that was cut into parts after it."""
    arrays = {k: v for k, v in fold.arrays().items() if not k.startswith("pending.")}
    items = [*fold._listed().items()]
    cuts = pairwise([*range(0, len(items), 7), len(items)]) if in_parts else [(0, len(items))]
    parts = [msgspec.msgpack.encode(dict(items[start:end])) for start, end in cuts]
    arrays["pending"] = np.frombuffer(b"".join(parts), np.uint8)
    if in_parts:
        arrays["pending_parts"] = np.array([len(part) for part in parts], np.int64)
    return arrays


@pytest.mark.parametrize("spec", SPECS)
def test_live_is_replayed_is_restored(small_blocks, spec):
    """Windows change, clocks differ, and decisions end in every way there is."""
    rng, replica, ids, n_open = np.random.default_rng(3), new_replica(spec), [], []
    for step in range(150):
        replica.clock.now += int(rng.integers(-30, 120)) * SECOND
        ids.append(decide(replica, rng))
        id = ids[int(rng.integers(len(ids)))]
        kind = rng.integers(8)
        if kind < 3:
            replica.reward([(id, float(rng.integers(2)))])
        elif kind == 3:
            replica.commit([Draft(Kind.REVISED, "", id, replica.clock(), 1.0)])
        elif kind == 4:
            replica.commit([Draft(Kind.CANCELLED, "", id, replica.clock())])
        elif kind == 5:
            replica.expire()
        elif kind == 6 and spec.open != "silence":
            window = float(rng.integers(60, 4000))
            replica.configure("shop", msgspec.structs.replace(spec, window=window))
        if step % 25 == 0:
            n_open.append(check_state(replica))
    assert max(n_open) > 20


def check_state(replica):
    fold, now = replica.folds["shop"], replica.clock()
    stories = naive_ledger.read(replica.ledger.follow(START)[0])["shop"].stories
    twin = naive_pending.OpenDecisions(AGES)
    for row, (id, story) in enumerate(stories.items()):
        if story.state == "pending":
            late = fold.pending.get(id).late  # the stories do not tell
            grace = None if story.closes == story.due else story.closes
            twin.all[id] = pending.Open(row, story.time, story.due, grace, story.value, late)
    for one in (fold, replayed(replica).folds["shop"], restored(fold)):
        check_equal(one.pending, twin, now)
        assert one.digest() == fold.digest()
    return len(twin.all)


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("n", [0, 30])
def test_snapshots_from_before_there_were_columns(in_parts, n):
    rng, replica = np.random.default_rng(1), new_replica(explicit(late="keep"))
    for k in range(n):
        loop = explicit() if k < 5 else explicit(window=60.0, grace=10.0 * (k % 2))
        replica.configure("shop", loop)
        id = decide(replica, rng)
        if k % 4 == 3:
            replica.reward([(id, 1.0, replica.clock() + 61 * SECOND * (k % 8 == 3))])
    fold, now = replica.folds["shop"], replica.clock() + 61 * SECOND
    again = restored(fold, before_columns(fold, in_parts))
    assert again.digest() == fold.digest()
    assert dict(again.pending.items()) == dict(fold.pending.items())
    assert again.pending.due(now) == fold.pending.due(now)
    assert again.pending.by_age(now) == fold.pending.by_age(now)
    assert again.pending.n_held == fold.pending.n_held


# -------------------------------------------------------------------------------------- memory


def deep_size(thing, seen):
    """Bytes of an object and of all it refers to; arrays that others own count once."""
    if id(thing) in seen or isinstance(thing, (type, Learner)) or callable(thing):
        return 0
    seen.add(id(thing))
    parts = [
        getattr(thing, name) for name in getattr(thing, "__slots__", ()) if hasattr(thing, name)
    ]
    parts += vars(thing).values() if hasattr(thing, "__dict__") else []
    if isinstance(thing, dict):
        parts += [*thing.keys(), *thing.values()]
    elif isinstance(thing, (list, tuple, set)):
        parts += thing
    return sys.getsizeof(thing) + sum(deep_size(part, seen) for part in parts)


def decided_events(n, seconds):
    """Decisions of a hundred actions, made over this time, with a window of four days."""
    now = [10**15]
    make = Ids(lambda: now[0], seed=1)
    x = np.ones(DIM).tobytes()
    bodies = [
        msgspec.msgpack.encode(Decided(x, f"action-{k}", k, 1.0, 0, "p", 0.0, 0.0, 0.0))
        for k in range(100)
    ]
    for k in range(n):
        now[0] = 10**15 + int(k * seconds / n * 1e6)
        body, due = bodies[k // 1000 % 100], now[0] + 4 * DAY
        yield Event(
            k // 1000, k, Kind.DECIDED, "shop", make(), now[0], None, due, body, closes=due + HOUR
        )


@pytest.mark.parametrize("spec", [SPECS[0], SPECS[-1]])
def test_an_open_decision_takes_at_most_64_bytes(spec, monkeypatch):
    """Besides the model, and besides its id, its action and its silence in the history.

    After every second one was cancelled, too. The statistics have a bounded size. Nothing is learnt
    here, which takes its time.
    """
    monkeypatch.setattr(Fold, "_flush", lambda fold: setattr(fold, "_plan", Plan()))

    def take_in(hearing, learner, times, now):
        hearing.tick, hearing.since, hearing.n_open = hearing.tick_of(now), 0, len(times)

    monkeypatch.setattr(Hearing, "take_in", take_in)
    fold, n = Fold("shop", spec), 100_000
    events = [*decided_events(n, 4 * 24 * 3600)]
    empty = deep_size(fold, set())
    fold.apply(events)
    assert len(fold.pending) == n

    def bytes_each():
        rest = len(fold.ids) + 2 * len(fold.played) + deep_size(fold.statistics, set())
        if fold.hearing is not None:
            rest += 3 * len(fold.hearing.codes)
        return (deep_size(fold, set()) - empty - rest) / len(fold.pending)

    assert 35 < bytes_each() <= 64
    closed = np.random.default_rng(2).permutation(n)[: n // 2]
    now = 10**15 + 4 * DAY
    fold.apply(
        [Event(n, 0, Kind.CANCELLED, "shop", events[k].id, now, None, None, b"") for k in closed]
    )
    assert len(fold.pending) == n // 2
    assert bytes_each() <= 64
