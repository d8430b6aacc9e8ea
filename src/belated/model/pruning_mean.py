"""The most optimistic action on the scale of mean rewards, without scoring all of them, exactly.

The score of x is ``mu(x'theta) + bonus ||x||_{A^-1}``. It is bounded as in ``numerics/pruning.py``,
with the same cap and the same single precision; mu increases, so what x'theta may be more than its
rounded value goes into the argument of mu. That value of mu is itself rounded to single precision.
With Z = X ||theta|| the largest possible ``|x'theta|``, ``|mu|`` is at most the larger of
``|mu(-Z)|`` and ``|mu(Z)|``: room is left for four times (d + 4) u times that. Ties go to the
lowest row.
"""

import math
from typing import Any

import numpy as np

from belated.core.jit import kernel
from belated.core.types import Coarse, Matrix, Vector
from belated.model.protocols import mean
from belated.numerics.lowered.products import dot
from belated.numerics.lowered.score_bounds import (
    SIXTEEN,
    bound_all,
    count_reaching,
    highest,
    lowest,
    reaching,
)
from belated.numerics.pruning import (
    ACROSS,
    ALONG,
    LARGE,
    LARGEST_RADIUS,
    MANY,
    ROOM,
    SMALL,
    TYPICAL,
    DecisionSet,
    _sharpen,
    _width,
    room_of_squares,
)


@kernel
def _bound_means(
    family: Any,
    of_estimate: float,
    slope: np.float32,
    m: np.float32,
    means: Coarse,
    squares: Coarse,
    bound: Coarse,
) -> None:
    """``means`` comes in as x'theta and becomes at least mu of it, up to single precision."""
    for k in range(means.shape[0]):
        means[k] = mean(family, float(means[k]) + of_estimate)
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
    rows, d, K = actions.rows, theta.shape[0], actions.rows.shape[0]
    means, squares, bound = actions.work[0], actions.work[1], actions.work[2]
    bonus = min(bonus, LARGEST_RADIUS)
    m, across = cap[TYPICAL], cap[ACROSS]
    slope = 0.5 * bonus / math.sqrt(m)
    room = ROOM * (d + 4)
    reach = math.sqrt(actions.longest) * math.sqrt(dot(theta, theta))
    of_estimate = room * reach
    of_mean = 0.0
    if of_estimate < LARGE:
        reach += of_estimate
        of_mean = room * max(abs(mean(family, reach)), abs(mean(family, -reach)))
    of_square = room * actions.longest * across
    of_bound = of_mean + slope * (of_square + room * m)
    best = 0
    if (
        SMALL < actions.longest < LARGE
        and SMALL < across < LARGE
        and (SMALL < of_estimate < LARGE or of_estimate == 0.0)
        and SMALL < of_bound < LARGE
        and slope < LARGE
    ):
        steep, typical = np.float32(slope), np.float32(m)
        bound_all(
            actions.coarse,
            theta,
            cap[4:],
            np.float32(across),
            np.float32(across - cap[ALONG]),
            steep,
            typical,
            actions.work,
        )
        _bound_means(family, of_estimate, steep, typical, means, squares, bound)
        best = highest(bound, K)
    else:  # out of reach of single precision: score all
        of_bound = of_mean = math.inf
        for k in range(bound.shape[0]):
            means[k] = squares[k] = bound[k] = 0.0
    pivot, estimate = best, dot(rows[best], theta)
    width = _width(A_inv, bonus, rows[best], work[0])
    score = mean(family, estimate) + width
    left = count_reaching(bound, np.float32(score - of_bound))  # one of them was just scored
    if left > MANY + d and of_bound < math.inf:
        of_square = room_of_squares(d, actions.longest, across)
        _sharpen(actions.coarse, A_inv, bonus, of_square, actions.work)
        of_bound = of_mean + room * bonus * math.sqrt(actions.longest * across)
        k = highest(bound, K)
        other, more = dot(rows[k], theta), _width(A_inv, bonus, rows[k], work[0])
        total = mean(family, other) + more
        if total > score or (total == score and k < best):
            best, estimate, width, score = k, other, more, total
    if left > 1:
        for start in range(0, bound.shape[0], SIXTEEN):
            bits = reaching(bound, start, np.float32(score - of_bound))
            while bits != 0:
                k = start + lowest(bits)
                bits &= bits - 1
                if bound[k] < score - of_bound or k == pivot or k >= K:
                    continue
                gap = score - of_mean - means[k]
                if gap > 0.0 and gap * gap > bonus * bonus * (squares[k] + of_square):
                    continue  # the bound with the square root itself does not reach
                other, more = dot(rows[k], theta), _width(A_inv, bonus, rows[k], work[0])
                total = mean(family, other) + more
                if total > score or (total == score and k < best):
                    best, estimate, width, score = k, other, more, total
    return best, score, estimate, width
