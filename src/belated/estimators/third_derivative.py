"""The third derivative of F, a symmetric tensor: sum of mu'' x (x) x (x) x over returned rewards.

Each triple j <= i <= k is stored once: row k, one column for each pair (i, j) in order, so that
loops run along pairs. Columns of a row beyond its own pairs are never read. Rewards are added four
at a time, which saves most of the way to memory and back: the next four rows are scratch for the
pairs of theirs, the last one for the second derivative, packed in the same way.
"""

import numpy as np

from belated.core.jit import kernel
from belated.core.linalg import dot
from belated.core.types import Matrix, Vector

BATCH = 4  # rewards that are added at once
PADDING = 32  # columns come in such portions: no odd ends for vector instructions


def new_third(dim: int) -> Matrix:
    """Zero, with room for the scratch rows."""
    pairs = dim * (dim + 1) // 2
    return np.zeros((dim + BATCH + 1, pairs + -pairs % PADDING))


@kernel
def _multiply_pairs(x: Vector, pairs: Vector) -> None:
    """``pairs`` becomes x_i x_j for j <= i, in order."""
    p = 0
    for i in range(x.shape[0]):
        c, out = x[i], pairs[p:]
        for j in range(i + 1):
            out[j] = c * x[j]
        p += i + 1


@kernel
def multiply_four(x: Matrix, r0: int, r1: int, r2: int, r3: int, T3: Matrix) -> None:
    """The pairs of four rows of ``x``, into the scratch of ``T3``."""
    d = x.shape[1]
    _multiply_pairs(x[r0], T3[d])
    _multiply_pairs(x[r1], T3[d + 1])
    _multiply_pairs(x[r2], T3[d + 2])
    _multiply_pairs(x[r3], T3[d + 3])


@kernel
def add_four_thirds(
    x: Matrix, r0: int, r1: int, r2: int, r3: int, weights: Vector, T3: Matrix
) -> None:
    """``T3 += sum of weight x (x) x (x) x`` over four rows of ``x``, after ``multiply_four``."""
    d, count = x.shape[1], 0
    x0, x1, x2, x3 = x[r0], x[r1], x[r2], x[r3]
    p0, p1, p2, p3 = T3[d], T3[d + 1], T3[d + 2], T3[d + 3]
    w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
    for k in range(d):
        count += k + 1
        row = T3[k]
        c0, c1, c2, c3 = w0 * x0[k], w1 * x1[k], w2 * x2[k], w3 * x3[k]
        for q in range(count + -count % PADDING):
            row[q] = (((row[q] + c0 * p0[q]) + c1 * p1[q]) + c2 * p2[q]) + c3 * p3[q]


@kernel
def add_four_squares(weights: Vector, T3: Matrix) -> None:
    """The packed second derivative of the same: plus the sum of weight x x'."""
    d = T3.shape[0] - BATCH - 1
    row, p0, p1, p2, p3 = T3[d + BATCH], T3[d], T3[d + 1], T3[d + 2], T3[d + 3]
    w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
    for q in range(T3.shape[1] // PADDING * PADDING):
        row[q] = (((row[q] + w0 * p0[q]) + w1 * p1[q]) + w2 * p2[q]) + w3 * p3[q]


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
    pairs = T3[d]
    for i in range(d):
        c, products = step[i], pairs[p:]
        for j in range(i):
            products[j] = c * step[j]
        products[i] = 0.5 * c * c
        out[i] = 0.0
        p += i + 1
    p = 0
    for k in range(d):  # from the largest index: j <= i < k, then i = k
        row, s = T3[k], step[k]
        last, half = row[p : p + k], 0.5 * s * s
        out[k] += (dot(row[:p], pairs) + s * dot(last, step)) + half * row[p + k]
        for j in range(k):
            out[j] += half * last[j]
        p += k + 1
    for q in range(pairs.shape[0]):
        pairs[q] = 0.0
    p = 0
    for k in range(d):
        row, s = T3[k], step[k]
        for q in range(p):
            pairs[q] += s * row[q]
        p += k + 1
    p = 0
    for i in range(d):  # j <= i < k again, from the two smaller indices
        row, s = pairs[p : p + i], step[i]
        out[i] += dot(row, step) + pairs[p + i] * s
        for j in range(i):
            out[j] += s * row[j]
        p += i + 1
