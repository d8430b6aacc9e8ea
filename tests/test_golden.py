"""Numbers that were computed elsewhere, by hand or by another program."""

import math

import numpy as np
import pytest

from belated import Bandit, Bernoulli, Binomial, DelayedOFUGLM, Gaussian, Poisson, Probit, Tanh
from belated.worlds.delays import (
    Exponential,
    Lomax,
    Pareto,
    Uniform,
    arrival,
    expected_missing,
    quantile,
)

DELTA = 0.05 / 3


def test_micro_example():
    """Three rounds with known arrivals: W, V, G and the width after each."""
    X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    tau = [1.2, 0.0, 5.0]
    arrives = [arrival(s + 1, tau[s]) for s in range(3)]
    assert arrives == [3, 2, 8]
    bandit = Bandit(2, family=Gaussian(sd=1.0), policy=DelayedOFUGLM(m1=1.0, lam=1.0, delta=DELTA))
    assert bandit.sqrt_beta == pytest.approx(3.8615886, abs=1e-7)
    missing, W, widths = [], [], []
    for t in range(3):
        decision = bandit.decide(X[t : t + 1])
        assert decision.id == t + 1
        due = [(s + 1, 0.0) for s in range(t + 1) if arrives[s] == t + 1]
        bandit.learn(due)
        missing.append(bandit.n_missing)
        W.append(bandit.W)
        widths.append(bandit.sqrt_beta)
    assert missing == [1, 1, 1]
    assert np.array_equal(W[0], np.eye(2))
    assert np.array_equal(W[1], np.diag([1.0, 2.0]))
    assert np.array_equal(W[2], np.diag([2.0, 2.0]))
    assert np.array_equal(bandit.V, np.diag([3.0, 2.0]))
    assert np.array_equal(bandit.V - bandit.W, np.diag([1.0, 0.0]))
    assert widths[1] == pytest.approx(3.9802410, abs=1e-7)
    assert widths[2] == pytest.approx(4.0943470, abs=1e-7)


def test_logistic_width_before_any_reward():
    bandit = Bandit(4, family=Bernoulli(), policy=DelayedOFUGLM(m1=1.0, lam=1.0, delta=DELTA))
    assert bandit.sqrt_beta == pytest.approx(8.2772505, abs=1e-7)
    assert bandit.policy.R / bandit.policy.kappa == pytest.approx(2.54308, abs=1e-5)


@pytest.mark.parametrize(
    ("m1", "kappa"), [(1, 0.19661193), (2, 0.10499359), (3, 0.04517666), (5, 0.00664806)]
)
def test_logistic_kappa(m1, kappa):
    assert Bernoulli().kappa(m1) == pytest.approx(kappa, abs=5e-9)


def test_table_of_families():
    """L_mu, M_mu, kappa(1), R of the family table."""
    far = 10.0
    assert Bernoulli().lipschitz(far) == 0.25
    assert Bernoulli().curvature(far) == pytest.approx(1 / (6 * math.sqrt(3)))
    assert Binomial(9).R == 1.5
    assert Binomial(9).kappa(1.0) == pytest.approx(9 * 0.19661193, abs=1e-7)
    assert Tanh().curvature(far) == pytest.approx(0.7698, abs=1e-4)
    assert Tanh().kappa(1.0) == pytest.approx(1 - math.tanh(1) ** 2)
    assert Probit().lipschitz(far) == pytest.approx(0.39894, abs=1e-5)
    assert Probit().curvature(far) == pytest.approx(0.24197, abs=1e-5)
    assert Probit().kappa(1.0) == pytest.approx(0.24197, abs=1e-5)
    assert Poisson().R is None
    assert Poisson().kappa(2.0) == pytest.approx(math.exp(-2))
    assert Gaussian(sd=0.5).a_phi == 0.25


def test_thirty_successes():
    """The counterexample to the paper's use of kappa outside the ball: d = 1, x = 1."""
    thirty = [(k + 1, 1.0) for k in range(30)]
    estimates = {}
    for constrained in (True, False):
        policy = DelayedOFUGLM(m1=1.0, constrained=constrained, tol=1e-10)
        bandit = Bandit(1, family=Bernoulli(), policy=policy)
        for _ in range(30):
            bandit.decide([[1.0]])
        bandit.learn(thirty)
        estimates[constrained] = bandit.theta[0]
    assert estimates[False] == pytest.approx(3.696, abs=5e-4)
    assert estimates[True] == pytest.approx(1.0, abs=1e-12)
    # the inequality the paper's proof needs at theta_star = 1, with the width that is left of it
    theta, W = estimates[False], 31.0
    kappa = Bernoulli().kappa(1.0)
    sigma = [1 / (1 + math.exp(-z)) for z in (theta, 1.0)]
    g = 30 * (sigma[0] - sigma[1]) + kappa * (theta - 1.0)
    assert kappa * (theta - 1.0) * math.sqrt(W) == pytest.approx(2.951, abs=1e-3)
    assert g / math.sqrt(W) == pytest.approx(1.414, abs=1e-3)


def test_expected_missing():
    assert expected_missing(Exponential(100.0), 20_000) == pytest.approx(100.50083, abs=1e-5)
    assert expected_missing(Exponential(1000.0), 60_000) == pytest.approx(1000.50008, abs=1e-5)
    assert expected_missing(Uniform(50.0), 1000) == pytest.approx(50.5, abs=1e-9)


def test_pareto_readings():
    """Both have infinite variance; within 100,000 rounds all four settings are one delay of 11."""
    T = 100_000
    for expected, censored in ((100, 10.9), (250, 11.3), (500, 11.4), (1000, 11.4)):
        lomax, pareto = Lomax(expected), Pareto(expected)
        assert lomax.mean == expected
        assert pareto.mean == expected + 1
        a = lomax.shape
        assert (1 - (1 + T) ** (1 - a)) / (a - 1) == pytest.approx(censored, abs=0.05)
        # the same from the law itself: E[min(tau, T)] lies between the sums of P(tau > i)
        upper = expected_missing(lomax, T)
        assert upper - 1 <= censored + 0.05
        assert upper >= censored - 0.05
    # P(tau <= 20) >= 0.95 is the paper's remark on type I; Lomax is there at 19 already
    assert 1 - Pareto(1000).survival(20) >= 0.95 > 1 - Pareto(1000).survival(19)
    assert 1 - Lomax(1000).survival(19) >= 0.95
    assert quantile(Pareto(100), 0.0) == 1.0
    assert quantile(Lomax(100), 0.0) == 0.0
