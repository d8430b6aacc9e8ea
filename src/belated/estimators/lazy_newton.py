"""The exact penalised MLE of a generalised linear model, without recomputing it.

The estimate minimises, over all theta or over a ball of radius m1,

    F(theta) = sum over returned rounds of [b(x'theta) - y x'theta] + (rho / 2) ||theta||^2.

A reference point ``ref`` is kept together with the gradient, the Hessian and, for order 3, the
third derivative of F there, over *all* returned rewards; a new reward changes each by a rank-one
term. The estimate is the minimiser of the Taylor model, ``ref + step``. Self-concordance bounds how
far that is from the true minimiser (``_certify``); only when the bound exceeds ``tol`` does the
reference move, at the price of one pass over the data.

The certificate, with X the longest returned x, M the self-concordance constant, u = M X ||step||:

    ||grad F(ref + step) - model gradient||_{H^-1} <= c(u) ||step||_H,
        c(u) = (e^u - 1 - u) / u            for the quadratic model,
        c(u) = (e^u - 1 - u - u^2/2) / u    for the cubic one,
    eps = e^u (||r||_{H^-1} + c(u) ||step||_H),   k = M X / sqrt(lmin),
    ||ref + step - theta_hat||_H <= -log(1 - k eps) / k      if k eps < 1.

r is what the model's optimality condition is off by, rounding of the solve included: its gradient
plus, on the ball, the multiplier times theta (add the variational inequalities of the two
minimisers). lmin is the larger of rho and 1 / ||H^-1||_F, both below the least eigenvalue of H. The
one error not covered is rounding in the sums behind gradient and Hessian.
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
from belated.core.protocols import cumulant, derivatives, refit, self_concordance, take_in
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

MOST_PASSES = 200  # in one refit; Newton's method needs a handful
CUBIC_STEPS = 3  # fixed-point iterations on the cubic model
MULTIPLIER, LONGEST, LEAST_SLOPE = 0, 1, 2  # slots of NewtonFit.scalars
MARGIN = 0.5  # how far beyond ref + step a growing self-concordance constant is taken to hold


class LazyNewton(NamedTuple):
    """Certified lazy Newton.

    Parameters
    ----------
    lam, kappa
        The ridge is ``rho = lam * kappa``, so that ``H >= kappa W`` where mu' >= kappa.
    radius
        The estimate is the minimiser over ``||theta|| <= radius``; infinite for all of R^d.
    tol
        Largest certified distance to the exact estimate, in the norm of the Hessian.
    order
        Of the Taylor model, 2 or 3. Order 3 costs O(d^3) a reward and needs far fewer passes.
    """

    lam: float
    kappa: float
    radius: float
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
            scalars=np.array([0.0, 0.0, math.inf]),
        )


class NewtonFit(NamedTuple):
    """Taylor coefficients of F at ``ref``."""

    ref: Vector  # (d,)   reference point
    gradient: Vector  # (d,)   of F at ref
    H: Matrix  # (d, d) Hessian of F at ref
    H_inv: Matrix  # (d, d) its inverse
    T3: Matrix  # (d (d + 1) / 2, d) sum of mu'' x_i x_j x for j <= i; no rows for order 2
    scalars: (
        Vector  # (3,)   multiplier of the ball, longest x, least slope mu'(x'ref) of returned x
    )


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


@kernel
def _take_coefficients(order: int, fit: NewtonFit, family: Any, x: Vector, y: float) -> float:
    """Add one reward to everything but the Hessian; returns its weight there."""
    mu, slope, bend = derivatives(family, dot(x, fit.ref))
    for i in range(x.shape[0]):
        fit.gradient[i] += (mu - y) * x[i]
    if order == 3:
        _add_third(fit.T3, bend, x)
    fit.scalars[LONGEST] = max(fit.scalars[LONGEST], math.sqrt(dot(x, x)))
    fit.scalars[LEAST_SLOPE] = min(fit.scalars[LEAST_SLOPE], slope)
    return slope


@take_in.case(LazyNewton)
def _take_in(estimator: LazyNewton, family: Any, state: State, x: Vector, y: float) -> None:
    fit = state.fit
    slope = _take_coefficients(estimator.order, fit, family, x, y)
    fresh = state.counts[OBSERVED] % REFACTOR_EVERY == 0
    grow(fit.H, fit.H_inv, 0.0, slope, x, fresh, state.work)


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
    fit.scalars[LEAST_SLOPE] = math.inf
    for row in range(n):
        y = history.y[row]
        if y == y:  # returned
            x = history.x[row]
            slope = _take_coefficients(estimator.order, fit, family, x, y)
            add_outer(fit.H, slope, x)
    inverse_and_log_det(fit.H, fit.H_inv)


@kernel
def _minimise_quadratic(fit: NewtonFit, gradient: Vector, radius: float, step: Vector) -> None:
    """``step`` minimises ``gradient'step + step'H step / 2`` over ``||ref + step|| <= radius``.

    Outside the ball the solution is that of a larger ridge, ``(H + nu I) theta = H ref - gradient``
    with ``||theta|| = radius``; Newton's method on 1 / ||theta(nu)|| finds nu (More and Sorensen
    1983): from the left it climbs monotonically, from the right one step leads to the left.
    """
    d = step.shape[0]
    theta, work = np.empty(d), np.empty(d)
    matvec(fit.H_inv, gradient, step)
    matvec(fit.H, step, work)
    for i in range(d):
        work[i] = gradient[i] - work[i]
    matvec(fit.H_inv, work, theta)  # one step of refinement: H_inv is only as good as its updates
    for i in range(d):
        step[i] = -step[i] - theta[i]
        theta[i] = fit.ref[i] + step[i]
    if dot(theta, theta) <= radius * radius:
        fit.scalars[MULTIPLIER] = 0.0
        return
    right, U = np.empty(d), np.zeros((d, d))
    matvec(fit.H, fit.ref, right)
    for i in range(d):
        right[i] -= gradient[i]
    nu, norm = fit.scalars[MULTIPLIER], 0.0
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
    fit.scalars[MULTIPLIER] = nu
    for i in range(d):
        step[i] = theta[i] * (radius / norm) - fit.ref[i]


@kernel
def _remainder(u: float, order: int) -> float:
    """c(u) of the certificate: (e^u - 1 - u [- u^2/2]) / u."""
    if order == 2:
        return 0.5 * u + u * u / 5.9 if u < 1e-4 else (math.expm1(u) - u) / u
    if u < 1e-2:
        return u * u / 6.0 + u * u * u / 24.0 + u * u * u * u / 100.0
    return (math.expm1(u) - u - 0.5 * u * u) / u


@kernel
def _certify(
    estimator: LazyNewton, family: Any, fit: NewtonFit, order: int, step: Vector, bent: Vector
) -> float:
    """Bound on ``||ref + step - theta_hat||_H``; ``bent`` is the cubic term, or zero.

    Where M grows with |z| it must hold at ref, ref + step and theta_hat. On the ball all three lie
    within ``radius``. Elsewhere M is taken up to ``MARGIN`` beyond ref + step, and the bound counts
    only if it puts theta_hat nearer than that: were theta_hat farther, the point of the segment at
    distance MARGIN would satisfy the same bound, a contradiction. Infinite where nothing is proved.
    """
    d, X, nu = step.shape[0], fit.scalars[LONGEST], fit.scalars[MULTIPLIER]
    off, work, frobenius = np.empty(d), np.empty(d), 0.0
    step_H = math.sqrt(max(0.0, quadratic(fit.H, step, off)))
    for i in range(d):
        off[i] += fit.gradient[i] + bent[i] + nu * (fit.ref[i] + step[i])
        frobenius += dot(fit.H_inv[i], fit.H_inv[i])
    residual = math.sqrt(max(0.0, quadratic(fit.H_inv, off, work)))
    lmin = max(estimator.lam * estimator.kappa, 1.0 / math.sqrt(frobenius))
    step_2 = math.sqrt(dot(step, step))
    reach = math.sqrt(dot(fit.ref, fit.ref)) + step_2 + MARGIN
    M = self_concordance(family, X * min(reach, estimator.radius))
    if M * X == 0.0:
        return residual
    u, k = M * X * step_2, M * X / math.sqrt(lmin)
    if u > 50.0:  # e^u would drown everything; larger ones overflow
        return math.inf
    eps = math.exp(u) * (residual + _remainder(u, order) * step_H)
    if not k * eps < 1.0:
        return math.inf
    error = -math.log1p(-k * eps) / k
    holds_everywhere = reach >= estimator.radius or self_concordance(family, math.inf) == M
    if not holds_everywhere and error >= MARGIN * math.sqrt(lmin):
        return math.inf
    return error


@kernel
def _objective(
    estimator: LazyNewton, family: Any, theta: Vector, history: History, n: int
) -> float:
    """F(theta)."""
    total = 0.5 * estimator.lam * estimator.kappa * dot(theta, theta)
    for row in range(n):
        y = history.y[row]
        if y == y:
            z = dot(history.x[row], theta)
            total += cumulant(family, z) - y * z
    return total


@kernel
def _line_search(
    estimator: LazyNewton, family: Any, fit: NewtonFit, step: Vector, history: History, n: int
) -> float:
    """Largest share 1, 1/2, 1/4, ... of the step that lowers F as it should (Armijo); or 0."""
    here, slope = _objective(estimator, family, fit.ref, history, n), dot(fit.gradient, step)
    theta, share = np.empty(step.shape[0]), 1.0
    for _ in range(20):
        for i in range(step.shape[0]):
            theta[i] = fit.ref[i] + share * step[i]
        if _objective(estimator, family, theta, history, n) <= here + 0.25 * share * slope:
            return share
        share *= 0.5
    return 0.0


@kernel
def _propose(estimator: LazyNewton, family: Any, fit: NewtonFit, step: Vector) -> float:
    """Minimise the model: fills ``step`` and returns its certificate.

    The quadratic model is tried first. Only when it does not certify is the cubic one solved, by
    the fixed point ``step <- argmin (gradient + T3[step, step] / 2)'s + s'H s / 2``.
    """
    d = step.shape[0]
    bent = np.zeros(d)
    _minimise_quadratic(fit, fit.gradient, estimator.radius, step)
    error = _certify(estimator, family, fit, 2, step, bent)
    if error <= estimator.tol or estimator.order == 2:
        return error

    cubic, gradient = step.copy(), np.empty(d)
    far = 4.0 * dot(step, step)
    _third_form(fit.T3, cubic, bent)
    for _ in range(CUBIC_STEPS):
        for i in range(d):
            gradient[i] = fit.gradient[i] + bent[i]
        _minimise_quadratic(fit, gradient, estimator.radius, cubic)
        if dot(cubic, cubic) > far:  # the fixed point diverges: the step is too long for the model
            break
        _third_form(fit.T3, cubic, bent)
        cubic_error = _certify(estimator, family, fit, 3, cubic, bent)
        if cubic_error < error:
            step[:] = cubic
            error = cubic_error
        if error <= estimator.tol:
            break
    return error


@refit.case(LazyNewton)
def _refit(estimator: LazyNewton, family: Any, state: State, history: History) -> None:
    fit, d = state.fit, state.theta.shape[0]
    step, decided, passes, from_zero = np.empty(d), state.counts[DECIDED], 0, False
    error = _propose(estimator, family, fit, step)
    while not error <= estimator.tol and passes < MOST_PASSES:
        share = 1.0
        if error == math.inf:
            share = _line_search(estimator, family, fit, step, history, decided)
        if share == 0.0:
            # a reward far from what ref predicts can make H there singular to rounding: start anew
            if from_zero:
                break
            from_zero = True
        for i in range(d):
            fit.ref[i] = fit.ref[i] + share * step[i] if share > 0.0 else 0.0
        _pass_over_data(estimator, family, fit, history, decided)
        passes += 1
        error = _propose(estimator, family, fit, step)
    state.counts[PASSES] += passes
    state.counts[ROWS] += passes * state.counts[OBSERVED]
    for i in range(d):  # where nothing is proved, the last point that surely was an improvement
        state.theta[i] = fit.ref[i] + (step[i] if error < math.inf else 0.0)
    # H >= share W, because rho = kappa lam: the certificate in the norm of W
    share = min(estimator.kappa, fit.scalars[LEAST_SLOPE])
    state.scalars[ERROR] = error
    state.scalars[SLACK] = error / math.sqrt(share) if share > 0.0 else math.inf
