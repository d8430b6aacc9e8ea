"""What the error of the law of the delay adds to intervals, against a law that is moved."""

import numpy as np
import pytest

from belated import Bernoulli, Poisson
from belated.core.sparse import dense
from belated.estimators.laplace.fit import take_terms
from belated.estimators.laplace.silence import slopes_by_law
from belated.learner import heard_law
from belated.learner.action_intervals import intervals
from belated.learner.heard_law import HeardLaw, variances_of_law
from belated.learner.learner import Learner
from belated.learner.rows import rows_between
from belated.model.protocols import derivatives, silence_derivatives
from belated.policies import AdaptiveThompson

DIM, ROWS, CELLS = 3, 400, 3
FACTORS = np.array([[0.0, 0.4, 0.7], [0.0, 0.6, 0.9]])  # of two groups
GROUPS = np.arange(ROWS) // 2 % 2
CELL, INTO = np.random.default_rng(3).integers(CELLS, size=ROWS), np.linspace(0.02, 0.98, ROWS)


def within(factors):
    below = np.cumprod(factors[:, ::-1], axis=1)[:, ::-1]
    return np.concatenate((below, np.ones((2, 1))), axis=1)


def silence(factors, rows):
    """The share of conversions that have come at the ages of these rows, linear within a cell."""
    law, g, j = within(factors), GROUPS[rows], CELL[rows]
    return law[g, j] + INTO[rows] * (law[g, j + 1] - law[g, j])


def hearing(family, base):
    """A learner of ``ROWS`` decisions, of which half are silent."""
    rng, policy = np.random.default_rng(1), AdaptiveThompson(prior_sd=0.7, strength=1e12)
    learner = Learner(DIM, family, policy, 1.0, {"ad": 2, "intercept": 1}, hears=True)
    for _ in range(ROWS):
        ad = float(rng.random() < 0.5)
        learner.decide(np.array([[ad, 1.0 - ad, 1.0]]), rng)
    rate = np.exp(base)
    rewards = rng.poisson(rate, ROWS).clip(0, 1 if family == Bernoulli() else None)
    learner.learn({row: float(rewards[row]) for row in range(0, ROWS, 2)})
    rows = np.arange(1, ROWS, 2)
    learner.hear(rows, silence(FACTORS, rows))
    return learner, rows


def put_at_the_mode(learner):
    """Lets the posterior be that at the mode: a bandit's Hessian is of an earlier estimate."""
    fit, n = learner.state.fit, learner.n_decided
    take_terms(fit)
    learner.state.theta[:] = learner.exact_theta()
    x, H = dense(rows_between(learner.history, 0, n), DIM), np.diag(fit.precision[fit.group])
    for row, y, F in zip(x, learner.history.y[:n], learner.history.silence[:n], strict=True):
        z = float(row @ learner.state.theta)
        open_ = silence_derivatives(learner.family, z, F)[1]
        H += np.outer(row, row) * (open_ if np.isnan(y) else derivatives(learner.family, z)[1])
    fit.S[:] = np.linalg.inv(H)


@pytest.mark.parametrize("family", [Bernoulli(), Poisson()], ids=str)
def test_the_mode_moves_with_a_factor_as_is_said(family):
    X = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, -1.0, 0.0]])
    learner, rows = hearing(family, base=-2.5)
    for g, k in [(0, 1), (0, 2), (1, 1), (1, 2)]:
        moved, h = [], 1e-4
        for sign in (1.0, -1.0):
            factors = FACTORS.copy()
            factors[g, k] *= np.exp(sign * h)
            learner.hear(rows, silence(factors, rows))
            moved.append(learner.exact_theta())
        learner.hear(rows, silence(FACTORS, rows))
        put_at_the_mode(learner)
        variance = np.zeros((2, CELLS))
        variance[g, k] = 1.0
        learner.law = HeardLaw(within(FACTORS), variance, GROUPS)
        exact = X @ (moved[0] - moved[1]) / (2.0 * h)
        assert np.abs(exact).max() > 1e-3
        assert (exact[:2] < 0.0).all()  # the more should have come, the lower the rates
        np.testing.assert_allclose(np.sqrt(variances_of_law(learner, X)), np.abs(exact), rtol=1e-5)


@pytest.mark.parametrize("family", [Bernoulli(), Poisson()], ids=str)
def test_slopes_are_those_of_the_pull(family):
    z, F, h = np.array([-4.0, -0.5, 1.0, 0.0]), np.array([0.1, 0.5, 0.99, 1.0]), 1e-6
    found = np.empty(4)
    slopes_by_law(family, z, F, found)
    for k in range(3):
        up, down = (silence_derivatives(family, z[k], F[k] * np.exp(e))[0] for e in (h, -h))
        assert found[k] == pytest.approx((up - down) / (2.0 * h), rel=1e-6)
    assert found[3] == 0.0  # its window is over: no factor is left


def test_intervals_are_wider_and_means_are_as_they_were():
    learner, _ = hearing(Bernoulli(), base=-2.5)
    X = np.array([[1.0, 0.0, 1.0]])
    ((mean, low, high),) = intervals(learner, X)
    learner.law = HeardLaw(within(FACTORS), np.full((2, CELLS), 0.05), GROUPS)
    ((same, lower, higher),) = intervals(learner, X)
    assert same == mean
    assert lower < low < high < higher


def test_of_many_silent_rows_a_sample_is_looked_at(monkeypatch):
    learner, _ = hearing(Bernoulli(), base=-2.5)
    learner.law = HeardLaw(within(FACTORS), np.full((2, CELLS), 0.05), GROUPS)
    X = np.array([[1.0, 0.0, 1.0]])
    whole = variances_of_law(learner, X)
    monkeypatch.setattr(heard_law, "SAMPLE", 70)
    np.testing.assert_allclose(variances_of_law(learner, X), whole, rtol=0.25)
