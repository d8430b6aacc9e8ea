"""The third derivative of F, a symmetric tensor: sum of mu'' x (x) x (x) x over returned rewards.

Each triple j <= i <= k is stored once: row k, one column for each pair (i, j) in order, so that
loops run along pairs. Columns of a row beyond its own pairs are never read. Rewards are added eight
at a time, which saves most of the way to memory and back: the next eight rows are scratch for the
pairs of theirs, the last one for the second derivative, packed in the same way.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from belated.core.jit import inlined_kernel, kernel
from belated.core.linalg import dot
from belated.core.lowering import INT, MATRIX, VECTOR, call, called_kernel, load, spread, store
from belated.core.packs import EIGHT, eight, put_eight, total, up_to_eight, zeros
from belated.core.types import Matrix, Vector

BATCH = 8  # rewards that are added at once


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
def multiply_pairs(x: Matrix, T3: Matrix) -> None:
    """The pairs of the rows of ``x``, a whole batch, into the scratch of ``T3``."""
    d = x.shape[1]
    for b in range(BATCH):
        _multiply_pairs(x[b], T3[d + b])


def add_thirds(x: Matrix, weights: Vector, T3: Matrix) -> None:
    """``T3 += sum of weight x (x) x (x) x`` over the rows of ``x``, after ``multiply_pairs``."""
    d, count = x.shape[1], 0
    for k in range(d):
        count += k + 1
        for b in range(BATCH):
            T3[k, :count] += T3[d + b, :count] * (weights[b] * x[b, k])


def add_squares(weights: Vector, T3: Matrix) -> None:
    """The packed second derivative of the same: plus the sum of weight x x'."""
    d = T3.shape[0] - BATCH - 1
    count = d * (d + 1) // 2
    for b in range(BATCH):
        T3[d + BATCH, :count] += T3[d + b, :count] * weights[b]


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


# ------------------------------------------------------------------------------ in a kernel


def _add_weighted(builder: Any, pairs: Any, q: Any, rows: Any, weights: Any) -> None:
    """Eight columns of each of ``rows`` plus those of all ``pairs``, weighted, in their order."""
    sums = [load(builder, row, q, EIGHT) for row in rows]
    for b, pair in enumerate(pairs):
        numbers = load(builder, pair, q, EIGHT)
        for r in range(len(rows)):
            sums[r] = builder.fadd(sums[r], builder.fmul(numbers, weights[r][b]))
    for row, total_ in zip(rows, sums, strict=True):
        store(builder, total_, row, q)


def _build_thirds(builder: Any, x: Any, weights: Any, T3: Any, d: Any, columns: Any) -> None:
    def row(k: Any) -> Any:
        return builder.gep(T3, [builder.mul(k, columns)])

    def weighted(k: Any) -> Any:
        """Weights times the k-th number of their rows."""
        packs = []
        for b in range(BATCH):
            place = builder.add(builder.mul(INT(b), d), k)
            number = builder.fmul(load(builder, weights, INT(b), 1), load(builder, x, place, 1))
            packs.append(spread(builder, number, EIGHT))
        return packs

    def columns_from(start: Any, end: Any, rows: Any, packs: Any) -> None:
        with cgutils.for_range_slice(builder, start, end, INT(EIGHT), INT) as (q, _):
            _add_weighted(builder, pairs, q, rows, packs)

    pairs = [row(builder.add(d, INT(b))) for b in range(BATCH)]
    count = cgutils.alloca_once_value(builder, INT(0))  # pairs of the rows so far
    # two rows at a time: each pair is read once for both
    even = builder.and_(d, INT(-2))
    with cgutils.for_range_slice(builder, INT(0), even, INT(2), INT) as (k, _):
        following = builder.add(k, INT(1))
        end = builder.add(builder.load(count), following)
        first, second = weighted(k), weighted(following)
        columns_from(INT(0), end, [row(k), row(following)], [first, second])
        whole = builder.and_(builder.add(end, INT(EIGHT - 1)), INT(-EIGHT))
        end = builder.add(end, builder.add(following, INT(1)))
        columns_from(whole, end, [row(following)], [second])
        builder.store(end, count)
    with builder.if_then(builder.icmp_signed("<", even, d)):
        end = builder.add(builder.load(count), d)
        columns_from(INT(0), end, [row(even)], [weighted(even)])
    builder.ret_void()


def _build_squares(builder: Any, weights: Any, T3: Any, d: Any, columns: Any) -> None:
    pairs = [builder.gep(T3, [builder.mul(builder.add(d, INT(b)), columns)]) for b in range(BATCH)]
    row = builder.gep(T3, [builder.mul(builder.add(d, INT(BATCH)), columns)])
    packs = [spread(builder, load(builder, weights, INT(b), 1), EIGHT) for b in range(BATCH)]
    count = builder.sdiv(builder.mul(d, builder.add(d, INT(1))), INT(2))
    with cgutils.for_range_slice(builder, INT(0), count, INT(EIGHT), INT) as (q, _):
        _add_weighted(builder, pairs, q, [row], [packs])
    builder.ret_void()


@called_kernel(add_thirds, types.none, MATRIX, VECTOR, MATRIX)
def _add_thirds(builder: Any, x: Any, weights: Any, T3: Any) -> None:
    arguments = [x.data, weights.data, T3.data, x.shape[1], T3.shape[1]]
    call(builder, "belated.thirds", ir.VoidType(), arguments, _build_thirds)


@called_kernel(add_squares, types.none, VECTOR, MATRIX)
def _add_squares(builder: Any, weights: Any, T3: Any) -> None:
    d = builder.sub(T3.shape[0], INT(BATCH + 1))
    arguments = [weights.data, T3.data, d, T3.shape[1]]
    call(builder, "belated.squares", ir.VoidType(), arguments, _build_squares)
