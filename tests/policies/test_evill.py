"""EVILL: its slow twin, its law and the certificate of its shifted estimate."""

import math

import numpy as np
import pytest

import naive.estimators
import naive.families
import naive.randomised
from belated import Bandit, Bernoulli, Gaussian, Poisson, Probit
from belated.estimators.newton.fit import WAITING, LazyNewton
from belated.estimators.perturbed import shift_error, shift_estimate, third_gradient
from belated.numerics.lowered.third_derivative import BATCH, add_thirds, multiply_all_pairs
from belated.policies import EVILL, LinTS
from belated.policies.evill import perturb
from belated.policies.shared.sampling import DRAW
from support.randomised import DELAYS, MANY, assert_normal, given_data, samples, watched


@pytest.mark.parametrize("delay", DELAYS, ids=repr)
def test_evill_is_its_slow_twin(delay):
    pair = watched(
        EVILL(scale=0.7, lam=0.6),
        Gaussian(0.4),
        lambda d, rng: naive.randomised.EVILL("gaussian", d, 0.6, rng, a=0.7, a_phi=0.16),
        delay,
    )
    assert all(pair.agreed)


@pytest.mark.parametrize("delay", DELAYS, ids=repr)
@pytest.mark.parametrize("scale", [0.2, 1.0])
def test_evill_for_logistic_rewards_is_its_slow_twin(scale, delay):
    """Up to what the Taylor model leaves, which falls with the cube of the scale."""
    pair = watched(
        EVILL(scale=scale, drift=1e-3),
        Bernoulli(),
        lambda d, rng: naive.randomised.EVILL("bernoulli", d, 1.0, rng, a=scale, a_phi=1.0),
        delay,
        rounds=60,
    )
    assert np.mean(pair.agreed) > 0.93
    assert max(pair.behind) < 0.05 * scale


def test_evill_is_lin_ts_in_law():
    """theta -+ a s U^-1 z with the same z: mirror images, and the normal law is symmetric."""
    evill, _, _ = given_data(EVILL(scale=1.7, lam=0.5), Gaussian(0.6))
    lin, _, _ = given_data(LinTS(scale=1.7, lam=0.5, inflated=False), Gaussian(0.6))
    one, other = samples(evill, 50) - evill.theta, samples(lin, 50) - lin.theta
    assert np.allclose(one, -other, rtol=1e-10)
    assert np.ptp(one) > 0.1


@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_evill_perturbation_has_the_law_of_the_papers_sum(family):
    """Both are N(0, a^2 a(phi) H); for standard noise the paper's sum is spelled out."""
    a, lam = 1.3, 0.4
    kind = Gaussian() if family == "gaussian" else Bernoulli()
    bandit, X, y = given_data(EVILL(scale=a, lam=lam, drift=1e-6), kind)
    theta = naive.estimators.unconstrained_mle(family, X, y, lam)
    covariance = a**2 * naive.estimators.objective(family, X, y, lam, theta)[2]
    rng, w, ours = np.random.default_rng(1), bandit._state.work[DRAW], np.empty((MANY, 2))
    for draw in ours:
        perturb(bandit.policy, bandit._state, w, rng)
        draw[:] = w
    papers = [
        naive.randomised.evill_perturbation(family, X, theta, lam, a, rng) for _ in range(MANY)
    ]
    for draws in (ours, np.array(papers)):
        assert_normal(draws, 0.0, covariance)


def test_third_gradient():
    rng = np.random.default_rng(0)
    for d in (1, 2, 5, 9):
        X, weights = rng.standard_normal((BATCH + 3, d)), rng.standard_normal(BATCH + 3)
        s = rng.standard_normal(d)
        fit, out = LazyNewton(1.0, 1.0, math.inf, 1e-2, 3).new_fit(d), np.empty(d)
        multiply_all_pairs(X[:BATCH], fit.T3)
        add_thirds(X[:BATCH], weights[:BATCH], fit.T3)
        fit.waiting[:3], fit.bends[:3], fit.scalars[WAITING] = X[BATCH:], weights[BATCH:], 3
        third_gradient(fit, s, out)
        full = naive.estimators.third_derivative(X, weights)
        assert out == pytest.approx(np.einsum("ijk,i,j->k", full, s, s) / 2)


@pytest.mark.parametrize("family", [Bernoulli(), Poisson(), Probit()], ids=repr)
def test_shifted_estimate_is_certified(family):
    """Never farther from the exact minimiser than the certificate says; of third order in w."""
    name, d = type(family).__name__.lower(), 3
    bandit, X, y = given_data(EVILL(drift=1e-6), family, n=300, d=d)
    H = naive.estimators.objective(
        name, X, y, 1.0, naive.estimators.unconstrained_mle(name, X, y, 1.0)
    )[2]
    rng, state = np.random.default_rng(2), bandit._state
    errors, shifts, bounds = [], [], []
    for scale in (0.05, 0.2, 0.8, 3.0, 30.0):
        z = rng.standard_normal((20, d))
        for w in scale * z @ naive.randomised.upper_factor(H):
            out = np.empty(d)
            shift_estimate(state.fit, state, w, out)
            exact = naive.estimators.perturbed_mle(name, X, y, 1.0, w)
            off = out - exact
            errors.append(math.sqrt(off @ state.fit.H @ off))
            shifts.append(math.sqrt((exact - bandit.theta) @ H @ (exact - bandit.theta)))
            bounds.append(shift_error(bandit.estimator, family, state, w, out))
    errors, shifts, bounds = (np.reshape(v, (5, 20)) for v in (errors, shifts, bounds))
    assert (errors <= bounds * (1 + 1e-6) + 1e-7).all()
    assert np.isfinite(bounds[:2]).all()
    assert bounds[0].max() < 0.05
    assert errors[0].max() < 2e-3
    assert (errors[2] < 0.05 * shifts[2]).all()


@pytest.mark.parametrize("family", [Bernoulli(), Poisson()], ids=repr)
def test_the_third_order_pays(family):
    """The Taylor model of order 3 is nearer to the exact minimiser than that of order 2."""
    name, rng, n = type(family).__name__.lower(), np.random.default_rng(0), 200
    X = rng.uniform(-1.0, 1.0, (n, 3)) / math.sqrt(3)
    mean = naive.families.FAMILIES[name][0](2.0 * X[:, 0])
    y = rng.poisson(mean) * 1.0 if name == "poisson" else (rng.random(n) < mean) * 1.0
    bandit = Bandit(3, family=family, policy=EVILL(drift=1e-6))
    for x in X:
        bandit.decide([x], probabilities=False)
    bandit.learn(list(enumerate(y, 1)))
    fit, ratios = bandit._state.fit, []
    for z in rng.standard_normal((40, 3)):
        w, cubic = naive.randomised.upper_factor(fit.H).T @ z, np.empty(3)
        shift_estimate(fit, bandit._state, w, cubic)
        quadratic = bandit.theta - np.linalg.solve(fit.H, w)
        exact = naive.estimators.perturbed_mle(name, X, y, 1.0, w)
        ratios.append(np.linalg.norm(cubic - exact) / np.linalg.norm(quadratic - exact))
    assert np.median(ratios) < 0.3


def test_where_the_series_diverges_the_draw_stays_finite():
    """Nothing is proved then, and nothing breaks: at worst it is a draw of Laplace's posterior."""
    bandit, _, _ = given_data(EVILL(scale=1e6), Bernoulli())
    state = bandit._state
    w, out = 1e6 * np.ones(2), np.empty(2)
    shift_estimate(state.fit, state, w, out)
    assert out == pytest.approx(bandit.theta - np.linalg.solve(state.fit.H, w))
    assert shift_error(bandit.estimator, bandit.family, state, w, out) == math.inf


def test_without_a_third_derivative_it_is_laplace():
    bandit, _, _ = given_data(EVILL(), Bernoulli(), d=31)
    state, w, out = bandit._state, np.ones(31), np.empty(31)
    shift_estimate(state.fit, state, w, out)
    assert out == pytest.approx(bandit.theta - np.linalg.solve(state.fit.H, w))
