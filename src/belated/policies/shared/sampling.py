"""Code for randomised policies: draws, and the best action of a drawn parameter."""

import math

import numpy as np

from belated.core.jit import kernel
from belated.core.types import Matrix, Vector
from belated.estimators import penalised_mle
from belated.model.protocols import Estimator, Family
from belated.model.state import State
from belated.numerics.linalg import solve_transposed
from belated.numerics.lowered.products import dot
from belated.numerics.pruning import DecisionSet, most_optimistic

DRAW, SAMPLE = 1, 2  # rows of State.work; the kernels of this file use row 0 besides


def unconfined_mle(
    family: Family, dim: int, max_norm: float, lam: float, drift: float = math.inf
) -> Estimator:
    """Returns the estimator with the penalty ``lam / 2 ||theta||^2`` over all of R^d."""
    return penalised_mle(
        *(family, dim, max_norm), m1=1.0, lam=lam, kappa=1.0, constrained=False, drift=drift
    )


@kernel
def fill_normal(out: Vector, rng: np.random.Generator) -> None:
    """Fills in independent standard normal numbers."""
    for i in range(out.shape[0]):
        out[i] = rng.standard_normal()


@kernel
def times_transposed(U: Matrix, scale: float, z: Vector, out: Vector) -> None:
    """``out = scale U'z`` for upper triangular ``U``: N(0, scale^2 U'U) where z is N(0, I)."""
    d = z.shape[0]
    for i in range(d):
        out[i] = 0.0
    for i in range(d):
        c, row, rest = scale * z[i], U[i, i:], out[i:]
        for j in range(row.shape[0]):
            rest[j] += c * row[j]


@kernel
def fill_scores(
    theta: Vector, U: Matrix, sd: float, actions: DecisionSet, mean: Vector, root: Matrix
) -> int:
    """``score_law`` where theta~ is drawn from N(theta, sd^2 (U'U)^-1): R = sd X U^-1."""
    K, d = actions.rows.shape
    for a in range(K):
        x, row = actions.rows[a], root[a, :d]
        mean[a] = dot(x, theta)
        for i in range(d):
            row[i] = sd * x[i]
        solve_transposed(U, row)
    return d


@kernel
def play_best(sample: Vector, state: State, actions: DecisionSet) -> tuple[int, float, float]:
    """Returns the argmax of ``x'sample``: row, ``x'sample`` and ``x'theta`` there."""
    row, score, _, _ = most_optimistic(sample, state.W_inv, state.cap, 0.0, actions, state.work)
    return row, score, dot(actions.rows[row], state.theta)
