"""The most optimistic action without scoring all of them, exactly.

The score of x is ``x'theta + radius ||x||_{A^-1}``, with A the design matrix. Scoring costs O(d^2)
an action; an upper bound costs O(d). Only actions whose bound reaches the best score seen are
scored.

A *cap* bounds A^-1 from above. With v a unit vector (about the top eigenvector of A), P = A^-1 and
x = c v + y, y orthogonal to v,

    x'P x = c^2 v'Pv + 2 c v'Py + y'Py <= c^2 (v'Pv + s) + ||y||^2 (max eigenvalue of P + s),

where s = ||Pv - (v'Pv) v|| and 2 c s ||y|| <= s (c^2 + ||y||^2). A only grows, so P only shrinks,
and a cap computed earlier stays valid; it is renewed whenever the number of terms in A has grown by
a sixteenth. The square root is bounded by its tangent at a typical value m, sqrt(q) <= (q + m) /
(2 sqrt(m)), which keeps the pass over all actions free of roots. Ties go to the lowest column.
"""

import math
from typing import NamedTuple

import numpy as np

from belated.core.jit import allocating_kernel, kernel
from belated.core.linalg import dot, matvec, quadratic
from belated.core.types import Matrix, Vector

ACROSS, ALONG, TYPICAL, RENEW_AT = 0, 1, 2, 3  # slots of a cap; from slot 4 on it holds v
SQUARINGS = 6  # ||P^64||_F^(1/64) exceeds the largest eigenvalue by d^(1/128) at most
GROUPS = 16  # of columns, in the search for those whose bound reaches
LARGEST_RADIUS = 1e100  # stands for infinity, where nothing is proved: the longest action wins
SLACK = 1.0 + 1e-6  # far above rounding in P, far below what would cost an action


class DecisionSet(NamedTuple):
    """The actions of a round, one a column, so that loops run across actions."""

    columns: Matrix  # (d, K)
    squares: Vector  # (K,) squared norms
    work: Matrix  # (4, K or 16) scratch, the larger


@allocating_kernel
def decision_set(actions: Matrix) -> DecisionSet:
    """Turn ``actions`` (K, d) into columns. A norm is infinite where a number is not finite."""
    K, d = actions.shape
    columns, squares = np.empty((d, K)), np.empty(K)
    for a in range(K):
        square = 0.0
        for i in range(d):
            v = float(actions[a, i])  # Python's float: its overflow is infinite, without a warning
            square += v * v
            columns[i, a] = v
        squares[a] = square if square == square else math.inf
    return DecisionSet(columns, squares, np.empty((4, max(K, GROUPS))))


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


@kernel
def renew(cap: Vector, A: Matrix, A_inv: Matrix, count: int, work: Vector) -> None:
    """Recompute the cap where ``A``, a sum of ``count`` terms, has outgrown it."""
    if count < cap[RENEW_AT]:
        return
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
def _width(A_inv: Matrix, radius: float, columns: Matrix, a: int, work: Matrix) -> float:
    """``radius ||x||_{A^-1}`` of one column."""
    x = work[0]
    for i in range(x.shape[0]):
        x[i] = columns[i, a]
    return radius * math.sqrt(max(0.0, quadratic(A_inv, x, work[1])))


@kernel
def _project(columns: Matrix, a: Vector, b: Vector, out_a: Vector, out_b: Vector) -> None:
    """``out_a = columns'a`` and ``out_b = columns'b``, five rows at a time, sums in order."""
    d, K = columns.shape
    for k in range(K):
        out_a[k] = 0.0
        out_b[k] = 0.0
    for i in range(d % 5):
        for k in range(K):
            out_a[k] += columns[i, k] * a[i]
            out_b[k] += columns[i, k] * b[i]
    for i in range(d % 5, d, 5):
        a0, a1, a2, a3, a4 = a[i], a[i + 1], a[i + 2], a[i + 3], a[i + 4]
        b0, b1, b2, b3, b4 = b[i], b[i + 1], b[i + 2], b[i + 3], b[i + 4]
        for k in range(K):
            x0, x1, x2 = columns[i, k], columns[i + 1, k], columns[i + 2, k]
            x3, x4 = columns[i + 3, k], columns[i + 4, k]
            out_a[k] = ((((out_a[k] + x0 * a0) + x1 * a1) + x2 * a2) + x3 * a3) + x4 * a4
            out_b[k] = ((((out_b[k] + x0 * b0) + x1 * b1) + x2 * b2) + x3 * b3) + x4 * b4


@kernel
def _highest_by_group(bound: Vector, top: Vector) -> None:
    """``top[j]`` is the largest of ``bound[j], bound[j + 16], ...``: runs along memory."""
    K = bound.shape[0]
    for j in range(GROUPS):
        top[j] = -math.inf
    for start in range(0, K - K % GROUPS, GROUPS):
        part = bound[start:]
        for j in range(GROUPS):
            top[j] = part[j] if part[j] > top[j] else top[j]
    for k in range(K - K % GROUPS, K):
        top[k % GROUPS] = max(top[k % GROUPS], bound[k])


@kernel
def most_optimistic(
    theta: Vector, A_inv: Matrix, cap: Vector, radius: float, actions: DecisionSet, work: Matrix
) -> tuple[int, float, float, float]:
    """Argmax of ``x'theta + radius ||x||_{A^-1}``: column, score, estimate, width.

    ``work`` is scratch of two rows, ``State.work``.
    """
    columns, squares = actions.columns, actions.squares
    K, radius = columns.shape[1], min(radius, LARGEST_RADIUS)
    estimate, along_v = actions.work[0][:K], actions.work[1][:K]
    bound, top = actions.work[2][:K], actions.work[3]
    _project(columns, theta, cap[4:], estimate, along_v)
    # the first bound is an upper one after rounding, too, however much its two terms cancel
    across = cap[ACROSS] * (1.0 + 1e-14 * theta.shape[0])
    less, m = cap[ACROSS] - cap[ALONG], cap[TYPICAL]
    slope = 0.5 * radius / math.sqrt(m)
    for k in range(K):
        q = squares[k] * across - along_v[k] * along_v[k] * less
        bound[k] = estimate[k] + slope * (m + q)
    _highest_by_group(bound, top)
    group, best = 0, 0
    for j in range(1, GROUPS):
        if top[j] > top[group]:
            group = j
    for k in range(group, K, GROUPS):
        if bound[k] == top[group]:
            best = k
    pivot, width = best, _width(A_inv, radius, columns, best, work)
    score = estimate[best] + width
    rounding = 1e-9 * (abs(score) + abs(top[group]))
    for j in range(GROUPS):
        if top[j] < score - rounding:
            continue
        for k in range(j, K, GROUPS):
            if bound[k] < score - rounding or k == pivot:
                continue
            q = squares[k] * across - along_v[k] * along_v[k] * less
            gap = score - rounding - estimate[k]
            if gap > 0.0 and gap * gap > SLACK * radius * radius * q:
                continue  # the bound with the square root itself does not reach
            other = _width(A_inv, radius, columns, k, work)
            if estimate[k] + other > score or (estimate[k] + other == score and k < best):
                best, width, score = k, other, estimate[k] + other
    return best, score, estimate[best], width
