"""Products of short vectors and small symmetric matrices: most of the cost of a reward.

A sum has the order in which a machine with registers of eight numbers adds it up: eight sums, of
every eighth term each, then halves on halves.
"""

import numpy as np
from numba import types

from belated.core.jit import inlined_kernel
from belated.core.types import Matrix, Vector
from belated.numerics.lowered.choosing import MATRIX, VECTOR, add_multiple, hand_built

PANEL = 20  # columns that are worked on at once


@inlined_kernel
def strand(a: Vector, b: Vector, start: int, by: int) -> float:
    """Returns the sum of ``a[i] b[i]`` for ``i`` from ``start`` on by steps of ``by``."""
    total = 0.0
    for i in range(start, a.shape[0], by):
        total += a[i] * b[i]
    return total


@hand_built(types.float64, VECTOR, VECTOR)
def dot(a: Vector, b: Vector) -> float:
    """Inner product ``a'b``. ``b`` may be longer."""
    even = (strand(a, b, 0, 8) + strand(a, b, 4, 8)) + (strand(a, b, 2, 8) + strand(a, b, 6, 8))
    odd = (strand(a, b, 1, 8) + strand(a, b, 5, 8)) + (strand(a, b, 3, 8) + strand(a, b, 7, 8))
    return float(even + odd)


@hand_built(types.none, MATRIX, VECTOR, VECTOR, allocating=True)
def matvec(A: Matrix, x: Vector, out: Vector) -> None:
    """``out = A x`` for symmetric ``A``: even and odd rows are summed apart."""
    odd = np.zeros(x.shape[0])
    out[:] = 0.0
    for j in range(x.shape[0]):
        add_multiple(odd if j % 2 else out, A[j], x[j])
    out += odd


@hand_built(types.float64, MATRIX, VECTOR, VECTOR)
def quadratic(A: Matrix, x: Vector, work: Vector) -> float:
    """``x'A x`` for symmetric ``A``; ``work`` becomes ``A x``."""
    matvec(A, x, work)
    result, start = 0.0, 0
    for panel in range(0, x.shape[0], PANEL):
        end = min(panel + PANEL, x.shape[0])
        for width in (8, 8, 4, 2, 1):
            if start + width <= end:
                result += dot(work[start : start + width], x[start : start + width])
                start += width
    return result


@hand_built(types.none, MATRIX, types.float64, VECTOR, allocating=True)
def add_outer(A: Matrix, weight: float, x: Vector) -> None:
    """Rank-one update ``A += weight x x'``."""
    scaled = x * weight
    for j in range(x.shape[0]):
        add_multiple(A[j], scaled, x[j])


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
    step - anchor, then step'H anchor and anchor'H anchor.
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
