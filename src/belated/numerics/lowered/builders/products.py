"""Products of short vectors and small symmetric matrices.

Rows are cut into panels of 20, 16, 12, 8 and 4 columns, whose widths a machine has registers for,
and a last two and one; a panel is worked off from the first row to the last with nothing but loads,
arithmetic and stores of full registers in between.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from belated.numerics.lowered.builders.lowering import (
    DOUBLE,
    INT,
    NOTHING,
    Variable,
    at,
    called,
    halved,
    load,
    load_up_to,
    spread,
    store,
    store_up_to,
)

COUNT = 8  # inner products of a certificate
# widths of the packs that make up a panel of so many columns; wider matrices have several panels
PANELS = {20: (8, 8, 4), 16: (8, 8), 12: (8, 4), 8: (8,), 4: (4,), 2: (2,), 1: (1,)}


def _for_each_panel(builder: Any, d: Any, act: Callable[[Any, Any], None]) -> None:
    """Calls ``act(starts, widths)`` with the packs of each panel of ``d`` columns."""
    place = Variable(builder, INT(0))

    def panel(columns: int) -> None:
        start = place.get()
        starts, offset = [], 0
        for width in PANELS[columns]:
            starts.append(builder.add(start, INT(offset)))
            offset += width
        act(starts, PANELS[columns])
        place.set(builder.add(start, INT(columns)))

    most, *others = PANELS
    with cgutils.for_range(builder, builder.udiv(d, INT(most)), intp=INT):
        panel(most)
    for columns in others:
        left = builder.sub(d, place.get())
        with builder.if_then(builder.icmp_signed(">=", left, INT(columns))):
            panel(columns)


def _build_product(builder: Any, A: Any, x: Any, out: Any, d: Any) -> None:
    """``out = A x``; returns ``x'A x``."""
    result = Variable(builder, DOUBLE(0.0))

    def panel(starts: Any, widths: Any) -> None:
        def add_row(j: Any, sums: Any) -> None:
            c = load(builder, x, j, 1)
            row = at(builder, A, builder.mul(j, d))
            for start, width, total in zip(starts, widths, sums, strict=True):
                term = builder.fmul(load(builder, row, start, width), spread(builder, c, width))
                total.set(builder.fadd(total.get(), term))

        kinds = [spread(builder, DOUBLE(0.0), width) for width in widths]
        even = [Variable(builder, zeros) for zeros in kinds]
        odd = [Variable(builder, zeros) for zeros in kinds]
        add_row(INT(0), even)
        last = builder.sub(d, INT(1))
        with cgutils.for_range_slice(builder, INT(1), last, INT(2), INT) as (j, _):
            add_row(j, odd)
            add_row(builder.add(j, INT(1)), even)
        with builder.if_then(builder.icmp_signed("==", builder.and_(d, INT(1)), INT(0))):
            add_row(last, odd)
        for start, width, a, b in zip(starts, widths, even, odd, strict=True):
            pack = builder.fadd(a.get(), b.get())
            store(builder, pack, out, start)
            terms = builder.fmul(pack, load(builder, x, start, width))
            result.set(builder.fadd(result.get(), halved(builder, terms, builder.fadd)))

    _for_each_panel(builder, d, panel)
    builder.ret(result.get())


def _build_update(builder: Any, A: Any, weight: Any, x: Any, d: Any) -> None:
    """``A += weight x x'``."""

    def panel(starts: Any, widths: Any) -> None:
        scaled = [
            builder.fmul(load(builder, x, start, width), spread(builder, weight, width))
            for start, width in zip(starts, widths, strict=True)
        ]
        with cgutils.for_range(builder, d, intp=INT) as loop:
            c = load(builder, x, loop.index, 1)
            row = at(builder, A, builder.mul(loop.index, d))
            for start, width, pack in zip(starts, widths, scaled, strict=True):
                term = builder.fmul(pack, spread(builder, c, width))
                store(builder, builder.fadd(load(builder, row, start, width), term), row, start)

    _for_each_panel(builder, d, panel)
    builder.ret_void()


def _build_dot(builder: Any, a: Any, b: Any, d: Any) -> None:
    zeros = ir.Constant(ir.VectorType(DOUBLE, 8), [0.0] * 8)
    sums = Variable(builder, zeros)

    def add(x: Any, y: Any) -> None:
        sums.set(builder.fadd(sums.get(), builder.fmul(x, y)))

    whole = builder.and_(d, INT(-8))
    with cgutils.for_range_slice(builder, INT(0), whole, INT(8), INT) as (i, _):
        add(load(builder, a, i, 8), load(builder, b, i, 8))
    left = builder.sub(d, whole)
    with builder.if_then(builder.icmp_signed(">", left, INT(0))):
        add(load_up_to(builder, a, whole, left), load_up_to(builder, b, whole, left))
    builder.ret(halved(builder, sums.get(), builder.fadd))


def _build_inner(builder: Any, *arguments: Any) -> None:
    *vectors, nu, d = arguments
    nus = spread(builder, nu, 8)
    zeros = ir.Constant(ir.VectorType(DOUBLE, 8), [0.0] * 8)
    sums = [Variable(builder, zeros) for _ in range(COUNT)]

    def take(packs: Any) -> Any:
        """Add eight places of each vector to all sums; returns the new numbers of ``off`` there."""
        gradient, bent, ref, anchor, H_anchor, step, H_step = packs
        theta = builder.fadd(ref, step)
        off = builder.fadd(builder.fadd(gradient, bent), builder.fmul(nus, theta))
        off = builder.fadd(H_step, off)
        far = builder.fsub(step, anchor)
        pairs = (
            (gradient, gradient),
            (H_step, H_step),
            (off, off),
            (step, step),
            (ref, ref),
            (far, far),
            (step, H_anchor),
            (anchor, H_anchor),
        )
        for total, pair in zip(sums, pairs, strict=True):
            total.set(builder.fadd(total.get(), builder.fmul(*pair)))
        return off

    whole = builder.and_(d, INT(-8))
    with cgutils.for_range_slice(builder, INT(0), whole, INT(8), INT) as (i, _):
        off = take([load(builder, vector, i, 8) for vector in vectors])
        store(builder, off, vectors[-1], i)
    left = builder.sub(d, whole)
    with builder.if_then(builder.icmp_signed(">", left, INT(0))):
        off = take([load_up_to(builder, vector, whole, left) for vector in vectors])
        store_up_to(builder, off, vectors[-1], whole, left)
    results = ir.Constant(ir.ArrayType(DOUBLE, COUNT), ir.Undefined)
    for k, total in enumerate(sums):
        number = halved(builder, total.get(), builder.fadd)
        results = builder.insert_value(results, number, k)
    builder.ret(results)


dot = called("dot", DOUBLE, _build_dot, lambda a, b: [a.data, b.data, a.shape[0]])
matvec = quadratic = called(
    "product", DOUBLE, _build_product, lambda A, x, out: [A.data, x.data, out.data, x.shape[0]]
)
add_outer = called(
    "update", NOTHING, _build_update, lambda A, weight, x: [A.data, weight, x.data, x.shape[0]]
)
inner_products = called(
    "inner_products",
    ir.ArrayType(DOUBLE, COUNT),
    _build_inner,
    lambda *given: [*(vector.data for vector in given[:-1]), given[-1], given[0].shape[0]],
)
