"""Rewards have a time of their own, by which windows, delays and stories go."""

import shutil
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedOFUGLM
from belated.core.events import Status
from belated.ledger import snapshots
from belated.ledger.events import START, Draft, Event, Kind
from belated.ledger.pending import Pending
from belated.ledger.replica import Replica
from belated.ledger.rules import LEEWAY
from belated.ledger.spec import LATER, Spec
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.ledger.tools.event_files import Header, read_events, row_of
from belated.ledger.tools.exporting import Selection, export
from belated.ledger.tools.importing import import_file
from belated.ledger.tools.importing_logs import Options
from belated.ledger.tools.invariants import Rules
from belated.ledger.tools.progress import Share
from support.replicas import (
    HOUR,
    SECOND,
    conversion,
    decide,
    explicit,
    new_replica,
    replayed,
    same,
)

MATRIX = np.array([[0.6, 0.0], [0.0, 0.8]])
OLD = Path(__file__).parents[1] / "data" / "version_0_1" / "shop.db"


def learnt(replica):
    return replica.folds["shop"].learner.history.y[: replica.folds["shop"].n_rows].tolist()


def test_a_conversion_that_is_uploaded_at_night_is_no_failure():
    """It happened in time; by the time of its upload it would be late, and a failure be learnt."""
    rng, replica = np.random.default_rng(1), new_replica(conversion(grace=3600.0))
    bought, missed, never = (decide(replica, rng) for _ in range(3))
    start = replica.clock()
    replica.clock.now += 2 * HOUR  # the window of an hour is over, its grace is not
    assert replica.expire() == 0
    rewards = [(bought, 1.0, start + HOUR), (missed, 1.0, start + HOUR + 1)]
    assert replica.reward(rewards) == ["accepted", "expired"]
    assert np.isnan(learnt(replica)).all()
    replica.clock.now += 1
    assert replica.expire() == 3
    assert learnt(replica) == [1.0, 0.0, 0.0]
    assert replica.reward([(never, 1.0, start)]) == ["expired"]  # it was handed in too late
    assert replica.folds["shop"].counts.late == 2
    assert same(replica, replayed(replica))


def test_delays_go_by_when_rewards_happened():
    rng, replica = np.random.default_rng(1), new_replica(explicit(window=7200.0))
    id, start = decide(replica, rng), replica.clock()
    replica.clock.now += HOUR
    assert replica.reward([(id, 1.0, start + 30 * SECOND)]) == ["accepted"]
    fold = replica.folds["shop"]
    assert (sum(fold.delays.counts), fold.delays.sum) == (1, 30.0)
    assert fold.statistics.last_reward_us == start + 30 * SECOND
    assert same(replica, replayed(replica))


@pytest.mark.parametrize("seconds", [-61, 61])
def test_impossible_times_are_refused_with_a_reason(seconds):
    rng, replica = np.random.default_rng(1), new_replica(explicit())
    id, now = decide(replica, rng), replica.clock()
    draft = Draft(Kind.REWARDED, "", id, now + seconds * SECOND, 1.0, received=now)
    (outcome,) = replica.commit([draft])
    assert outcome.status == Status.INVALID
    said = replica.refusal(draft, outcome)
    assert said.startswith("at = 2023-11-14T22:")
    assert "before the decision" in said if seconds < 0 else "after now" in said
    assert "\n" not in said
    assert replica.reward([(id, 1.0, now + (61 - abs(seconds)) * SECOND)]) == ["accepted"]


def test_a_grace_is_that_of_the_decision_and_survives_a_snapshot(tmp_path):
    rng, replica = np.random.default_rng(1), new_replica(conversion(grace=600.0))
    first = decide(replica, rng)
    replica.configure("shop", conversion(grace=0.0))
    second = decide(replica, rng)
    snapshots.save(replica, tmp_path)
    resumed = Replica(replica.ledger, clock=replica.clock)
    snapshots.load(resumed, tmp_path)
    assert resumed.position == replica.position
    for one in (replica, resumed):
        assert one.folds["shop"].pending.due(replica.clock() + HOUR + 1) == [second]
        assert one.folds["shop"].pending.due(replica.clock() + HOUR + 600 * SECOND + 1) == [
            second,
            first,
        ]
    assert same(replica, resumed)


# ---------------------------------------------------------------------------------- version 0.1


def test_a_ledger_of_version_0_1_means_what_it_meant(tmp_path):
    """Its rewards were received when they happened, and its windows have no grace."""
    shutil.copy(OLD, tmp_path)
    ledger = SQLiteLedger(tmp_path / "shop.db")
    events, _ = ledger.follow(START, 10**6)
    assert {(event.received, event.closes) for event in events} == {(None, None)}
    assert all(event.written == event.time for event in events)
    assert [waiting.received for waiting in ledger.parked()] == [None] * len(ledger.parked())
    ledger.close()


def test_digests_of_version_0_1_know_nothing_of_later_settings():
    """A field with its default is left out; in another place a replay would have another digest."""
    spec = explicit(window=60.0)
    assert not set(LATER) & spec.as_kept().keys()
    assert explicit(window=60.0, grace=5.0).as_kept()["grace"] == 5.0
    assert msgspec.convert(spec.as_kept(), Spec) == spec
    of_0_1 = {"row": 1, "time": 2, "due": 3, "action": "a", "held": None, "late": False}
    pending = Pending(1, 2, 3, "a", None, False)
    assert msgspec.msgpack.encode(pending) == msgspec.msgpack.encode(of_0_1)
    assert msgspec.convert(of_0_1, Pending) == pending


# ------------------------------------------------------------------------------ tools of a ledger


def with_event_times(ledger):
    replica = new_replica(conversion(grace=3600.0), ledger)
    rng, start = np.random.default_rng(1), replica.clock()
    ids = [decide(replica, rng) for _ in range(4)]
    replica.clock.now += 2 * HOUR
    replica.reward([(ids[0], 1.0, start + SECOND), (ids[1], 1.0, start + HOUR + SECOND)])
    replica.clock.now += 1
    replica.expire()
    return replica


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_exports_and_imports_keep_both_times(tmp_path, suffix):
    replica = with_event_times(SQLiteLedger(tmp_path / "a.db"))
    file = tmp_path / f"log.{suffix}"
    export(replica.ledger, file, Selection(), as_joined=False, dry_run=False)
    import_file(f"sqlite:///{tmp_path}/b.db", file, Options())
    again = SQLiteLedger(tmp_path / "b.db")
    assert again.follow(START)[0] == replica.ledger.follow(START)[0]
    fresh = Replica(again)
    fresh.catch_up()
    assert same(replica, fresh)
    since = replica.clock() - 1  # what was handed in from then on, whenever it happened
    export(replica.ledger, file, Selection(since=since), as_joined=False, dry_run=False)
    kinds = [row.kind for _, row in read_events(file, Share())]
    assert kinds == ["rewarded", "rewarded", *["expired"] * 4]


def test_a_file_of_version_0_1_can_be_imported(tmp_path):
    """It has neither the times of receipt nor the ends of graces."""
    replica = new_replica(explicit())
    decide(replica, np.random.default_rng(1))
    events, _ = replica.ledger.follow(START)
    rows = [msgspec.to_builtins(row_of(event, None)) for event in events]
    for row in rows:
        del row["received"], row["closes"]
    lines = [msgspec.json.encode(line) for line in (Header("belated-events", 1), *rows)]
    content = b"".join(line + b"\n" for line in lines)
    footer = {"events": len(rows), "sha256": sha256(content).hexdigest()}
    (tmp_path / "old.jsonl").write_bytes(content + msgspec.json.encode(footer) + b"\n")
    import_file(f"sqlite:///{tmp_path}/b.db", tmp_path / "old.jsonl", Options())
    assert SQLiteLedger(tmp_path / "b.db").follow(START)[0] == events


def test_joined_rows_have_both_times(tmp_path):
    replica = with_event_times(SQLiteLedger(tmp_path / "a.db"))
    file = tmp_path / "joined.jsonl"
    export(replica.ledger, file, Selection(), as_joined=True, dry_run=False)
    first, late, *_ = [msgspec.json.decode(line) for line in file.read_bytes().splitlines()]
    assert (first["status"], first["delay_seconds"]) == ("rewarded", 1.0)
    assert first["reward_time"] == "2023-11-14T22:13:21.000000Z"
    assert first["reward_received"] == "2023-11-15T00:13:20.000000Z"
    assert (late["status"], late["delay_seconds"]) == ("late", 3601.0)


def test_verification_finds_wrong_times():
    replica = with_event_times(MemoryLedger())
    events, now = replica.ledger.follow(START)[0], replica.clock()

    def problems(change):
        rules = Rules(now)
        return [said for event in map(change, events) if (said := rules.problem(event))]

    def rewarded(**changes):
        def change(event: Event) -> Event:
            mine = event.kind == Kind.REWARDED
            return msgspec.structs.replace(event, **changes) if mine else event

        return change

    assert problems(lambda event: event) == []
    decided = events[1].time
    assert "before the decision" in problems(rewarded(time=decided - LEEWAY - 1))[0]
    assert "after now" in problems(rewarded(received=decided))[0]
    assert "has the time" in problems(rewarded(received=now + 10**12))[0]

    def graceless(event: Event) -> Event:
        return msgspec.structs.replace(event, closes=None if event.due is None else event.due - 1)

    assert "grace ends before it begins" in problems(graceless)[0]

    def received(event: Event) -> Event:
        return msgspec.structs.replace(event, received=event.time + 1)

    assert "is no reward" in problems(received)[0]


# --------------------------------------------------------------------------------- Bandit(ledger=)


def test_a_bandit_learns_with_times():
    bandit = Bandit(
        2,
        family=Bernoulli(),
        policy=DelayedOFUGLM(),
        ledger=MemoryLedger(),
        window=60.0,
        grace=60.0,
    )
    one, two, three = (bandit.decide(MATRIX).id for _ in range(3))
    now = datetime.now(UTC)
    assert bandit.learn(one, 1.0, at=now) == 1
    assert bandit.learn([(two, 1.0, now.timestamp()), (three, 0.0, now.isoformat())]) == 2
    id = bandit.decide(MATRIX).id
    for at, said in (
        (now - timedelta(hours=1), "expected no time before the decision"),
        (now + timedelta(hours=1), "expected no time after now"),
        (datetime.now(), "with its zone"),
        ("yesterday", "expected an ISO time"),
    ):
        with pytest.raises(ValueError, match=f"at .*{said}") as error:
            bandit.learn(id, 1.0, at=at)
        assert "\n" not in str(error.value)
    assert bandit.n_observed == 3


def test_times_mean_nothing_without_a_log():
    bandit = Bandit(2, family=Bernoulli())
    id = bandit.decide(MATRIX).id
    with pytest.raises(TypeError, match="at = 5: expected with window= or ledger= only"):
        bandit.learn(id, 1.0, at=5)
    with pytest.raises(ValueError, match=r"at, event_id = .*: expected none with many rewards"):
        bandit.learn([(id, 1.0)], at=5)
    assert bandit.learn(id, 1.0) == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"grace": -1.0, "window": 5.0}, "grace = -1.0: expected a number of seconds"),
        ({"grace": 5.0}, "grace = 5.0: expected 0 without a window"),
        ({"grace": 1e11, "window": 5.0}, "grace = 100000000000.0: expected"),
    ],
)
def test_bad_graces(settings, said):
    with pytest.raises(ValueError, match=said):
        explicit(**settings).learner()
