"""PatientBandits (Gael et al. 2020): its index by hand, its bound, and Figure 5 of the paper."""

import math
from typing import NamedTuple

import numpy as np
import pytest

from belated import Bernoulli
from belated.engine.plain_lane import OwnPlayer
from belated.engine.reference import draw_world, play
from belated.policies import ConversionsUCB, PatientBandits
from belated.worlds.delays import Exponential
from belated.worlds.environments import FixedArms
from belated.worlds.feedback import Conversions, feedback_for

SEED = np.random.SeedSequence(5)


def regret(policy, means, tails, rounds, *, window=math.inf, seed=1):
    """Of one run on Bernoulli arms whose delays are Pareto I: P(D > m) = m^-tail, arm by arm."""
    rng, K = np.random.default_rng(seed), len(means)
    player, arms, due, lost = policy.start(K, rng), np.eye(K), {}, 0.0
    for t in range(1, rounds + 1):
        arm = player.choose(arms, t)
        lost += max(means) - means[arm]
        late = math.ceil(min(rng.random() ** (-1.0 / tails[arm]), 2.0 * rounds))
        if rng.random() < means[arm] and late <= window:
            due.setdefault(t + late, []).append((arm, t))
        for played, s in due.pop(t, ()):
            player.observe(arms[played], 1.0, s)
    return lost


class Tail(NamedTuple):
    """The law of which D-UCB is told in the paper's experiments."""

    index: float

    def survival(self, t):
        return 1.0 if t < 1.0 else t**-self.index


def test_golden_indices():
    """2 / 4 + sqrt(2 log(4e9) / 4) + 2 / 4^0.3, and the same for 3 of 9."""
    player = PatientBandits(alpha=0.3, horizon=1000).start(2, None)
    player.meet(2)
    player.pulls[:], player.total[:] = [4, 9], [2.0, 3.0]
    assert player.indices() == pytest.approx([5.14438, 3.58448], abs=1e-5)
    steep = PatientBandits(alpha=3.0, horizon=1000).start(2, None)
    steep.meet(2)
    steep.pulls[:], steep.total[:] = [4, 9], [2.0, 3.0]
    assert steep.indices()[0] == pytest.approx(0.5 + math.sqrt(0.5 * math.log(4e9)) + 1.0)


@pytest.mark.parametrize("alpha", [0.2, 0.5, 2.0])
def test_plays_its_formula_under_delay(alpha):
    K, T = 4, 300
    world = draw_world(FixedArms(np.eye(K)), K, T, 3, np.array([0.2, -1.5, 1.2, 0.0]))
    policy = PatientBandits(alpha, T)
    player = OwnPlayer(policy, Bernoulli(), K, SEED)
    run = play(player, world, Exponential(12.0), feedback=feedback_for(policy))
    assert feedback_for(policy) == Conversions(math.inf)
    assert run.index[:K].tolist() == list(range(K))
    for t in range(K + 1, T + 1):
        back = np.flatnonzero(run.arrives[: t - 1] <= t - 1)
        N = np.bincount(run.index[: t - 1], minlength=K)
        S = np.bincount(run.index[back], run.reward[back], minlength=K)
        index = S / N + np.sqrt(2 * math.log(2 * K * T**3) / N) + 2 * N ** -min(alpha, 0.5)
        assert run.index[t - 1] == np.argmax(index), t
    assert (run.arrives > T).sum() > T / 4  # zeros never return


@pytest.mark.parametrize("a", [0.01, 0.2, 0.35, 0.5])
def test_the_last_term_has_room_for_a_round(a):
    """A pull of age m is missing with probability m^-a at most; here m starts one lower."""
    for N in (1, 2, 3, 10, 1000):
        assert 1 + sum(m**-a for m in range(1, N)) <= 2 * N ** (1 - a)


def test_figure_5_of_the_paper():
    """The best arm has the heavier tail: D-UCB loses all rounds, PatientBandits finds the arm.

    After 5000 rounds the figure shows 980 for D-UCB with a threshold of 10, and 430 for
    PatientBandits with alpha = 0.1 and 0.5; 1000 is what playing the other arm costs.
    Its D-UCB is a censored variant of ``ConversionsUCB``, told the same law and threshold.
    """
    means, tails, T = (0.6, 0.8), (1.0, 0.3), 5000
    assert regret(ConversionsUCB(Tail(0.7), 10), means, tails, T, window=10) > 930
    for alpha in (0.1, 0.5):
        first, last = (
            regret(PatientBandits(alpha, T), means, tails, rounds) for rounds in (T // 2, T)
        )
        assert last < 430
        assert last - first < 0.8 * first  # it slows down


@pytest.mark.parametrize(("alpha", "printed"), [(0.1, 85.0), (0.5, 40.0)])
def test_figure_4_is_not_that_of_the_printed_width(alpha, printed):
    """Equal delays, 5000 rounds: the width of Theorem 1 loses some three to four times as much."""
    measured = regret(PatientBandits(alpha, 5000), (0.6, 0.8), (0.7, 0.7), 5000)
    assert 2.0 < measured / printed < 5.0


def test_values_are_checked():
    with pytest.raises(ValueError, match=r"alpha = 0\.0: expected"):
        PatientBandits(alpha=0.0)
    with pytest.raises(TypeError, match=r"horizon = 1\.5: expected a whole number"):
        PatientBandits(horizon=1.5)
    with pytest.raises(ValueError, match=r"horizon = None: expected the number of rounds, which"):
        PatientBandits().start(2, None)
