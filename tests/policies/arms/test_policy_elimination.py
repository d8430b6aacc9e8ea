"""Elimination of policies: its constraint, and the policies it drops."""

import math

import numpy as np
import pytest

import naive.arms
from belated.model.plain_policy import started
from belated.policies import PolicyElimination
from belated.worlds.delays import Constant
from support.arms import SEED, played


@pytest.mark.parametrize(("rows", "N", "rounds"), [(4, 30, 400), (2, 4, 2500)])
def test_policy_elimination_keeps_its_constraint(rows, N, rounds):
    """Load of every policy left at most 2 K; chances, estimates, drops as the formulas say."""
    rng, delta, late = np.random.default_rng(1), 0.1, 5
    sets, table = rng.uniform(-0.5, 0.5, (3, rows, 2)), rng.integers(rows, size=(N, 3))
    table[0], table[-1] = 0, 1
    weights = np.array([0.5, 0.3, 0.2])
    player = started(PolicyElimination(sets, table, weights, delta), 2, SEED)
    active, value, n, due = np.ones(N, bool), np.zeros(N), 0, {}
    for t in range(1, rounds + 1):
        x = rng.choice(3, p=weights)
        arm = player.choose(sets[x], t)
        if n:
            b = 2 * math.sqrt(2 * rows * math.log(4 * N * n**2 / delta) / n)
            active &= value / n >= (value[active] / n).max() - 2 * b
        assert np.array_equal(player.active, active)
        assert player.P[~active].sum() == 0.0
        assert player.P.sum() == pytest.approx(1.0)
        log_term = math.log(4 * N * (n + 1) ** 2 / delta)
        mu = min(1 / (2 * rows), math.sqrt(log_term / (2 * rows * (n + 1))))
        load, chances = naive.arms.policy_elimination_load(table, weights, player.P, mu, rows)
        assert load[active].max() <= 2 * rows + 1e-6
        assert chances.sum(1) == pytest.approx(1.0)
        assert player.made[t] == (x, pytest.approx(chances[x, arm]))
        due[t + late] = t, x, arm, chances[x, arm]
        if t in due:
            s, x, arm, p = due.pop(t)
            y = float(arm == 0)  # the first row is the best in every context
            player.observe(sets[x][arm], y, s)
            value += [y / p if policy[x] == arm else 0.0 for policy in table]
            n += 1
    assert active[0]
    assert active[-1] == (rows == 4)  # the other has had the time


def test_policy_elimination_finds_a_distribution():
    """At small mu, too, and from next to no weight on the policies that are needed."""
    rng = np.random.default_rng(2)
    for rows, policies, mu in ((10, 300, 1e-4), (3, 2, 0.1), (6, 40, 1e-9), (2, 500, 0.25)):
        n = 4
        table = rng.integers(rows, size=(policies, n))
        table[:-1] = np.minimum(table[:-1], rows - 2)  # one policy alone plays the last row
        table[-1] = rows - 1
        sets = rng.uniform(size=(n, rows, 1))
        player = started(PolicyElimination(sets, table), 1, SEED)
        player.meet(rows)
        player.P = np.where(np.arange(policies) == 0, 1.0, 1e-12)
        chances = player.chances(mu)
        load, slow = naive.arms.policy_elimination_load(table, np.full(n, 0.25), player.P, mu, rows)
        assert chances == pytest.approx(slow)
        assert load.max() <= 2 * rows + 1e-6


def test_policy_elimination_drops_bad_policies():
    rounds = 3000
    run, player = played(
        PolicyElimination(), Constant(10.0), rounds, theta_star=np.array([3.0, -3.0])
    )
    assert player.active.tolist() == [True, False]
    assert (run.index[-500:] == 0).mean() > 0.85
    mean = run.reward[run.index == 1].mean()
    assert abs(player.sums[1] / player.observed.sum() - mean) < 0.1


def test_policy_elimination_knows_its_contexts():
    player = started(PolicyElimination(np.ones((2, 3, 2))), 2, SEED)
    with pytest.raises(
        ValueError, match=r"actions in round 1 = [^:]*: expected one of the contexts"
    ):
        player.choose(np.zeros((3, 2)), 1)
    player = started(PolicyElimination(np.ones((2, 3, 2)), [[2, 2]]), 2, SEED)
    with pytest.raises(
        ValueError, match=r"actions in round 1 = [^:]*: expected one of the contexts"
    ):
        player.choose(np.ones((2, 2)), 1)
    player = started(PolicyElimination(policies=[[2]]), 2, SEED)
    with pytest.raises(ValueError, match=r"policies = .*whole numbers from 0 to 2 - 1"):
        player.choose(np.ones((2, 2)), 1)
