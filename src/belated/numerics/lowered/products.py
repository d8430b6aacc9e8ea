"""Products of short vectors and small symmetric matrices.

What a reward costs is mostly these: a matrix of five or twenty rows is multiplied with a vector, or
changed by a rank-one term. Rows are cut into panels of 20, 16, 12, 8 and 4 columns, whose widths a
machine has registers for, and a last two and one; a panel is worked off from the first row to the
last with nothing but loads, arithmetic and stores of full registers in between. In a kernel each
function below is a call with a few pointers; in plain Python it is NumPy, with the same bits.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

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

# widths of the packs that make up a panel of so many columns; wider matrices have several panels
PANELS = {20: (8, 8, 4), 16: (8, 8), 12: (8, 4), 8: (8,), 4: (4,), 2: (2,), 1: (1,)}


def dot(a: Vector, b: Vector) -> float:
    """Inner product ``a'b``: eight sums, then halves on halves. ``b`` may be longer."""
    terms = np.zeros(len(a) + -len(a) % 8)
    terms[: len(a)] = a * b[: len(a)]
    sums = np.zeros(8)
    for eight in terms.reshape(-1, 8):
        sums += eight
    return halved_sum(sums)


def matvec(A: Matrix, x: Vector, out: Vector) -> None:
    """``out = A x`` for symmetric ``A``."""
    out[:] = _product(A, x)


def quadratic(A: Matrix, x: Vector, work: Vector) -> float:
    """``x'A x`` for symmetric ``A``; ``work`` becomes ``A x``."""
    work[:] = _product(A, x)
    terms, result = work * x, 0.0
    for start, widths in _panels(len(x)):
        for width in widths:
            result += halved_sum(terms[start : start + width])
            start += width
    return result


def add_outer(A: Matrix, weight: float, x: Vector) -> None:
    """Rank-one update ``A += weight x x'``."""
    A += x[:, None] * (x * weight)


def _product(A: Matrix, x: Vector) -> Vector:
    """``A x``: even and odd rows are summed apart, so that no addition waits for the last one."""
    rows = A * x[:, None]
    even, odd = 0.0 + rows[0], np.zeros_like(rows[0])
    for j in range(1, len(x) - 1, 2):
        odd, even = odd + rows[j], even + rows[j + 1]
    if len(x) % 2 == 0:
        odd = odd + rows[-1]
    return even + odd


def _panels(d: int) -> list[tuple[int, tuple[int, ...]]]:
    """Where the panels of ``d`` columns start, and their widths."""
    panels, start = [], 0
    for columns, widths in PANELS.items():
        while d - start >= columns:
            panels.append((start, widths))
            start += columns
    return panels


def halved_sum(numbers: Vector) -> float:
    """Lower half plus upper half until one number is left."""
    while len(numbers) > 1:
        half = len(numbers) // 2
        numbers = numbers[:half] + numbers[half:]
    return float(numbers[0])


# ------------------------------------------------------------------------------ in a kernel


def _for_each_panel(builder: Any, d: Any, act: Callable[[Any, Any], None]) -> None:
    """``act(starts, widths)`` for all panels of ``d`` columns, with where its packs start."""
    place = cgutils.alloca_once_value(builder, INT(0))

    def panel(columns: int) -> None:
        start = builder.load(place)
        starts, offset = [], 0
        for width in PANELS[columns]:
            starts.append(builder.add(start, INT(offset)))
            offset += width
        act(starts, PANELS[columns])
        builder.store(builder.add(start, INT(columns)), place)

    most, *others = PANELS
    with cgutils.for_range(builder, builder.udiv(d, INT(most)), intp=INT):
        panel(most)
    for columns in others:
        left = builder.sub(d, builder.load(place))
        with builder.if_then(builder.icmp_signed(">=", left, INT(columns))):
            panel(columns)


def _build_product(builder: Any, A: Any, x: Any, out: Any, d: Any) -> None:
    """``out = A x``; returns ``x'A x``."""
    result = cgutils.alloca_once_value(builder, DOUBLE(0.0))

    def panel(starts: Any, widths: Any) -> None:
        def add_row(j: Any, sums: Any) -> None:
            c = builder.load(builder.gep(x, [j]))
            row = builder.gep(A, [builder.mul(j, d)])
            for start, width, place in zip(starts, widths, sums, strict=True):
                term = builder.fmul(load(builder, row, start, width), spread(builder, c, width))
                builder.store(builder.fadd(builder.load(place), term), place)

        kinds = [spread(builder, DOUBLE(0.0), width) for width in widths]
        even = [cgutils.alloca_once_value(builder, zeros) for zeros in kinds]
        odd = [cgutils.alloca_once_value(builder, zeros) for zeros in kinds]
        add_row(INT(0), even)
        last = builder.sub(d, INT(1))
        with cgutils.for_range_slice(builder, INT(1), last, INT(2), INT) as (j, _):
            add_row(j, odd)
            add_row(builder.add(j, INT(1)), even)
        with builder.if_then(builder.icmp_signed("==", builder.and_(d, INT(1)), INT(0))):
            add_row(last, odd)
        for start, width, a, b in zip(starts, widths, even, odd, strict=True):
            pack = builder.fadd(builder.load(a), builder.load(b))
            store(builder, pack, out, start)
            terms = builder.fmul(pack, load(builder, x, start, width))
            builder.store(
                builder.fadd(builder.load(result), halved(builder, terms, builder.fadd)), result
            )

    _for_each_panel(builder, d, panel)
    builder.ret(builder.load(result))


def _build_update(builder: Any, A: Any, weight: Any, x: Any, d: Any) -> None:
    """``A += weight x x'``."""

    def panel(starts: Any, widths: Any) -> None:
        scaled = [
            builder.fmul(load(builder, x, start, width), spread(builder, weight, width))
            for start, width in zip(starts, widths, strict=True)
        ]
        with cgutils.for_range(builder, d, intp=INT) as loop:
            c = builder.load(builder.gep(x, [loop.index]))
            row = builder.gep(A, [builder.mul(loop.index, d)])
            for start, width, pack in zip(starts, widths, scaled, strict=True):
                term = builder.fmul(pack, spread(builder, c, width))
                store(builder, builder.fadd(load(builder, row, start, width), term), row, start)

    _for_each_panel(builder, d, panel)
    builder.ret_void()


def _build_dot(builder: Any, a: Any, b: Any, d: Any) -> None:
    zeros = ir.Constant(ir.VectorType(DOUBLE, 8), [0.0] * 8)
    sums = cgutils.alloca_once_value(builder, zeros)

    def add(x: Any, y: Any) -> None:
        builder.store(builder.fadd(builder.load(sums), builder.fmul(x, y)), sums)

    whole = builder.and_(d, INT(-8))
    with cgutils.for_range_slice(builder, INT(0), whole, INT(8), INT) as (i, _):
        add(load(builder, a, i, 8), load(builder, b, i, 8))
    left = builder.sub(d, whole)
    with builder.if_then(builder.icmp_signed(">", left, INT(0))):
        add(load_up_to(builder, a, whole, left), load_up_to(builder, b, whole, left))
    builder.ret(halved(builder, builder.load(sums), builder.fadd))


@called_kernel(dot, types.float64, VECTOR, VECTOR)
def _call_dot(builder: Any, a: Array, b: Array) -> Any:
    arguments = [a.data, b.data, a.shape[0]]
    return call(builder, "belated.dot", DOUBLE, arguments, _build_dot)


def _call_product(builder: Any, A: Array, x: Array, out: Array) -> Any:
    arguments = [A.data, x.data, out.data, x.shape[0]]
    return call(builder, "belated.product", DOUBLE, arguments, _build_product)


called_kernel(matvec, types.none, MATRIX, VECTOR, VECTOR)(_call_product)
called_kernel(quadratic, types.float64, MATRIX, VECTOR, VECTOR)(_call_product)


@called_kernel(add_outer, types.none, MATRIX, types.float64, VECTOR)
def _call_update(builder: Any, A: Array, weight: Any, x: Array) -> None:
    arguments = [A.data, weight, x.data, x.shape[0]]
    call(builder, "belated.update", ir.VoidType(), arguments, _build_update)
