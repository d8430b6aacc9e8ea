"""The minimiser of a quadratic over a ball: the estimate that a model of F gives."""

import math

from belated.core.jit import inlined_kernel, kernel
from belated.core.types import Matrix, Vector
from belated.estimators.newton.fit import (
    BASE,
    EIGENVALUE,
    MULTIPLIER,
    PRODUCT,
    RIGHT,
    SHIFT,
    THETA,
    NewtonFit,
    invert,
)
from belated.model.state import WORK
from belated.numerics.linalg import cholesky, copy, solve_transposed, solve_upper
from belated.numerics.lowered.products import dot, matvec


@inlined_kernel
def minimise_quadratic(
    fit: NewtonFit, gradient: Vector, radius: float, tol: float, step: Vector, work: Matrix
) -> None:
    """Sets ``step``: argmin ``gradient'step + step'H step / 2`` over ``||ref + step|| <= radius``.

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
    elif not settle_on_sphere(fit, base, radius, tol, theta, work[PRODUCT]):
        matvec(fit.H, fit.ref, right)
        for i in range(d):
            right[i] -= gradient[i]
        _solve_on_sphere(fit, right, radius, theta, work)
        invert(fit)
    for i in range(d):
        step[i] = theta[i] - fit.ref[i]


@kernel
def settle_on_sphere(
    fit: NewtonFit, base: Vector, radius: float, tol: float, theta: Vector, w: Vector
) -> bool:
    """Solve ``(H + nu I) theta = right`` with ``||theta|| = radius``, or inside it with nu = 0.

    ``base`` is ``(H + shift I)^-1 right``, and theta a first guess. It iterates ``theta = base +
    (shift - nu) (H + shift I)^-1 theta``, with nu from the norm. A round leaves ``|shift - nu|``
    times the change of theta to be made up, so one knows when to stop; the change shrinks by
    ``|shift - nu| / (lmin + shift)`` per round. Returns False where that is slow.
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
    """Solves the same equation from any first guess."""
    fit.scalars[MULTIPLIER] = minimise_on_ball(
        fit.H, right, radius, fit.scalars[MULTIPLIER], theta, work[PRODUCT], work[WORK:]
    )


@kernel
def minimise_on_ball(
    H: Matrix, right: Vector, radius: float, nu: float, theta: Vector, product: Vector, U: Matrix
) -> float:
    """``theta`` minimises ``theta'H theta / 2 - right'theta`` in the ball; returns the multiplier.

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
