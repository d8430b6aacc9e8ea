"""Whether forgetting would have predicted the last day better, against explicit fits."""

import numpy as np
import pytest

from belated import Bernoulli, Gaussian
from belated.ledger.tools.half_lives import DAYS, _final_rewards, would_forgetting_help
from belated.policies import AdaptiveThompson, LinUCB
from belated.policies.glb_omd import GLBOMD
from support.replicas import DIM, HOUR, decide, explicit, new_replica

EVERY = HOUR // 3  # between two decisions


def shop(turns, days=6, family=None, policy=None, **settings):
    """A replica whose rewards come two hours late; a truth that turns does so every two days."""
    rng = np.random.default_rng(3)
    spec = explicit(family or Gaussian(), policy or LinUCB(alpha=1.0), **settings)
    replica, ids = new_replica(spec), []
    for k in range(days * 72):
        replica.clock.now += EVERY
        ids.append(decide(replica, rng))
        if k >= 4:
            x = replica.folds["shop"].learner.history.x[k - 4]
            truth = np.eye(DIM)[(k // 144) % DIM if turns else 0]
            y = 2.0 * x @ truth + rng.normal()
            replica.reward([(ids[k - 4], float(y if family is None else y > 0.5))])
    return replica


def test_gains_are_those_of_explicit_fits():
    replica = shop(turns=True, half_life=30.0)  # what the bandit forgets itself does not matter
    view = would_forgetting_help(replica.ledger, "shop", replica.clock())
    history, n = replica.folds["shop"].learner.history, 6 * 72
    x, y = history.x[:n], history.y[:n]
    times = np.arange(1, n + 1) * EVERY
    known = times + 4 * EVERY <= times[-1] - 24 * HOUR
    new = ~known & ~np.isnan(y)
    assert view.n_rewards == new.sum()
    losses = {}
    for days in (None, *DAYS):
        tick = np.inf if days is None else round(days * 24 * HOUR / 16)
        start = 1_700_000_000 * 10**6
        ticks = np.zeros(n) if days is None else (start + times) // 1000 * 1000 // tick
        made = times <= times[-1] - 24 * HOUR
        w = 2.0 ** ((ticks - ticks[made].max()) / 16)
        X, W = x[known], w[known]
        theta = np.linalg.solve(np.eye(DIM) + (X.T * W) @ X, X.T @ (W * y[known]))
        losses[days] = (y[new] - x[new] @ theta) ** 2 / 2
    for seen, days in zip(view.half_lives, DAYS, strict=True):
        gains = losses[None] - losses[days]
        assert seen.half_life == days * 86_400
        assert seen.gain == pytest.approx(gains.mean(), abs=1e-9)
        assert seen.error == pytest.approx(gains.std(ddof=1) / np.sqrt(new.sum()), abs=1e-9)
    assert view.sentence.startswith("With a half-life of 1 day the last day's 72 rewards are")
    assert 'set half_life = 86400, half_life_unit = "seconds".' in view.sentence


def test_conversions_count_when_their_window_is_over():
    spec = {"loop": "conversion", "window": 3600.0, "open": "silence"}
    replica, rng = (
        new_replica(explicit(policy=AdaptiveThompson(), **spec)),
        np.random.default_rng(1),
    )
    for k in range(10):
        replica.clock.now += HOUR // 4
        replica.expire()
        id = decide(replica, rng)
        if k % 2:
            replica.reward([(id, 1.0)])
    fold, now = replica.folds["shop"], replica.clock()
    assert fold.learner.history.y[7] == 1.0  # it was made half an hour ago
    final = _final_rewards(fold, now)
    assert np.isnan(final[6:]).all()  # the seventh was made 45 minutes ago
    np.testing.assert_array_equal(final[:5], fold.learner.history.y[:5])
    assert np.isnan(_final_rewards(fold, now - HOUR)[2:]).all()


def test_a_shop_that_stays_needs_no_forgetting():
    replica = shop(turns=False)
    view = would_forgetting_help(replica.ledger, "shop", replica.clock())
    assert view.sentence.startswith("No half-life of 1, 3, 10 or 30 days predicts the last day's")
    assert max(seen.gain for seen in view.half_lives) < 0.05


def test_few_rewards_say_nothing():
    replica = shop(turns=False, days=1)
    view = would_forgetting_help(replica.ledger, "shop", replica.clock())
    assert view.sentence == (
        "Too few to say whether forgetting would help: 68 rewards of the last day, 0 before."
    )
    assert view.half_lives == []


def test_a_policy_that_cannot_forget():
    replica = shop(turns=False, days=1, family=Bernoulli(), policy=GLBOMD())
    view = would_forgetting_help(replica.ledger, "shop", replica.clock())
    assert view.sentence == "GLBOMD cannot forget: no half-life was tried."


def test_no_such_bandit():
    with pytest.raises(KeyError, match="bandit = 'shoe': expected one of this ledger"):
        would_forgetting_help(new_replica(explicit()).ledger, "shoe", 0)
