"""A conversion loop that has learnt nothing yet says so, and spreads its play."""

from collections import Counter

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedOFUGLM
from belated.core.wording import counted, nothing_learnt
from belated.ledger.events import Draft, Kind
from belated.ledger.proposing import NOTHING_SAID, Ask
from belated.ledger.stores.memory import MemoryLedger
from belated.policies import AdaptiveThompson
from support.replicas import (
    DIM,
    HOUR,
    SECOND,
    conversion,
    decide,
    explicit,
    new_replica,
    replayed,
    same,
)
from support.service_client import Client, alarms

BANNERS = {f"banner {k}": np.eye(DIM)[k].tolist() for k in range(DIM)}


def played(replica, n):
    """Names and propensities of decisions that nobody rewards."""
    bodies = []
    for _ in range(n):
        proposal = replica.propose("shop", NOTHING_SAID)
        replica.commit([proposal.draft])
        bodies.append(proposal.body)
    return Counter(body.action for body in bodies), {body.propensity for body in bodies}


def test_play_is_spread_until_the_first_window_closes():
    replica = new_replica(conversion())
    replica.register("shop", BANNERS)
    counts, propensities = played(replica, 600)
    assert propensities == {1.0 / DIM}
    assert min(counts.values()) > 150  # 200 expected, with a standard deviation of 12
    replica.clock.now += HOUR + SECOND
    assert replica.expire() == 600
    _, propensities = played(replica, 5)
    assert propensities == {1.0}  # the policy decides now, and it draws nothing
    assert same(replica, replayed(replica))


@pytest.mark.parametrize("open", ["hold", "silence"])
def test_the_default_is_spread_too_and_then_says_the_probability_of_every_action(open):
    replica = new_replica(conversion(policy=AdaptiveThompson(), open=open))
    replica.register("shop", BANNERS)
    said = Ask(probabilities=True)
    spread = replica.propose("shop", said)
    assert spread.body.probabilities == (1.0 / DIM,) * DIM
    played(replica, 60)
    replica.clock.now += HOUR + SECOND
    assert replica.expire() == 60
    played(replica, 1)  # where silence is heard, nothing is learnt before the next decision
    drawn = [replica.propose("shop", said).body for _ in range(20)]
    for body in drawn:
        assert sum(body.probabilities) == pytest.approx(1.0, abs=1e-12)
        assert body.propensity == body.probabilities[body.index]
    assert len({body.action for body in drawn}) > 1
    assert {body.probabilities for body in drawn} != {(1.0 / DIM,) * DIM}
    assert same(replica, replayed(replica))


def test_an_explicit_loop_lets_its_policy_decide_from_the_start():
    replica = new_replica(explicit())
    replica.register("shop", BANNERS)
    assert played(replica, 5)[1] == {1.0}


def test_a_revised_late_reward_is_something_learnt():
    replica = new_replica(conversion(late="revise"))
    replica.register("shop", BANNERS)
    proposal = replica.propose("shop", NOTHING_SAID)
    replica.commit([proposal.draft])
    assert replica.fold("shop").spreads
    replica.clock.now += 2 * HOUR
    replica.reward([(proposal.draft.id, 1.0)])
    replica.expire()
    assert not replica.fold("shop").spreads


def test_what_is_held_is_counted_through_everything_that_can_happen():
    replica = new_replica(conversion())
    rng = np.random.default_rng(1)
    ids = [decide(replica, rng) for _ in range(5)]
    fold, now = replica.fold("shop"), replica.clock()
    replica.reward([(ids[0], 1.0), (ids[1], 0.0), (ids[2], 1.0)])
    replica.commit([Draft(Kind.REVISED, "", ids[0], now, 0.0)])
    assert fold.pending.n_held == 3
    replica.commit([Draft(Kind.CANCELLED, "", ids[3], now)])
    assert fold.pending.n_held == sum(p.held is not None for _, p in fold.pending.items())
    assert fold.waiting_words(now) == (
        "3 rewards held, 0 learnt; the first window closes in 1 hour"
    )
    assert replayed(replica).fold("shop").pending.n_held == 3
    replica.clock.now += HOUR + SECOND
    replica.expire()
    assert (fold.pending.n_held, fold.waiting_words(replica.clock())) == (0, "")


def test_the_first_window_is_that_of_a_decision_that_still_waits():
    replica = new_replica(conversion())
    rng = np.random.default_rng(1)
    first = decide(replica, rng)
    replica.clock.now += 600 * SECOND
    decide(replica, rng)
    replica.commit([Draft(Kind.CANCELLED, "", first, replica.clock())])
    assert "closes in 1 hour" in replica.fold("shop").waiting_words(replica.clock())


def test_the_service_says_so():
    client = Client()
    client.bandit(loop="conversion", window=48 * 3600.0)
    client("PATCH", "/v1/bandits/shop/actions", {"put": {"a": [1.0, 0.0], "b": [0.0, 1.0]}})
    decisions = [client.decide() for _ in range(100)]
    assert {decision["propensity"] for decision in decisions} == {0.5}
    assert 20 < sum(decision["action"] == "a" for decision in decisions) < 80
    client.reward(*((decision["decision_id"], 1.0) for decision in decisions[:60]))
    client.now += 3600 * SECOND - 2 * SECOND
    said = "60 rewards held, 0 learnt; the first window closes in 47 hours"
    assert alarms(client)["nothing-learnt-yet"] == (
        f"Nothing has been learnt yet: {said}. Until something is, every action is drawn with "
        "the same probability."
    )
    state = client("GET", "/v1/bandits/shop")
    assert (state["n_observed"], state["n_held"], state["waiting"]) == (0, 60, said)


@pytest.mark.parametrize("default_reward", [None, 0.0])
def test_a_bandit_with_a_ledger_says_so(default_reward):
    bandit = Bandit(
        2,
        family=Bernoulli(),
        policy=DelayedOFUGLM(),
        ledger=MemoryLedger(),
        window=48 * 3600.0,
        default_reward=default_reward,
        seed=1,
    )
    decisions = [bandit.decide([[1.0, 0.0], [0.0, 1.0]]) for _ in range(40)]
    bandit.learn([(decision.id, 1.0) for decision in decisions[:3]])
    if default_reward is None:
        assert bandit.waiting == ""
        assert "waiting" not in repr(bandit)
    else:
        said = "3 rewards held, 0 learnt; the first window closes in 48 hours"
        assert (bandit.waiting, f"waiting={said!r})" in repr(bandit)) == (said, True)
        assert 8 < sum(decision.index for decision in decisions) < 32


NO_REWARD_YET = (
    "no reward yet; learning begins with the first one, or when the first window closes in 30 hours"
)


def test_the_default_of_a_service_waits_for_a_reward_and_not_for_a_window():
    client = Client()
    client.bandit(policy=None, loop="conversion", window=30 * 3600.0)
    client("PATCH", "/v1/bandits/shop/actions", {"put": {"a": [1.0, 0.0], "b": [0.0, 1.0]}})
    decisions = [client.decide() for _ in range(60)]
    assert client("GET", "/v1/bandits/shop")["waiting"] == NO_REWARD_YET
    assert alarms(client)["nothing-learnt-yet"] == (
        f"Nothing has been learnt yet: {NO_REWARD_YET}. Until something is, every action is drawn "
        "with the same probability."
    )
    shown = [one["decision_id"] for one in decisions if one["action"] == "a"]
    client.reward(*((id, 1.0) for id in shown[:3]))
    said = "3 rewards to take in with the first decision in "
    assert client("GET", "/v1/bandits/shop")["waiting"].startswith(said)
    client.now += 3600 * SECOND
    client.decide()
    assert client.decide()["propensity"] != 0.5
    assert client("GET", "/v1/bandits/shop")["waiting"] == ""
    assert "nothing-learnt-yet" not in alarms(client)


def test_the_default_with_a_ledger_waits_for_a_reward_and_not_for_a_window():
    now = 0.0
    shop = Bandit(
        2,
        family=Bernoulli(),
        ledger=MemoryLedger(),
        window=30 * 3600.0,
        default_reward=0.0,
        clock=lambda: now,
        seed=1,
    )
    ids = [shop.decide(np.eye(2)).id for _ in range(20)]
    assert (shop.waiting, f"waiting={NO_REWARD_YET!r})" in repr(shop)) == (NO_REWARD_YET, True)
    shop.learn([(id, 1.0) for id in ids[:3]])
    said = "3 rewards to take in with the first decision in 28 minutes, or after 12 more decisions"
    assert shop.waiting == said
    now += 10.0
    shop.decide(np.eye(2))
    assert shop.waiting == said.replace("12", "11"), "they are not taken in yet"
    now += 1700.0
    assert shop.waiting == "3 rewards to take in with the next decision"
    shop.decide(np.eye(2))
    assert (shop.waiting, shop.n_observed) == ("", 3)


def test_rewards_are_taken_in_after_as_many_decisions_as_is_said():
    shop = Bandit(
        2,
        family=Bernoulli(),
        window=30 * 3600.0,
        default_reward=0.0,
        clock=lambda: 0.0,
        seed=1,
    )
    shop.learn(shop.decide(np.eye(2)).id, 1.0)
    for more in range(15, 0, -1):
        assert f", or after {counted(more, 'more decision')}" in shop.waiting
        shop.decide(np.eye(2))
    assert shop.waiting == "1 reward to take in with the next decision"
    shop.decide(np.eye(2))
    assert (shop.waiting, shop.n_observed) == ("", 1)


def test_words():
    assert nothing_learnt(0, 3600.0).endswith("closes in 1 hour")
