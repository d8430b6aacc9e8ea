"""One proximal step, the move that all one-pass estimators share.

    theta = argmin over ||theta|| <= radius of ||theta - start||_A^2 / 2 + phi(x'theta),

phi convex. Only its derivative enters, ``phi'(z) = level + rise z + weight mu(z)``: a linear phi is
a Newton step projected in the norm of A, a quadratic one a step of mirror descent, the loss of a
reward itself an implicit step. With nu the multiplier of the ball, zero inside,

    theta = (A + nu I)^-1 (A start - phi'(z) x),      z = x'theta,

so for a given nu there is one number to find: ``z = a - q phi'(z)`` with ``a = x'(A + nu I)^-1 A
start`` and ``q = x'(A + nu I)^-1 x``. The norm of theta decreases in nu, by

    d ||theta||^2 / 2 d nu = -theta'J^-1 theta,       J = A + nu I + phi''(z) x x'.
"""

import math
from typing import Any, NamedTuple

from belated.core.jit import kernel
from belated.core.types import Matrix, Vector
from belated.model.protocols import derivatives
from belated.model.state import WORK
from belated.numerics.linalg import (
    cholesky,
    copy,
    solve_transposed,
    solve_upper,
)
from belated.numerics.lowered.products import dot, matvec

# Rows of the scratch State.work that a step uses; a matrix follows from row WORK on. The caller
# fills TOWARDS; rows 0, 7 and above are the caller's.
TOWARDS, POINT, PRODUCT, BASE, ALONG_X, ALONG_START = 1, 2, 3, 4, 5, 6
SLOW = 0.2  # a fixed point that gains less than this factor per round is left to Newton's method


class Pull(NamedTuple):
    """phi'(z) = level + rise z + weight mu(z); rise and weight are not negative."""

    level: float
    rise: float
    weight: float


@kernel
def _force(pull: Pull, family: Any, z: float) -> tuple[float, float]:
    """Returns phi'(z) and phi''(z)."""
    force, stiffness = pull.level + pull.rise * z, pull.rise
    if pull.weight > 0.0:
        mu, slope, _ = derivatives(family, z)
        force += pull.weight * mu
        stiffness += pull.weight * slope
    return force, stiffness


@kernel
def _balance(pull: Pull, family: Any, a: float, q: float) -> float:
    """Returns the root of ``z - a + q phi'(z)``, which increases: Newton's method in a bracket."""
    if pull.weight == 0.0:
        return (a - q * pull.level) / (1.0 + q * pull.rise)
    far = a - q * _force(pull, family, a)[0]  # phi' increases: the root lies between a and here
    low, high, z = min(a, far), max(a, far), a
    for _ in range(100):
        force, stiffness = _force(pull, family, z)
        off = z - a + q * force
        if off > 0.0:
            high = z
        else:
            low = z
        step = off / (1.0 + q * stiffness)
        new = z - step
        if low <= new <= high:
            z = new
            if abs(step) <= 1e-9 * (1.0 + abs(z)):  # the next step would be its square
                break
        else:
            z = 0.5 * (low + high)
            if high - low <= 1e-15 * (1.0 + abs(z)):
                break
    return z


@kernel
def proximal_point(
    pull: Pull,
    family: Any,
    A: Matrix,
    A_inv: Matrix,
    start: Vector,
    x: Vector,
    radius: float,
    work: Matrix,
) -> float:
    """Fill ``work[POINT]`` with theta and return x'theta; ``work[TOWARDS]`` holds A^-1 x."""
    towards, theta = work[TOWARDS], work[POINT]
    z = _balance(pull, family, dot(x, start), dot(x, towards))
    force = _force(pull, family, z)[0]
    for i in range(x.shape[0]):
        theta[i] = start[i] - force * towards[i]
    if dot(theta, theta) <= radius * radius:
        return z
    settled, nu = _settle_on_sphere(pull, family, A_inv, start, x, radius, work)
    if not settled:
        _solve_on_sphere(pull, family, A, start, x, radius, nu, work)
    norm = math.sqrt(dot(theta, theta))
    for i in range(x.shape[0]):
        theta[i] *= radius / norm
    return dot(x, theta)


@kernel
def _settle_on_sphere(
    pull: Pull, family: Any, A_inv: Matrix, start: Vector, x: Vector, radius: float, work: Matrix
) -> tuple[bool, float]:
    """Iterates on the sphere ``theta = start - phi'(x'theta) A^-1 x - nu A^-1 theta``.

    ``work[POINT]`` comes in as the minimiser outside the ball. nu puts the right side on the
    sphere. It costs O(d^2) per round, a handful of rounds where nu and phi'' are small against A.
    Returns whether it settled, and nu.
    """
    towards, theta, product, base = work[TOWARDS], work[POINT], work[PRODUCT], work[BASE]
    d, nu, last = x.shape[0], 0.0, math.inf
    for _ in range(25):
        force = _force(pull, family, dot(x, theta))[0]
        for i in range(d):
            base[i] = start[i] - force * towards[i]
        excess = dot(base, base) - radius * radius
        if excess > 3.0 * radius * radius:
            return False, nu  # twice as far out as the sphere: nu is not small
        matvec(A_inv, theta, product)
        along, square = dot(base, product), dot(product, product)
        root = along * along - square * excess
        if not (root >= 0.0 and along > 0.0):
            return False, nu
        # the smaller root of ||base - nu product|| = radius, written without cancellation
        nu = max(0.0, excess / (along + math.sqrt(root)))
        change = 0.0
        for i in range(d):
            new = base[i] - nu * product[i]
            change += (new - theta[i]) ** 2
            theta[i] = new
        if change <= 1e-29 * radius * radius:
            return True, nu
        if not change <= SLOW * SLOW * last:
            return False, nu
        last = change
    return False, nu


@kernel
def _solve_on_sphere(
    pull: Pull,
    family: Any,
    A: Matrix,
    start: Vector,
    x: Vector,
    radius: float,
    nu: float,
    work: Matrix,
) -> None:
    """Does the same from any guess of nu: Newton's method on 1 / ||theta(nu)||, in a bracket."""
    theta, product, along_x, along_start = (
        work[POINT],
        work[PRODUCT],
        work[ALONG_X],
        work[ALONG_START],
    )
    d, U, low, high = x.shape[0], work[WORK:], 0.0, math.inf
    for _ in range(200):
        cholesky(A, nu, U)
        copy(x, along_x)
        solve_transposed(U, along_x)
        solve_upper(U, along_x)
        copy(start, along_start)
        solve_transposed(U, along_start)
        solve_upper(U, along_start)
        q = dot(x, along_x)
        z = _balance(pull, family, dot(x, start) - nu * dot(x, along_start), q)
        force, stiffness = _force(pull, family, z)
        for i in range(d):
            theta[i] = start[i] - nu * along_start[i] - force * along_x[i]
        norm = math.sqrt(dot(theta, theta))
        if abs(norm - radius) <= 1e-14 * radius:
            break
        if norm > radius:
            low = nu
        else:
            high = nu
        copy(theta, product)
        solve_transposed(U, product)
        solve_upper(U, product)
        along = dot(along_x, theta)
        curve = dot(theta, product) - stiffness * along * along / (1.0 + stiffness * q)
        new = nu + norm * norm / curve * (norm - radius) / radius
        if not low < new < high:
            new = 0.5 * (low + high) if high < math.inf else 2.0 * nu + 1.0
        if abs(new - nu) <= 1e-16 * nu:
            break
        nu = new
