"""Logistic-UCB-1."""

import math

import numpy as np
import pytest

import naive.estimators
from belated import Bandit, Bernoulli, Binomial, Bounded
from belated.engine.reference import draw_world, play
from belated.policies import LogUCB1
from belated.worlds.environments import UnitBall
from support.optimistic import LATE, fresh_actions, norms, played


def test_log_ucb_width_by_hand():
    """d = 2, alpha = 2, m1 = 1, delta = 0.05, after 8 rewards."""
    bandit = Bandit(2, family=Bernoulli(), policy=LogUCB1(m1=1.0, delta=0.05))
    assert bandit.policy.alpha == 2.0
    assert pytest.approx(2.0 / 0.19661193 * np.eye(2), rel=1e-7) == bandit.W
    for k in range(8):
        bandit.decide([np.eye(2)[k % 2]])
    bandit.learn([(k + 1, float(k % 3 == 0)) for k in range(8)])
    # gamma = sqrt(2) 3/2 + sqrt(2) (log 20 + log 1.5 + 2 log 2)
    gamma = 1.5 * math.sqrt(2) + math.sqrt(2) * (2.9957323 + 0.4054651 + 1.3862944)
    assert bandit.sqrt_beta == pytest.approx(math.sqrt(3 / 0.19661193) * gamma, rel=1e-6)
    assert bandit.sqrt_beta == pytest.approx(34.736, abs=0.01)


@pytest.mark.parametrize("family", [Bernoulli(), Bounded(), Binomial(1)], ids=repr)
@pytest.mark.parametrize("m1", [0.5, 2.0])
def test_log_ucb_plays_its_formula_under_delay(family, m1):
    alpha, delta, d = 1.5, 0.1, 3
    bandit, _ = played(LogUCB1(m1=m1, alpha=alpha, delta=delta), family)
    assert bandit.n_missing > 2
    n, kappa = bandit.n_observed, 0.25 / math.cosh(m1 / 2) ** 2
    logs = math.log(1 / delta) + d / 2 * math.log(1 + n / (4 * d * alpha)) + d * math.log(2)
    gamma = math.sqrt(alpha) * (m1 + 0.5) + 2 / math.sqrt(alpha) * logs
    width = math.sqrt((1 + 2 * m1) / kappa) * gamma
    assert bandit.sqrt_beta == pytest.approx(width)
    assert bandit.radius == bandit.sqrt_beta + bandit.certificate.slack
    returned = ~np.isnan(bandit._history.y[:150])
    X, y = bandit._history.x[:150][returned], bandit._history.y[:150][returned]
    V = alpha / kappa * np.eye(d) + X.T @ X
    assert pytest.approx(bandit.W) == V
    exact = naive.estimators.mle("bernoulli", X, y, alpha, m1)
    gap = bandit.theta - exact
    assert math.sqrt(gap @ V @ gap) <= bandit.certificate.slack + 1e-9
    actions = fresh_actions(d)
    scores = 1 / (1 + np.exp(-actions @ bandit.theta)) + bandit.radius / 4 * norms(V, actions)
    decision = bandit.decide(actions)
    assert decision.index == np.argmax(scores)
    assert decision.score == pytest.approx(scores.max())
    assert decision.width == pytest.approx(bandit.radius * norms(V, actions)[decision.index])


def test_log_ucb_does_not_depend_on_the_unit_of_length():
    """Actions times c, m1 / c, max_norm times c: the same problem, the same rows."""
    c, runs = 4.0, []
    world = draw_world(UnitBall(9), 3, 100, 2)
    for scale in (1.0, c):
        bandit = Bandit(
            3, family=Bernoulli(), policy=LogUCB1(m1=1.0 / scale, tol=1e-9), max_norm=scale
        )
        scaled = world._replace(actions=scale * world.actions, theta_star=world.theta_star / scale)
        runs.append((bandit, play(bandit, scaled, LATE)))
    assert np.array_equal(runs[0][1].index, runs[1][1].index)
    assert runs[1][0].sqrt_beta == pytest.approx(runs[0][0].sqrt_beta, rel=1e-9)
    assert runs[1][0].theta == pytest.approx(runs[0][0].theta / c, rel=1e-6)


def test_log_ucb_covers():
    for seed in range(10):
        _, run = played(LogUCB1(delta=0.1), Bernoulli(), rounds=80, seed=seed)
        assert run.covered.all()
