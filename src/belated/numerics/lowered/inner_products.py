"""All inner products of a certificate in one pass over its vectors."""

from numba import types

from belated.core.types import Vector
from belated.numerics.lowered.choosing import VECTOR, hand_built
from belated.numerics.lowered.products import dot


@hand_built(types.UniTuple(types.float64, 8), *[VECTOR] * 7, types.float64, allocating=True)
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
