"""Bounds on the scores of all actions, in single precision, and the search among them.

For ``numerics/pruning.py``. Rows are as long as whole packs of sixteen.
"""

import numpy as np
from numba import types

from belated.core.types import Coarse, Vector
from belated.numerics.lowered.choosing import (
    COARSE,
    COARSE_ROW,
    VECTOR,
    add_multiple,
    hand_built,
)

SIXTEEN = 16  # floats in a pack


@hand_built(types.none, COARSE, VECTOR, VECTOR, *[types.float32] * 4, COARSE, allocating=True)
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
    """Fills rows of ``work`` with x'theta, the square under the root, and the bound of each action.

    Last bits differ between builders and plain Python; callers leave room for that.
    """
    d = theta.shape[0]
    estimates, squares, bounds = work[0], work[1], work[2]
    along = np.zeros(coarse.shape[1], np.float32)
    estimates[:] = 0.0
    for i in range(d):
        add_multiple(estimates, coarse[i], np.float32(theta[i]))
        add_multiple(along, coarse[i], np.float32(v[i]))
    squares[:] = coarse[d] * across - along * along * less
    bounds[:] = (squares + m) * slope + estimates


@hand_built(types.int64, COARSE_ROW, types.int64)
def highest(bounds: Coarse, K: int) -> int:
    """Returns the first of ``K`` rows with the largest bound; sets bounds beyond K to -infinity."""
    bounds[K:] = -np.inf
    return int(np.argmax(bounds))


@hand_built(types.int64, COARSE_ROW, types.float32, allocating=True)
def count_reaching(bounds: Coarse, level: np.float32) -> int:
    """Returns the number of bounds that are ``level`` or more."""
    return int(np.count_nonzero(bounds >= level))


@hand_built(types.int64, COARSE_ROW, types.int64, types.float32)
def reaching(bounds: Coarse, start: int, level: np.float32) -> int:
    """Returns a bit for each of 16 bounds from ``start`` on, the lowest first: does it reach?"""
    bits = 0
    for k in range(SIXTEEN):
        if bounds[start + k] >= level:
            bits |= 1 << k
    return bits


@hand_built(types.int64, types.int64)
def lowest(bits: int) -> int:
    """Returns the place of the lowest bit that is set; at least one must be."""
    place = 0
    while not bits >> place & 1:
        place += 1
    return place
