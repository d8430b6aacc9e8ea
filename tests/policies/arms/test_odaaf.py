"""ODAAF plays its phases."""

import numpy as np
import pytest

import naive.arms
from belated.model.plain_policy import started
from belated.policies import ODAAF
from belated.worlds.delays import Constant, Uniform
from support.arms import SEED, played


@pytest.mark.parametrize("known", [{}, {"max_delay": 30.0}, {"max_delay": 1.0}, {"variance": 9.0}])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_odaaf_rounds_of_a_phase(m, known):
    policy = ODAAF(expected_delay=5.0, horizon=5000, **known)
    assert policy.rounds_of(m) == naive.arms.odaaf_rounds(m, 5000, 5.0, **known)


def test_odaaf_golden_values():
    """T = 1000, E = 10, m = 1: l = log 250, ceil(4 (sqrt(2 l) + sqrt(10/3 l + 30))^2) and so on."""
    assert ODAAF(10.0, 1000).rounds_of(1) == 423
    assert ODAAF(10.0, 1000, variance=0.0).rounds_of(1) == 363
    assert ODAAF(10.0, 1000, max_delay=5.0).rounds_of(1) == 363
    assert ODAAF(10.0, 1000, max_delay=400.0).rounds_of(1) == 400
    assert ODAAF(10.0, 1000, max_delay=1e9).rounds_of(1) == 423


@pytest.mark.parametrize("known", [{}, {"max_delay": 12.0}, {"variance": 20.0}])
@pytest.mark.parametrize("delay", [Constant(0.0), Uniform(6.0)], ids=repr)
def test_odaaf_plays_its_phases(delay, known):
    rounds, theta_star = 3000, np.array([-1.0, 2.0, 1.0])
    policy = ODAAF(6.0 if delay.mean else 0.0, **known)._replace(horizon=rounds)
    run, player = played(policy, delay, rounds, theta_star=theta_star)
    totals = np.bincount(
        run.arrives[run.arrives <= rounds].astype(int),
        run.reward[run.arrives <= rounds],
        rounds + 1,
    )
    if delay.mean == 0.0:
        assert totals[1:].tolist() == run.reward.tolist()
    arms, sets = naive.arms.odaaf(
        3, rounds, policy.expected_delay, lambda arm, t: totals[t] if t <= rounds else 0.0, **known
    )
    assert run.index.tolist() == arms
    assert sets[0] == [1, 2]
    assert player.active in sets


def test_odaaf_drops_in_the_phase_of_the_gap():
    """Means 0.9, 0.55, 0.3 without noise: gaps 0.6 > 1/2, then 0.35 > 1/4."""
    rounds, means = 20_000, [0.9, 0.55, 0.3]
    player = started(ODAAF(0.0, rounds), 3, SEED)
    sets = []
    for t in range(1, rounds + 1):
        arm = player.choose(np.eye(3), t)
        if not sets or player.active != sets[-1]:
            sets.append(player.active)
        player.observe_total(means[arm], t)
    assert sets == [[0, 1, 2], [0, 1], [0]]
    n = [player.policy.rounds_of(m) for m in (1, 2)]
    # three arms, a bridge, two arms; then the best for good
    assert player.pulls.tolist() == [rounds - n[1] - n[0], n[1], n[0]]
    assert player.observed.tolist() == [n[1], n[1], n[0]]  # the bridge and the rest are ignored


def test_odaaf_without_a_phase_plays_on():
    run, _ = played(ODAAF(1.0, 10), Constant(1.0), rounds=10)
    assert (run.index == 0).all()
