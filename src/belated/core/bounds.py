"""The pass over all actions that ``core/pruning.py`` begins with, in single precision."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from belated.core.lowering import (
    COARSE,
    FLOAT,
    INT,
    VECTOR,
    Array,
    call,
    called_kernel,
    has_feature,
    load,
    multiplied_and_added,
    spread,
    store,
)
from belated.core.packs import SIXTEEN
from belated.core.types import Coarse, Vector

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
