"""The exact penalised MLE of a generalised linear model, without recomputing it.

The estimate minimises, over all theta or over a ball of radius m1,

    F(theta) = sum over returned rounds of [b(x'theta) - y x'theta] + (rho / 2) ||theta||^2.

A reference point ``ref`` is kept together with the gradient, the Hessian and, for order 3, the
third derivative of F there, over *all* returned rewards; a new reward changes each by a rank-one
term. The estimate is ``ref + step``, the minimiser of a model of F,

    gradient'step + bent'step + step'H step / 2,      bent = T3[anchor, anchor] / 2,

where the anchor is an earlier step (zero for order 2), so that T3, of d^3 / 6 numbers, is read only
when the anchor moves. Self-concordance bounds how far that is from the true minimiser
(``_certify``); only when the bound exceeds ``tol``, and moving the anchor does not help, does the
reference move, at the price of one pass over the data.

The certificate, with X the longest returned x, ``|mu''| <= M mu'`` and ``|mu'''| <= N mu'`` as far
as it matters, u = M X ||step||:

    ||grad F(ref + step) - (gradient + bent + H step)||_{H^-1} <= c ||step||_H + gap,
        c = (e^u - 1 - u) / u,               gap = 0                          for order 2,
        c = (N / M^2) (e^u - 1 - u - u^2/2) / u,
        gap = M X ||step - anchor|| ||step + anchor||_H / 2                   for order 3,
    eps = e^u (||r||_{H^-1} + c ||step||_H + gap),   k = M X / sqrt(lmin),
    ||ref + step - theta_hat||_H <= -log(1 - k eps) / k      if k eps < 1.

For order 3, mu(z + h) is its Taylor polynomial plus h^3 times the integral of (1 - v)^2 / 2
mu'''(z + v h) over [0, 1], and ``|mu'''(z + v h)| <= N mu'(z + v h) <= N e^{M v |h|} mu'(z)``.
The gap is T3[step, step] - T3[anchor, anchor] = T3[step - anchor, step + anchor], bounded by |mu''|
<= M mu' and Cauchy-Schwarz. r is what the model's optimality condition is off by, rounding of the
solve included: its gradient plus, on the ball, the multiplier times theta (add the variational
inequalities of the two minimisers). lmin is a lower bound on the eigenvalues of H: the larger of
rho and the inverse of an upper bound on those of H^-1. It may be a little stale, because H only
grows between passes. The one error not covered is rounding in the sums behind gradient and Hessian.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.jit import allocating_kernel, inlined_kernel, kernel
from belated.core.types import Integers, Matrix, Vector
from belated.model.protocols import (
    concordance,
    cumulant,
    derivatives,
    factor_precision,
    refit,
    revise,
    self_concordance,
    take_in,
)
from belated.model.state import (
    DECIDED,
    ERROR,
    OBSERVED,
    PASSES,
    REFACTOR_EVERY,
    ROWS,
    SLACK,
    WORK,
    History,
    State,
)
from belated.numerics.linalg import (
    LARGE_UPDATE,
    cholesky,
    copy,
    inverse_add_outer,
    inverse_and_log_det,
    solve_transposed,
    solve_upper,
)
from belated.numerics.lowered.inner_products import inner_products
from belated.numerics.lowered.products import add_outer, dot, matvec, quadratic
from belated.numerics.lowered.third_derivative import (
    BATCH,
    add_squares,
    add_thirds,
    add_waiting,
    multiply_all_pairs,
    new_third,
    third_form,
    unpack_squares,
)
from belated.numerics.pruning import split_bound

MOST_PASSES = 200  # in one refit; Newton's method needs a handful
MOST_ANCHORS = 4  # in one refit, before the reference moves
# slots of NewtonFit.scalars
MULTIPLIER, LONGEST, LEAST_SLOPE, EIGENVALUE, RENEW_AT, SHIFT = 0, 1, 2, 3, 4, 5
REACH, M_THERE, N_THERE, WAITING = 6, 7, 8, 9
# rows of the scratch State.work; a matrix follows from row WORK on
STEP, THETA, OFF, PRODUCT, BEST, GRADIENT, RIGHT, BASE = 1, 2, 3, 4, 5, 6, 7, 8
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
    drift
        Largest ``M X ||theta - ref||``: the Hessian kept, that at ref, is within the factors
        ``e^-drift`` and ``e^drift`` of the one at the estimate.
    """

    lam: float
    kappa: float
    radius: float
    tol: float
    order: int
    drift: float = math.inf

    def new_fit(self, dim: int) -> "NewtonFit":
        """No reward has returned yet: F is the penalty alone, minimal at zero."""
        rho = self.lam * self.kappa
        return NewtonFit(
            ref=np.zeros(dim),
            gradient=np.zeros(dim),
            H=rho * np.eye(dim),
            H_inv=np.eye(dim) / rho,
            T3=new_third(dim) if self.order == 3 else np.zeros((0, 0)),
            anchor=np.zeros(dim),
            bent=np.zeros(dim),
            H_anchor=np.zeros(dim),
            waiting=np.zeros((BATCH, dim)) if self.order == 3 else np.zeros((0, 0)),
            bends=np.zeros(BATCH if self.order == 3 else 0),
            scalars=np.array([0.0, 0.0, math.inf, rho, 1.0, 0.0, -1.0, 0.0, 0.0, 0.0]),
        )


class NewtonFit(NamedTuple):
    """Taylor coefficients of F at ``ref``."""

    ref: Vector  # (d,)   reference point
    gradient: Vector  # (d,)   of F at ref
    H: Matrix  # (d, d) Hessian of F at ref
    H_inv: Matrix  # (d, d) inverse of H + shift I
    # third derivative of F at ref, packed: third_derivative.py; without the rewards that wait. For
    # order 2 these, and what waits, are empty.
    T3: Matrix
    anchor: Vector  # (d,)   an earlier step; zero for order 2
    bent: Vector  # (d,)   T3[anchor, anchor] / 2
    H_anchor: Vector  # (d,)   H anchor
    waiting: Matrix  # (BATCH, d) x of rewards that are not yet in T3
    bends: Vector  # (BATCH,) their mu''
    # (10,) multiplier of the ball, longest returned x, least slope mu'(x'ref) of those, a lower
    # bound on the eigenvalues of H (a little stale: H grows), when to renew it, the shift (a recent
    # multiplier, so that the ball costs no more than a plain solve), M and N of the certificate
    # after the ``|z|`` they hold up to, and how many rewards wait
    scalars: Vector


@kernel
def _move_anchor(fit: NewtonFit, step: Vector) -> None:
    copy(step, fit.anchor)
    third_form(fit.T3, step, fit.bent)
    add_waiting(fit.waiting, fit.bends, int(fit.scalars[WAITING]), step, fit.bent)
    matvec(fit.H, step, fit.H_anchor)


@kernel
def _invert(fit: NewtonFit) -> None:
    """Inverse of H + shift I made anew, the shift being the present multiplier."""
    fit.scalars[SHIFT] = fit.scalars[MULTIPLIER]
    inverse_and_log_det(fit.H, fit.scalars[SHIFT], fit.H_inv)


@inlined_kernel
def _sum_up(
    estimator: LazyNewton, family: Any, fit: NewtonFit, x: Vector, y: float
) -> tuple[float, float]:
    """Add a reward to the gradient, and for order 3 to those that wait; mu' and mu'' at ref."""
    mu, slope, bend = derivatives(family, dot(x, fit.ref))
    for i in range(x.shape[0]):
        fit.gradient[i] += (mu - y) * x[i]
    fit.scalars[LEAST_SLOPE] = min(fit.scalars[LEAST_SLOPE], slope)
    if estimator.order == 3:
        waiting = int(fit.scalars[WAITING])
        copy(x, fit.waiting[waiting])
        fit.bends[waiting] = bend
        fit.scalars[WAITING] = waiting + 1
    return slope, bend


@take_in.case(LazyNewton)
def _take_in(estimator: LazyNewton, family: Any, state: State, x: Vector, y: float) -> None:
    fit = state.fit
    slope, bend = _sum_up(estimator, family, fit, x, y)
    fit.scalars[LONGEST] = max(fit.scalars[LONGEST], math.sqrt(dot(x, x)))
    if estimator.order == 3:
        z = dot(x, fit.anchor)
        for i in range(x.shape[0]):
            fit.bent[i] += 0.5 * bend * z * z * x[i]
            fit.H_anchor[i] += slope * z * x[i]
        if fit.scalars[WAITING] == BATCH:  # at once: it saves the way to memory and back
            fit.scalars[WAITING] = 0.0
            multiply_all_pairs(fit.waiting, fit.T3)
            add_thirds(fit.waiting, fit.bends, fit.T3)
    add_outer(fit.H, slope, x)
    q = inverse_add_outer(fit.H_inv, slope, x, state.work[0])
    if state.counts[OBSERVED] % REFACTOR_EVERY == 0 or q > LARGE_UPDATE:
        _invert(fit)


@revise.case(LazyNewton)
def _revise(
    estimator: LazyNewton, family: Any, state: State, x: Vector, old: float, new: float
) -> None:
    for i in range(x.shape[0]):  # nothing else of F depends on the rewards
        state.fit.gradient[i] -= (new - old) * x[i]


@allocating_kernel
def _pass_over_data(
    estimator: LazyNewton, family: Any, fit: NewtonFit, history: History, n: int
) -> None:
    """Taylor coefficients at ``fit.ref`` from all returned rewards, in the order of decisions."""
    rho, d = estimator.lam * estimator.kappa, fit.ref.shape[0]
    for i in range(d):
        fit.gradient[i] = rho * fit.ref[i]
        fit.anchor[i] = fit.bent[i] = fit.H_anchor[i] = 0.0
        for j in range(d):
            fit.H[i, j] = 0.0
    fit.T3[:] = 0.0
    fit.scalars[WAITING] = 0.0
    fit.scalars[LEAST_SLOPE] = math.inf
    _sum_over_data(estimator, family, fit, history, n, np.empty(BATCH))
    for i in range(d):
        fit.H[i, i] += rho
    _invert(fit)
    _renew_eigenvalue(fit, rho)


@kernel
def _sum_over_data(
    estimator: LazyNewton, family: Any, fit: NewtonFit, history: History, n: int, slopes: Vector
) -> None:
    """Add all returned rewards to gradient, Hessian and T3; of the latter some may wait."""
    for row in range(n):
        x, y = history.x[row], history.y[row]
        if y == y:  # returned
            slope, _ = _sum_up(estimator, family, fit, x, y)
            if estimator.order == 2:
                add_outer(fit.H, slope, x)
                continue
            waiting = int(fit.scalars[WAITING])
            slopes[waiting - 1] = slope
            if waiting == BATCH:  # the Hessian is gathered in scratch of T3
                fit.scalars[WAITING] = 0.0
                multiply_all_pairs(fit.waiting, fit.T3)
                add_squares(slopes, fit.T3)
                add_thirds(fit.waiting, fit.bends, fit.T3)
    if estimator.order == 3:
        unpack_squares(fit.T3, fit.H)
        for b in range(int(fit.scalars[WAITING])):
            add_outer(fit.H, slopes[b], fit.waiting[b])


@allocating_kernel
def _renew_eigenvalue(fit: NewtonFit, rho: float) -> None:
    """Lower bound on the eigenvalues of H, what rounding may have added taken off."""
    d, shift, trace = fit.ref.shape[0], fit.scalars[SHIFT], 0.0
    v = np.empty(d)  # any direction would do: actions that are played often point where theta does
    known = dot(fit.ref, fit.ref) > 1e-100
    for i in range(d):
        trace += fit.H[i, i] + shift
        v[i] = fit.ref[i] if known else 1.0
    _, across = split_bound(fit.H, fit.H_inv, v)
    shifted = 0.999999 / across - 1e-14 * trace
    fit.scalars[EIGENVALUE] = max(rho, shifted - shift)


@inlined_kernel
def _minimise_quadratic(
    fit: NewtonFit, gradient: Vector, radius: float, tol: float, step: Vector, work: Matrix
) -> None:
    """``step`` minimises ``gradient'step + step'H step / 2`` over ``||ref + step|| <= radius``.

    ``step`` comes in as a first guess.
    """
    d, theta, base, right = step.shape[0], work[THETA], work[BASE], work[RIGHT]
    shift = fit.scalars[SHIFT]
    for i in range(d):
        right[i] = gradient[i] + shift * fit.ref[i]
    matvec(fit.H_inv, right, base)
    for i in range(d):
        theta[i] = fit.ref[i] + step[i]
        base[i] = fit.ref[i] - base[i]  # (H + shift I)^-1 (H ref - gradient)
    if shift == 0.0 and dot(base, base) <= radius * radius:
        fit.scalars[MULTIPLIER] = 0.0
        copy(base, theta)
    elif not _settle_on_sphere(fit, base, radius, tol, theta, work[PRODUCT]):
        matvec(fit.H, fit.ref, right)
        for i in range(d):
            right[i] -= gradient[i]
        _solve_on_sphere(fit, right, radius, theta, work)
        _invert(fit)
    for i in range(d):
        step[i] = theta[i] - fit.ref[i]


@kernel
def _settle_on_sphere(
    fit: NewtonFit, base: Vector, radius: float, tol: float, theta: Vector, w: Vector
) -> bool:
    """Solve ``(H + nu I) theta = right`` with ``||theta|| = radius``, or inside it with nu = 0.

    ``base`` is ``(H + shift I)^-1 right``, and theta a first guess. By the fixed point ``theta =
    base + (shift - nu) (H + shift I)^-1 theta``, with nu from the norm. A round leaves ``|shift -
    nu|`` times the change of theta to be made up, so one knows when to stop; the change shrinks by
    ``|shift - nu| / (lmin + shift)`` a round. False where that is slow.
    """
    d, shift = theta.shape[0], fit.scalars[SHIFT]
    bb, enough = dot(base, base), (tol * tol) * 1e-3 * fit.scalars[EIGENVALUE]
    for _ in range(8):
        matvec(fit.H_inv, theta, w)
        ww, bw, excess = dot(w, w), dot(base, w), bb - radius * radius
        root = bw * bw - ww * excess
        if not (root >= 0.0 and bw > 0.0):
            return False
        # of the two roots of ||base + c w|| = radius the larger, written without cancellation
        c = -excess / (bw + math.sqrt(root))
        nu = max(0.0, shift - c)
        c = shift - nu
        change = 0.0
        for i in range(d):
            new = base[i] + c * w[i]
            change += (new - theta[i]) ** 2
            theta[i] = new
        if c * c * change <= enough:
            norm = math.sqrt(dot(theta, theta))
            if norm > radius or nu > 0.0:  # rounding must not leave the ball
                for i in range(d):
                    theta[i] *= radius / norm
            fit.scalars[MULTIPLIER] = nu
            return True
    return False


@kernel
def _solve_on_sphere(
    fit: NewtonFit, right: Vector, radius: float, theta: Vector, work: Matrix
) -> None:
    """The same from any distance."""
    fit.scalars[MULTIPLIER] = minimise_on_ball(
        fit.H, right, radius, fit.scalars[MULTIPLIER], theta, work[PRODUCT], work[WORK:]
    )


@kernel
def minimise_on_ball(
    H: Matrix, right: Vector, radius: float, nu: float, theta: Vector, product: Vector, U: Matrix
) -> float:
    """``theta`` minimises ``theta'H theta / 2 - right'theta`` over the ball; its multiplier.

    Newton's method on 1 / ||theta(nu)|| (More and Sorensen 1983), from the guess ``nu``: from the
    left it climbs monotonically, from the right one step leads to the left.
    """
    d, norm = theta.shape[0], 0.0
    for _ in range(50):
        cholesky(H, nu, U)
        copy(right, theta)
        solve_transposed(U, theta)
        solve_upper(U, theta)
        norm = math.sqrt(dot(theta, theta))
        if abs(norm - radius) <= 1e-13 * radius or (nu == 0.0 and norm <= radius):
            break
        if norm == 0.0:
            nu = 0.0
            continue
        copy(theta, product)
        solve_transposed(U, product)
        nu = max(0.0, nu + norm * norm / dot(product, product) * (norm - radius) / radius)
    if norm > radius or nu > 0.0:
        for i in range(d):
            theta[i] *= radius / norm
    return nu


@inlined_kernel
def _remainder(u: float, order: int) -> float:
    """At least, and hardly more than, (e^u - 1 - u) / u for order 2.

    For order 3 (e^u - 1 - u - u^2/2) / u^3, which is c of the certificate without ``N / M^2 u^2``.
    """
    if order == 2:
        return 0.5 * u + u * u / 5.9 if u < 1e-4 else (math.expm1(u) - u) / u
    if u < 1.0:  # what is left of the series is 1 / 120 + u / 720 + ..., at u = 1 below 1 / 100
        return 1.0 / 6.0 + u / 24.0 + u * u / 100.0
    return (math.expm1(u) - u - 0.5 * u * u) / (u * u * u)


@inlined_kernel
def _exponential(u: float) -> float:
    """At least, and hardly more than, e^u."""
    if u < 0.5:  # what follows u^3 / 6 has coefficients below those of a geometric series
        return 1.0 + u + u * u * (0.5 + u / (6.0 - 1.5 * u))
    return math.exp(u)


@inlined_kernel
def _stretch(t: float) -> float:
    """At least, and hardly more than, -log(1 - t) / t."""
    if t < 0.05:  # 1 + t / 2 + t^2 / 3 + t^3 / 4 + ...
        return 1.0 + 0.5 * t + t * t / (3.0 - 3.0 * t)
    return -math.log1p(-t) / t


@inlined_kernel
def _certify(
    estimator: LazyNewton, family: Any, fit: NewtonFit, step: Vector, work: Matrix
) -> float:
    """Bound on ``||ref + step - theta_hat||_H``.

    Where M grows with |z| it must hold at ref, ref + step and theta_hat. On the ball all three lie
    within ``radius``. Elsewhere M is taken up to ``MARGIN`` beyond ref + step, and the bound counts
    only if it puts theta_hat nearer than that: were theta_hat farther, the point of the segment at
    distance MARGIN would satisfy the same bound, a contradiction. Infinite where nothing is proved.
    What the optimality condition is off by is left in ``work[OFF]``.
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
    estimator: LazyNewton,
    family: Any,
    fit: NewtonFit,
    step: Vector,
    history: History,
    n: int,
    theta: Vector,
) -> float:
    """Largest share 1, 1/2, 1/4, ... of the step that lowers F as it should (Armijo); or 0."""
    here, slope = _objective(estimator, family, fit.ref, history, n), dot(fit.gradient, step)
    share = 1.0
    for _ in range(20):
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
    _minimise_quadratic(fit, gradient, estimator.radius, estimator.tol, step, work)
    return _certify(estimator, family, fit, step, work)


@kernel
def _refine(
    estimator: LazyNewton, family: Any, fit: NewtonFit, error: float, step: Vector, work: Matrix
) -> float:
    """The inverse is only as good as its updates: one step of iterative refinement, if needed."""
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
    return _certify(estimator, family, fit, step, work)


@kernel
def _propose(
    estimator: LazyNewton, family: Any, fit: NewtonFit, step: Vector, work: Matrix
) -> float:
    """Fill ``step`` with the best that the Taylor coefficients give; returns its certificate."""
    error = _minimise_model(estimator, family, fit, step, work)
    return _propose_better(estimator, family, fit, error, step, work)


@kernel
def _propose_better(
    estimator: LazyNewton, family: Any, fit: NewtonFit, error: float, step: Vector, work: Matrix
) -> float:
    """``step`` minimises the model, ``error`` is its certificate: better ones, where it is no good.

    The step becomes the anchor and the model is minimised again, as long as that helps.
    """
    error = _refine(estimator, family, fit, error, step, work)
    if error <= estimator.tol or estimator.order == 2:
        return error
    best = work[BEST]
    copy(step, best)
    far = 4.0 * dot(step, step)
    for _ in range(MOST_ANCHORS):
        _move_anchor(fit, step)
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
    """M X ||step||, by which the logarithm of mu' may have changed between ref and ref + step."""
    length = math.sqrt(dot(step, step))
    reach = math.sqrt(dot(fit.ref, fit.ref)) + length
    M = self_concordance(family, fit.scalars[LONGEST] * min(reach, estimator.radius))
    return M * fit.scalars[LONGEST] * length


@factor_precision.case(NewtonFit)
def _factor_precision(fit: NewtonFit, state: State, U: Matrix) -> None:
    cholesky(fit.H, 0.0, U)


@refit.case(LazyNewton)
def _refit(estimator: LazyNewton, family: Any, state: State, history: History) -> None:
    fit, work, d = state.fit, state.work, state.theta.shape[0]
    step = work[STEP]
    if state.counts[OBSERVED] >= fit.scalars[RENEW_AT]:
        _renew_eigenvalue(fit, estimator.lam * estimator.kappa)
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


@inlined_kernel
def _is_enough(
    estimator: LazyNewton, family: Any, fit: NewtonFit, error: float, step: Vector
) -> bool:
    """Whether a step with this certificate needs no improvement."""
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
        _pass_over_data(estimator, family, fit, history, decided)
        passes += 1
        error = _propose(estimator, family, fit, step, work)
    counts[PASSES] += passes
    counts[ROWS] += passes * counts[OBSERVED]
    return error
