"""The most optimistic action on the scale of mean rewards, without scoring all of them, exactly.

The score of x is ``mu(x'theta) + bonus ||x||_{A^-1}``. The search is that of
``numerics/pruning.py``, with levels mu(x'theta); mu increases, so the most that x'theta may exceed
its rounded value goes into the argument of mu. That value of mu is rounded to single precision.
With Z = X ||theta|| the largest possible ``|x'theta|``, ``|mu|`` is at most the larger of
``|mu(-Z)|`` and ``|mu(Z)|``: room is left for four times (d + 4) u times that.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.jit import kernel
from belated.core.types import Coarse, Matrix, Vector
from belated.model.protocols import mean
from belated.numerics.pruning import (
    LARGE,
    SMALL,
    DecisionSet,
    level,
    raise_bounds,
    room_of_levels,
    search,
)


class OfMeans(NamedTuple):
    """Scores on the scale of mean rewards."""

    family: Any


@level.case(OfMeans)
def _level(scale: OfMeans, estimate: float) -> float:
    return mean(scale.family, estimate)


@room_of_levels.case(OfMeans)
def _room_of_levels(scale: OfMeans, reach: float, room: float) -> float:
    of_estimate = room * reach
    if not (SMALL < of_estimate < LARGE or of_estimate == 0.0):
        return math.inf
    reach += of_estimate
    return room * max(abs(mean(scale.family, reach)), abs(mean(scale.family, -reach)))


@raise_bounds.case(OfMeans)
def _raise_bounds(
    scale: OfMeans, of_estimate: float, slope: np.float32, m: np.float32, work: Coarse
) -> None:
    means, squares, bound = work[0], work[1], work[2]
    for k in range(means.shape[0]):
        means[k] = mean(scale.family, float(means[k]) + of_estimate)
    for k in range(means.shape[0]):
        bound[k] = means[k] + slope * (m + squares[k])


@kernel
def most_optimistic_mean(
    family: Any,
    theta: Vector,
    A_inv: Matrix,
    cap: Vector,
    bonus: float,
    actions: DecisionSet,
    work: Matrix,
) -> tuple[int, float, float, float]:
    """Argmax of ``mu(x'theta) + bonus ||x||_{A^-1}``: row, score, x'theta, bonus ||x||_{A^-1}.

    ``work`` is scratch of one row at least, ``State.work``.
    """
    return search(OfMeans(family), theta, A_inv, cap, bonus, actions, work)
