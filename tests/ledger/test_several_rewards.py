"""Several rewards of one decision: each counts once, and what is learnt is their combination."""

import msgspec
import numpy as np
import pytest

from belated import Bandit, Bernoulli, ConflictingRewardError, Gaussian
from belated.ledger import snapshots
from belated.ledger.events import START, Draft, Event, Kind, Reward
from belated.ledger.replica import Replica
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.ledger.tools.exporting import Selection, export
from belated.ledger.tools.importing import import_file
from belated.ledger.tools.importing_logs import Options
from belated.ledger.tools.invariants import Rules
from belated.policies import GLOC
from belated.policies.greedy import Greedy
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
HANDED_IN = [("a", 2.0, 20), ("b", 3.0, 10), ("c", 1.0, 30), ("a", 2.0, 20), ("b", 9.0, 10)]
STATUSES = ["accepted", "accepted", "accepted", "duplicate", "conflict"]
LEARNT = {"first": 3.0, "last": 1.0, "sum": 6.0, "max": 3.0}


def learnt(replica):
    return replica.folds["shop"].learner.history.y[: replica.folds["shop"].n_rows].tolist()


def hand_in(replica, id, start):
    return replica.reward(
        [(id, value, start + seconds * SECOND, name) for name, value, seconds in HANDED_IN]
    )


@pytest.mark.parametrize("combine", LEARNT)
def test_an_explicit_loop_learns_at_once_and_revises(combine):
    """The estimate is that of a bandit which got the combination as its only reward."""
    replica = new_replica(explicit(Gaussian(sd=0.5), combine=combine, window=3600.0))
    rng = np.random.default_rng(1)
    id, start = decide(replica, rng), replica.clock()
    replica.clock.now += 60 * SECOND
    assert replica.reward([(id, 2.0, start + 20 * SECOND, "a")]) == ["accepted"]
    assert learnt(replica) == [2.0]
    assert hand_in(replica, id, start) == ["duplicate", *STATUSES[1:]]
    assert learnt(replica) == [LEARNT[combine]]
    replica.clock.now += HOUR
    assert replica.reward([(id, 50.0, None, "late")]) == ["expired"]
    assert learnt(replica) == [LEARNT[combine]]
    assert replica.expire() == 0
    once = new_replica(explicit(Gaussian(sd=0.5)))
    once.reward([(decide(once, np.random.default_rng(1)), LEARNT[combine])])
    thetas = [one.folds["shop"].learner.exact_theta() for one in (replica, once)]
    assert thetas[0] == pytest.approx(thetas[1], abs=1e-9)
    assert same(replica, replayed(replica))


@pytest.mark.parametrize("combine", LEARNT)
def test_a_conversion_loop_combines_when_window_and_grace_are_over(combine, tmp_path):
    settings = {"loop": "conversion", "window": 3600.0, "grace": 3600.0}
    replica = new_replica(explicit(Gaussian(sd=0.5), combine=combine, **settings))
    rng = np.random.default_rng(1)
    id, other = decide(replica, rng), decide(replica, rng)
    start = replica.clock()
    replica.clock.now += HOUR + 1  # uploads, within the grace
    late = (id, 7.0, start + HOUR + 1, "late")
    assert replica.reward([late]) == ["expired"]  # the first that comes does not count
    assert hand_in(replica, id, start) == STATUSES
    snapshots.save(replica, tmp_path)
    resumed = Replica(replica.ledger, clock=replica.clock)
    snapshots.load(resumed, tmp_path)
    assert np.isnan(learnt(replica)).all()
    replica.clock.now += HOUR
    assert replica.expire() == 2
    resumed.catch_up()
    assert learnt(replica) == [LEARNT[combine], 0.0]
    assert replica.reward([(id, 5.0, start, "d"), (other, 5.0, start)]) == ["expired"] * 2
    assert learnt(replica) == [LEARNT[combine], 0.0]
    resumed.catch_up()
    assert same(replica, resumed)
    assert same(replica, replayed(replica))


def test_a_first_reward_may_come_last():
    """By event time the first one is known only when all have come, so it has to be revised."""
    rng, replica = np.random.default_rng(1), new_replica(explicit(combine="first"))
    id, start = decide(replica, rng), replica.clock()
    replica.clock.now += 60 * SECOND
    assert replica.reward([(id, 0.0, None, "second")]) == ["accepted"]
    assert replica.reward([(id, 1.0, start, "first")]) == ["accepted"]
    assert replica.reward([(id, 0.0, start, "as early, and behind it in the log")]) == ["accepted"]
    assert learnt(replica) == [1.0]


def test_what_changes_nothing_is_not_learnt_again():
    rng, replica = np.random.default_rng(1), new_replica(explicit(combine="max"))
    id = decide(replica, rng)
    replica.reward([(id, 1.0, None, "a")])
    theta = replica.folds["shop"].learner.state.theta.copy()
    assert replica.reward([(id, 0.0, None, "b")]) == ["accepted"]
    assert replica.reward([(id, 0.0, None, "b")]) == ["duplicate"]
    assert np.array_equal(theta, replica.folds["shop"].learner.state.theta)
    assert replica.folds["shop"].statistics.revisions.count == 0


def test_sums_stay_what_the_family_can_have():
    rng, replica = np.random.default_rng(1), new_replica(explicit(Bernoulli(), combine="sum"))
    id, now = decide(replica, rng), replica.clock()
    assert replica.reward([(id, 1.0, None, "a")]) == ["accepted"]
    draft = Draft(Kind.REWARDED, "", id, now, 1.0, event_id="b")
    (outcome,) = replica.commit([draft])
    assert replica.refusal(draft, outcome) == (
        "reward = 1.0 makes the sum 2.0: expected a whole number from 0 to 1 (bernoulli)"
    )
    draft = Draft(Kind.REVISED, "", id, now, 0.0)
    (outcome,) = replica.commit([draft])
    assert replica.refusal(draft, outcome).startswith("revise = True: expected")
    assert learnt(replica) == [1.0]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"combine": "mean"}, "combine = 'mean': expected 'first' or 'last' or 'sum' or 'max'"),
        ({"combine": "sum", "late": "revise"}, "combine = 'sum': expected None with late"),
        ({"combine": "first", "policy": GLOC()}, "combine = 'first': GLOC learns in one pass"),
    ],
)
def test_what_does_not_go_together(settings, said):
    with pytest.raises(ValueError, match=said):
        explicit(**settings).learner()


def test_one_pass_policies_may_combine_in_a_conversion_loop():
    rng, replica = np.random.default_rng(1), new_replica(conversion(combine="max", policy=GLOC()))
    id = decide(replica, rng)
    assert replica.reward([(id, 0.0, None, "a"), (id, 1.0, None, "b")]) == ["accepted"] * 2
    replica.clock.now += HOUR + 1
    assert replica.expire() == 1
    assert learnt(replica) == [1.0]


def test_how_rewards_are_combined_cannot_be_changed():
    replica = new_replica(explicit(combine="first", policy=Greedy()))
    with pytest.raises(ValueError, match="combine = 'last': expected 'first', as the log has it"):
        replica.configure("shop", explicit(combine="last", policy=Greedy()))


# ------------------------------------------------------------------------------ tools of a ledger


def with_several(ledger, combine="sum"):
    replica = new_replica(explicit(Gaussian(sd=0.5), combine=combine, window=60.0), ledger)
    rng, start = np.random.default_rng(1), replica.clock()
    ids = [decide(replica, rng, subject="me") for _ in range(2)]
    replica.clock.now += 50 * SECOND
    for id in ids:
        hand_in(replica, id, start)
    replica.clock.now += 20 * SECOND
    replica.reward([(ids[0], 8.0, None, "late")])
    return replica


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("combine", LEARNT)
def test_exports_and_imports_keep_all_rewards(tmp_path, suffix, combine):
    replica = with_several(SQLiteLedger(tmp_path / "a.db"), combine)
    file = tmp_path / f"log.{suffix}"
    export(replica.ledger, file, Selection(), as_joined=False, dry_run=False)
    import_file(f"sqlite:///{tmp_path}/b.db", file, Options())
    again = SQLiteLedger(tmp_path / "b.db")
    assert again.follow(START)[0] == replica.ledger.follow(START)[0]
    fresh = Replica(again)
    fresh.catch_up()
    assert same(replica, fresh)
    export(replica.ledger, tmp_path / "j.jsonl", Selection(), as_joined=True, dry_run=False)
    rows = [msgspec.json.decode(line) for line in (tmp_path / "j.jsonl").read_bytes().splitlines()]
    assert [row["reward"] for row in rows] == [LEARNT[combine]] * 2
    assert [row["status"] for row in rows] == ["rewarded"] * 2


def test_verification_adds_up_again():
    replica = with_several(MemoryLedger())
    events = replica.ledger.follow(START)[0]

    def problems(change):
        rules = Rules(replica.clock())
        return [said for event in map(change, events) if (said := rules.problem(event))]

    assert problems(lambda event: event) == []

    def more(event: Event) -> Event:
        further = event.kind == Kind.REVISED
        return msgspec.structs.replace(event, value=event.value + 1.0) if further else event

    assert problems(more)[0] == "does not combine the rewards of its decision"

    def in_time(event: Event) -> Event:
        if event.kind != Kind.REVISED:
            return event
        reward = msgspec.msgpack.decode(event.body, type=Reward)
        body = msgspec.msgpack.encode(msgspec.structs.replace(reward, late=False))
        return msgspec.structs.replace(event, body=body)

    assert problems(in_time) == ["does not combine the rewards of its decision"]


def test_an_erasure_takes_the_names_of_rewards():
    """An event id may be that of an order, which leads to a person."""
    replica = with_several(MemoryLedger())
    replica.ledger.forget("shop", "me", replica.clock())
    replica.catch_up()
    events = replica.ledger.follow(START)[0]
    assert {event.body for event in events if event.kind in (Kind.REWARDED, Kind.REVISED)} == {b""}
    assert {event.combine for event in events} == {None}
    assert replica.folds["shop"].learner.n_observed == 0
    assert same(replica, replayed(replica))


# --------------------------------------------------------------------------------- Bandit(ledger=)


def test_a_bandit_combines():
    ledger = MemoryLedger()
    bandit = Bandit(2, family=Gaussian(), ledger=ledger, combine="sum")
    id = bandit.decide(MATRIX).id
    assert bandit.learn([(id, 1.0, None, "order 1"), (id, 2.0, None, "order 2")]) == 2
    assert bandit.learn(id, 2.0, event_id="order 2") == 0
    with pytest.raises(ConflictingRewardError, match=r"reward = 3\.0 .*: expected 2\.0"):
        bandit.learn(id, 3.0, event_id="order 2")
    with pytest.raises(ValueError, match="event_id = 7: expected a text"):
        bandit.learn(id, 3.0, event_id=7)
    assert bandit.n_observed == 1
    again = Bandit(2, family=Gaussian(), ledger=ledger)
    assert again.learn(id, 4.0, event_id="order 3") == 1
    replica = Replica(ledger, only={"bandit"})
    replica.catch_up()
    assert replica.folds["bandit"].learner.history.y[0] == 7.0
    with pytest.raises(ValueError, match="combine = None: expected 'sum', as the log has it"):
        Bandit(2, family=Gaussian(), ledger=ledger, combine=None)


def test_names_of_rewards_mean_nothing_without_a_log():
    bandit = Bandit(2, family=Gaussian())
    id = bandit.decide(MATRIX).id
    with pytest.raises(TypeError, match="event_id = 'x': expected with window= or ledger= only"):
        bandit.learn(id, 1.0, event_id="x")


def test_a_second_event_without_combine_is_a_conflict_that_says_so(tmp_path):
    said = "event_id = 'b': expected 'a', since combine is None and a decision has one reward"
    for ledger in (MemoryLedger(), SQLiteLedger(tmp_path / "shop.db")):
        bandit = Bandit(2, family=Gaussian(), policy=Greedy(), ledger=ledger)
        id, other = (bandit.decide(MATRIX).id for _ in range(2))
        assert bandit.learn([(id, 1.0, None, "a"), (id, 1.0, None, "a"), (id, 1.0)]) == 1
        for value in (1.0, 2.0):
            with pytest.raises(ConflictingRewardError, match=said):
                bandit.learn(id, value, event_id="b")
        assert bandit.learn([(other, 1.0), (other, 1.0, None, "b")]) == 1  # the first may be "b"
        ledger.close()
