"""The third derivative of F, a symmetric tensor: sum of mu'' x (x) x (x) x over returned rewards.

Each triple j <= i <= k is stored once: row k, one column for each pair (i, j) in order, so that
loops run along pairs. Columns of a row beyond its own pairs are never used. Rewards are added eight
at a time, which saves most of the way to memory and back: the next eight rows are scratch for the
pairs of theirs, the last one for the second derivative, packed in the same way.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from belated.core.jit import inlined_kernel, kernel
from belated.core.types import Matrix, Vector
from belated.numerics.lowered.lowering import (
    DOUBLE,
    INT,
    MATRIX,
    VECTOR,
    Array,
    call,
    called_kernel,
    halved,
    load,
    load_up_to,
    spread,
    store,
)
from belated.numerics.lowered.products import dot, halved_sum

EIGHT = 8  # doubles in a pack
BATCH = 8  # rewards that are added at once


def new_third(dim: int) -> Matrix:
    """Zero, with room for the scratch rows, and for a last pack that is hardly begun."""
    pairs = dim * (dim + 1) // 2
    return np.zeros((dim + BATCH + 1, pairs + -pairs % EIGHT + EIGHT))


def multiply_pairs(x: Vector, pairs: Vector) -> None:
    """``pairs`` becomes x_i x_j for j <= i, in order.

    It is longer by a pack: in a kernel too much is written, then overwritten or left at the end.
    """
    p = 0
    for i in range(x.shape[0]):
        pairs[p : p + i + 1] = x[: i + 1] * x[i]
        p += i + 1


@inlined_kernel
def multiply_all_pairs(x: Matrix, T3: Matrix) -> None:
    """The pairs of the rows of ``x``, a whole batch, into the scratch of ``T3``."""
    for b in range(BATCH):
        multiply_pairs(x[b], T3[x.shape[1] + b])


def add_thirds(x: Matrix, weights: Vector, T3: Matrix) -> None:
    """``T3 += sum of weight x (x) x (x) x`` over the rows of ``x``, whose pairs are in scratch."""
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


def sweep(T3: Matrix, step: Vector, out: Vector) -> None:
    """All rows once: ``out[k]`` is row k times the pairs in the first row of scratch.

    The second becomes, for each pair j <= i, the sum of ``step[k] T3[k]`` over the rows k > i.
    """
    d, p = step.shape[0], 0
    pairs, sums = T3[d], T3[d + 1]
    sums[:] = 0.0
    for k in range(d):
        sums[:p] += T3[k, :p] * step[k]
        p += k + 1
        terms = np.zeros((-(-p // 16), 2, EIGHT))
        terms.flat[:p] = T3[k, :p] * pairs[:p]
        packs = np.zeros((2, EIGHT))
        for two in terms:
            packs += two
        out[k] = halved_sum(packs[0] + packs[1])


# ------------------------------------------------------------------------------ in a kernel


def _build_pairs(builder: Any, x: Any, pairs: Any, d: Any) -> None:
    place = cgutils.alloca_once_value(builder, INT(0))

    def some(packs: Any, number: Any, at: Any) -> None:
        for k, pack in enumerate(packs):
            product = builder.fmul(pack, spread(builder, number, EIGHT))
            store(builder, product, pairs, builder.add(at, INT(EIGHT * k)))

    def begin(i: Any) -> tuple[Any, Any]:
        """x_i and where its pairs begin."""
        at = builder.load(place)
        builder.store(builder.add(at, builder.add(i, INT(1))), place)
        return load(builder, x, i, 1), at

    kept = []  # the first packs of x stay in registers
    for count in (1, 2, 3):
        start, end = INT(EIGHT * (count - 1)), INT(EIGHT * count)
        kept.append(load_up_to(builder, x, start, builder.sub(d, start)))
        end = builder.select(builder.icmp_signed("<", end, d), end, d)
        with cgutils.for_range_slice(builder, start, end, INT(1), INT) as (i, _):
            some(kept, *begin(i))
    with cgutils.for_range_slice(builder, INT(3 * EIGHT), d, INT(1), INT) as (i, _):
        number, at = begin(i)
        end = builder.add(i, INT(1))
        with cgutils.for_range_slice(builder, INT(0), end, INT(EIGHT), INT) as (j, _):
            pack = load_up_to(builder, x, j, builder.sub(d, j))
            some([pack], number, builder.add(at, j))
    builder.ret_void()


def _build_sweep(builder: Any, T3: Any, step: Any, out: Any, d: Any, columns: Any) -> None:
    pairs = builder.gep(T3, [builder.mul(d, columns)])
    sums = builder.gep(pairs, [columns])
    zeros = ir.Constant(ir.VectorType(DOUBLE, EIGHT), [0.0] * EIGHT)
    with cgutils.for_range_slice(builder, INT(0), columns, INT(EIGHT), INT) as (q, _):
        store(builder, zeros, sums, q)
    begun = cgutils.alloca_once_value(builder, INT(0))
    packs = [cgutils.alloca_once_value(builder, zeros) for _ in range(2)]
    with cgutils.for_range(builder, d, intp=INT) as loop:
        row = builder.gep(T3, [builder.mul(loop.index, columns)])
        number = spread(builder, load(builder, step, loop.index, 1), EIGHT)
        smaller = builder.load(begun)  # columns with i < k; those with i = k follow
        end = builder.add(smaller, builder.add(loop.index, INT(1)))
        whole = builder.and_(smaller, INT(-2 * EIGHT))
        for pack in packs:
            builder.store(zeros, pack)

        def take(q: Any, own: Any, others: Any, pack: Any) -> None:
            terms = builder.fmul(own, load(builder, pairs, q, EIGHT))
            builder.store(builder.fadd(builder.load(pack), terms), pack)
            more = builder.fmul(others, number)
            store(builder, builder.fadd(load(builder, sums, q, EIGHT), more), sums, q)

        with cgutils.for_range_slice(builder, INT(0), whole, INT(2 * EIGHT), INT) as (q, _):
            for k, pack in enumerate(packs):
                place = builder.add(q, INT(EIGHT * k))
                own = load(builder, row, place, EIGHT)
                take(place, own, own, pack)
        with cgutils.for_range_slice(builder, whole, end, INT(2 * EIGHT), INT) as (q, _):
            for k, pack in enumerate(packs):
                place = builder.add(q, INT(EIGHT * k))
                own, others = (
                    load_up_to(builder, row, place, builder.sub(limit, place))
                    for limit in (end, smaller)
                )
                take(place, own, others, pack)
        both = builder.fadd(*(builder.load(pack) for pack in packs))
        store(builder, halved(builder, both, builder.fadd), out, loop.index)
        builder.store(end, begun)
    builder.ret_void()


def _add_weighted(builder: Any, pairs: Any, q: Any, rows: Any, weights: Any) -> None:
    """Eight columns of each of ``rows`` plus those of all ``pairs``, weighted, in their order."""
    sums = [load(builder, row, q, EIGHT) for row in rows]
    for b, pair in enumerate(pairs):
        numbers = load(builder, pair, q, EIGHT)
        for r in range(len(rows)):
            sums[r] = builder.fadd(sums[r], builder.fmul(numbers, weights[r][b]))
    for row, numbers in zip(rows, sums, strict=True):
        store(builder, numbers, row, q)


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
def _add_thirds(builder: Any, x: Array, weights: Array, T3: Array) -> None:
    arguments = [x.data, weights.data, T3.data, x.shape[1], T3.shape[1]]
    call(builder, "belated.thirds", ir.VoidType(), arguments, _build_thirds)


@called_kernel(add_squares, types.none, VECTOR, MATRIX)
def _add_squares(builder: Any, weights: Array, T3: Array) -> None:
    d = builder.sub(T3.shape[0], INT(BATCH + 1))
    arguments = [weights.data, T3.data, d, T3.shape[1]]
    call(builder, "belated.squares", ir.VoidType(), arguments, _build_squares)


@called_kernel(multiply_pairs, types.none, VECTOR, VECTOR)
def _multiply_pairs(builder: Any, x: Array, pairs: Array) -> None:
    arguments = [x.data, pairs.data, x.shape[0]]
    call(builder, "belated.pairs", ir.VoidType(), arguments, _build_pairs)


@called_kernel(sweep, types.none, MATRIX, VECTOR, VECTOR)
def _sweep(builder: Any, T3: Array, step: Array, out: Array) -> None:
    arguments = [T3.data, step.data, out.data, step.shape[0], T3.shape[1]]
    call(builder, "belated.sweep", ir.VoidType(), arguments, _build_sweep)
