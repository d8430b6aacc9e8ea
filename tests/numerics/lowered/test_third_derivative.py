"""The third derivative, stored once for every multiset of indices."""

import math

import numpy as np
import pytest

import naive.estimators
from belated import DelayedOFUGLM
from belated.estimators.newton.fit import WAITING, LazyNewton, pass_over_data
from belated.estimators.perturbed import third_gradient
from belated.families import Bernoulli, Poisson
from belated.model.state import History
from belated.numerics.lowered.third_derivative import BATCH, add_waiting, third_form
from support.estimation import add_third, fed, stream


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 11, 15, 20])
def test_third_derivative_is_stored_once(d):
    """Each triple j <= i <= k in row k, column i (i + 1) / 2 + j; read back as all d^3 of them."""
    rng = np.random.default_rng(d)
    T3 = LazyNewton(1.0, 1.0, math.inf, 1e-2, 3).new_fit(d).T3
    pairs = d * (d + 1) // 2
    assert T3.shape[1] >= pairs + -pairs % 16  # kernels read two packs of eight at a time
    X, weights, out = rng.standard_normal((9, d)), rng.standard_normal(9), np.empty(d)
    for n in range(1, 10):
        add_third(T3, weights[n - 1], X[n - 1])
        full = naive.estimators.third_derivative(X[:n], weights[:n])
        for k in range(d):
            for i in range(k + 1):
                for j in range(i + 1):
                    assert T3[k, i * (i + 1) // 2 + j] == pytest.approx(full[k, i, j], abs=1e-12)
        for step in (rng.standard_normal(d), np.zeros(d), np.eye(d)[d // 2]):
            third_form(T3, step, out)
            expected = np.einsum("ijk,j,k->i", full, step, step) / 2
            assert np.allclose(out, expected, rtol=1e-12, atol=1e-12)
            out[:] = 0.0
            add_waiting(X, weights, n, step, out)  # without storing it
            assert np.allclose(out, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("d", [1, 3, 9, 16])
def test_a_pass_gives_the_third_derivative(d):
    """However many rows are added at once, and whatever was in the scratch before."""
    rng = np.random.default_rng(d)
    estimator, out = LazyNewton(1.0, 1.0, math.inf, 1e-2, 3), np.empty(d)
    fit = estimator.new_fit(d)
    fit.ref[:] = rng.standard_normal(d)
    X, y = rng.standard_normal((20, d)), np.ones(20)
    y[[2, 7]] = np.nan  # not returned
    for n in range(21):
        pass_over_data(estimator, Poisson(), fit, History(X, y), n)
        seen = X[:n][~np.isnan(y[:n])]
        full = naive.estimators.third_derivative(seen, np.exp(seen @ fit.ref))
        step = rng.standard_normal(d)
        third_form(fit.T3, step, out)
        add_waiting(fit.waiting, fit.bends, len(seen) % BATCH, step, out)
        expected = np.einsum("ijk,j,k->i", full, step, step) / 2
        assert np.allclose(out, expected, rtol=1e-11, atol=1e-12)
        assert fit.scalars[WAITING] == len(seen) % BATCH
        H = estimator.lam * estimator.kappa * np.eye(d) + (seen.T * np.exp(seen @ fit.ref)) @ seen
        assert np.allclose(fit.H, H, rtol=1e-12)


def test_third_derivative():
    """T3[s, s] / 2 is the second-order term of the gradient along s."""
    X, y = stream(Bernoulli(), 50, 3, 1.0, 9)
    bandit = fed(Bernoulli(), DelayedOFUGLM(tol=1e-12), X, y)
    fit, out = bandit._state.fit, np.empty(3)
    s, h = np.array([0.3, -0.2, 0.5]), 1e-4
    third_gradient(fit, s, out)
    ridge = bandit.policy.lam * bandit.policy.kappa
    g = [
        naive.estimators.objective("bernoulli", X, y, ridge, fit.ref + k * h * s)[1]
        for k in (-1, 0, 1)
    ]
    assert np.allclose(out, (g[0] - 2 * g[1] + g[2]) / (2 * h * h), atol=1e-5)
