"""Bounds on the scores of all actions, in single precision, and the search among them.

For ``numerics/pruning.py`` and ``model/pruning_mean.py``. Rows are as long as whole packs of
sixteen.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from belated.core.types import Coarse, Vector
from belated.numerics.lowered.lowering import (
    COARSE,
    COARSE_ROW,
    FLOAT,
    INT,
    VECTOR,
    Array,
    call,
    called_kernel,
    halved,
    has_feature,
    load,
    multiplied_and_added,
    spread,
    store,
)

SIXTEEN = 16  # floats in a pack
# Packs of sixteen actions that are worked on at once: two sums each, all in registers.
AT_ONCE = (7, 4, 2, 1) if has_feature("avx512f") else (3, 2, 1)


def bound_all(
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

    In plain Python last bits differ, for which callers leave room.
    """
    d = theta.shape[0]
    estimates, squares, bounds = work[0], work[1], work[2]
    estimates[:] = theta.astype(np.float32) @ coarse[:d]
    along = v.astype(np.float32) @ coarse[:d]
    squares[:] = coarse[d] * across - along * along * less
    bounds[:] = (squares + m) * slope + estimates


def highest(bounds: Coarse, K: int) -> int:
    """The first of ``K`` rows with the largest bound; bounds beyond them become minus infinity."""
    bounds[K:] = -np.inf
    return int(np.argmax(bounds))


def count_reaching(bounds: Coarse, level: np.float32) -> int:
    """How many bounds are ``level`` or more."""
    return int(np.count_nonzero(bounds >= level))


def reaching(bounds: Coarse, start: int, level: np.float32) -> int:
    """Which of sixteen from ``start`` on are: one bit each, that of the first the lowest."""
    hits = bounds[start : start + SIXTEEN] >= level
    return int(np.packbits(hits, bitorder="little").view(np.uint16)[0])


def lowest(bits: int) -> int:
    """Place of the lowest bit that is set; one is."""
    return (bits & -bits).bit_length() - 1


# ------------------------------------------------------------------------------ in a kernel


def _build(
    builder: Any,
    coarse: Any,
    columns: Any,
    theta: Any,
    v: Any,
    d: Any,
    across: Any,
    less: Any,
    slope: Any,
    m: Any,
    work: Any,
) -> None:
    rough = [builder.alloca(FLOAT, size=d) for _ in range(2)]  # theta and v in single precision
    with cgutils.for_range(builder, d, intp=INT) as loop:
        for source, target in zip((theta, v), rough, strict=True):
            number = builder.fptrunc(load(builder, source, loop.index, 1), FLOAT)
            store(builder, number, target, loop.index)
    constants = [spread(builder, number, SIXTEEN) for number in (across, less, slope, m)]
    place = cgutils.alloca_once_value(builder, INT(0))

    def some(packs: int) -> None:
        """Sixteen columns for each of ``packs``."""
        start = builder.load(place)
        starts = [builder.add(start, INT(SIXTEEN * k)) for k in range(packs)]
        zeros = ir.Constant(ir.VectorType(FLOAT, SIXTEEN), [0.0] * SIXTEEN)
        sums = [[cgutils.alloca_once_value(builder, zeros) for _ in rough] for _ in starts]
        with cgutils.for_range(builder, d, intp=INT) as loop:
            numbers = [spread(builder, load(builder, r, loop.index, 1), SIXTEEN) for r in rough]
            row = builder.gep(coarse, [builder.mul(loop.index, columns)])
            for start_of_pack, two in zip(starts, sums, strict=True):
                x = load(builder, row, start_of_pack, SIXTEEN)
                for sum_, number in zip(two, numbers, strict=True):
                    more = multiplied_and_added(builder, x, number, builder.load(sum_))
                    builder.store(more, sum_)
        wide, taken, steep, typical = constants
        norms = builder.gep(coarse, [builder.mul(d, columns)])
        for k, (estimate, along) in zip(starts, sums, strict=True):
            estimate, along = builder.load(estimate), builder.load(along)
            off = builder.fmul(builder.fmul(along, along), taken)
            square = builder.fsub(builder.fmul(load(builder, norms, k, SIXTEEN), wide), off)
            higher = builder.fadd(square, typical)
            bound = multiplied_and_added(builder, higher, steep, estimate)
            for r, pack in enumerate((estimate, square, bound)):
                store(builder, pack, builder.gep(work, [builder.mul(INT(r), columns)]), k)
        builder.store(builder.add(start, INT(SIXTEEN * packs)), place)

    most, *others = AT_ONCE
    with cgutils.for_range(builder, builder.udiv(columns, INT(SIXTEEN * most)), intp=INT):
        some(most)
    for packs in others:
        left = builder.sub(columns, builder.load(place))
        with builder.if_then(builder.icmp_signed(">=", left, INT(SIXTEEN * packs))):
            some(packs)
    builder.ret_void()


@called_kernel(bound_all, types.none, COARSE, VECTOR, VECTOR, *[types.float32] * 4, COARSE)
def _bound_all(
    builder: Any,
    coarse: Array,
    theta: Array,
    v: Array,
    across: Any,
    less: Any,
    slope: Any,
    m: Any,
    work: Array,
) -> None:
    pointers = [coarse.data, coarse.shape[1], theta.data, v.data, theta.shape[0]]
    arguments = [*pointers, across, less, slope, m, work.data]
    call(builder, f"belated.bounds{AT_ONCE[0]}", ir.VoidType(), arguments, _build)


def _bits(builder: Any, bounds: Any, start: Any, level: Any) -> Any:
    pack, levels = load(builder, bounds, start, SIXTEEN), spread(builder, level, SIXTEEN)
    hits = builder.bitcast(builder.fcmp_ordered(">=", pack, levels), ir.IntType(SIXTEEN))
    return builder.zext(hits, INT)


def _place(builder: Any, bits: Any) -> Any:
    return builder.cttz(bits, ir.IntType(1)(1))


def _build_highest(builder: Any, bounds: Any, n: Any, K: Any) -> None:
    last = builder.sub(n, INT(SIXTEEN))
    places = ir.Constant(ir.VectorType(INT, SIXTEEN), list(range(SIXTEEN)))
    within = builder.icmp_signed("<", places, spread(builder, builder.sub(K, last), SIXTEEN))
    least = ir.Constant(ir.VectorType(FLOAT, SIXTEEN), [float("-inf")] * SIXTEEN)
    end = builder.select(within, load(builder, bounds, last, SIXTEEN), least)
    store(builder, end, bounds, last)

    def larger(a: Any, b: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", a, b), a, b)

    high = cgutils.alloca_once_value(builder, end)
    with cgutils.for_range_slice(builder, INT(0), last, INT(SIXTEEN), INT) as (k, _):
        builder.store(larger(builder.load(high), load(builder, bounds, k, SIXTEEN)), high)
    top = halved(builder, builder.load(high), larger)
    found = cgutils.alloca_once_value(builder, INT(0))
    with cgutils.for_range(builder, builder.udiv(n, INT(SIXTEEN)), intp=INT) as loop:
        k = builder.mul(loop.index, INT(SIXTEEN))
        bits = _bits(builder, bounds, k, top)
        with builder.if_then(builder.icmp_signed("!=", bits, INT(0))):
            builder.store(builder.add(k, _place(builder, bits)), found)
            loop.do_break()
    builder.ret(builder.load(found))


@called_kernel(highest, types.int64, COARSE_ROW, types.int64)
def _highest(builder: Any, bounds: Array, K: Any) -> Any:
    arguments = [bounds.data, bounds.shape[0], K]
    return call(builder, "belated.highest", INT, arguments, _build_highest)


def _build_count(builder: Any, bounds: Any, n: Any, level: Any) -> None:
    count = cgutils.alloca_once_value(builder, INT(0))
    with cgutils.for_range_slice(builder, INT(0), n, INT(SIXTEEN), INT) as (k, _):
        more = builder.ctpop(_bits(builder, bounds, k, level))
        builder.store(builder.add(builder.load(count), more), count)
    builder.ret(builder.load(count))


@called_kernel(count_reaching, types.int64, COARSE_ROW, types.float32)
def _count_reaching(builder: Any, bounds: Array, level: Any) -> Any:
    arguments = [bounds.data, bounds.shape[0], level]
    return call(builder, "belated.count", INT, arguments, _build_count)


@called_kernel(reaching, types.int64, COARSE_ROW, types.int64, types.float32)
def _reaching(builder: Any, bounds: Array, start: Any, level: Any) -> Any:
    return _bits(builder, bounds.data, start, level)


@called_kernel(lowest, types.int64, types.int64)
def _lowest(builder: Any, bits: Any) -> Any:
    return _place(builder, bits)
