"""Bounds on the scores of all actions, in single precision, and the search among them."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from belated.numerics.lowered.builders.lowering import (
    FLOAT,
    INT,
    NOTHING,
    Array,
    Variable,
    at,
    called,
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
    place = Variable(builder, INT(0))

    def some(packs: int) -> None:
        """Bounds sixteen columns for each of ``packs``."""
        start = place.get()
        starts = [builder.add(start, INT(SIXTEEN * k)) for k in range(packs)]
        zeros = ir.Constant(ir.VectorType(FLOAT, SIXTEEN), [0.0] * SIXTEEN)
        sums = [[Variable(builder, zeros) for _ in rough] for _ in starts]
        with cgutils.for_range(builder, d, intp=INT) as loop:
            numbers = [
                spread(builder, load(builder, r, loop.index, 1, FLOAT), SIXTEEN) for r in rough
            ]
            row = at(builder, coarse, builder.mul(loop.index, columns), FLOAT)
            for start_of_pack, two in zip(starts, sums, strict=True):
                x = load(builder, row, start_of_pack, SIXTEEN, FLOAT)
                for total, number in zip(two, numbers, strict=True):
                    total.set(multiplied_and_added(builder, x, number, total.get()))
        wide, taken, steep, typical = constants
        norms = at(builder, coarse, builder.mul(d, columns), FLOAT)
        for k, two in zip(starts, sums, strict=True):
            estimate, along = (total.get() for total in two)
            off = builder.fmul(builder.fmul(along, along), taken)
            norm = load(builder, norms, k, SIXTEEN, FLOAT)
            square = builder.fsub(builder.fmul(norm, wide), off)
            higher = builder.fadd(square, typical)
            bound = multiplied_and_added(builder, higher, steep, estimate)
            for r, pack in enumerate((estimate, square, bound)):
                row = at(builder, work, builder.mul(INT(r), columns), FLOAT)
                store(builder, pack, row, k)
        place.set(builder.add(start, INT(SIXTEEN * packs)))

    most, *others = AT_ONCE
    with cgutils.for_range(builder, builder.udiv(columns, INT(SIXTEEN * most)), intp=INT):
        some(most)
    for packs in others:
        left = builder.sub(columns, place.get())
        with builder.if_then(builder.icmp_signed(">=", left, INT(SIXTEEN * packs))):
            some(packs)
    builder.ret_void()


def bound_all(builder: Any, coarse: Array, theta: Array, v: Array, *others: Any) -> Any:
    *constants, work = others
    given = [coarse.data, coarse.shape[1], theta.data, v.data, theta.shape[0]]
    given += [*constants, work.data]
    return called(f"bounds{AT_ONCE[0]}", NOTHING, _build, lambda: given)(builder)


def _bits(builder: Any, bounds: Any, start: Any, level: Any) -> Any:
    pack = load(builder, bounds, start, SIXTEEN, FLOAT)
    levels = spread(builder, level, SIXTEEN)
    hits = builder.bitcast(builder.fcmp_ordered(">=", pack, levels), ir.IntType(SIXTEEN))
    return builder.zext(hits, INT)


def _build_highest(builder: Any, bounds: Any, n: Any, K: Any) -> None:
    last = builder.sub(n, INT(SIXTEEN))
    places = ir.Constant(ir.VectorType(INT, SIXTEEN), list(range(SIXTEEN)))
    within = builder.icmp_signed("<", places, spread(builder, builder.sub(K, last), SIXTEEN))
    least = ir.Constant(ir.VectorType(FLOAT, SIXTEEN), [float("-inf")] * SIXTEEN)
    end = builder.select(within, load(builder, bounds, last, SIXTEEN, FLOAT), least)
    store(builder, end, bounds, last)

    def larger(a: Any, b: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", a, b), a, b)

    high = Variable(builder, end)
    with cgutils.for_range_slice(builder, INT(0), last, INT(SIXTEEN), INT) as (k, _):
        high.set(larger(high.get(), load(builder, bounds, k, SIXTEEN, FLOAT)))
    top = halved(builder, high.get(), larger)
    found = Variable(builder, INT(0))
    with cgutils.for_range(builder, builder.udiv(n, INT(SIXTEEN)), intp=INT) as loop:
        k = builder.mul(loop.index, INT(SIXTEEN))
        bits = _bits(builder, bounds, k, top)
        with builder.if_then(builder.icmp_signed("!=", bits, INT(0))):
            found.set(builder.add(k, lowest(builder, bits)))
            loop.do_break()
    builder.ret(found.get())


highest = called(
    "highest", INT, _build_highest, lambda bounds, K: [bounds.data, bounds.shape[0], K]
)


def _build_count(builder: Any, bounds: Any, n: Any, level: Any) -> None:
    count = Variable(builder, INT(0))
    with cgutils.for_range_slice(builder, INT(0), n, INT(SIXTEEN), INT) as (k, _):
        more = builder.ctpop(_bits(builder, bounds, k, level))
        count.set(builder.add(count.get(), more))
    builder.ret(count.get())


count_reaching = called(
    "count", INT, _build_count, lambda bounds, level: [bounds.data, bounds.shape[0], level]
)


def reaching(builder: Any, bounds: Array, start: Any, level: Any) -> Any:
    return _bits(builder, bounds.data, start, level)


def lowest(builder: Any, bits: Any) -> Any:
    return builder.cttz(bits, ir.IntType(1)(1))
