"""The exact penalised MLE of a generalised linear model, without recomputing it.

The estimate minimises, over all theta or over a ball of radius m1,

    F(theta) = sum over returned rounds of [b(x'theta) - y x'theta] + (rho / 2) ||theta||^2.

A reference point ``ref`` is kept together with the gradient, the Hessian and, for order 3, the
third derivative of F there, over *all* returned rewards; a new reward changes each by a rank-one
term. The estimate is the minimiser of the Taylor model, ``ref + step``. Self-concordance bounds how
far that is from the true minimiser (``_certify``); only when the bound exceeds ``tol`` does the
reference move, at the price of one pass over the data.

The certificate, with u = M max_norm ||step||, M the self-concordance constant:

    ||grad F(ref + step) - model gradient||_{H^-1} <= c(u) ||step||_H,
        c(u) = (e^u - 1 - u) / u            for the quadratic model,
        c(u) = (e^u - 1 - u - u^2/2) / u    for the cubic one,
    eps = e^u (residual + c(u) ||step||_H),   k = M max_norm / sqrt(rho),
    ||ref + step - theta_hat||_H <= -log(1 - k eps) / k      if k eps < 1.

``rho I <= H`` replaces the least eigenvalue of H: k enters only at second order in eps, so a
sharper bound would not save a pass. The same bound holds on the ball, where the model is
minimised under the constraint: add the variational inequalities of the two minimisers.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.jit import kernel
from belated.core.linalg import (
    add_outer,
    cholesky,
    dot,
    grow,
    inverse_and_log_det,
    matvec,
    quadratic,
    solve_transposed,
    solve_upper,
)
from belated.core.protocols import derivatives, least_slope, refit, self_concordance, take_in
from belated.core.state import (
    DECIDED,
    ERROR,
    OBSERVED,
    PASSES,
    REFACTOR_EVERY,
    ROWS,
    SLACK,
    History,
    State,
)
from belated.core.types import Matrix, Vector

MOST_PASSES = 200  # in one refit; damped Newton needs a handful
CUBIC_STEPS = 3  # fixed-point iterations on the cubic model


class LazyNewton(NamedTuple):
    """Certified lazy Newton.

    Parameters
    ----------
    lam, kappa
        The ridge is ``rho = lam * kappa``, so that ``H >= kappa W`` where mu' >= kappa.
    radius
        The estimate is the minimiser over ``||theta|| <= radius``; infinite for all of R^d.
    max_norm
        Bound on the norm of every x.
    tol
        Largest certified distance to the exact estimate, in the norm of the Hessian.
    order
        Of the Taylor model, 2 or 3. Order 3 costs O(d^3) a reward and needs far fewer passes.
    """

    lam: float
    kappa: float
    radius: float
    max_norm: float
    tol: float
    order: int

    def new_fit(self, dim: int) -> "NewtonFit":
        """No reward has returned yet: F is the penalty alone, minimal at zero."""
        rho = self.lam * self.kappa
        pairs = dim * (dim + 1) // 2 if self.order == 3 else 0
        return NewtonFit(
            ref=np.zeros(dim),
            gradient=np.zeros(dim),
            H=rho * np.eye(dim),
            H_inv=np.eye(dim) / rho,
            T3=np.zeros((pairs, dim)),
            multiplier=np.zeros(1),
        )


class NewtonFit(NamedTuple):
    """Taylor coefficients of F at ``ref``."""

    ref: Vector  # (d,)   reference point
    gradient: Vector  # (d,)   of F at ref
    H: Matrix  # (d, d) Hessian of F at ref
    H_inv: Matrix  # (d, d) its inverse
    T3: Matrix  # (d (d + 1) / 2, d) sum of mu'' x_i x_j x for j <= i; no rows for order 2
    multiplier: Vector  # (1,)   of the ball constraint at the last solution: a warm start


@kernel
def _add_third(T3: Matrix, weight: float, x: Vector) -> None:
    """``T3 += weight x (x) x (x) x``, each pair of the first two indices stored once."""
    d, row = x.shape[0], 0
    for i in range(d):
        for j in range(i + 1):
            c = weight * x[i] * x[j]
            for k in range(d):
                T3[row, k] += c * x[k]
            row += 1


@kernel
def _third_form(T3: Matrix, step: Vector, out: Vector) -> None:
    """``out = T3[step, step] / 2``, the cubic term of the model gradient."""
    d, row = step.shape[0], 0
    for k in range(d):
        out[k] = 0.0
    for i in range(d):
        for j in range(i + 1):
            c = step[i] * step[j] if j < i else 0.5 * step[i] * step[i]
            for k in range(d):
                out[k] += c * T3[row, k]
            row += 1


@take_in.case(LazyNewton)
def _take_in(estimator: LazyNewton, family: Any, state: State, x: Vector, y: float) -> None:
    fit = state.fit
    mu, slope, bend = derivatives(family, dot(x, fit.ref))
    for i in range(x.shape[0]):
        fit.gradient[i] += (mu - y) * x[i]
    fresh = state.counts[OBSERVED] % REFACTOR_EVERY == 0
    grow(fit.H, fit.H_inv, 0.0, slope, x, fresh, state.work)
    if estimator.order == 3:
        _add_third(fit.T3, bend, x)


@kernel
def _pass_over_data(
    estimator: LazyNewton, family: Any, fit: NewtonFit, history: History, n: int
) -> None:
    """Taylor coefficients at ``fit.ref`` from all returned rewards, in the order of decisions."""
    rho, d = estimator.lam * estimator.kappa, fit.ref.shape[0]
    for i in range(d):
        fit.gradient[i] = rho * fit.ref[i]
        for j in range(d):
            fit.H[i, j] = rho if i == j else 0.0
    fit.T3[:] = 0.0
    for row in range(n):
        y = history.y[row]
        if y == y:  # returned
            x = history.x[row]
            mu, slope, bend = derivatives(family, dot(x, fit.ref))
            for i in range(d):
                fit.gradient[i] += (mu - y) * x[i]
            add_outer(fit.H, slope, x)
            if estimator.order == 3:
                _add_third(fit.T3, bend, x)
    inverse_and_log_det(fit.H, fit.H_inv)


@kernel
def _minimise_quadratic(fit: NewtonFit, gradient: Vector, radius: float, step: Vector) -> None:
    """``step`` minimises ``gradient'step + step'H step / 2`` over ``||ref + step|| <= radius``.

    Outside the ball the solution is that of a larger ridge, ``(H + nu I) theta = H ref - gradient``
    with ``||theta|| = radius``; Newton's method on 1 / ||theta(nu)|| finds nu (More and Sorensen
    1983): from the left it climbs monotonically, from the right one step leads to the left.
    """
    d = step.shape[0]
    theta = np.empty(d)
    matvec(fit.H_inv, gradient, step)
    for i in range(d):
        step[i] = -step[i]
        theta[i] = fit.ref[i] + step[i]
    if dot(theta, theta) <= radius * radius:
        fit.multiplier[0] = 0.0
        return
    right, work, U = np.empty(d), np.empty(d), np.zeros((d, d))
    matvec(fit.H, fit.ref, right)
    for i in range(d):
        right[i] -= gradient[i]
    nu, norm = fit.multiplier[0], 0.0
    for _ in range(50):
        cholesky(fit.H, nu, U)
        theta[:] = right
        solve_transposed(U, theta)
        solve_upper(U, theta)
        norm = math.sqrt(dot(theta, theta))
        if abs(norm - radius) <= 1e-13 * radius:
            break
        work[:] = theta
        solve_transposed(U, work)
        nu = max(0.0, nu + norm * norm / dot(work, work) * (norm - radius) / radius)
    fit.multiplier[0] = nu
    for i in range(d):
        step[i] = theta[i] * (radius / norm) - fit.ref[i]


@kernel
def _remainder(u: float, order: int) -> float:
    """c(u) of the certificate: (e^u - 1 - u [- u^2/2]) / u."""
    if order == 2:
        return 0.5 * u + u * u / 6.0 if u < 1e-4 else (math.expm1(min(u, 700.0)) - u) / u
    if u < 1e-2:
        return u * u / 6.0 + u * u * u / 24.0 + u * u * u * u / 100.0
    return (math.expm1(min(u, 700.0)) - u - 0.5 * u * u) / u


@kernel
def _certify(
    estimator: LazyNewton, M: float, order: int, residual: float, step_H: float, step_2: float
) -> float:
    """Bound on ``||ref + step - theta_hat||_H``; infinite where the argument does not reach."""
    if M == 0.0:
        return residual
    u = M * estimator.max_norm * step_2
    eps = math.exp(min(u, 700.0)) * (residual + _remainder(u, order) * step_H)
    k = M * estimator.max_norm / math.sqrt(estimator.lam * estimator.kappa)
    if k * eps >= 1.0:
        return math.inf
    return -math.log1p(-k * eps) / k


@kernel
def _concordance(estimator: LazyNewton, family: Any, fit: NewtonFit, step_2: float) -> float:
    """M over every point the certificate passes through: ref, ref + step and theta_hat.

    On the ball all three lie within ``radius``. Elsewhere theta_hat is within ``tol / sqrt(rho)``
    of ``ref + step`` whenever the certificate is at most ``tol``: were it farther, the point of the
    segment at twice that distance would satisfy the certificate too, and contradict it.
    """
    slack = 2.0 * estimator.tol / math.sqrt(estimator.lam * estimator.kappa)
    reach = min(estimator.radius, math.sqrt(dot(fit.ref, fit.ref)) + step_2 + slack)
    return self_concordance(family, estimator.max_norm * reach)


@kernel
def _propose(
    estimator: LazyNewton, family: Any, fit: NewtonFit, step: Vector
) -> tuple[float, float]:
    """Minimise the model: fills ``step``; returns its certificate and the damping to move by.

    The quadratic model is tried first. Only when it does not certify is the cubic one solved, by
    the fixed point ``step <- argmin (gradient + T3[step, step] / 2)'s + s'H s / 2``.
    """
    d = step.shape[0]
    work = np.empty(d)
    _minimise_quadratic(fit, fit.gradient, estimator.radius, step)
    step_2, step_H = math.sqrt(dot(step, step)), math.sqrt(max(0.0, quadratic(fit.H, step, work)))
    M = _concordance(estimator, family, fit, step_2)
    error = _certify(estimator, M, 2, 0.0, step_H, step_2)
    u = M * estimator.max_norm * step_2
    damping = math.log1p(u) / u if error == math.inf else 1.0
    if error <= estimator.tol or estimator.order == 2:
        return error, damping

    cubic, bent, gradient, change = step.copy(), np.empty(d), np.empty(d), np.empty(d)
    _third_form(fit.T3, cubic, bent)
    for _ in range(CUBIC_STEPS):
        for i in range(d):
            gradient[i] = fit.gradient[i] + bent[i]
            change[i] = -bent[i]
        _minimise_quadratic(fit, gradient, estimator.radius, cubic)
        _third_form(fit.T3, cubic, bent)
        for i in range(d):
            change[i] += bent[i]
        residual = math.sqrt(max(0.0, quadratic(fit.H_inv, change, work)))
        step_2 = math.sqrt(dot(cubic, cubic))
        step_H = math.sqrt(max(0.0, quadratic(fit.H, cubic, work)))
        M = _concordance(estimator, family, fit, step_2)
        cubic_error = _certify(estimator, M, 3, residual, step_H, step_2)
        if cubic_error < error:
            step[:] = cubic
            error, damping = cubic_error, 1.0
        if error <= estimator.tol:
            break
    return error, damping


@refit.case(LazyNewton)
def _refit(estimator: LazyNewton, family: Any, state: State, history: History) -> None:
    fit, d = state.fit, state.theta.shape[0]
    step = np.empty(d)
    passes = 0
    error, damping = _propose(estimator, family, fit, step)
    while error > estimator.tol and passes < MOST_PASSES:
        for i in range(d):
            fit.ref[i] += damping * step[i]
        _pass_over_data(estimator, family, fit, history, state.counts[DECIDED])
        passes += 1
        error, damping = _propose(estimator, family, fit, step)
    state.counts[PASSES] += passes
    state.counts[ROWS] += passes * state.counts[OBSERVED]
    for i in range(d):
        state.theta[i] = fit.ref[i] + step[i]
    # H >= share W, because rho = kappa lam: the certificate in the norm of W
    norm = math.sqrt(dot(fit.ref, fit.ref))
    share = min(estimator.kappa, least_slope(family, estimator.max_norm * norm))
    state.scalars[ERROR] = error
    state.scalars[SLACK] = error / math.sqrt(share)
