"""A bandit in memory that waits for windows, with a clock of its own."""

import os
import pickle
import subprocess
import sys
import tracemalloc
from copy import copy, deepcopy

import numpy as np
import pytest

from belated import AssumptionWarning, Bandit, Bernoulli, DelayedOFUGLM, Gaussian
from belated.core.events import ConflictingRewardError
from belated.learner.action_intervals import LEVEL_UNKNOWN
from belated.ledger.stores.memory import MemoryLedger

ACTIONS = np.eye(3)
HOUR = 3600.0


class Watch:
    """A clock that is set by hand."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds

    def __call__(self):
        return self.seconds


def shop(watch, **more):
    settings = {"window": HOUR, "default_reward": 0.0, **more}
    return Bandit(3, family=Bernoulli(), seed=1, clock=watch, **settings)


def lived(watch, bandit, rounds=80, minutes=3):
    """Decides every few minutes; every fourth decision converts within the hour."""
    rng, to_come, chosen = np.random.default_rng(2), [], []
    for k in range(rounds):
        watch.seconds += 60.0 * minutes
        due = [id for time, id in to_come if time <= watch.seconds]
        to_come = [(time, id) for time, id in to_come if time > watch.seconds]
        if due:
            bandit.learn([(id, 1.0) for id in due])
        decision = bandit.decide(ACTIONS)
        chosen.append(decision.index)
        if k % 4 == 0:
            to_come.append((watch.seconds + rng.uniform(0.0, HOUR), decision.id))
    return chosen


@pytest.mark.parametrize("open", ["hold", "silence"])
def test_is_the_bandit_with_a_ledger(open):
    one, other = Watch(), Watch()
    private, ledger = shop(one, open=open), shop(other, open=open, ledger=MemoryLedger())
    assert lived(one, private) == lived(other, ledger)
    assert private.n_observed > 0
    assert private.fingerprint() == ledger.fingerprint()


def test_days_pass_in_an_instant():
    watch = Watch()
    bandit = shop(watch, open="hold")
    ids = [bandit.decide(ACTIONS).id for _ in range(40)]
    bandit.learn([(id, 1.0) for id in ids[:10]])
    assert (bandit.n_observed, bandit.n_missing) == (0, 40)
    assert bandit.waiting == "10 rewards held, 0 learnt; the first window closes in 1 hour"
    watch.seconds += HOUR + 1.0
    with pytest.warns(AssumptionWarning, match="1 of these rewards came after the window"):
        late = bandit.learn(ids[20], 1.0)  # the window has closed: it is kept, and not learnt
    assert bandit.learn(ids[21], 1.0) == 1  # one warning is enough
    assert bandit.n_late == 2
    assert Bandit(3, family=Bernoulli()).n_late == 0
    assert (late, bandit.n_observed, bandit.n_missing) == (1, 40, 0)
    assert bandit._history.y[:40].sum() == 10.0
    assert bandit.waiting == ""


def test_once_all_windows_are_closed_silence_is_holding():
    thetas, slacks = [], []
    for open in ("silence", "hold"):
        watch = Watch()
        policy = "adaptive-thompson:strength=1e12"  # a learnt prior depends on when it was learnt
        bandit = shop(watch, open=open, policy=policy)
        ids = [bandit.decide(ACTIONS[k % 3 : k % 3 + 1]).id for k in range(60)]
        watch.seconds += HOUR / 2
        bandit.learn([(id, 1.0) for id in ids[::4]])
        bandit.decide(ACTIONS[:1])
        if open == "silence":
            assert bandit.n_observed == 15  # before any window has closed
            assert bandit.ranking(ACTIONS).verdict.endswith(LEVEL_UNKNOWN)
        watch.seconds += HOUR + 1.0  # nobody decides any more
        assert (bandit.n_observed, bandit.n_missing) == (61, 0)
        assert LEVEL_UNKNOWN not in bandit.ranking(ACTIONS).verdict
        thetas.append(bandit._learner.exact_theta())
        slacks.append(bandit.certificate.error)
    np.testing.assert_allclose(*thetas, atol=1e-9)
    assert max(slacks) <= 0.1  # the tol of the policy


def test_the_next_campaign_knows_what_came_of_the_last_one():
    """Everybody is written to at once, purchases come one by one, and nobody decides meanwhile."""
    watch = Watch()
    bandit = shop(watch, window=96 * HOUR)
    sent = bandit.decide_many([ACTIONS] * 300)
    watch.seconds += 14 * HOUR
    for decision in [one for one in sent if one.index == 1][:30]:
        bandit.learn(decision.id, 1.0)
    assert bandit.n_observed >= 28
    chosen = [one.index for one in bandit.decide_many([ACTIONS] * 300)]
    assert chosen.count(1) > 290
    before = bandit.ranking(ACTIONS).best.mean
    watch.seconds += 24 * HOUR  # and nobody buys: silence is heard before the third campaign
    bandit.decide_many([ACTIONS] * 300)
    assert bandit.ranking(ACTIONS).best.mean < 0.7 * before


def test_rewards_have_a_time_and_an_event_id():
    watch = Watch(1e6)
    bandit = Bandit(
        3,
        family=Gaussian(sd=1.0),
        window=HOUR,
        grace=600.0,
        default_reward=0.0,
        combine="sum",
        clock=watch,
    )
    id = bandit.decide(ACTIONS).id
    watch.seconds += HOUR + 300.0
    assert bandit.learn(id, 2.0, at=1e6 + 60.0, event_id="basket") == 1
    assert bandit.learn(id, 3.0, at=1e6 + HOUR, event_id="shoes") == 1
    assert bandit.learn(id, 3.0, at=1e6 + HOUR, event_id="shoes") == 0
    assert bandit.learn(id, 9.0, event_id="too late") == 1
    watch.seconds += 301.0
    bandit.decide(ACTIONS)
    assert bandit._history.y[0] == 5.0


def test_a_window_alone_expires_decisions_and_learns_at_once():
    watch = Watch()
    bandit = Bandit(3, family=Bernoulli(), policy=DelayedOFUGLM(), window=HOUR, clock=watch)
    first, second = (bandit.decide(ACTIONS).id for _ in range(2))
    assert bandit.learn(first, 1.0) == 1
    with pytest.raises(ConflictingRewardError, match=r"expected 1\.0"):
        bandit.learn(first, 0.0)
    watch.seconds += HOUR + 1.0
    bandit.learn(second, 1.0)
    assert bandit.n_observed == 1


def test_half_lives_in_seconds_go_by_the_clock():
    watch = Watch()
    for settings in ({}, {"window": 100 * HOUR}):
        watch.seconds = 0.0
        bandit = Bandit(
            2, family=Gaussian(sd=1.0), policy="thompson", half_life=HOUR,
            half_life_unit="seconds", clock=watch, **settings,
        )  # fmt: skip
        bandit.learn(bandit.decide([[1.0, 0.0]]).id, 1.0)
        watch.seconds += HOUR
        bandit.decide([[0.0, 1.0]])
        assert bandit._history.weight[0] == pytest.approx(0.5, rel=0.02)


def test_memory_for_a_decision_and_its_reward():
    bandit = shop(Watch(), policy="uniform", window=1e6)
    bandit.learn(bandit.decide(ACTIONS).id, 1.0)
    tracemalloc.start()
    for _ in range(500):
        bandit.learn(bandit.decide(ACTIONS).id, 0.0)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size / 500 < 2_000  # bytes


def test_cannot_be_copied_or_saved(tmp_path):
    bandit = shop(Watch())
    bandit.decide(ACTIONS)
    for attempt in (copy, deepcopy, pickle.dumps, lambda b: b.save(tmp_path / "saved")):
        with pytest.raises(TypeError, match="keep it in a ledger, such as ledger='sqlite:///"):
            attempt(bandit)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tells", [-1.0, float("nan"), float("inf"), "noon", 1e12])
@pytest.mark.parametrize(
    "settings", [{"half_life": 9.0, "half_life_unit": "seconds"}, {"window": HOUR}]
)
def test_a_clock_that_tells_no_time(tells, settings):
    watch = Watch()
    bandit = Bandit(3, family=Bernoulli(), clock=watch, **settings)
    watch.seconds = tells
    with pytest.raises(ValueError, match=r"clock\(\) = .*: expected seconds since 1970"):
        bandit.decide(ACTIONS)
    watch.seconds = 1e9
    assert bandit.n_decided == 0


def test_a_clock_is_a_function():
    with pytest.raises(TypeError, match="clock = 3"):
        Bandit(3, family=Bernoulli(), clock=3)


def test_settings_that_do_not_fit_are_refused_as_with_a_ledger():
    with pytest.raises(ValueError, match="window = None: expected seconds to wait"):
        Bandit(3, family=Bernoulli(), default_reward=0.0)
    with pytest.raises(ValueError, match="window = -1"):
        Bandit(3, family=Bernoulli(), window=-1.0)
    bandit = Bandit(3, family=Bernoulli())
    id = bandit.decide(ACTIONS).id
    with pytest.raises(TypeError, match=r"at = 3\.0: expected with window= or ledger= only"):
        bandit.learn(id, 1.0, at=3.0)


def test_the_log_is_imported_when_it_is_needed():
    code = """
import sys
from belated.bandit import Bandit
bandit = Bandit(2, family="bernoulli", clock=lambda: 0.0)
assert "belated.ledger" not in sys.modules
Bandit(2, family="bernoulli", window=3.0)
assert "belated.ledger.stores.memory" in sys.modules
"""
    plain = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=plain)
