"""The third derivative of F, a symmetric tensor: sum of mu'' x (x) x (x) x over returned rewards.

Each triple j <= i <= k is stored once: row k, one column for each pair (i, j) in order, so that
loops run along pairs. Columns of a row beyond its own pairs are never used. Rewards are added eight
at a time, which saves most of the way to memory and back: the next eight rows are scratch for their
pairs, and the last row is scratch for the second derivative, packed in the same way.
"""

import numpy as np
from numba import types

from belated.core.jit import inlined_kernel, kernel
from belated.core.types import Matrix, Vector
from belated.numerics.lowered.choosing import MATRIX, VECTOR, add_multiple, hand_built
from belated.numerics.lowered.products import dot, strand

EIGHT = 8  # doubles in a pack
BATCH = 8  # rewards that are added at once


def new_third(dim: int) -> Matrix:
    """Returns zeros, with room for the scratch rows and for a last pack that is partly used."""
    pairs = dim * (dim + 1) // 2
    return np.zeros((dim + BATCH + 1, pairs + -pairs % EIGHT + EIGHT))


@hand_built(types.none, VECTOR, VECTOR)
def multiply_pairs(x: Vector, pairs: Vector) -> None:
    """``pairs`` becomes x_i x_j for j <= i, in order.

    ``pairs`` is longer by a pack: the builder writes beyond each row, then overwrites most of that.
    """
    p = 0
    for i in range(x.shape[0]):
        for j in range(i + 1):
            pairs[p + j] = x[j] * x[i]
        p += i + 1


@inlined_kernel
def multiply_all_pairs(x: Matrix, T3: Matrix) -> None:
    """Writes the pairs of the rows of ``x``, a whole batch, into the scratch of ``T3``."""
    for b in range(BATCH):
        multiply_pairs(x[b], T3[x.shape[1] + b])


@hand_built(types.none, MATRIX, VECTOR, MATRIX)
def add_thirds(x: Matrix, weights: Vector, T3: Matrix) -> None:
    """``T3 += sum of weight x (x) x (x) x`` over the rows of ``x``, whose pairs are in scratch."""
    d, count = x.shape[1], 0
    for k in range(d):
        count += k + 1
        for b in range(BATCH):
            add_multiple(T3[k, :count], T3[d + b, :count], weights[b] * x[b, k])


@hand_built(types.none, VECTOR, MATRIX)
def add_squares(weights: Vector, T3: Matrix) -> None:
    """Adds the sum of weight x x' over the same rows to the packed second derivative."""
    d = T3.shape[0] - BATCH - 1
    count = d * (d + 1) // 2
    for b in range(BATCH):
        add_multiple(T3[d + BATCH, :count], T3[d + b, :count], weights[b])


@kernel
def unpack_squares(T3: Matrix, H: Matrix) -> None:
    """``H`` becomes the second derivative gathered by ``add_squares``."""
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
    multiply_pairs(step, pairs)
    for k in range(d):
        pairs[p + k] *= 0.5
        p += k + 1
    sweep(T3, step, out)
    p = 0
    for i in range(d):  # from the two smaller ones, j <= i < k, and from j < i = k
        row, own, s = sums[p : p + i], T3[i, p : p + i], step[i]
        half = 0.5 * s * s
        out[i] += dot(row, step) + sums[p + i] * s
        for j in range(i):
            out[j] += s * row[j] + half * own[j]
        p += i + 1


@hand_built(types.none, MATRIX, VECTOR, VECTOR)
def sweep(T3: Matrix, step: Vector, out: Vector) -> None:
    """Goes over all rows once: ``out[k]`` is row k times the pairs in the first row of scratch.

    The second row becomes, for each pair j <= i, the sum of ``step[k] T3[k]`` over the rows k > i.
    """
    d, p = step.shape[0], 0
    pairs, sums = T3[d], T3[d + 1]
    sums[:] = 0.0
    for k in range(d):
        add_multiple(sums[:p], T3[k, :p], step[k])
        p += k + 1
        row = T3[k, :p]
        even = (
            _two(row, pairs, 0) + _two(row, pairs, 4) + (_two(row, pairs, 2) + _two(row, pairs, 6))
        )
        odd = (
            _two(row, pairs, 1) + _two(row, pairs, 5) + (_two(row, pairs, 3) + _two(row, pairs, 7))
        )
        out[k] = even + odd


@inlined_kernel
def _two(a: Vector, b: Vector, k: int) -> float:
    """Returns the sum of place ``k`` of two packs of eight, which are added up apart."""
    return strand(a, b, k, 16) + strand(a, b, k + 8, 16)
