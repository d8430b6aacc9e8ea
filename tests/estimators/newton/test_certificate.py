"""The certificate of the lazy estimate: its formula, and that it holds wherever it is given."""

import math

import numpy as np
import pytest

import naive.estimators
import naive.families
from belated.estimators.newton.certificate import (
    _exponential,
    _minimise_model,
    _refine,
    _remainder,
    _stretch,
    certify,
)
from belated.estimators.newton.fit import (
    EIGENVALUE,
    LONGEST,
    MULTIPLIER,
    SHIFT,
    LazyNewton,
    move_anchor,
    pass_over_data,
)
from belated.families import Bernoulli
from belated.model.protocols import concordance, self_concordance
from belated.model.state import History
from support.estimation import FAMILIES, LMIN, make_family, scratch, stream, taylor


def test_bounds_in_place_of_functions():
    """Never below what they stand for, and not above by more than 1e-4 of it."""
    for u in [0.0, 1e-9, *np.linspace(1e-3, 2.0, 300), 0.5, 20.0]:
        assert math.exp(u) * (1 - 1e-15) <= _exponential(u) <= math.exp(u) * (1 + 1e-4)
    for t in [1e-12, *np.linspace(1e-4, 0.99, 300), 0.05, math.nextafter(0.05, 0)]:
        exact = -math.log1p(-t) / t
        assert exact * (1 - 1e-15) <= _stretch(t) <= exact * (1 + 2e-5)
    assert _stretch(0.0) == 1.0


def test_remainders():
    """c(u) of the certificate against the series it abbreviates."""
    for u in (1e-12, 1e-5, 1e-4, 1e-2, 0.3, 0.999, 1.0, 1.5, 5.0):
        terms = [u ** (k - 1) / math.factorial(k) for k in range(2, 40)]
        assert _remainder(u, 2) == pytest.approx(math.fsum(terms), rel=1e-8)
        third = math.fsum(u ** (k - 3) / math.factorial(k) for k in range(3, 40))
        assert _remainder(u, 3) >= third * (1 - 1e-12)
        assert _remainder(u, 3) == pytest.approx(third, rel=1e-3)


@pytest.mark.parametrize("name", ["bernoulli", "tanh"])
def test_concordance_is_the_largest_ratio(name):
    """Of mu'' and mu''' to mu'; at any distance no more than what holds everywhere."""
    family = make_family(name)
    for bound in (1e-3, 0.3, 1.0, 1.9, 5.0):
        M, N = concordance(family, bound)
        assert pytest.approx(naive.families.concordance(name, bound), rel=1e-6) == (M, N)
        assert self_concordance(family, bound) >= M
        assert self_concordance(family, bound) ** 2 >= N
    M = naive.families.CONCORDANCE.get(name, 1.0)
    assert concordance(family, math.inf) == (M, M * M)


@pytest.mark.parametrize("name", ["bernoulli", "tanh", "poisson"])
@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("longest", [0.4, 1.0])
@pytest.mark.parametrize("shift", [0.0, 0.8])
def test_certificate_is_the_formula(name, order, longest, shift):
    """Every factor of it, at a step of moderate length and a gradient that is not zero there."""
    step, bent, off = np.array([0.1, -0.2]), np.array([0.02, 0.05]), np.array([0.01, -0.03])
    anchor = np.array([0.12, -0.15])
    estimator, fit, work = taylor(longest=longest, shift=shift, order=order)
    M, N = naive.families.concordance(
        name, longest * (math.hypot(*fit.ref) + math.hypot(*step) + 0.5)
    )
    gap = 0.0
    if order == 3:
        fit = fit._replace(bent=bent, anchor=anchor, H_anchor=fit.H @ anchor)
        gap = naive.estimators.gap(M, longest, fit.H, step, anchor)
        assert gap > 0.001
    fit = fit._replace(gradient=off - fit.H @ step - fit.bent)
    residual = math.sqrt((1 + shift / LMIN) * (off @ fit.H_inv @ off))
    exact_residual = math.sqrt(off @ np.linalg.solve(fit.H, off))
    assert exact_residual <= residual * (1 + 1e-12)
    assert shift == 0.0 or residual > 1.03 * exact_residual
    step_H = math.sqrt(step @ fit.H @ step)
    step_2 = math.hypot(*step)
    expected = naive.estimators.certificate(
        M, longest, order, residual, step_H, step_2, LMIN, gap, N
    )
    assert 0.04 < expected < math.inf
    # the polynomial that stands for the remainder is off by less than a thousandth of it
    got = certify(estimator, make_family(name), fit, step, work)
    assert got == pytest.approx(expected, rel=1e-4)
    assert np.allclose(work[3], off)


def test_a_tiny_residual_is_bounded_by_its_length():
    """Below a tenth of tol the norm of H^-1 is not worth a product."""
    off, zero = np.array([1e-7, -3e-7]), np.zeros(2)
    estimator, fit, work = taylor(gradient=off)
    expected = np.linalg.norm(off) / math.sqrt(LMIN)
    assert certify(estimator, Bernoulli(), fit, zero, work) == pytest.approx(expected)
    estimator = estimator._replace(tol=1e-7)
    expected = math.sqrt(off @ fit.H_inv @ off)
    assert certify(estimator, Bernoulli(), fit, zero, work) == pytest.approx(expected)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("shift", [0.0, 0.9])
def test_certificate_on_the_ball_counts_the_multiplier(order, shift):
    """On the sphere, gradient = -nu theta is optimal, whatever nu >= 0."""
    step, nu = np.array([0.1, 0.2]), 0.7
    _, fit, work = taylor()
    theta = fit.ref + step
    estimator, fit, _ = taylor(
        radius=math.hypot(*theta),
        gradient=-fit.H @ step - nu * theta,
        nu=nu,
        shift=shift,
        order=order,
    )
    step_H, step_2 = math.sqrt(step @ fit.H @ step), math.hypot(*step)
    M, N = naive.families.concordance("bernoulli", 0.4 * math.hypot(*theta))
    gap = naive.estimators.gap(M, 0.4, fit.H, step, np.zeros(2)) if order == 3 else 0.0
    expected = naive.estimators.certificate(M, 0.4, order, 0.0, step_H, step_2, LMIN, gap, N)
    got = certify(estimator, Bernoulli(), fit, step, work)
    assert got == pytest.approx(expected, rel=1e-4)


def test_probit_constant_reaches_as_far_as_the_argument():
    """M is |z| at the farthest point: half a unit beyond the step, or the ball."""
    _, fit, work = taylor(longest=1.0)
    step = np.array([0.02, -0.03])
    fit = fit._replace(gradient=-fit.H @ step, ref=np.array([1.2, -0.9]))
    step_H, step_2 = math.sqrt(step @ fit.H @ step), math.hypot(*step)
    for radius, M in ((math.inf, 1.5 + step_2 + 0.5), (1.6, 1.6), (99.0, 1.5 + step_2 + 0.5)):
        estimator, _, _ = taylor(radius=radius, order=2)
        expected = naive.estimators.certificate(M, 1.0, 2, 0.0, step_H, step_2, LMIN)
        got = certify(estimator, make_family("probit"), fit, step, work)
        assert got == pytest.approx(expected)
    # a bound that would allow theta_hat farther away than M is known for proves nothing
    far = fit._replace(gradient=np.array([0.0, -0.19]))
    bounds = [
        certify(taylor(radius=r, order=2)[0], make_family("probit"), far, np.zeros(2), work)
        for r in (math.inf, 1.6)
    ]
    assert bounds[0] == math.inf
    assert 0.5 * math.sqrt(LMIN) < bounds[1] < math.inf


@pytest.mark.parametrize("order", [2, 3])
def test_certificate_refuses_what_it_cannot_prove(order):
    for length in (10.0, 1e5):
        estimator, fit, work = taylor(gradient=np.zeros(2), order=order)
        step = np.array([length, 0.0])
        assert certify(estimator, Bernoulli(), fit, step, work) == math.inf
    estimator, fit, work = taylor(gradient=np.zeros(2), order=order)
    assert certify(estimator, Bernoulli(), fit, np.zeros(2), work) == 0.0


@pytest.mark.parametrize("name", [f for f in FAMILIES if f != "gaussian"])
def test_certificate_holds_at_any_point(name):
    """Whatever reference, step, anchor, shift and multiplier: the exact estimate is as near.

    The multiplier may be anything where theta is on the sphere; inside, it is zero.
    """
    family = make_family(name)
    rng = np.random.default_rng(7)
    ratios = {}
    for k in range(150):
        d, n, order, on_ball = 1 + k % 4, int(rng.integers(1, 30)), 2 + k % 2, k % 3 > 0
        longest, lam = float(rng.choice([0.3, 1.0, 3.0])), float(10 ** rng.uniform(-2, 2))
        m1 = float(rng.choice([0.1, 1.0, 2.0])) / longest
        X, y = stream(family, n, d, norm=m1 * rng.uniform(0.5, 2.0), seed=k, longest=longest)
        X[rng.random(n) < 0.1] = 0.0
        radius = m1 if on_ball else math.inf
        estimator = LazyNewton(lam, family.kappa(m1 * longest), radius, 1e-2, order)
        ridge = lam * estimator.kappa
        theta_hat = naive.estimators.mle(name, X, y, ridge, radius)
        for _ in range(4):
            fit, spread = estimator.new_fit(d), 10 ** rng.uniform(-4, 0)
            fit.ref[:] = theta_hat + spread * rng.standard_normal(d)
            fit.ref[:] *= min(1.0, radius / np.linalg.norm(fit.ref))
            fit.scalars[MULTIPLIER] = rng.choice([0.0, 10 ** rng.uniform(-3, 3)])
            pass_over_data(estimator, family, fit, History(X, y), n)  # it becomes the shift
            fit.scalars[LONGEST] = np.linalg.norm(X, axis=1).max()
            fit.scalars[MULTIPLIER] = 0.0
            assert fit.scalars[EIGENVALUE] <= np.linalg.eigvalsh(fit.H)[0] * (1 + 1e-9)
            theta = theta_hat + spread * 10 ** rng.uniform(-4, 0) * rng.standard_normal(d)
            length = np.linalg.norm(theta)
            if length > radius or (on_ball and rng.random() < 0.5):
                theta *= radius / length
                gradient = naive.estimators.objective(name, X, y, ridge, theta)[1]
                nu = max(0.0, -gradient @ theta / (theta @ theta))
                fit.scalars[MULTIPLIER] = nu * rng.choice([0.0, 1.0, 1.0, rng.uniform(0.9, 1.1)])
            step = theta - fit.ref
            if order == 3:
                noise = np.linalg.norm(step) * rng.standard_normal(d)
                anchor = step + rng.choice([0.0, 10 ** rng.uniform(-5, 0)]) * noise
                move_anchor(fit, anchor * rng.choice([1.0, 1.0, 0.0, -1.0]))
            error = certify(estimator, family, fit, step, scratch(d))
            gap = theta - theta_hat
            distance = math.sqrt(gap @ fit.H @ gap)
            assert distance <= error * (1 + 1e-6) + 1e-9
            if 1e-6 < error < math.inf:
                kind = order, bool(fit.scalars[MULTIPLIER] > 0.0), bool(fit.scalars[SHIFT] > 0.0)
                ratios.setdefault(kind, []).append(distance / error)
    assert len(ratios) == 8, "order 2 and 3, with and without multiplier, with and without shift"
    for kind, found in ratios.items():
        assert len(found) >= 5, kind
        assert max(found) > 0.1, kind


def test_a_spoilt_inverse_is_refined():
    """An inverse wrong in the fourth digit still gives the step to eight, where that matters."""
    for tol in (1e-9, 10.0):
        estimator, fit, work = taylor(tol=tol, order=2)
        fit.H_inv[:] = np.linalg.inv(fit.H) * (1 + 1e-4)
        step, exact = np.zeros(2), -np.linalg.solve(fit.H, fit.gradient)
        error = _minimise_model(estimator, Bernoulli(), fit, step, work)
        error = _refine(estimator, Bernoulli(), fit, error, step, work)
        assert math.isfinite(error)
        assert np.abs(step - exact).max() < (1e-7 if tol < 1e-3 else 1e-3)
