"""The penalised MLE in the ball, and quantities for confidence sets of likelihood ratios.

These are the inverse of the Hessian alone (``LazyNewton`` keeps that of H + shift I), a bound on it
for the arg max, a Lipschitz constant of the log-likelihood, and, for sets that are not
ellipsoids, the returned rewards themselves.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.jit import kernel
from belated.core.types import Matrix, Vector
from belated.estimators import LARGEST_CUBIC_DIM
from belated.estimators.newton.fit import LONGEST, LazyNewton
from belated.model.protocols import Family, derivatives, mean, refit, self_concordance, take_in
from belated.model.state import OBSERVED, PASSES, REFACTOR_EVERY, History, State
from belated.numerics.linalg import (
    LARGE_UPDATE,
    copy,
    inverse_add_outer,
    inverse_and_log_det,
)
from belated.numerics.lowered.products import dot
from belated.numerics.pruning import RENEW_AT, new_cap, renew


class Likelihood(NamedTuple):
    """``LazyNewton`` in the ball, and the sum of ``max |mu(z) - y|`` over returned rewards.

    Parameters
    ----------
    newton
        The estimator proper.
    middle, half
        They give the range of mu(z), |z| <= bound: ``max |mu(z) - y| = half + |y - middle|``.
    rows
        The number of rewards to keep.
    """

    newton: LazyNewton
    middle: float
    half: float
    rows: int

    def new_fit(self, dim: int) -> "LikelihoodFit":
        """Returns the fit without any reward."""
        ridge = self.newton.lam * self.newton.kappa
        return LikelihoodFit(
            *self.newton.new_fit(dim),
            P=np.eye(dim) / ridge,
            cap=new_cap(dim, ridge),
            reach=np.zeros(1),
            x=np.zeros((self.rows, dim)),
            y=np.zeros(self.rows),
        )


class LikelihoodFit(NamedTuple):
    """The fields of ``NewtonFit``, whose kernels work on them unchanged, and more."""

    ref: Vector
    gradient: Vector
    H: Matrix
    H_inv: Matrix
    T3: Matrix
    anchor: Vector
    bent: Vector
    H_anchor: Vector
    waiting: Matrix
    bends: Vector
    scalars: Vector
    P: Matrix  # (d, d) inverse of H
    cap: Vector  # (d + 4,) bound on P: see numerics/pruning.py
    reach: Vector  # (1,) sum of max |mu(z) - y|
    x: Matrix  # (rows, d) actions whose reward returned, in the order of arrival
    y: Vector  # (rows,)


def likelihood(
    family: Family,
    dim: int,
    max_norm: float,
    *,
    m1: float,
    ridge: float,
    tol: float,
    drift: float = math.inf,
    rows: int = 0,
) -> Likelihood:
    """The estimator with penalty ``ridge / 2 ||theta||^2``, the ball of radius ``m1``."""
    bound = max_norm * m1
    low, high = float(mean(family, -bound)), float(mean(family, bound))
    quadratic = self_concordance(family, bound) == 0.0
    order = 2 if quadratic or dim > LARGEST_CUBIC_DIM else 3
    # kappa = 1: the ridge of W is that of H, and the least slope does not matter
    newton = LazyNewton(ridge, 1.0, m1, tol, order, drift)
    return Likelihood(newton, 0.5 * (low + high), 0.5 * (high - low), rows)


@take_in.case(Likelihood)
def _take_in(estimator: Likelihood, family: Any, state: State, x: Vector, y: float) -> None:
    fit, n = state.fit, state.counts[OBSERVED]
    slope = derivatives(family, dot(x, fit.ref))[1]
    take_in(estimator.newton, family, state, x, y)
    q = inverse_add_outer(fit.P, slope, x, state.work[0])
    if n % REFACTOR_EVERY == 0 or not 0.0 <= q <= LARGE_UPDATE:
        inverse_and_log_det(fit.H, 0.0, fit.P)
    fit.reach[0] += estimator.half + abs(y - estimator.middle)
    if n <= fit.y.shape[0]:
        copy(x, fit.x[n - 1])
        fit.y[n - 1] = y


@refit.case(Likelihood)
def _refit(estimator: Likelihood, family: Any, state: State, history: History) -> None:
    fit, passes = state.fit, state.counts[PASSES]
    refit(estimator.newton, family, state, history)
    if state.counts[PASSES] > passes:  # another Hessian: a bound on the old one is worth nothing
        inverse_and_log_det(fit.H, 0.0, fit.P)
        fit.cap[RENEW_AT] = 0.0
    renew(fit.cap, fit.H, fit.P, state.counts[OBSERVED], state.work[0])


@kernel
def drift_of(M: float, state: State) -> float:
    """Returns D = M X ||theta - ref||: e^-D and e^D bound the Hessian at theta by the one kept."""
    fit, square = state.fit, 0.0
    for i in range(state.theta.shape[0]):
        square += (state.theta[i] - fit.ref[i]) ** 2
    return M * fit.scalars[LONGEST] * math.sqrt(square)
