"""All inner products of a certificate in one pass over its vectors."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from belated.numerics.lowered.builders.lowering import (
    DOUBLE,
    INT,
    Variable,
    called,
    halved,
    load,
    load_up_to,
    spread,
    store,
    store_up_to,
)

EIGHT = 8  # doubles in a pack
COUNT = 8  # inner products


def _build(builder: Any, *arguments: Any) -> None:
    *vectors, nu, d = arguments
    nus = spread(builder, nu, EIGHT)
    zeros = ir.Constant(ir.VectorType(DOUBLE, EIGHT), [0.0] * EIGHT)
    sums = [Variable(builder, zeros) for _ in range(COUNT)]

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
        for total, pair in zip(sums, pairs, strict=True):
            total.set(builder.fadd(total.get(), builder.fmul(*pair)))
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
    for k, total in enumerate(sums):
        number = halved(builder, total.get(), builder.fadd)
        results = builder.insert_value(results, number, k)
    builder.ret(results)


inner_products = called(
    "inner_products",
    ir.ArrayType(DOUBLE, COUNT),
    _build,
    lambda *given: [*(vector.data for vector in given[:-1]), given[-1], given[0].shape[0]],
)
