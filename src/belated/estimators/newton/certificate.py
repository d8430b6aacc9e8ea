"""The certificate bounds how far a step is from the exact estimate; refits go on until it suffices.

With X the longest returned x, ``|mu''| <= M mu'`` and ``|mu'''| <= N mu'`` as far as it matters,
u = M X ||step||:

    ||grad F(ref + step) - (gradient + bent + H step)||_{H^-1} <= c ||step||_H + gap,
        c = (e^u - 1 - u) / u,               gap = 0                          for order 2,
        c = (N / M^2) (e^u - 1 - u - u^2/2) / u,
        gap = M X ||step - anchor|| ||step + anchor||_H / 2                   for order 3,
    eps = e^u (||r||_{H^-1} + c ||step||_H + gap),   k = M X / sqrt(lmin),
    ||ref + step - theta_hat||_H <= -log(1 - k eps) / k      if k eps < 1.

For order 3, mu(z + h) is its Taylor polynomial plus h^3 times the integral of (1 - v)^2 / 2
mu'''(z + v h) over [0, 1], and ``|mu'''(z + v h)| <= N mu'(z + v h) <= N e^{M v |h|} mu'(z)``.
The gap is T3[step, step] - T3[anchor, anchor] = T3[step - anchor, step + anchor], bounded by |mu''|
<= M mu' and Cauchy-Schwarz. r is the residual of the model's optimality condition, rounding of the
solve included: its gradient plus, on the ball, the multiplier times theta (add the variational
inequalities of the two minimisers). Weights of the rewards are in H as they are in F, so that they
change none of these bounds. lmin is a lower bound on the eigenvalues of H: the larger of
rho and the inverse of an upper bound on those of H^-1. It may be a little stale, because H only
grows between passes. The one error not covered is rounding in the sums behind gradient and Hessian.
"""

import math
from typing import Any

from belated.core.jit import inlined_kernel, kernel
from belated.core.types import Integers, Matrix, Vector
from belated.estimators.newton.fit import (
    BEST,
    EIGENVALUE,
    GRADIENT,
    LEAST_SLOPE,
    LONGEST,
    M_THERE,
    MULTIPLIER,
    N_THERE,
    OFF,
    PRODUCT,
    REACH,
    RENEW_AT,
    SHIFT,
    STEP,
    THETA,
    LazyNewton,
    NewtonFit,
    move_anchor,
    pass_over_data,
    renew_eigenvalue,
)
from belated.estimators.newton.sphere import minimise_quadratic
from belated.model.protocols import concordance, cumulant, refit, refit_exactly, self_concordance
from belated.model.state import (
    DECIDED,
    ERROR,
    OBSERVED,
    PASSES,
    ROWS,
    SLACK,
    History,
    State,
    counts_for,
    weight_of,
)
from belated.numerics.linalg import copy
from belated.numerics.lowered.products import dot, inner_products, matvec, quadratic

MARGIN = 0.5  # how far beyond ref + step a growing self-concordance constant is taken to hold
MOST_PASSES = 200  # in one refit; Newton's method needs a handful
MOST_ANCHORS = 4  # in one refit, before the reference moves
SHARES = 60  # of a step that are tried: the last one is smaller than the inverse of any count


@inlined_kernel
def _remainder(u: float, order: int) -> float:
    """Returns a close upper bound on (e^u - 1 - u) / u for order 2.

    For order 3 on (e^u - 1 - u - u^2/2) / u^3: c of the certificate without ``N / M^2 u^2``.
    """
    if order == 2:
        return 0.5 * u + u * u / 5.9 if u < 1e-4 else (math.expm1(u) - u) / u
    if u < 1.0:  # what is left of the series is 1 / 120 + u / 720 + ..., at u = 1 below 1 / 100
        return 1.0 / 6.0 + u / 24.0 + u * u / 100.0
    return (math.expm1(u) - u - 0.5 * u * u) / (u * u * u)


@inlined_kernel
def _exponential(u: float) -> float:
    """Returns a close upper bound on e^u."""
    if u < 0.5:  # what follows u^3 / 6 has coefficients below those of a geometric series
        return 1.0 + u + u * u * (0.5 + u / (6.0 - 1.5 * u))
    return math.exp(u)


@inlined_kernel
def _stretch(t: float) -> float:
    """Returns a close upper bound on -log(1 - t) / t."""
    if t < 0.05:  # 1 + t / 2 + t^2 / 3 + t^3 / 4 + ...
        return 1.0 + 0.5 * t + t * t / (3.0 - 3.0 * t)
    return -math.log1p(-t) / t


@inlined_kernel
def certify(
    estimator: LazyNewton, family: Any, fit: NewtonFit, step: Vector, work: Matrix
) -> float:
    """Returns a bound on ``||ref + step - theta_hat||_H``.

    Where M grows with |z| it must hold at ref, ref + step and theta_hat. On the ball all three lie
    within ``radius``. Elsewhere M is taken up to ``MARGIN`` beyond ref + step, and the bound counts
    only if it puts theta_hat nearer than that: were theta_hat farther, the point of the segment at
    distance MARGIN would satisfy the same bound, a contradiction. Infinite where nothing is proved.
    The residual of the optimality condition is left in ``work[OFF]``.
    """
    X, nu = fit.scalars[LONGEST], fit.scalars[MULTIPLIER]
    off, lmin = work[OFF], fit.scalars[EIGENVALUE]
    square = quadratic(fit.H, step, off)
    gradient_2, H_step_2, off_2, step_2, ref_2, far_2, step_anchor, anchor_2 = inner_products(
        fit.gradient, fit.bent, fit.ref, fit.anchor, fit.H_anchor, step, off, nu
    )
    rounding, length = 2e-16 * math.sqrt(gradient_2 + H_step_2), math.sqrt(step_2)
    if not square >= -rounding * length:
        return math.inf  # H is lost to rounding
    square = max(0.0, square)
    # at least what it is in the norm of H^-1; enough if tiny
    residual = (math.sqrt(off_2) + rounding) / math.sqrt(lmin)
    if residual > 0.1 * estimator.tol:
        # H + shift I <= (1 + shift / lmin) H
        share = quadratic(fit.H_inv, off, work[PRODUCT])
        if share >= 0.0:
            sharper = math.sqrt((1.0 + fit.scalars[SHIFT] / lmin) * share)
            residual = min(residual, sharper + rounding / math.sqrt(lmin))
    reach = math.sqrt(ref_2) + length + MARGIN
    bound = X * min(reach, estimator.radius)
    if bound != fit.scalars[REACH]:
        fit.scalars[M_THERE], fit.scalars[N_THERE] = concordance(family, bound)
        fit.scalars[REACH] = bound
    M, N = fit.scalars[M_THERE], fit.scalars[N_THERE]
    if M * X == 0.0:
        return residual
    u, k = M * X * length, M * X / math.sqrt(lmin)
    if u > 50.0:  # e^u would drown everything; larger ones overflow
        return math.inf
    beyond = _remainder(u, estimator.order) * math.sqrt(square)
    if estimator.order == 3:
        beyond *= N * (X * length) ** 2
        both = square + 2.0 * step_anchor + anchor_2  # ||step + anchor||_H^2
        beyond += 0.5 * M * X * math.sqrt(far_2 * max(0.0, both))
    eps = _exponential(u) * (residual + beyond)
    if not k * eps < 1.0:
        return math.inf
    error = eps * _stretch(k * eps)
    holds_everywhere = reach >= estimator.radius or concordance(family, math.inf) == (M, N)
    if not holds_everywhere and error >= MARGIN * math.sqrt(lmin):
        return math.inf
    return error


@kernel
def _objective(
    estimator: LazyNewton, family: Any, theta: Vector, history: History, n: int
) -> float:
    """Returns F(theta)."""
    total = 0.5 * estimator.lam * estimator.kappa * dot(theta, theta)
    for row in range(n):
        if counts_for(history, row):
            z = dot(history.x[row], theta)
            total += weight_of(history, row) * (cumulant(family, z) - history.y[row] * z)
    return total


@kernel
def _line_search(
    estimator: LazyNewton,
    family: Any,
    fit: NewtonFit,
    step: Vector,
    history: History,
    n: int,
    theta: Vector,
) -> float:
    """The largest share 1, 1/2, 1/4, ... of the step that lowers F enough (Armijo); or 0.

    The first step after a large count is about as long as the count, where theta is its logarithm.
    """
    here, slope = _objective(estimator, family, fit.ref, history, n), dot(fit.gradient, step)
    share = 1.0
    for _ in range(SHARES):
        for i in range(step.shape[0]):
            theta[i] = fit.ref[i] + share * step[i]
        if _objective(estimator, family, theta, history, n) <= here + 0.25 * share * slope:
            return share
        share *= 0.5
    return 0.0


@kernel
def _minimise_model(
    estimator: LazyNewton, family: Any, fit: NewtonFit, step: Vector, work: Matrix
) -> float:
    """Minimise the model with the anchor it has: fills ``step`` and returns its certificate."""
    gradient = work[GRADIENT]
    for i in range(step.shape[0]):
        gradient[i] = fit.gradient[i] + fit.bent[i]
    minimise_quadratic(fit, gradient, estimator.radius, estimator.tol, step, work)
    return certify(estimator, family, fit, step, work)


@kernel
def _refine(
    estimator: LazyNewton, family: Any, fit: NewtonFit, error: float, step: Vector, work: Matrix
) -> float:
    """Refines ``step`` iteratively once, if needed: the inverse is only as good as its updates."""
    off, product, theta = work[OFF], work[PRODUCT], work[THETA]
    if (
        error <= estimator.tol
        or fit.scalars[SHIFT] > 0.0
        or fit.scalars[MULTIPLIER] > 0.0
        or not dot(off, off) > 1e-6 * estimator.tol**2 * fit.scalars[EIGENVALUE]
    ):
        return error
    matvec(fit.H_inv, off, product)
    for i in range(step.shape[0]):
        theta[i] = fit.ref[i] + step[i] - product[i]
    if dot(theta, theta) > estimator.radius**2:
        return error
    for i in range(step.shape[0]):
        step[i] -= product[i]
    return certify(estimator, family, fit, step, work)


@kernel
def _propose(
    estimator: LazyNewton, family: Any, fit: NewtonFit, step: Vector, work: Matrix
) -> float:
    """Fill ``step`` with the best one that the Taylor model gives; returns its certificate."""
    error = _minimise_model(estimator, family, fit, step, work)
    return _propose_better(estimator, family, fit, error, step, work)


@kernel
def _propose_better(
    estimator: LazyNewton, family: Any, fit: NewtonFit, error: float, step: Vector, work: Matrix
) -> float:
    """Improves a ``step`` that minimises the model but whose certificate ``error`` is too large.

    The step becomes the anchor and the model is minimised again, as long as that helps.
    """
    error = _refine(estimator, family, fit, error, step, work)
    if error <= estimator.tol or estimator.order == 2:
        return error
    best = work[BEST]
    copy(step, best)
    far = 4.0 * dot(step, step)
    for _ in range(MOST_ANCHORS):
        move_anchor(fit, step)
        now = _minimise_model(estimator, family, fit, step, work)
        now = _refine(estimator, family, fit, now, step, work)
        if dot(step, step) > far:  # it diverges: the step is too long for a Taylor model
            break
        better = now < error
        if better:
            copy(step, best)
            error = now
        if error <= estimator.tol or not better:
            break
    copy(best, step)
    return error


@inlined_kernel
def _drift(estimator: LazyNewton, family: Any, fit: NewtonFit, step: Vector) -> float:
    """Returns M X ||step||, by which log mu' may have changed between ref and ref + step."""
    length = math.sqrt(dot(step, step))
    reach = math.sqrt(dot(fit.ref, fit.ref)) + length
    M = self_concordance(family, fit.scalars[LONGEST] * min(reach, estimator.radius))
    return M * fit.scalars[LONGEST] * length


@refit.case(LazyNewton)
def _refit(estimator: LazyNewton, family: Any, state: State, history: History) -> None:
    fit, work, d = state.fit, state.work, state.theta.shape[0]
    step = work[STEP]
    if state.counts[OBSERVED] >= fit.scalars[RENEW_AT]:
        renew_eigenvalue(fit, estimator.lam * estimator.kappa)
        fit.scalars[RENEW_AT] = state.counts[OBSERVED] + 1 + state.counts[OBSERVED] // 16
    for i in range(d):
        step[i] = state.theta[i] - fit.ref[i]
    error = _minimise_model(estimator, family, fit, step, work)
    if not _is_enough(estimator, family, fit, error, step):
        error = _improve(estimator, family, fit, error, history, state.counts, step, work)
    for i in range(d):  # where nothing is proved, the last point that surely was an improvement
        state.theta[i] = fit.ref[i] + (step[i] if error < math.inf else 0.0)
    # H >= share W, because rho = kappa lam: the certificate in the norm of W
    share = min(estimator.kappa, fit.scalars[LEAST_SLOPE])
    state.scalars[ERROR] = error
    state.scalars[SLACK] = error / math.sqrt(share) if share > 0.0 else math.inf


@refit_exactly.case(LazyNewton)
def _refit_exactly(
    estimator: LazyNewton, family: Any, state: State, history: History, tol: float
) -> None:
    e = estimator
    strict = LazyNewton(e.lam, e.kappa, e.radius, tol, e.order, e.drift)
    refit(strict, family, state, history)


@inlined_kernel
def _is_enough(
    estimator: LazyNewton, family: Any, fit: NewtonFit, error: float, step: Vector
) -> bool:
    """Returns whether a step with this certificate needs no improvement."""
    return error <= estimator.tol and (
        estimator.drift == math.inf or _drift(estimator, family, fit, step) <= estimator.drift
    )


@kernel
def _improve(
    estimator: LazyNewton,
    family: Any,
    fit: NewtonFit,
    error: float,
    history: History,
    counts: Integers,
    step: Vector,
    work: Matrix,
) -> float:
    """Move the anchor, then the reference, until the certificate of ``step`` suffices; returns it.

    ``step`` comes in as the minimiser of the model, ``error`` as its certificate.
    """
    decided, passes, from_zero = counts[DECIDED], 0, False
    error = _propose_better(estimator, family, fit, error, step, work)
    while passes < MOST_PASSES and not _is_enough(estimator, family, fit, error, step):
        share = 1.0
        if error == math.inf:
            share = _line_search(estimator, family, fit, step, history, decided, work[THETA])
        if share == 0.0:
            # a reward far from what ref predicts can make H there singular to rounding: start anew
            if from_zero:
                break
            from_zero = True
        for i in range(step.shape[0]):
            fit.ref[i] = fit.ref[i] + share * step[i] if share > 0.0 else 0.0
            step[i] *= 1.0 - share
        pass_over_data(estimator, family, fit, history, decided)
        passes += 1
        error = _propose(estimator, family, fit, step, work)
    counts[PASSES] += passes
    counts[ROWS] += passes * counts[OBSERVED]
    return error
