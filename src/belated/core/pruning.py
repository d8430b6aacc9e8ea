"""The most optimistic action without scoring all of them, exactly.

The score of x is ``x'theta + radius ||x||_{A^-1}``, with A the design matrix. Scoring costs O(d^2)
an action; an upper bound costs O(d), in single precision. Only actions whose bound, with room for
rounding, reaches the best score seen are scored.

A *cap* bounds A^-1 from above. With v a unit vector (about the top eigenvector of A), P = A^-1 and
x = c v + y, y orthogonal to v,

    x'P x = c^2 v'Pv + 2 c v'Py + y'Py <= c^2 (v'Pv + s) + ||y||^2 (max eigenvalue of P + s),

where s = ||Pv - (v'Pv) v|| and 2 c s ||y|| <= s (c^2 + ||y||^2). A only grows, so P only shrinks,
and a cap computed earlier stays valid; it is renewed whenever the number of terms in A has grown by
a sixteenth. The square root is bounded by its tangent at a typical value m, sqrt(q) <= (q + m) /
(2 sqrt(m)), which keeps the pass over all actions free of roots. Ties go to the lowest row.

Where the widths are large beside the estimates, the cap leaves many actions in the race. Then all
squares x'P x are computed at once, in single precision and across actions, which costs as much as
scoring a dozen of them one by one, and few remain.

Rounding. In single precision a number is off by a share of u = 2^-24. With X the longest action,
x'theta is off by (d + 2) u X ||theta|| at most, c by (d + 2) u X, and q by (2 d + 9) u X^2 times
the larger eigenvalue bound, P_1. Room is left for four times (d + 4) u times these sizes. x'P x is
off by (2 d + 4) u times the sum of |P_ij x_i x_j|, which is at most sqrt(d) P_1 X^2.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.jit import (
    allocating_kernel,
    inlined_kernel,
    kernel,
    rough_kernel,
)
from belated.core.linalg import dot, matvec, quadratic
from belated.core.packs import (
    SIXTEEN,
    count_reaching,
    first_reaching,
    fused,
    larger,
    largest,
    only,
    put_sixteen,
    sixteen,
)
from belated.core.types import Coarse, Matrix, Vector

ACROSS, ALONG, TYPICAL, RENEW_AT = 0, 1, 2, 3  # slots of a cap; from slot 4 on it holds v
SQUARINGS = 6  # ||P^64||_F^(1/64) exceeds the largest eigenvalue by d^(1/128) at most
LARGEST_RADIUS = 1e100  # stands for infinity, where nothing is proved: the longest action wins
ROOM = 4.0 * 2.0**-24  # for rounding: see above
MANY = 4  # actions, beyond d, that it does not pay to score one by one
SMALL, LARGE = 1e-17, 1e17  # between these single precision neither overflows nor loses digits
SLACK = 1.0 + 1e-6  # far above rounding in P, far below what would cost an action


class DecisionSet(NamedTuple):
    """The actions of a round."""

    rows: Matrix  # (K, d)
    # (d + 1, columns) one a column, so that loops run across actions; last squared norms; zeros
    # beyond the last action
    coarse: Coarse
    longest: float  # at least the largest squared norm, and hardly more
    work: Coarse  # (4, columns) scratch


@kernel
def columns(K: int) -> int:
    """How many columns ``K`` actions take."""
    return K + -K % SIXTEEN


@kernel
def fill_coarse(rows: Matrix, coarse: Coarse) -> float:
    """Fill ``coarse``; at least the largest squared norm, and hardly more.

    What is not a finite number, or too large a one, counts as ``LARGE``.
    """
    K, d = rows.shape
    n, norms, longest = coarse.shape[1] // SIXTEEN * SIXTEEN, coarse[d], np.float32(0.0)
    for i in range(d):
        column = coarse[i]
        for a in range(K):
            v = rows[a, i]
            column[a] = v if abs(v) < LARGE else LARGE
        for a in range(K, n):
            column[a] = np.float32(0.0)
    for a in range(n):
        norms[a] = np.float32(0.0)
    for i in range(d):
        column = coarse[i]
        for a in range(n):
            norms[a] += column[a] * column[a]
    for a in range(K):
        longest = max(longest, norms[a])
    return float(longest) * (1.0 + ROOM * (d + 4))


@allocating_kernel
def decision_set(actions: Matrix) -> DecisionSet:
    """Turn ``actions`` (K, d) into a decision set."""
    K, d = actions.shape
    rows, coarse = np.empty((K, d)), np.empty((d + 1, columns(K)), np.float32)
    for a in range(K):
        for i in range(d):
            rows[a, i] = actions[a, i]
    longest = fill_coarse(rows, coarse)
    return DecisionSet(rows, coarse, longest, np.empty((4, columns(K)), np.float32))


def new_cap(dim: int, lam: float) -> Vector:
    """The cap of ``A = lam I``: exact."""
    cap = np.zeros(dim + 4)
    cap[ACROSS] = cap[ALONG] = cap[TYPICAL] = SLACK / lam
    cap[RENEW_AT] = 1.0
    cap[4] = 1.0
    return cap


@allocating_kernel
def largest_eigenvalue_bound(P: Matrix) -> float:
    """At least the largest eigenvalue of the positive definite ``P``, and hardly more."""
    d = P.shape[0]
    square, product = P.copy(), np.empty((d, d))
    log_scale, weight = 0.0, 1.0
    for _ in range(SQUARINGS):
        largest = 0.0
        for i in range(d):
            largest = max(largest, square[i, i])  # the largest entry of a definite matrix
        log_scale += weight * math.log(largest)
        weight *= 0.5
        for i in range(d):
            for j in range(d):
                square[i, j] /= largest
        for i in range(d):
            for j in range(d):
                product[i, j] = 0.0
            for k in range(d):
                c = square[i, k]
                for j in range(d):
                    product[i, j] += c * square[k, j]
        square, product = product, square
    frobenius = 0.0
    for i in range(d):
        frobenius += dot(square[i], square[i])
    return math.exp(log_scale + weight * 0.5 * math.log(frobenius))


@inlined_kernel
def renew(cap: Vector, A: Matrix, A_inv: Matrix, count: int, work: Vector) -> None:
    """Recompute the cap where ``A``, a sum of ``count`` terms, has outgrown it."""
    if count >= cap[RENEW_AT]:
        _compute_cap(cap, A, A_inv, count, work)


@kernel
def _compute_cap(cap: Vector, A: Matrix, A_inv: Matrix, count: int, work: Vector) -> None:
    d = A.shape[0]
    v = cap[4:]
    for _ in range(3):  # towards the top eigenvector; any unit vector would do
        matvec(A, v, work)
        norm = math.sqrt(dot(work, work))
        for i in range(d):
            v[i] = work[i] / norm
    along = quadratic(A_inv, v, work)
    off = 0.0
    for i in range(d):
        off += (work[i] - along * v[i]) ** 2
    s = math.sqrt(off)
    across = largest_eigenvalue_bound(A_inv) + s
    cap[ACROSS] = SLACK * across
    cap[ALONG] = min(SLACK * (along + s), cap[ACROSS])
    cap[TYPICAL] = 0.5 * across
    cap[RENEW_AT] = count + 1 + count // 16


@kernel
def _width(A_inv: Matrix, radius: float, x: Vector, work: Vector) -> float:
    """``radius ||x||_{A^-1}``."""
    return radius * math.sqrt(max(0.0, quadratic(A_inv, x, work)))


@kernel
def _bound_all(
    coarse: Coarse,
    theta: Vector,
    v: Vector,
    across: np.float32,
    less: np.float32,
    slope: np.float32,
    m: np.float32,
    work: Coarse,
) -> None:
    """Rows of ``work``: x'theta, the square under the root, and the bound, of all actions.

    Four packs at a time, so that none waits for its last addition; at the end some come twice.
    """
    d, last = theta.shape[0], coarse.shape[1] - SIXTEEN
    for k0 in range(0, coarse.shape[1], 4 * SIXTEEN):
        k1, k2 = min(k0 + SIXTEEN, last), min(k0 + 2 * SIXTEEN, last)
        k3 = min(k0 + 3 * SIXTEEN, last)
        x, a, b = coarse[0], np.float32(theta[0]), np.float32(v[0])
        x0, x1, x2, x3 = sixteen(x, k0), sixteen(x, k1), sixteen(x, k2), sixteen(x, k3)
        a0, a1, a2, a3 = x0 * a, x1 * a, x2 * a, x3 * a
        b0, b1, b2, b3 = x0 * b, x1 * b, x2 * b, x3 * b
        for i in range(1, d):
            x, a, b = coarse[i], np.float32(theta[i]), np.float32(v[i])
            x0, x1, x2, x3 = sixteen(x, k0), sixteen(x, k1), sixteen(x, k2), sixteen(x, k3)
            a0, a1, a2, a3 = fused(x0, a, a0), fused(x1, a, a1), fused(x2, a, a2), fused(x3, a, a3)
            b0, b1, b2, b3 = fused(x0, b, b0), fused(x1, b, b1), fused(x2, b, b2), fused(x3, b, b3)
        _bound_some(coarse[d], k0, a0, b0, across, less, slope, m, work)
        _bound_some(coarse[d], k1, a1, b1, across, less, slope, m, work)
        _bound_some(coarse[d], k2, a2, b2, across, less, slope, m, work)
        _bound_some(coarse[d], k3, a3, b3, across, less, slope, m, work)


@inlined_kernel
def _bound_some(
    norms: Coarse,
    k: int,
    estimates: Any,
    along: Any,
    across: np.float32,
    less: np.float32,
    slope: np.float32,
    m: np.float32,
    work: Coarse,
) -> None:
    """Sixteen columns of ``work`` from x'theta and x'v."""
    squares = sixteen(norms, k) * across - along * along * less
    put_sixteen(work[0], k, estimates)
    put_sixteen(work[1], k, squares)
    put_sixteen(work[2], k, fused(squares + m, slope, estimates))


@kernel
def _highest(bound: Coarse, K: int) -> int:
    """The first of ``K`` rows with the largest bound; bounds beyond them become minus infinity."""
    n = bound.shape[0]
    beyond = only(sixteen(bound, n - SIXTEEN), K - (n - SIXTEEN), -np.float32(np.inf))
    put_sixteen(bound, n - SIXTEEN, beyond)
    high = beyond
    for k in range(0, n - SIXTEEN, SIXTEEN):
        high = larger(high, sixteen(bound, k))
    top = largest(high)
    for k in range(0, n, SIXTEEN):
        place = first_reaching(sixteen(bound, k), top)
        if place < SIXTEEN:
            return k + place
    return 0


@kernel
def _reaching(bound: Coarse, level: float) -> int:
    """How many bounds reach ``level``, rounded: one that just misses it may count."""
    count = 0
    for k in range(0, bound.shape[0], SIXTEEN):
        count += count_reaching(sixteen(bound, k), np.float32(level))
    return count


@rough_kernel
def _sharpen(coarse: Coarse, A_inv: Matrix, radius: float, of_square: float, work: Coarse) -> None:
    """Rows of ``work``: squares become x'A_inv x, bounds the first row plus its root times radius.

    The fourth row is scratch.
    """
    d, K = A_inv.shape[0], coarse.shape[1] // SIXTEEN * SIXTEEN
    estimate, square, bound, inner = work[0], work[1], work[2], work[3]
    for k in range(K):
        square[k] = np.float32(0.0)
    for i in range(d):
        x = coarse[i]
        half = np.float32(0.5 * A_inv[i, i])
        for k in range(K):
            inner[k] = half * x[k]
        for j in range(i % 4):
            y, c = coarse[j], np.float32(A_inv[i, j])
            for k in range(K):
                inner[k] += c * y[k]
        for j in range(i % 4, i, 4):
            y0, y1, y2, y3 = coarse[j], coarse[j + 1], coarse[j + 2], coarse[j + 3]
            c0, c1 = np.float32(A_inv[i, j]), np.float32(A_inv[i, j + 1])
            c2, c3 = np.float32(A_inv[i, j + 2]), np.float32(A_inv[i, j + 3])
            for k in range(K):
                inner[k] += c0 * y0[k] + c1 * y1[k] + c2 * y2[k] + c3 * y3[k]
        for k in range(K):
            square[k] += np.float32(2.0) * x[k] * inner[k]
    steep, more = np.float32(radius), np.float32(of_square)
    for k in range(K):
        bound[k] = estimate[k] + steep * np.sqrt(max(square[k], np.float32(0.0)) + more)


@kernel
def room_of_squares(d: int, longest: float, across: float) -> float:
    """What x'A_inv x in single precision may be off by, for every action."""
    return ROOM * (2 * d + 4) * math.sqrt(d) * longest * across


@kernel
def most_optimistic(
    theta: Vector, A_inv: Matrix, cap: Vector, radius: float, actions: DecisionSet, work: Matrix
) -> tuple[int, float, float, float]:
    """Argmax of ``x'theta + radius ||x||_{A^-1}``: row, score, estimate, width.

    ``work`` is scratch of one row at least, ``State.work``.
    """
    rows, d, K = actions.rows, theta.shape[0], actions.rows.shape[0]
    estimates, squares, bound = actions.work[0], actions.work[1], actions.work[2]
    radius = min(radius, LARGEST_RADIUS)
    m, across = cap[TYPICAL], cap[ACROSS]
    slope = 0.5 * radius / math.sqrt(m)
    room = ROOM * (d + 4)
    of_estimate = room * math.sqrt(actions.longest) * math.sqrt(dot(theta, theta))
    of_square = room * actions.longest * across
    of_bound = of_estimate + slope * (of_square + room * m)
    best = 0
    if (
        SMALL < actions.longest < LARGE
        and SMALL < across < LARGE
        and SMALL < of_bound < LARGE
        and slope < LARGE
    ):
        _bound_all(
            actions.coarse,
            theta,
            cap[4:],
            np.float32(across),
            np.float32(across - cap[ALONG]),
            np.float32(slope),
            np.float32(m),
            actions.work,
        )
        best = _highest(bound, K)
    else:  # out of reach of single precision: score all
        of_bound = of_estimate = math.inf
        for k in range(bound.shape[0]):
            estimates[k] = squares[k] = bound[k] = 0.0
    pivot, estimate = best, dot(rows[best], theta)
    width = _width(A_inv, radius, rows[best], work[0])
    score = estimate + width
    reaching = _reaching(bound, score - of_bound)  # of them the one just scored
    if reaching > MANY + d and of_bound < math.inf:
        of_square = room_of_squares(d, actions.longest, across)
        _sharpen(actions.coarse, A_inv, radius, of_square, actions.work)
        of_bound = of_estimate + room * radius * math.sqrt(actions.longest * across)
        k = _highest(bound, K)
        other, more = dot(rows[k], theta), _width(A_inv, radius, rows[k], work[0])
        if other + more > score or (other + more == score and k < best):
            best, estimate, width, score = k, other, more, other + more
    if reaching > 1:
        for start in range(0, K, SIXTEEN):
            place = first_reaching(sixteen(bound, start), np.float32(score - of_bound))
            for k in range(start + place, min(start + SIXTEEN, K)):
                if bound[k] < score - of_bound or k == pivot:
                    continue
                gap = score - of_estimate - estimates[k]
                if gap > 0.0 and gap * gap > radius * radius * (squares[k] + of_square):
                    continue  # the bound with the square root itself does not reach
                other, more = dot(rows[k], theta), _width(A_inv, radius, rows[k], work[0])
                if other + more > score or (other + more == score and k < best):
                    best, estimate, width, score = k, other, more, other + more
    return best, score, estimate, width
