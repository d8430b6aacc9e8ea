"""The farthest point of a level set of the likelihood, in the direction of an action.

The index of x is the largest x'theta with ``F(theta) <= level`` and ``||theta|| <= m1``, where

    F(theta) = sum over returned rewards of [b(x'theta) - y x'theta] + (ridge / 2) ||theta||^2.

It is one-dimensional in the dual. Let theta(nu) minimise ``F(theta) - nu x'theta`` over the ball.
For every nu > 0

    x'theta(nu) + (level - F(theta(nu))) / nu                                                   (D)

is at least the index, and equal to it where ``F(theta(nu)) = level``; F(theta(nu)) grows with nu.
In nu the error of (D) is of second order, so a rough root gives an accurate index. And since (D) is
an upper bound, the search ends as soon as it falls below the best index so far. Where the point of
the ball farthest along x is in the level set, the index is m1 ||x||.
"""

import math
from typing import Any

import numpy as np

from belated.core.jit import allocating_kernel, kernel
from belated.core.types import Matrix, Vector
from belated.estimators.newton.sphere import minimise_on_ball
from belated.model.protocols import cumulant, derivatives
from belated.model.state import OBSERVED, State
from belated.numerics.linalg import copy
from belated.numerics.lowered.products import add_outer, dot, matvec, quadratic
from belated.numerics.pruning import DecisionSet

ROOM = 1.0 + 1e-9  # on upper bounds, for rounding
TILTS, STEPS = 60, 100  # most values of nu, most steps of Newton's method for one
CLOSE = 1e-5  # to the level, as a share of its height: a share of 1e-11 in the width
SMALL_STEP = 1e-6  # decrements below need no line search; rounding would make it fail
THETA, NEW, STEP, GRADIENT, RIGHT, PRODUCT = 0, 1, 2, 3, 4, 5  # rows of the scratch
VECTORS = 6  # then two matrices: Hessian and its factor


@kernel
def objective(family: Any, state: State, ridge: float, theta: Vector) -> float:
    """Returns F(theta)."""
    X, y, total = state.fit.x, state.fit.y, 0.5 * ridge * dot(theta, theta)
    for row in range(state.counts[OBSERVED]):
        z = dot(theta, X[row])
        total += cumulant(family, z) - y[row] * z
    return total


@kernel
def _expand(
    family: Any, state: State, ridge: float, theta: Vector, gradient: Vector, H: Matrix
) -> float:
    """Computes F(theta), its gradient and its Hessian."""
    X, y, d = state.fit.x, state.fit.y, theta.shape[0]
    total = 0.5 * ridge * dot(theta, theta)
    for i in range(d):
        gradient[i] = ridge * theta[i]
        for j in range(d):
            H[i, j] = ridge if i == j else 0.0
    for row in range(state.counts[OBSERVED]):
        x = X[row]
        z = dot(theta, x)
        mu, slope, _ = derivatives(family, z)
        total += cumulant(family, z) - y[row] * z
        for i in range(d):
            gradient[i] += (mu - y[row]) * x[i]
        add_outer(H, slope, x)
    return total


@kernel
def _minimise_tilted(
    family: Any,
    state: State,
    ridge: float,
    m1: float,
    x: Vector,
    nu: float,
    enough: float,
    work: Matrix,
) -> float:
    """Moves ``work[THETA]``, in the ball, to the argmin of F(theta) - nu x'theta; returns F there.

    Newton's method: each step minimises a quadratic model over the ball. A little of the identity
    is added to the Hessian, the step penalised by as much: the end point is not changed.
    """
    d, theta, new, step = x.shape[0], work[THETA], work[NEW], work[STEP]
    gradient, right = work[GRADIENT], work[RIGHT]
    H, U = work[VECTORS : VECTORS + d], work[VECTORS + d :]
    value, multiplier = 0.0, 0.0
    for _ in range(STEPS):
        value = _expand(family, state, ridge, theta, gradient, H)
        trace = 0.0
        for i in range(d):
            gradient[i] -= nu * x[i]
            trace += H[i, i]
        for i in range(d):
            H[i, i] += 1e-9 * trace + 1e-100
        matvec(H, theta, right)
        for i in range(d):
            right[i] -= gradient[i]
        multiplier = minimise_on_ball(H, right, m1, multiplier, new, work[PRODUCT], U)
        for i in range(d):
            step[i] = new[i] - theta[i]
        decrement = -dot(gradient, step)
        if not decrement > enough:
            break
        share = 1.0
        if decrement > SMALL_STEP:
            here = value - nu * dot(x, theta)
            for _ in range(40):
                for i in range(d):
                    new[i] = theta[i] + share * step[i]
                there = objective(family, state, ridge, new) - nu * dot(x, new)
                if there <= here - 0.25 * share * decrement:
                    break
                share *= 0.5
        for i in range(d):
            theta[i] += share * step[i]
    return value


@kernel
def _farthest(
    family: Any,
    state: State,
    ridge: float,
    m1: float,
    height: float,
    base: float,
    x: Vector,
    best: float,
    work: Matrix,
) -> float:
    """Returns the index of ``x`` at level ``base + height``, or an upper bound if below ``best``.

    ``base`` is F at the estimate.
    """
    theta, norm = work[THETA], math.sqrt(dot(x, x))
    if norm == 0.0:
        return 0.0
    for i in range(x.shape[0]):
        theta[i] = m1 * x[i] / norm
    if objective(family, state, ridge, theta) <= base + height:
        return m1 * norm
    copy(state.theta, theta)
    # for a quadratic F, sqrt(F(theta(nu)) - base) is proportional to nu
    nu = math.sqrt(2.0 * height / quadratic(state.fit.P, x, work[PRODUCT]))
    low, high, before, root_before, bound = 0.0, math.inf, 0.0, 0.0, m1 * norm
    for _ in range(TILTS):
        value = _minimise_tilted(family, state, ridge, m1, x, nu, 1e-12 * height, work)
        beyond = value - base - height
        bound = min(bound, dot(x, theta) - beyond / nu)
        if bound < best or abs(beyond) <= CLOSE * height:
            break
        if beyond > 0.0:
            high = nu
        else:
            low = nu
        root, following = math.sqrt(max(0.0, value - base)), 0.0
        if root > 0.0:
            following = nu * math.sqrt(height) / root
            if root_before > 0.0 and root != root_before:  # secant, in logarithms
                power = math.log(nu / before) / math.log(root / root_before)
                following = nu * math.exp(power * math.log(math.sqrt(height) / root))
        before, root_before = nu, root
        if not low < following < high:
            following = 4.0 * nu if high == math.inf else 0.5 * (low + high)
        nu = following
    return bound


@allocating_kernel
def highest_index(
    family: Any,
    state: State,
    ridge: float,
    m1: float,
    height: float,
    reach: float,
    actions: DecisionSet,
) -> tuple[int, float]:
    """Returns the row with the largest index, and that index.

    ``reach`` is the radius, in the norm of ``fit.H``, of an ellipsoid around the estimate that
    holds the level set: it bounds every index in O(d^2). Only actions whose bound reaches the best
    index so far are solved for, the highest bound first. Ties go to the lowest row.
    """
    rows, fit = actions.rows, state.fit
    K, d = rows.shape
    work, bounds = np.empty((VECTORS + 2 * d, d)), np.empty(K)
    base = objective(family, state, ridge, state.theta)
    for k in range(K):
        square = max(0.0, quadratic(fit.P, rows[k], work[0]))
        ellipsoid = dot(rows[k], state.theta) + reach * math.sqrt(square)
        ball = m1 * math.sqrt(dot(rows[k], rows[k]))
        bounds[k] = min(ellipsoid + (ROOM - 1.0) * ball, ROOM * ball)
    best, score = -1, -math.inf
    for _ in range(K):
        k = 0
        for other in range(1, K):
            if bounds[other] > bounds[k]:
                k = other
        if bounds[k] < score:
            break
        bounds[k] = -math.inf
        index = _farthest(family, state, ridge, m1, height, base, rows[k], score, work)
        if index > score or (index == score and k < best):
            best, score = k, index
    return best, score


@allocating_kernel
def farthest(
    family: Any, state: State, ridge: float, m1: float, height: float, x: Vector, sign: float
) -> float:
    """Returns the largest ``sign x'theta`` in the level set at this height above the estimate."""
    d = x.shape[0]
    work, direction = np.empty((VECTORS + 2 * d, d)), np.empty(d)
    for i in range(d):
        direction[i] = sign * x[i]
    base = objective(family, state, ridge, state.theta)
    return _farthest(family, state, ridge, m1, height, base, direction, -math.inf, work)
