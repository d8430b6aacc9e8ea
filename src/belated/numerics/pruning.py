"""The most optimistic action without scoring all of them, exactly.

The score of x is ``x'theta + radius ||x||_{A^-1}``, with A the design matrix. Scoring costs O(d^2)
per action; an upper bound costs O(d), in single precision. Only actions whose bound, with room for
rounding, reaches the best score seen are scored.

A *cap* bounds A^-1 from above. With v a unit vector (about the top eigenvector of A), P = A^-1 and
x = c v + y, y orthogonal to v,

    x'P x = c^2 v'Pv + 2 c v'Py + y'Py <= c^2 (v'Pv + s) + ||y||^2 (P_1 + s),

where s = ||Pv - (v'Pv) v||, 2 c s ||y|| <= s (c^2 + ||y||^2), and P_1 is at least v'Pv and all
eigenvalues of P on the complement of v (``split_bound``). A only grows, so P only shrinks, and
a cap computed earlier stays valid; it is renewed whenever the number of terms in A has grown by a
thirty-second. The square root is bounded by its tangent at a typical value m, sqrt(q) <= (q + m) /
(2 sqrt(m)), which keeps the pass over all actions free of roots. Ties go to the lowest row.

Where the widths are large beside the estimates, the cap leaves many actions in the race. Then all
squares x'P x are computed at once, in single precision and across actions, which costs as much as
scoring a dozen of them one by one, and few remain.

Where every round has the same actions, squares that were computed at once are remembered: A only
grows, so they bound the squares of later rounds, too, and they are much closer than the cap is for
actions that are played again and again.

Rounding. In single precision a number is off by a share of u = 2^-24. With X the longest action,
x'theta is off by (d + 2) u X ||theta|| at most, c by (d + 2) u X, and q by (2 d + 9) u X^2 times
the larger of its two factors, at most P_1 + s. Room is left for four times (d + 4) u times these
sizes. x'P x is off by (2 d + 4) u times the sum of |P_ij x_i x_j|, which is at most sqrt(d) times
the largest eigenvalue of P, itself at most P_1 + s, times X^2.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.generic import generic_with_default
from belated.core.jit import (
    allocating_kernel,
    inlined_kernel,
    kernel,
    rough_kernel,
)
from belated.core.types import Coarse, Matrix, Vector
from belated.numerics.lowered.products import dot, matvec, quadratic
from belated.numerics.lowered.score_bounds import (
    SIXTEEN,
    bound_all,
    count_reaching,
    highest,
    lowest,
    reaching,
)

ACROSS, ALONG, TYPICAL, RENEW_AT = 0, 1, 2, 3  # slots of a cap; from slot 4 on it holds v
SQUARINGS = 4  # ||S^16||_F^(1/16) exceeds the largest eigenvalue by the factor d^(1/32) at most
RENEWALS = 32  # a cap is renewed when the terms of A have grown by such a part
LARGEST_RADIUS = 1e100  # stands for infinity, where nothing is proved: the longest action wins
ROOM = 4.0 * 2.0**-24  # for rounding: see above
MANY = 4  # actions, beyond d, that it does not pay to score one by one
SMALL, LARGE = 1e-17, 1e17  # between these single precision neither overflows nor loses digits
SLACK = 1.0 + 1e-6  # far above rounding in P, far below what would cost an action


class DecisionSet(NamedTuple):
    """The actions of one round."""

    rows: Matrix  # (K, d)
    # (d + 1, columns) one action per column, so that loops run across actions; squared norms
    # last; zeros beyond the last action
    coarse: Coarse
    longest: float  # at least the largest squared norm, and hardly more
    work: Coarse  # (4, columns) scratch
    # where every round has the same actions: bounds on x'A_inv x that hold until the cap is renewed
    # at the count that stands last, (columns + 1); else empty
    earlier_squares: Vector


@kernel
def columns(K: int) -> int:
    """Returns the number of columns that ``K`` actions take."""
    return K + -K % SIXTEEN


@kernel
def fill_coarse(rows: Matrix, coarse: Coarse) -> float:
    """Fills ``coarse``; returns a number just above the largest squared norm.

    A number that is not finite, or is too large, counts as ``LARGE``.
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
    work = np.empty((4, columns(K)), np.float32)
    return DecisionSet(rows, coarse, longest, work, np.empty(0))


def new_cap(dim: int, lam: float) -> Vector:
    """Returns the cap of ``A = lam I``, which is exact."""
    cap = np.zeros(dim + 4)
    cap[ACROSS] = cap[ALONG] = cap[TYPICAL] = SLACK / lam
    cap[RENEW_AT] = 1.0
    cap[4] = 1.0
    return cap


@allocating_kernel
def split_bound(A: Matrix, A_inv: Matrix, v: Vector) -> tuple[float, float]:
    """``along, across`` such that ``x'A_inv x <= along c^2 + across (||x||^2 - c^2)``, ``c = x'v``.

    ``v`` is moved towards the top eigenvector of ``A`` first and becomes of unit length; A_inv may
    be the inverse of ``A`` plus a multiple of the identity. ``across`` is at least ``along``.
    """
    d = v.shape[0]
    work, square, product = np.empty(d), np.empty((d, d)), np.empty((d, d))
    for _ in range(3):
        matvec(A, v, work)
        norm = math.sqrt(dot(work, work))
        for i in range(d):
            v[i] = work[i] / norm
    along = quadratic(A_inv, v, work)
    off, trace = 0.0, -along
    for i in range(d):
        work[i] -= along * v[i]
        off += work[i] ** 2
        trace += A_inv[i, i]
    s, m = math.sqrt(off), trace / max(d - 1, 1)
    # What A_inv does to vectors orthogonal to v, less m: small where its eigenvalues are alike.
    # They may reach farther down than up, hence less a standard deviation, too.
    deviation = 0.0
    for i in range(d):
        for j in range(d):
            off = work[i] * v[j] + v[i] * work[j]
            square[i, j] = A_inv[i, j] - off + (m - along) * v[i] * v[j]
        square[i, i] -= m
        deviation += dot(square[i], square[i])
    deviation = math.sqrt(deviation / max(d - 1, 1))
    for i in range(d):
        for j in range(d):
            square[i, j] -= deviation * v[i] * v[j]
        square[i, i] += deviation
    across = m - deviation + _spectral_bound(square, product)
    return along + s, max(across, along) + s


@kernel
def _spectral_bound(S: Matrix, product: Matrix) -> float:
    """Returns a close upper bound on the absolute eigenvalues of ``S``, which is overwritten.

    It is the root of the Frobenius norm of a high power.
    """
    d, log_scale, weight = S.shape[0], 0.0, 1.0
    for _ in range(SQUARINGS):
        largest = 0.0
        for i in range(d):
            for j in range(d):
                largest = max(largest, abs(S[i, j]))
        if largest < 1e-300:
            return 0.0
        log_scale += weight * math.log(largest)
        weight *= 0.5
        for i in range(d):
            for j in range(d):
                S[i, j] /= largest
        for i in range(d):
            matvec(S, S[i], product[i])
        S, product = product, S
    frobenius = 0.0
    for i in range(d):
        frobenius += dot(S[i], S[i])
    return math.exp(log_scale + weight * 0.5 * math.log(frobenius))


@inlined_kernel
def renew(cap: Vector, A: Matrix, A_inv: Matrix, count: int, work: Vector) -> None:
    """Recompute the cap where ``A``, a sum of ``count`` terms, has outgrown it."""
    if count >= cap[RENEW_AT]:
        _compute_cap(cap, A, A_inv, count, work)


@kernel
def _compute_cap(cap: Vector, A: Matrix, A_inv: Matrix, count: int, work: Vector) -> None:
    v = cap[4:]
    along, across = split_bound(A, A_inv, v)
    trace = 0.0
    for i in range(v.shape[0]):
        trace += A[i, i]
    share = quadratic(A, v, work) / trace  # what actions have along v, on average
    cap[ACROSS] = SLACK * across
    cap[ALONG] = SLACK * along
    cap[TYPICAL] = max(along * share + across * (1.0 - share), 0.1 * across)
    cap[RENEW_AT] = count + 1 + count // RENEWALS


@kernel
def _width(A_inv: Matrix, radius: float, x: Vector, work: Vector) -> float:
    """``radius ||x||_{A^-1}``."""
    return radius * math.sqrt(max(0.0, quadratic(A_inv, x, work)))


@rough_kernel
def _sharpen(coarse: Coarse, A_inv: Matrix, radius: float, of_square: float, work: Coarse) -> None:
    """In ``work``, squares become x'A_inv x, bounds the first row plus its root times radius.

    The fourth row of ``work`` is scratch.
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
def _recall(
    earlier: Vector, renew_at: float, radius: float, of_square: float, work: Coarse
) -> None:
    """Lowers squares and bounds in ``work`` to earlier ones; forgets those of an older cap."""
    level, square, bound = work[0], work[1], work[2]
    n = earlier.shape[0] - 1
    if earlier[n] != renew_at:
        for k in range(n):
            earlier[k] = math.inf
        earlier[n] = renew_at
        return
    steep, more = np.float32(radius), np.float32(of_square)
    for k in range(n):
        square[k] = min(square[k], np.float32(earlier[k]))
        bound[k] = min(bound[k], level[k] + steep * np.sqrt(max(square[k], np.float32(0.0)) + more))


@kernel
def room_of_squares(d: int, longest: float, across: float) -> float:
    """Returns a bound on the rounding error of x'A_inv x in single precision, for every action."""
    return ROOM * (2 * d + 4) * math.sqrt(d) * longest * across


class Linear(NamedTuple):
    """The scale of x'theta, on which the level of an action is x'theta itself."""


@generic_with_default
def level(scale: Any, estimate: float) -> float:
    """Returns the score of an action without its width; it grows with x'theta."""
    return estimate


@generic_with_default
def room_of_levels(scale: Any, reach: float, room: float) -> float:
    """Returns a bound on the rounding error of a level in single precision; infinite on overflow.

    |x'theta| is at most ``reach``, and its own error at most ``room reach``.
    """
    return room * reach


@generic_with_default
def raise_bounds(
    scale: Any, of_estimate: float, slope: np.float32, m: np.float32, work: Coarse
) -> None:
    """Turn the first row of ``work`` from x'theta into levels, and the bounds accordingly."""


@kernel
def most_optimistic(
    theta: Vector, A_inv: Matrix, cap: Vector, radius: float, actions: DecisionSet, work: Matrix
) -> tuple[int, float, float, float]:
    """Argmax of ``x'theta + radius ||x||_{A^-1}``: row, score, estimate, width.

    ``work`` is scratch of one row at least, ``State.work``.
    """
    return search(Linear(), theta, A_inv, cap, radius, actions, work)


@inlined_kernel
def search(
    scale: Any,
    theta: Vector,
    A_inv: Matrix,
    cap: Vector,
    radius: float,
    actions: DecisionSet,
    work: Matrix,
) -> tuple[int, float, float, float]:
    """Argmax of ``level(scale, x'theta) + radius ||x||_{A^-1}``: row, score, x'theta, width."""
    d, K, longest = theta.shape[0], actions.rows.shape[0], actions.longest
    levels, squares, bound = actions.work[0], actions.work[1], actions.work[2]
    radius = min(radius, LARGEST_RADIUS)
    m, across = cap[TYPICAL], cap[ACROSS]
    slope, room = 0.5 * radius / math.sqrt(m), ROOM * (d + 4)
    reach = math.sqrt(longest) * math.sqrt(dot(theta, theta))
    of_level = room_of_levels(scale, reach, room)
    of_square = room * longest * across
    of_bound = of_level + slope * (of_square + room * m)
    first = 0
    if _in_reach(longest) and _in_reach(across) and _in_reach(of_bound) and slope < LARGE:
        wide, less = np.float32(across), np.float32(across - cap[ALONG])
        steep, typical = np.float32(slope), np.float32(m)
        bound_all(actions.coarse, theta, cap[4:], wide, less, steep, typical, actions.work)
        raise_bounds(scale, room * reach, steep, typical, actions.work)
        if actions.earlier_squares.shape[0] > 0:
            _recall(actions.earlier_squares, cap[RENEW_AT], radius, of_square, actions.work)
            of_bound += room * radius * math.sqrt(longest * across)
        first = highest(bound, K)
    else:  # out of reach of single precision: score all
        of_bound = of_level = math.inf
        for k in range(bound.shape[0]):
            levels[k] = squares[k] = bound[k] = 0.0
    score, estimate, width = _score(scale, theta, A_inv, radius, actions.rows[first], work[0])
    leader = (first, score, estimate, width)
    left = count_reaching(bound, np.float32(score - of_bound))  # one of them was just scored
    if left > MANY + d and of_bound < math.inf:
        of_square = room_of_squares(d, longest, across)
        _sharpen(actions.coarse, A_inv, radius, of_square, actions.work)
        of_bound = of_level + room * radius * math.sqrt(longest * across)
        for k in range(actions.earlier_squares.shape[0] - 1):
            actions.earlier_squares[k] = SLACK * (squares[k] + of_square)
        k = highest(bound, K)
        leader = _ahead(scale, theta, A_inv, radius, actions.rows, k, leader, work[0])
    if left > 1:
        for start in range(0, bound.shape[0], SIXTEEN):
            bits = reaching(bound, start, np.float32(leader[1] - of_bound))
            while bits != 0:
                k = start + lowest(bits)
                bits &= bits - 1
                if bound[k] < leader[1] - of_bound or k == first or k >= K:
                    continue
                gap = leader[1] - of_level - levels[k]
                if gap > 0.0 and gap * gap > radius * radius * (squares[k] + of_square):
                    continue  # the bound with the square root itself does not reach
                leader = _ahead(scale, theta, A_inv, radius, actions.rows, k, leader, work[0])
    return leader


@inlined_kernel
def _in_reach(number: float) -> bool:
    """Returns whether single precision neither overflows nor loses digits."""
    return SMALL < number < LARGE


@inlined_kernel
def _score(
    scale: Any, theta: Vector, A_inv: Matrix, radius: float, x: Vector, work: Vector
) -> tuple[float, float, float]:
    """Returns score, x'theta and width of one action."""
    estimate, width = dot(x, theta), _width(A_inv, radius, x, work)
    return level(scale, estimate) + width, estimate, width


@inlined_kernel
def _ahead(
    scale: Any,
    theta: Vector,
    A_inv: Matrix,
    radius: float,
    rows: Matrix,
    k: int,
    leader: tuple[int, float, float, float],
    work: Vector,
) -> tuple[int, float, float, float]:
    """Returns the leader, or row ``k`` if its score is higher, or equal in a lower row."""
    score, estimate, width = _score(scale, theta, A_inv, radius, rows[k], work)
    if score > leader[1] or (score == leader[1] and k < leader[0]):
        return k, score, estimate, width
    return leader
