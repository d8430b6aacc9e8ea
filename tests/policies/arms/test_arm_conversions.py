"""Optimistic policies of K arms for conversions within a window."""

import math

import numpy as np
import pytest

import naive.arms
from belated import Bernoulli
from belated.engine.worlds import Lane, WorldSettings, play_world
from belated.policies import ConversionsKLUCB, ConversionsUCB
from belated.worlds.delays import Empirical, Exponential, Geometric
from belated.worlds.environments import FixedArms
from belated.worlds.feedback import Conversions, feedback_for
from support.arms import LATE, K, played, returned, untried


@pytest.mark.parametrize("window", [math.inf, 9.5, 0.0])
@pytest.mark.parametrize("law", [Exponential(6.0), Geometric(4.0), Empirical([2.0, 5.0, np.inf])])
@pytest.mark.parametrize("kind", [ConversionsUCB, ConversionsKLUCB])
def test_conversions_play_their_formula(kind, law, window):
    rounds = 150
    policy = kind(law, window, eps=0.5)
    run, player = played(policy, law, rounds)

    def shown(u):
        return 1.0 - law.survival(min(u, math.floor(window) if window < math.inf else u))

    for t in range(1, rounds + 1):
        rows = returned(run, t)
        assert (run.reward[rows] == 1.0).all()
        S = np.bincount(run.index[rows], minlength=K)
        N = np.bincount(run.index[: t - 1], minlength=K)
        n = naive.arms.weighted_pulls(run.index, K, t, shown)
        arm = untried(n, run, t)
        if arm is not None:
            assert run.index[t - 1] == arm, t
            continue
        if kind is ConversionsUCB:
            index = S / n + np.sqrt(N / n) * np.sqrt(1.5 * math.log(t) / (2 * n))
        else:
            slow = naive.arms.PoissonKLUCB(K, 0.5)
            index = [slow.index(s / m, m, t) for s, m in zip(S, n, strict=True)]
        assert index[run.index[t - 1]] >= max(index) - 1e-9, t  # equal but for rounding, often
    last = naive.arms.weighted_pulls(run.index, K, rounds + 1, shown)
    assert player.weighted_pulls() == pytest.approx(last)
    if window == 9.5:
        assert player.rounds - player.oldest <= 9  # older pulls need no looking after


def test_conversions_are_counted_without_bias():
    """E[S] = theta times the weighted pulls: the timing of F is that of the rounds."""
    law, p, S, n = Exponential(10.0), 1 / (1 + math.exp(-1.2)), 0.0, 0.0
    rounds, runs = 10, 300
    for seed in range(runs):
        _, player = played(ConversionsUCB(law), law, rounds, seed, theta_star=np.array([1.2]))
        S, n = S + player.total[0], n + player.weighted_pulls()[0]
    assert abs(S / n - p) < 3 * math.sqrt(p / n)
    later = runs * sum(1 - law.survival(u) for u in range(1, rounds + 1))
    assert S / later < p - 3 * math.sqrt(p / later)  # F(t - s) counts a round too many


def test_windows_must_match():
    policy = ConversionsUCB("exponential:8", window=30.0)
    for window in (math.inf, 29.0):
        settings = WorldSettings(
            FixedArms(np.eye(2)),
            2,
            9,
            0,
            0,
            np.array([9]),
            (Lane(policy, Bernoulli(), LATE),),
            feedback=Conversions(window),
        )
        with pytest.raises(ValueError, match=r"window = 30\.0: expected .*as in the feedback"):
            play_world(settings)
    assert feedback_for(policy) == Conversions(30.0)
    play_world(settings._replace(feedback=Conversions(30.0)))
