"""All inner products of a certificate in one pass over its vectors."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from belated.core.types import Vector
from belated.numerics.lowered.lowering import (
    DOUBLE,
    INT,
    VECTOR,
    Array,
    call,
    called_kernel,
    halved,
    load,
    load_up_to,
    spread,
    store,
    store_up_to,
)
from belated.numerics.lowered.products import dot

EIGHT = 8  # doubles in a pack
COUNT = 8  # inner products


def inner_products(
    gradient: Vector,
    bent: Vector,
    ref: Vector,
    anchor: Vector,
    H_anchor: Vector,
    step: Vector,
    off: Vector,
    nu: float,
) -> tuple[float, float, float, float, float, float, float, float]:
    """Add ``gradient + bent + nu (ref + step)`` to ``off``, which comes in as ``H step``.

    Returns the squared lengths of the gradient, of H step, of what off became, of step, ref and
    step - anchor; then step'H anchor and anchor'H anchor.
    """
    H_step = off.copy()
    off += (gradient + bent) + nu * (ref + step)
    far = step - anchor
    return (
        dot(gradient, gradient),
        dot(H_step, H_step),
        dot(off, off),
        dot(step, step),
        dot(ref, ref),
        dot(far, far),
        dot(step, H_anchor),
        dot(anchor, H_anchor),
    )


# ------------------------------------------------------------------------------ in a kernel


def _build(builder: Any, *arguments: Any) -> None:
    *vectors, nu, d = arguments
    nus = spread(builder, nu, EIGHT)
    zeros = ir.Constant(ir.VectorType(DOUBLE, EIGHT), [0.0] * EIGHT)
    sums = [cgutils.alloca_once_value(builder, zeros) for _ in range(COUNT)]

    def take(packs: Any) -> Any:
        """Add eight places of each vector to all sums; returns what ``off`` becomes there."""
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
        for place, pair in zip(sums, pairs, strict=True):
            builder.store(builder.fadd(builder.load(place), builder.fmul(*pair)), place)
        return off

    whole = builder.and_(d, INT(-EIGHT))
    with cgutils.for_range_slice(builder, INT(0), whole, INT(EIGHT), INT) as (i, _):
        off = take([load(builder, vector, i, EIGHT) for vector in vectors])
        store(builder, off, vectors[-1], i)
    left = builder.sub(d, whole)
    with builder.if_then(builder.icmp_signed(">", left, INT(0))):
        off = take([load_up_to(builder, vector, whole, left) for vector in vectors])
        store_up_to(builder, off, vectors[-1], whole, left)
    results = ir.Constant(ir.ArrayType(DOUBLE, COUNT), ir.Undefined)
    for k, place in enumerate(sums):
        number = halved(builder, builder.load(place), builder.fadd)
        results = builder.insert_value(results, number, k)
    builder.ret(results)


@called_kernel(inner_products, types.UniTuple(types.float64, COUNT), *[VECTOR] * 7, types.float64)
def _inner_products(builder: Any, *arguments: Any) -> Any:
    *vectors, nu = arguments
    given: list[Array] = list(vectors)
    numbers = [*(vector.data for vector in given), nu, given[0].shape[0]]
    return call(builder, "belated.inner_products", ir.ArrayType(DOUBLE, COUNT), numbers, _build)
