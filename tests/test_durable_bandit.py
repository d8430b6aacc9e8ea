"""Bandit(ledger=...): the same calls, and nothing lost."""

import os
import signal
import subprocess
import sys
import time
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from belated import (
    Bandit,
    Bernoulli,
    ConflictingRewardError,
    DelayedOFUGLM,
    Gaussian,
    UnknownDecisionError,
)
from belated.features import Features
from belated.ledger.events import START, Kind
from belated.ledger.memory import MemoryLedger
from belated.ledger.sqlite import SQLiteLedger

ACTIONS = [[0.6, 0.0], [0.0, 0.8], [0.3, 0.3]]


def shop(ledger, **settings):
    return Bandit(
        dim=2, family=Bernoulli(), policy=DelayedOFUGLM(), seed=1, ledger=ledger, **settings
    )


def test_equals_a_bandit_without_ledger(tmp_path):
    durable = shop(f"sqlite:///{tmp_path}/a.db")
    plain = Bandit(dim=2, family=Bernoulli(), policy=DelayedOFUGLM(), seed=1)
    rng, waiting = np.random.default_rng(3), []
    for k in range(60):
        actions = rng.normal(size=(5, 2)) / 4
        a, b = durable.decide(actions), plain.decide(actions)
        assert (a.index, a.score, a.estimate, a.width) == (b.index, b.score, b.estimate, b.width)
        waiting.append((a.id, b.id, float(k % 2)))
        if k % 4 == 0:
            a_id, b_id, y = waiting.pop(int(rng.integers(len(waiting))))
            assert durable.learn(a_id, y) == plain.learn(b_id, y) == 1
            assert durable.learn(a_id, y) == plain.learn(b_id, y) == 0
    assert np.array_equal(durable.theta, plain.theta)
    assert durable.fingerprint() == plain.fingerprint()
    assert durable.n_missing == plain.n_missing
    assert durable.interval([0.1, 0.1]) == plain.interval([0.1, 0.1])


def test_goes_on_after_a_restart(tmp_path):
    url = f"sqlite:///{tmp_path}/a.db"
    first = shop(url)
    decisions = [first.decide(ACTIONS) for _ in range(5)]
    first.learn(decisions[0].id, 1.0)
    before = first.fingerprint()
    first.close()
    second = shop(url)
    assert second.fingerprint() == before
    assert second.learn([(d.id, 0.0) for d in decisions[1:]]) == 4
    assert second.n_missing == 0


CHILD = """
import sys
import time
sys.path.insert(0, sys.argv[2])
from test_durable_bandit import ACTIONS, shop
bandit = shop(sys.argv[1])
for k in range(10**9):
    decision = bandit.decide(ACTIONS)
    print("decided", decision.id, flush=True)
    if k % 2:
        bandit.learn(decision.id, 1.0)
        print("rewarded", decision.id, flush=True)
"""


def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path):
    url = f"sqlite:///{tmp_path}/a.db"
    acknowledged = {"decided": set(), "rewarded": set()}
    for k in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, url, str(Path(__file__).parent)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        )
        with child:
            for line in child.stdout:
                kind, id = line.split()
                acknowledged[kind].add(id)
                if len(acknowledged["decided"]) >= 40 * (k + 1):
                    child.send_signal(signal.SIGKILL)
                    break
    bandit = shop(url)
    assert bandit.n_decided >= len(acknowledged["decided"]) >= 120
    for id in acknowledged["decided"]:
        new = bandit.learn(id, 1.0)
        assert new == 0 or id not in acknowledged["rewarded"]


def test_conversions_wait_for_their_window():
    ledger = MemoryLedger()
    bandit = shop(ledger, window=0.05, default_reward=0.0)
    decisions = [bandit.decide(ACTIONS) for _ in range(2)]
    bandit.learn(decisions[0].id, 1.0)
    assert bandit.n_observed == 0

    time.sleep(0.1)
    bandit.decide(ACTIONS)
    assert bandit.n_observed == 2
    kinds = [event.kind for event in ledger.follow(START)[0]]
    assert kinds.count(Kind.EXPIRED) == 2


def test_errors_leave_everything_as_it_was(tmp_path):
    ledger = SQLiteLedger(tmp_path / "a.db")
    bandit = shop(ledger)
    first, second = bandit.decide(ACTIONS), bandit.decide(ACTIONS)
    bandit.learn(first.id, 1.0)
    before = bandit.fingerprint()
    with pytest.raises(ConflictingRewardError, match=r"reward = 0.0 .*expected 1.0"):
        bandit.learn([(second.id, 1.0), (first.id, 0.0)])
    with pytest.raises(ConflictingRewardError):
        bandit.learn([(second.id, 1.0), (second.id, 0.0)])
    with pytest.raises(UnknownDecisionError, match="id = 7"):
        bandit.learn([(second.id, 1.0), (7, 1.0)])
    with pytest.raises(UnknownDecisionError, match=r"pass decision\.id"):
        bandit.learn(second, 1.0)
    stranger = shop(MemoryLedger()).decide(ACTIONS)
    with pytest.raises(UnknownDecisionError):
        bandit.learn([(second.id, 1.0), (stranger.id, 1.0)])
    with pytest.raises(ValueError, match="a whole number from 0 to 1"):
        bandit.learn([(second.id, 0.5)])
    with pytest.raises(ValueError, match="norm"):
        bandit.decide([[3.0, 0.0]])
    assert bandit.fingerprint() == before
    with pytest.raises(TypeError, match="cannot be copied"):
        deepcopy(bandit)
    with pytest.raises(TypeError, match="with ledger= only"):
        Bandit(dim=2, family=Bernoulli(), policy=DelayedOFUGLM(), window=3.0)
    with pytest.raises(ValueError, match=r"family = .*another name"):
        Bandit(dim=2, family=Gaussian(sd=1.0), policy=DelayedOFUGLM(), ledger=ledger)
    with pytest.raises(ValueError, match=r"expected sqlite:///file\.db"):
        shop("shop.db")


def test_features_and_contexts(tmp_path):
    features = Features(numeric=["price"], categorical=["ad"], interactions=[("price", "ad")])
    rows = [{"price": 1.0, "ad": "a"}, {"price": 3.0, "ad": "b"}]
    features.fit(rows)

    def new():
        return Bandit(
            family=Gaussian(sd=1.0),
            policy=DelayedOFUGLM(),
            features=features,
            ledger=f"sqlite:///{tmp_path}/a.db",
        )

    first = new()
    decision = first.decide([{"ad": "a"}, {"ad": "b"}], {"price": 2.0})
    first.learn(decision.id, 0.3)
    assert new().fingerprint() == first.fingerprint()
