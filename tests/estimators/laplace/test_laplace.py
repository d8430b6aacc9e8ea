"""Laplace's posterior against Newton's method and MacKay's formulas in plain NumPy."""

import numpy as np
import pytest
from scipy.optimize import brentq

from belated.core.sparse import dense
from belated.estimators.laplace.fit import BLOCK, NARROW, RENEWED, VARIANCE, take_terms
from belated.estimators.laplace.refitting import _land
from belated.families import Bernoulli, Binomial, Gaussian, Poisson, Probit
from belated.learner.learner import Learner
from belated.learner.rows import rows_between
from belated.model.protocols import derivatives
from belated.model.state import ERROR
from belated.policies import AdaptiveThompson

FIXED = AdaptiveThompson(prior_sd=0.7, strength=1e12)
GROUPS = {"ad": 3, "place": 2, "intercept": 1}
FAMILIES = [Bernoulli(), Binomial(3), Poisson(), Probit(), Gaussian(sd=0.5)]


def played(family, n, policy=FIXED, seed=0, dim=6, groups=GROUPS, batch=1):
    """Returns a learner with ``n`` rewards of sparse rows, and rows and rewards as arrays."""
    rng = np.random.default_rng(seed)
    learner = Learner(dim, family, policy, 1.0, groups)
    truth = rng.normal(size=dim) * 0.5
    truth[-1] = -1.0
    rewards = {}
    for t in range(n):
        X = np.zeros((4, dim))
        X[np.arange(4), rng.integers(3, size=4)] = 1.0
        X[:, 3 + rng.integers(2)] = rng.normal()
        X[:, -1] = 1.0
        index = learner.decide(X, rng).index
        mean = derivatives(family, float(X[index] @ truth))[0]
        rewards[t] = _reward(family, mean, rng)
        if len(rewards) == batch or t == n - 1:
            learner.learn(rewards)
            rewards = {}
    x = dense(rows_between(learner.history, 0, n), dim)
    return learner, x, learner.history.y[:n].copy()


def _reward(family, mean, rng):
    if isinstance(family, Gaussian):
        return mean + 0.5 * rng.normal()
    if isinstance(family, Poisson):
        return float(rng.poisson(mean))
    if isinstance(family, Binomial):
        return float(rng.binomial(3, mean / 3.0))
    return float(rng.random() < mean)


def slopes(family, z):
    mu, slope, _ = np.array([derivatives(family, value) for value in z]).T
    return mu, slope


def hessian(learner, x, theta):
    fit = learner.state.fit
    phi = fit.scalars[1]
    _, slope = slopes(learner.family, x @ theta)
    return (x.T * slope) @ x / phi + np.diag(fit.precision[fit.group])


def exact_mode(learner, x, y):
    """Newton's method with halved steps, from zero."""
    fit = learner.state.fit
    precision, phi = fit.precision[fit.group], fit.scalars[1]
    theta = np.zeros(x.shape[1])
    for _ in range(200):
        mu, _ = slopes(learner.family, x @ theta)
        gradient = x.T @ (mu - y) / phi + precision * theta
        step = -np.linalg.solve(hessian(learner, x, theta), gradient)
        theta = theta + step * min(1.0, 1.0 / max(1e-300, np.abs(x @ step).max()))
    return theta


@pytest.mark.parametrize("family", FAMILIES, ids=str)
@pytest.mark.parametrize("n", [3, 60])
def test_estimate_is_the_mode_within_its_certificate(family, n):
    learner, x, y = played(family, n)
    mode = exact_mode(learner, x, y)
    error = learner.state.theta - mode
    off = np.sqrt(error @ hessian(learner, x, learner.state.theta) @ error)
    assert off <= learner.state.scalars[ERROR] + 1e-9
    assert off <= FIXED.tol
    assert learner.state.scalars[ERROR] < 1.0
    np.testing.assert_allclose(learner.exact_theta(), mode, atol=1e-9)


def landed(family, center, ref, step, n=1000, precision=1e-10):
    """Returns theta and its certificate for n rows of 1, where Newton's step is given."""
    learner = Learner(1, family, AdaptiveThompson(prior_sd=precision**-0.5, strength=1e12), 1.0)
    fit, H = learner.state.fit, n * derivatives(family, center)[1] + precision
    fit.center[:], fit.ref[:], fit.step[:], fit.longest[:] = center, ref, step, 1.0
    fit.gradient[:], fit.S[:], fit.scalars[VARIANCE] = -H * step, 1.0 / H, 1.0 / H
    error, cut = _land(family, learner.state)
    assert not cut
    return learner.state.theta[0], error


def test_a_certificate_counts_slopes_as_far_as_the_center():
    """With half of 1,000 rewards 1 the mode is 0; a tiny step from there, seen from far off.

    The gradient behind that step is below rounding, so it is set by hand.
    """
    theta, error = landed(Probit(), center=7.0, ref=0.0, step=-1e-7)
    H = 1000 * derivatives(Probit(), theta)[1]
    assert abs(theta) * np.sqrt(H) <= error


@pytest.mark.parametrize(("family", "proved"), [(Bernoulli(), True), (Probit(), False)], ids=str)
def test_a_certificate_counts_slopes_as_far_as_the_mode(family, proved):
    """It allows a mode farther off than the constant of probit was taken for."""
    slope, M = derivatives(family, 0.0)[1], 1.0 if proved else 1.4
    D = brentq(lambda D: D * np.exp(D) * np.expm1(D) - 0.9, 0.1, 1.0)
    _, error = landed(family, center=0.0, ref=0.0, step=D / M, n=100)
    if proved:
        k = M / np.sqrt(100 * slope) * np.exp(0.5 * D)
        assert error == pytest.approx(-np.log(0.1) / k, rel=1e-6)
    else:
        assert error == np.inf


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_covariance_is_the_inverse_hessian_at_the_center(family):
    learner, x, _ = played(family, 50)
    fit = learner.state.fit
    take_terms(fit)
    S = np.triu(fit.S) + np.triu(fit.S, 1).T
    np.testing.assert_allclose(S @ hessian(learner, x, fit.center), np.eye(6), atol=1e-10)


def test_order_and_batches_of_rewards_do_not_matter():
    one, x, y = played(Bernoulli(), 60)
    rng = np.random.default_rng(3)
    other = Learner(6, Bernoulli(), FIXED, 1.0, GROUPS)
    for row in x:
        other.decide(row[np.newaxis], rng)
    order = rng.permutation(60)
    for part in np.array_split(order, 7):
        other.learn({int(row): float(y[row]) for row in part})
    np.testing.assert_allclose(other.exact_theta(), one.exact_theta(), atol=1e-10)


def test_an_exchanged_reward_counts_as_if_it_had_come_first():
    from belated.model.steps import DECIDE, LEARN, REVISE

    learner, x, y = played(Bernoulli(), 30)
    nothing = np.zeros((0, 6))
    learner.fold(np.array([REVISE]), nothing, np.array([4]), np.array([1 - y[4]]), np.ones(1, int))
    fresh = Learner(6, Bernoulli(), FIXED, 1.0, GROUPS)
    y[4] = 1 - y[4]
    zeros, n = np.zeros(30, np.int64), np.arange(30)
    fresh.fold(np.full(30, DECIDE), x, zeros, np.zeros(30), zeros)
    fresh.fold(np.full(30, LEARN), nothing, n, y, np.ones(30, np.int64))
    np.testing.assert_allclose(learner.exact_theta(), fresh.exact_theta(), atol=1e-10)


def renewed_again(learner):
    """Lets the learner renew its prior though no reward is new."""
    learner.state.fit.scalars[RENEWED] = 1.0
    learner.learn({})


def test_variances_follow_mackays_fixed_point():
    """One renewal, by the formulas: from the mode and the covariance before it."""
    learner, _, _ = played(Bernoulli(), 40, AdaptiveThompson())
    fit, theta = learner.state.fit, learner.state.theta.copy()
    take_terms(fit)
    expected = []
    for g in range(2):
        mine = fit.group == g
        gamma = mine.sum() - fit.precision[g] * np.diag(fit.S)[mine].sum()
        assert 0.0 < gamma < mine.sum()
        expected.append((gamma + 1.0) / ((theta[mine] ** 2).sum() + 0.5**2))
    renewed_again(learner)
    np.testing.assert_allclose(fit.precision[:2], expected, rtol=1e-12)
    assert fit.precision[2] == 10.0**-2  # the constant's


def test_a_learnt_prior_is_the_evidences_maximum():
    """Iterated to the end, each precision solves gamma / ||m||^2 = precision."""
    policy = AdaptiveThompson(strength=1e-9)
    learner, x, y = played(Gaussian(sd=0.5), 300, policy, batch=300)
    for _ in range(100):
        renewed_again(learner)
    fit = learner.state.fit
    take_terms(fit)
    theta, diagonal = learner.state.theta, np.diag(fit.S)
    for g in range(2):
        mine = fit.group == g
        gamma = mine.sum() - fit.precision[g] * diagonal[mine].sum()
        assert fit.precision[g] == pytest.approx(gamma / (theta[mine] ** 2).sum(), rel=1e-3)

    def evidence(precision):
        prior = precision[fit.group]
        H = x.T @ x / 0.25 + np.diag(prior)
        m = np.linalg.solve(H, x.T @ y / 0.25)
        fits = ((y - x @ m) ** 2).sum() / 0.25 + prior @ m**2
        return 0.5 * (np.log(prior).sum() - np.linalg.slogdet(H)[1] - fits)

    best = evidence(fit.precision)
    for g in range(2):
        for factor in (0.8, 1.25):
            changed = fit.precision.copy()
            changed[g] *= factor
            assert evidence(changed) < best


def test_the_noise_of_gaussian_rewards_is_learnt():
    learner, _, _ = played(Gaussian(sd=None), 400, AdaptiveThompson(), batch=20)
    assert np.sqrt(learner.state.fit.scalars[1]) == pytest.approx(0.5, rel=0.1)


def test_rewards_of_another_scale_give_the_same_posterior_on_that_scale():
    """Money in cents must not change what is played."""
    in_euros, x, y = played(Gaussian(sd=None), 120, AdaptiveThompson(), batch=10)
    in_cents = Learner(6, Gaussian(sd=None), AdaptiveThompson(), 1.0, GROUPS)
    rng = np.random.default_rng(0)
    for t, row in enumerate(x):
        in_cents.decide(row[np.newaxis], rng)
        if t % 10 == 9:
            in_cents.learn({k: 100.0 * float(y[k]) for k in range(t - 9, t + 1)})
    np.testing.assert_allclose(
        in_cents.state.theta / 100.0, in_euros.state.theta, rtol=0.02, atol=0.01
    )


def test_amounts_of_any_size_are_not_shrunk_to_zero():
    """Orders of 5,000 cents around a known noise of 100: the constant follows at once."""
    rng = np.random.default_rng(0)
    learner = Learner(1, Gaussian(sd=100.0), AdaptiveThompson(), 1.0, {"intercept": 1})
    for t in range(20):
        learner.decide(np.ones((1, 1)), rng)
        learner.learn({t: 5000.0 + 100.0 * rng.normal()})
    assert learner.state.theta[0] == pytest.approx(5000.0, rel=0.02)


@pytest.mark.compiled
def test_wide_rows_take_their_terms_in_by_blocks():
    """Above NARROW features the terms of the covariance wait; nothing else differs."""
    dim, rng = NARROW + 44, np.random.default_rng(0)
    learner = Learner(dim, Bernoulli(), FIXED, 1.0, {"wide": dim - 1, "intercept": 1})
    rows = []
    for t in range(3 * BLOCK + 5):
        X = np.zeros((3, dim))
        X[np.arange(3), rng.integers(dim - 1, size=3)] = 1.0
        X[:, -1] = 1.0
        rows.append(X[learner.decide(X, rng).index])
        learner.learn({t: float(rng.random() < 0.3)})
    x, y = np.array(rows), learner.history.y[: len(rows)]
    np.testing.assert_allclose(learner.exact_theta(), exact_mode(learner, x, y), atol=1e-8)
    error = learner.state.theta - exact_mode(learner, x, y)
    off = np.sqrt(error @ hessian(learner, x, learner.state.theta) @ error)
    assert off <= learner.state.scalars[ERROR]
