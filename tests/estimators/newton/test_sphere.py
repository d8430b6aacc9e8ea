"""The estimate where the ball binds."""

import math

import numpy as np
import pytest

import naive.estimators
from belated import Bandit, DelayedOFUGLM
from belated.estimators.newton.fit import EIGENVALUE, MULTIPLIER, SHIFT, LazyNewton
from belated.estimators.newton.sphere import _solve_on_sphere, minimise_quadratic, settle_on_sphere
from belated.families import Bernoulli
from support.estimation import exact, make_family, scratch, taylor


@pytest.mark.parametrize("shift", [0.0, 1e-3, 0.2, 1.0, 50.0])
@pytest.mark.parametrize("warm_start", [0.0, 1e-3, 1.0, 1e6])
@pytest.mark.parametrize("radius", [0.05, 0.3, 0.79, 1.2])
def test_minimiser_on_the_ball(radius, warm_start, shift):
    """(H + nu I) theta = H ref - gradient with ||theta|| = radius and nu > 0, from any start."""
    for guess in ([0.0, 0.0], [0.3, 0.2], [-5.0, 1.0], [-0.3, 0.2]):
        _, fit, work = taylor(nu=warm_start, shift=shift)
        free = np.linalg.norm(fit.ref - np.linalg.solve(fit.H, fit.gradient))
        step, right = np.array(guess), fit.H @ fit.ref - fit.gradient
        minimise_quadratic(fit, fit.gradient, radius * free, 1e-8, step, work)
        theta, nu = fit.ref + step, fit.scalars[MULTIPLIER]
        expected, expected_nu = naive.estimators.minimiser_on_ball(fit.H, right, radius * free)
        assert np.allclose(theta, expected, rtol=1e-9, atol=1e-10)
        assert nu == pytest.approx(expected_nu, rel=1e-9, abs=1e-9)
        assert np.allclose((fit.H + nu * np.eye(2)) @ theta, right, rtol=1e-9)
        if radius < 1.0:
            assert nu > 0.0
            assert np.linalg.norm(theta) == pytest.approx(radius * free, rel=1e-12)
        assert np.allclose(fit.H_inv @ (fit.H + fit.scalars[SHIFT] * np.eye(2)), np.eye(2))


def test_three_ways_to_the_sphere():
    """The fixed point, More-Sorensen and root finding agree; and where the ball is wide enough."""
    rng = np.random.default_rng(3)
    settled = {}
    for k in range(400):
        d, n = 1 + k % 6, 1 + k % 11
        X, ridge = rng.standard_normal((n, d)), float(10 ** rng.uniform(-2, 1))
        H, right = X.T @ X + ridge * np.eye(d), 3.0 * rng.standard_normal(d)
        radius = np.linalg.norm(np.linalg.solve(H, right)) * rng.choice([0.2, 0.9, 0.999, 1.001, 2])
        expected, nu = naive.estimators.minimiser_on_ball(H, right, radius)
        y = np.linalg.lstsq(X.T, right, rcond=None)[0]
        if n >= d:  # the same as the estimate of the Gaussian family
            mle = naive.estimators.mle("gaussian", X, y, ridge, radius)
            assert np.allclose(mle, expected, rtol=1e-6, atol=1e-8)
        estimator = LazyNewton(ridge, 1.0, radius, 1e-8, 2)
        shift = nu * float(rng.choice([0.5, 0.99, 1.0, 1.1, 1e3])) + float(
            rng.choice([0.0, 1e-3, 1.0])
        )
        fit = estimator.new_fit(d)._replace(
            H=H,
            H_inv=np.linalg.inv(H + shift * np.eye(d)),
            scalars=np.array([0.0, 1.0, 1.0, np.linalg.eigvalsh(H)[0], 1.0, shift]),
        )
        size = np.sqrt(H.diagonal()).max() * radius
        theta = expected + rng.choice([0.0, 1e-3, 1.0]) * radius * rng.standard_normal(d)
        tol = 3e-11
        ok = settle_on_sphere(fit, fit.H_inv @ right, radius, tol, theta, np.empty(d))
        settled.setdefault((nu > 0.0, ok), []).append(k)
        if ok:
            gap = theta - expected
            assert math.sqrt(gap @ H @ gap) <= 0.04 * tol + 1e-13 * size
            assert fit.scalars[MULTIPLIER] == pytest.approx(nu, rel=1e-6, abs=1e-9)
            assert np.linalg.norm(theta) <= radius * (1 + 1e-15)
        for start in (0.0, 0.3 * nu, nu, 3.0 * nu + 1.0):
            fit.scalars[MULTIPLIER] = start
            _solve_on_sphere(fit, right, radius, theta, scratch(d))
            assert np.allclose(theta, expected, rtol=1e-9, atol=1e-12 * radius)
            assert fit.scalars[MULTIPLIER] == pytest.approx(nu, rel=1e-8, abs=1e-9)
    assert min(len(settled[active, ok]) for active in (True, False) for ok in (True, False)) > 10


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("name", ["bernoulli", "probit", "poisson"])
def test_on_the_ball_and_back(name, order):
    """Rewards push the estimate out of the ball and pull it in again; the shift lags behind."""
    family, seen = make_family(name), set()
    high = 2.0 if name == "poisson" else 1.0
    for seed, m1, lam, tol in ((0, 0.3, 1.0, 1e-2), (1, 0.1, 5.0, 1e-6), (2, 0.5, 0.1, 0.3)):
        rng = np.random.default_rng(seed)
        d = 1 + seed
        X = rng.uniform(0.2, 1.0, (60, d)) / math.sqrt(d)
        y = np.repeat([high, 0.0, high], [12, 24, 24])
        policy = DelayedOFUGLM(m1=m1, lam=lam, R=1.0, tol=tol, order=order)
        bandit = Bandit(d, family=family, policy=policy)
        for s in range(60):
            bandit.learn(bandit.decide(X[s : s + 1]).id, y[s])
            fit, error = bandit._state.fit, bandit.certificate.error
            gap = bandit.theta - exact(name, bandit, X[: s + 1], y[: s + 1])
            assert error <= tol
            assert math.sqrt(gap @ fit.H @ gap) <= error * (1 + 1e-6) + 1e-10
            assert np.linalg.norm(bandit.theta) <= m1 * (1 + 1e-14)
            assert fit.scalars[EIGENVALUE] <= np.linalg.eigvalsh(fit.H)[0] * (1 + 1e-9)
            shifted = fit.H + fit.scalars[SHIFT] * np.eye(d)
            assert np.allclose(fit.H_inv @ shifted, np.eye(d), atol=1e-9)
            seen.add((bool(fit.scalars[MULTIPLIER] > 0.0), bool(fit.scalars[SHIFT] > 0.0)))
    assert {(True, True), (False, False)} <= seen  # not held yet, or no longer, and held


@pytest.mark.parametrize("order", [2, 3])
def test_the_ball_lets_go_when_the_data_cancel(order):
    """Three successes, then three failures: the multiplier is positive when the gradient is 0."""
    policy = DelayedOFUGLM(m1=0.05, lam=1.0, tol=10.0, order=order)
    bandit = Bandit(1, family=Bernoulli(), policy=policy)
    for k, y in enumerate([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]):
        bandit.decide([[1.0]])
        bandit.learn(k + 1, y)
    assert bandit.theta == pytest.approx(0.0, abs=1e-12)
