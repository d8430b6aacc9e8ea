"""The third derivative of F, a symmetric tensor: sum of mu'' x (x) x (x) x over returned rewards.

Each triple j <= i <= k is stored once: row k, one column for each pair (i, j) in order, so that
loops run along pairs. Columns of a row beyond its own pairs are never read. Rewards are added four
at a time, which saves most of the way to memory and back: the next four rows are scratch for the
pairs of theirs, the last one for the second derivative, packed in the same way.
"""

from typing import Any

import numpy as np

from belated.core.jit import inlined_kernel, kernel
from belated.core.linalg import dot
from belated.core.packs import EIGHT, eight, put_eight, total, up_to_eight, zeros
from belated.core.types import Matrix, Vector

BATCH = 4  # rewards that are added at once


def new_third(dim: int) -> Matrix:
    """Zero, with room for the scratch rows, and for a last pack that is hardly begun."""
    pairs = dim * (dim + 1) // 2
    return np.zeros((dim + BATCH + 1, pairs + -pairs % EIGHT + EIGHT))


@inlined_kernel
def _multiply_pairs(x: Vector, pairs: Vector) -> None:
    """``pairs`` becomes x_i x_j for j <= i, in order.

    What a pack writes too much, the next i overwrites.
    """
    p = 0
    for i in range(x.shape[0]):
        for j in range(0, i + 1, EIGHT):
            put_eight(pairs, p + j, up_to_eight(x, j) * x[i])
        p += i + 1


@kernel
def multiply_four(x: Matrix, r0: int, r1: int, r2: int, r3: int, T3: Matrix) -> None:
    """The pairs of four rows of ``x``, into the scratch of ``T3``."""
    d = x.shape[1]
    _multiply_pairs(x[r0], T3[d])
    _multiply_pairs(x[r1], T3[d + 1])
    _multiply_pairs(x[r2], T3[d + 2])
    _multiply_pairs(x[r3], T3[d + 3])


@inlined_kernel
def _add_four(
    row: Vector,
    q: int,
    u0: Any,
    u1: Any,
    u2: Any,
    u3: Any,
    w0: float,
    w1: float,
    w2: float,
    w3: float,
) -> None:
    """Eight columns of ``row`` plus four weighted packs, in this order."""
    put_eight(row, q, (((eight(row, q) + u0 * w0) + u1 * w1) + u2 * w2) + u3 * w3)


@kernel
def add_four_thirds(
    x: Matrix, r0: int, r1: int, r2: int, r3: int, weights: Vector, T3: Matrix
) -> None:
    """``T3 += sum of weight x (x) x (x) x`` over four rows of ``x``, after ``multiply_four``."""
    d, count = x.shape[1], 0
    x0, x1, x2, x3 = x[r0], x[r1], x[r2], x[r3]
    p0, p1, p2, p3 = T3[d], T3[d + 1], T3[d + 2], T3[d + 3]
    w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
    for k in range(0, d - 1, 2):  # two rows at a time: each pair is read once for both
        count += k + 1
        row, next_row = T3[k], T3[k + 1]
        a0, a1, a2, a3 = w0 * x0[k], w1 * x1[k], w2 * x2[k], w3 * x3[k]
        b0, b1, b2, b3 = w0 * x0[k + 1], w1 * x1[k + 1], w2 * x2[k + 1], w3 * x3[k + 1]
        for q in range(0, count, EIGHT):
            u0, u1, u2, u3 = eight(p0, q), eight(p1, q), eight(p2, q), eight(p3, q)
            _add_four(row, q, u0, u1, u2, u3, a0, a1, a2, a3)
            _add_four(next_row, q, u0, u1, u2, u3, b0, b1, b2, b3)
        start = count + -count % EIGHT
        count += k + 2
        for q in range(start, count, EIGHT):
            u0, u1, u2, u3 = eight(p0, q), eight(p1, q), eight(p2, q), eight(p3, q)
            _add_four(next_row, q, u0, u1, u2, u3, b0, b1, b2, b3)
    for k in range(d - d % 2, d):
        row = T3[k]
        a0, a1, a2, a3 = w0 * x0[k], w1 * x1[k], w2 * x2[k], w3 * x3[k]
        for q in range(0, count + k + 1, EIGHT):
            u0, u1, u2, u3 = eight(p0, q), eight(p1, q), eight(p2, q), eight(p3, q)
            _add_four(row, q, u0, u1, u2, u3, a0, a1, a2, a3)


@kernel
def add_four_squares(weights: Vector, T3: Matrix) -> None:
    """The packed second derivative of the same: plus the sum of weight x x'."""
    d = T3.shape[0] - BATCH - 1
    row, p0, p1, p2, p3 = T3[d + BATCH], T3[d], T3[d + 1], T3[d + 2], T3[d + 3]
    w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
    for q in range(0, d * (d + 1) // 2, EIGHT):
        u0, u1, u2, u3 = eight(p0, q), eight(p1, q), eight(p2, q), eight(p3, q)
        _add_four(row, q, u0, u1, u2, u3, w0, w1, w2, w3)


@kernel
def unpack_squares(T3: Matrix, H: Matrix) -> None:
    """``H`` becomes the second derivative gathered by ``add_four_squares``."""
    d, p = H.shape[0], 0
    row = T3[d + BATCH]
    for i in range(d):
        for j in range(i + 1):
            H[i, j] = H[j, i] = row[p + j]
        p += i + 1


@kernel
def add_waiting(x: Matrix, weights: Vector, count: int, step: Vector, out: Vector) -> None:
    """``out += T3[step, step] / 2`` of ``count`` rows of ``x`` that are not in ``T3`` yet."""
    for b in range(count):
        z = dot(x[b], step)
        for i in range(step.shape[0]):
            out[i] += 0.5 * weights[b] * z * z * x[b, i]


@kernel
def third_form(T3: Matrix, step: Vector, out: Vector) -> None:
    """``out = T3[step, step] / 2``: the gradient of ``T3[step, step, step] / 6``.

    In the latter a triple j < i < k counts six times, one with two equal indices three times, one
    with all equal once.
    """
    d, p = step.shape[0], 0
    pairs, sums = T3[d], T3[d + 1]
    _multiply_pairs(step, pairs)
    for k in range(d):  # from the largest index
        pairs[p + k] *= 0.5
        p += k + 1
        out[k] = _dot_packs(T3[k, :p], pairs)
    _sum_rows(T3, step, sums)
    p = 0
    for i in range(d):  # from the two smaller ones, j <= i < k, and from j < i = k
        row, own, s = sums[p : p + i], T3[i, p : p + i], step[i]
        half = 0.5 * s * s
        out[i] += dot(row, step) + sums[p + i] * s
        for j in range(i):
            out[j] += s * row[j] + half * own[j]
        p += i + 1


@inlined_kernel
def _dot_packs(a: Vector, b: Vector) -> float:
    """``a'b`` where ``b`` is so long that its last two packs are whole."""
    one, two = zeros(), zeros()
    for q in range(0, a.shape[0], 2 * EIGHT):
        one = one + up_to_eight(a, q) * eight(b, q)
        two = two + up_to_eight(a, q + EIGHT) * eight(b, q + EIGHT)
    return total(one + two)


@inlined_kernel
def _sum_rows(T3: Matrix, step: Vector, sums: Vector) -> None:
    """For each pair j <= i the sum of ``step[k] T3[k]`` over the rows k > i."""
    d = step.shape[0]
    begun = whole = 1  # first rows with a pair i < k in this pack, and with nothing else
    for q in range(0, d * (d - 1) // 2, EIGHT):
        while begun * (begun + 1) // 2 <= q:
            begun += 1
        while whole < d and whole * (whole + 1) // 2 < q + EIGHT:
            whole += 1
        some = zeros()
        for k in range(begun, whole):
            some = some + up_to_eight(T3[k, : k * (k + 1) // 2], q) * step[k]
        for k in range(whole, d):
            some = some + eight(T3[k], q) * step[k]
        put_eight(sums, q, some)
    for q in range(d * (d - 1) // 2, d * (d + 1) // 2):
        sums[q] = 0.0  # i = d - 1 is the largest
