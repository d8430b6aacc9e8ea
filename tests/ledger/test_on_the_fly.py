"""OTFLinUCB and OTFLinTS behind a log: conversions when they come, nothing when windows close."""

import warnings

import numpy as np
import pytest

from belated import AssumptionWarning, Bandit, Bernoulli, DelayedOFUGLM
from belated.ledger import snapshots
from belated.ledger.fold import Fold
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.policies import OTFLinTS, OTFLinUCB
from support.replicas import DIM, HOUR, SECOND, decide, new_replica, replayed, same
from support.service_client import Client, alarms

ACTIONS = np.eye(3)
UCB = OTFLinUCB(window=50)
SETTINGS = {"loop": "conversion", "window": 3600.0, "open": "silence"}


def served(policy=UCB, **more):
    return Spec.of(DIM, Bernoulli(), policy, **SETTINGS | more)


def lived(replica, n=60):
    """Decides every three minutes; every fourth decision converts five minutes later."""
    rng, to_come = np.random.default_rng(1), []
    for k in range(n):
        replica.clock.now += 180 * SECOND
        replica.expire()
        due = [id for time, id in to_come if time <= replica.clock.now]
        to_come = [(time, id) for time, id in to_come if time > replica.clock.now]
        if due:
            replica.reward([(id, 1.0) for id in due])
        id = decide(replica, rng)
        if k % 4 == 0:
            to_come.append((replica.clock.now + 300 * SECOND, id))
    return replica


@pytest.mark.parametrize("policy", [UCB, OTFLinTS(window=50)])
def test_live_is_replay_and_snapshots_go_on(policy):
    replica = lived(new_replica(served(policy)))
    fold = replica.folds["shop"]
    assert fold.counts.expired > 20
    assert fold.learner.n_observed == 15  # the conversions alone
    assert same(replica, replayed(replica))
    again = Fold("shop", served(policy))
    again.restore(fold.header(), fold.arrays(), fold.learner.history.x.copy())
    assert again.digest() == fold.digest()


def test_is_the_bandit_in_memory_that_is_told_of_conversions():
    now = 0.0
    policy = OTFLinUCB(window=30)
    log = Bandit(3, family=Bernoulli(), policy=policy, window=3600.0, default_reward=0.0,
                 open="silence", clock=lambda: now)  # fmt: skip
    told = Bandit(3, family=Bernoulli(), policy=policy)
    first = log.decide(ACTIONS)
    assert first.propensity == 1.0  # it explores by itself: actions are not drawn uniformly
    waiting = [(first, told.decide(ACTIONS))]
    for k in range(60):
        now += 180.0
        mine, yours = log.decide(ACTIONS), told.decide(ACTIONS)
        assert (mine.index, mine.score) == (yours.index, yours.score)
        waiting.append((mine, yours))
        if k % 3 == 0:
            mine, yours = waiting.pop()
            assert log.learn(mine.id, 1.0) == told.learn(yours.id, 1.0) == 1
    assert log.fingerprint() == told.fingerprint()
    now += 3601.0
    log.learn(waiting[-1][0].id, 1.0)  # after the window: kept, and not learnt
    assert log.fingerprint() == told.fingerprint()
    assert log.broken_assumptions == []


def test_more_open_decisions_than_the_policy_waits_for_are_an_alarm():
    now = 0.0
    bandit = Bandit(3, family=Bernoulli(), policy=OTFLinUCB(window=10), window=3600.0,
                    default_reward=0.0, open="silence", clock=lambda: now)  # fmt: skip
    ids = []
    for _ in range(11):
        now += 60.0
        ids.append(bandit.decide(ACTIONS).id)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bandit.learn(ids[0], 1.0)  # the oldest is the tenth last before the latest decision
    ids.append(bandit.decide(ACTIONS).id)
    with pytest.warns(
        AssumptionWarning, match="within 10 decisions; 11 were made since the oldest"
    ):
        bandit.learn(ids[1], 1.0)
    assert [broken.name for broken in bandit.broken_assumptions] == ["window"]
    assert "OTFLinUCB(window=...)" in repr(bandit)
    now += 3601.0
    bandit.decide(ACTIONS)  # all windows are closed
    assert bandit.broken_assumptions == []


@pytest.mark.parametrize("policy", [OTFLinUCB(window=400), OTFLinTS(window=400)])
def test_rankings_say_that_open_decisions_count_as_zero(policy):
    now = 0.0
    bandit = Bandit(3, family=Bernoulli(), policy=policy, seed=1, window=3600.0,
                    default_reward=0.0, clock=lambda: now)  # fmt: skip
    ids = [bandit.decide(ACTIONS).id for _ in range(300)]
    bandit.learn([(id, 1.0) for id in ids[:60]])
    said = " 240 of 300 decisions are open and count as zero: means are too low until"
    assert said in bandit.ranking(ACTIONS).verdict
    now += 3601.0
    bandit.decide(ACTIONS)
    assert " 1 of 301 decisions are open" in bandit.ranking(ACTIONS).verdict


def test_the_dashboard_and_explanations_say_so(tmp_path):
    client = Client()
    client.bandit(policy="otf-lin-ts:window=50", loop="conversion", window=3600.0)
    client("PATCH", "/v1/bandits/shop/actions", {"put": {"a": [1.0, 0.0], "b": [0.0, 1.0]}})
    ids = [client.decide()["decision_id"] for _ in range(6)]
    client.reward((ids[0], 1.0))
    best = client("GET", "/v1/dashboard")["bandit"]["best"]
    for words in (best["note"], best["verdict"]):
        assert "5 of 6 decisions are open and count as zero" in words
    snapshots.save(client.service.replica, tmp_path)
    restored = Replica(client.service.ledger)
    snapshots.load(restored, tmp_path)
    assert restored.fold("shop").heard_words().startswith("5 of 6 decisions are open")


def test_the_service_serves_it_and_says_when_its_window_is_too_short():
    client = Client()
    client.bandit(policy="otf-lin-ucb:window=5", loop="conversion", window=3600.0, open="silence")
    client("PATCH", "/v1/bandits/shop/actions", {"put": {"a": [1.0, 0.0], "b": [0.0, 1.0]}})
    for _ in range(6):
        decision = client.decide()
    client.reward((decision["decision_id"], 1.0))
    assert client("GET", "/v1/bandits/shop")["n_observed"] == 1
    assert "assumption-window" not in alarms(client)
    client.decide()
    assert "within 5 decisions; 6 were made" in alarms(client)["assumption-window"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: served(open="hold"), "open = 'hold': expected 'silence': OTFLinUCB counts a"),
        (lambda: served(OTFLinUCB()), r"window = None: expected a finite number of rounds, which "
         r"OTFLinUCB needs: pass OTFLinUCB\(window=...\)"),
        (lambda: served(loop="explicit", window=None, open="hold"), "or loop = 'conversion'"),
        (lambda: served(late="revise"), "late = 'revise': OTFLinUCB learns in one pass"),
        (lambda: served(default_reward=1.0), "default_reward = 1.0: expected 0"),
        (lambda: served(half_life=10.0), "half_life"),
        (lambda: served(combine="first"), "combine = 'first': expected None: OTFLinUCB learns"),
        (lambda: served(DelayedOFUGLM()), "open = 'silence': expected 'hold': DelayedOFUGLM of"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make().learner()


def test_windows_that_close_change_nothing():
    replica = lived(new_replica(served()), n=10)
    before = replica.folds["shop"].learner.state.theta.copy()
    replica.clock.now += HOUR + SECOND
    assert replica.expire() > 0
    assert np.array_equal(replica.folds["shop"].learner.state.theta, before)
