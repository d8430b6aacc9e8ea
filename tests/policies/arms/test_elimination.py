"""Elimination of arms under delay, whatever is hidden."""

import math

import numpy as np
import pytest

from belated.model.plain_policy import started
from belated.policies import OPSE, DelayedElimination
from belated.worlds.delays import Constant, Empirical, Exponential, Informative, Never
from support.arms import SEED, K, played, returned


@pytest.mark.parametrize("delay", [Constant(0.0), Exponential(60.0), Empirical([3.0, np.inf])])
@pytest.mark.parametrize("kind", [DelayedElimination, OPSE])
def test_elimination_drops_by_its_bounds(kind, delay):
    rounds, theta_star = 600, np.array([3.0, -3.0, 0.0, 2.0])
    run, _ = played(kind(rounds), delay, rounds, theta_star=theta_star)
    active, t, dropped = list(range(K)), 1, []
    while t <= rounds:
        sweep = run.index[t - 1 : t - 1 + len(active)].tolist()
        assert sweep == active[: len(sweep)]
        t += len(active)
        rows = returned(run, t)
        S = np.bincount(run.index[rows], minlength=K)
        O = np.bincount(run.index[rows], run.reward[rows], K)  # noqa: E741
        N = np.bincount(run.index[: t - 1], minlength=K)
        if kind is OPSE:
            w = np.sqrt(2 * math.log(rounds) / N)
            low, high = O / N - w, (O + N - S) / N + w
        else:
            w = np.sqrt(2 * math.log(rounds) / np.maximum(1, S))
            mean = np.where(S > 0, O / np.maximum(1, S), 0.0)
            low, high = mean - w, mean + w
        left = [i for i in active if not any(high[i] < low[j] for j in active)]
        dropped += [i for i in active if i not in left]
        active = left
    assert set(dropped) <= {1, 2}
    never_sure = kind is OPSE and delay == Empirical([3.0, np.inf])  # half of it is missing
    assert (1 in dropped) != never_sure


def hides(player, best, rounds, luck):
    """Success of the best arm and failure of the others never return; all else at once."""
    means = np.full(K, 0.3)
    means[best] = 0.9
    for t in range(1, rounds + 1):
        arm = player.choose(np.eye(K), t)
        y = float(luck.random() < means[arm])
        if (y == 1.0) != (arm == best):
            player.observe(np.eye(K)[arm], y, t)
    return player


def test_opse_keeps_the_best_arm_whatever_is_hidden():
    rounds = 2000
    for seed in range(5):
        kept = hides(started(OPSE(rounds), K, SEED), 2, rounds, np.random.default_rng(seed))
        assert 2 in kept.active
        fooled = started(DelayedElimination(rounds), K, SEED)
        assert 2 not in hides(fooled, 2, rounds, np.random.default_rng(seed)).active


def test_opse_drops_what_is_worse_whatever_is_missing():
    """Zeros never return, here of all arms: the best keeps, those with next to no ones go."""
    theta_star, rounds = np.array([5.0, -5.0]), 1000
    hide_zeros, hide_ones = Informative(), Informative(above=Never(), below=Constant(0.0))
    for delay in (hide_zeros, hide_ones):
        _, player = played(OPSE(rounds), delay, rounds, theta_star=theta_star)
        assert 0 in player.active
    run, _ = played(OPSE(rounds), Constant(20.0), rounds, theta_star=theta_star)
    assert (run.index[-100:] == 0).all()
