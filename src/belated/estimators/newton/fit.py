"""The state of certified lazy Newton: the Taylor coefficients of F at a reference point.

The exact penalised MLE of a generalised linear model, without recomputing it. The estimate
minimises, over all theta or over a ball of radius m1,

    F(theta) = sum over returned rounds of w [b(x'theta) - y x'theta] + (rho / 2) ||theta||^2,

w the weight of a round, 1 where nothing is forgotten.
A reference point ``ref`` is kept together with the gradient, the Hessian and, for order 3, the
third derivative of F there, over *all* returned rewards; a new reward changes each by a rank-one
term. The estimate is ``ref + step``, the minimiser of a model of F (``sphere.py``),

    gradient'step + bent'step + step'H step / 2,      bent = T3[anchor, anchor] / 2,

where the anchor is an earlier step (zero for order 2), so that T3, of d^3 / 6 numbers, is read only
when the anchor moves. Self-concordance bounds how far that is from the true minimiser
(``certificate.py``); only when the bound exceeds ``tol``, and moving the anchor does not help, does
the reference move, at the price of one pass over the data.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.jit import allocating_kernel, inlined_kernel, kernel
from belated.core.types import Matrix, Vector
from belated.model.protocols import (
    derivatives,
    factor_precision,
    remake,
    revise,
    revise_row,
    take_in,
    take_in_row,
)
from belated.model.state import (
    DECIDED,
    OBSERVED,
    PASSES,
    REFACTOR_EVERY,
    ROWS,
    History,
    State,
    counts_for,
    weight_of,
)
from belated.numerics.linalg import (
    LARGE_UPDATE,
    cholesky,
    copy,
    inverse_add_outer,
    inverse_and_log_det,
)
from belated.numerics.lowered.products import add_outer, dot, matvec
from belated.numerics.lowered.third_derivative import (
    BATCH,
    add_squares,
    add_thirds,
    add_waiting,
    multiply_all_pairs,
    new_third,
    third_form,
    unpack_squares,
)
from belated.numerics.pruning import split_bound

# slots of NewtonFit.scalars
MULTIPLIER, LONGEST, LEAST_SLOPE, EIGENVALUE, RENEW_AT, SHIFT = 0, 1, 2, 3, 4, 5
REACH, M_THERE, N_THERE, WAITING = 6, 7, 8, 9
# rows of the scratch State.work; a matrix follows from row WORK on
STEP, THETA, OFF, PRODUCT, BEST, GRADIENT, RIGHT, BASE = 1, 2, 3, 4, 5, 6, 7, 8


class LazyNewton(NamedTuple):
    """Certified lazy Newton.

    Parameters
    ----------
    lam, kappa
        The ridge is ``rho = lam * kappa``, so that ``H >= kappa W`` where mu' >= kappa.
    radius
        The estimate is the minimiser over ``||theta|| <= radius``; infinite for all of R^d.
    tol
        Largest certified distance to the exact estimate, in the norm of the Hessian.
    order
        Order of the Taylor model, 2 or 3. 3 costs O(d^3) per reward and needs far fewer passes.
    drift
        Largest ``M X ||theta - ref||``: the Hessian kept, that at ref, is within the factors
        ``e^-drift`` and ``e^drift`` of the one at the estimate.
    """

    lam: float
    kappa: float
    radius: float
    tol: float
    order: int
    drift: float = math.inf

    def new_fit(self, dim: int) -> "NewtonFit":
        """Returns the fit without any reward: F is the penalty alone, minimal at zero."""
        rho = self.lam * self.kappa
        return NewtonFit(
            ref=np.zeros(dim),
            gradient=np.zeros(dim),
            H=rho * np.eye(dim),
            H_inv=np.eye(dim) / rho,
            T3=new_third(dim) if self.order == 3 else np.zeros((0, 0)),
            anchor=np.zeros(dim),
            bent=np.zeros(dim),
            H_anchor=np.zeros(dim),
            waiting=np.zeros((BATCH, dim)) if self.order == 3 else np.zeros((0, 0)),
            bends=np.zeros(BATCH if self.order == 3 else 0),
            scalars=np.array([0.0, 0.0, math.inf, rho, 1.0, 0.0, -1.0, 0.0, 0.0, 0.0]),
        )


class NewtonFit(NamedTuple):
    """Taylor coefficients of F at ``ref``."""

    ref: Vector  # (d,)   reference point
    gradient: Vector  # (d,)   of F at ref
    H: Matrix  # (d, d) Hessian of F at ref
    H_inv: Matrix  # (d, d) inverse of H + shift I
    # third derivative of F at ref, packed: third_derivative.py; without the rewards that wait. For
    # order 2 it is empty, and so are the arrays of waiting rewards.
    T3: Matrix
    anchor: Vector  # (d,)   an earlier step; zero for order 2
    bent: Vector  # (d,)   T3[anchor, anchor] / 2
    H_anchor: Vector  # (d,)   H anchor
    waiting: Matrix  # (BATCH, d) x of rewards that are not yet in T3
    bends: Vector  # (BATCH,) their mu''
    # (10,) multiplier of the ball, longest returned x, least slope mu'(x'ref) of those, a lower
    # bound on the eigenvalues of H (a little stale: H grows), when to renew it, the shift (a recent
    # multiplier, so that the ball costs no more than a plain solve), M and N of the certificate
    # after the ``|z|`` they hold up to, and how many rewards wait
    scalars: Vector


@kernel
def move_anchor(fit: NewtonFit, step: Vector) -> None:
    """Makes ``step`` the anchor, at the cost of reading all of T3."""
    copy(step, fit.anchor)
    third_form(fit.T3, step, fit.bent)
    add_waiting(fit.waiting, fit.bends, int(fit.scalars[WAITING]), step, fit.bent)
    matvec(fit.H, step, fit.H_anchor)


@kernel
def invert(fit: NewtonFit) -> None:
    """Computes the inverse of H + shift I anew; the shift is the present multiplier."""
    fit.scalars[SHIFT] = fit.scalars[MULTIPLIER]
    inverse_and_log_det(fit.H, fit.scalars[SHIFT], fit.H_inv)


@inlined_kernel
def _sum_up(
    estimator: LazyNewton, family: Any, fit: NewtonFit, x: Vector, y: float, weight: float
) -> tuple[float, float]:
    """Adds a reward to the gradient, for order 3 to those that wait.

    Returns mu' and mu'' at ref, times the weight.
    """
    mu, slope, bend = derivatives(family, dot(x, fit.ref))
    pull = weight * (mu - y)
    for i in range(x.shape[0]):
        fit.gradient[i] += pull * x[i]
    fit.scalars[LEAST_SLOPE] = min(fit.scalars[LEAST_SLOPE], slope)
    slope *= weight
    bend *= weight
    if estimator.order == 3:
        waiting = int(fit.scalars[WAITING])
        copy(x, fit.waiting[waiting])
        fit.bends[waiting] = bend
        fit.scalars[WAITING] = waiting + 1
    return slope, bend


@take_in.case(LazyNewton)
def _take_in(estimator: LazyNewton, family: Any, state: State, x: Vector, y: float) -> None:
    _take_in_weighted(estimator, family, state, x, y, 1.0)


@take_in_row.case(LazyNewton)
def _take_in_row(
    estimator: LazyNewton, family: Any, state: State, history: History, row: int, y: float
) -> None:
    weight = weight_of(history, row)
    _take_in_weighted(estimator, family, state, history.x[row], y, weight)


@inlined_kernel
def _take_in_weighted(
    estimator: LazyNewton, family: Any, state: State, x: Vector, y: float, weight: float
) -> None:
    fit = state.fit
    slope, bend = _sum_up(estimator, family, fit, x, y, weight)
    fit.scalars[LONGEST] = max(fit.scalars[LONGEST], math.sqrt(dot(x, x)))
    if estimator.order == 3:
        z = dot(x, fit.anchor)
        for i in range(x.shape[0]):
            fit.bent[i] += 0.5 * bend * z * z * x[i]
            fit.H_anchor[i] += slope * z * x[i]
        if fit.scalars[WAITING] == BATCH:  # at once: it saves the way to memory and back
            fit.scalars[WAITING] = 0.0
            multiply_all_pairs(fit.waiting, fit.T3)
            add_thirds(fit.waiting, fit.bends, fit.T3)
    add_outer(fit.H, slope, x)
    q = inverse_add_outer(fit.H_inv, slope, x, state.work[0])
    if state.counts[OBSERVED] % REFACTOR_EVERY == 0 or q > LARGE_UPDATE:
        invert(fit)


@revise.case(LazyNewton)
def _revise(
    estimator: LazyNewton, family: Any, state: State, x: Vector, old: float, new: float
) -> None:
    for i in range(x.shape[0]):  # nothing else of F depends on the rewards
        state.fit.gradient[i] -= (new - old) * x[i]


@revise_row.case(LazyNewton)
def _revise_row(
    estimator: LazyNewton,
    family: Any,
    state: State,
    history: History,
    row: int,
    old: float,
    new: float,
) -> None:
    revise(estimator, family, state, history.x[row], 0.0, weight_of(history, row) * (new - old))


@remake.case(LazyNewton)
def _remake(estimator: LazyNewton, family: Any, state: State, history: History) -> None:
    copy(state.theta, state.fit.ref)
    pass_over_data(estimator, family, state.fit, history, state.counts[DECIDED])
    state.counts[PASSES] += 1
    state.counts[ROWS] += state.counts[OBSERVED]


@allocating_kernel
def pass_over_data(
    estimator: LazyNewton, family: Any, fit: NewtonFit, history: History, n: int
) -> None:
    """Computes the coefficients at ``fit.ref`` from all returned rewards, in order of decisions."""
    rho, d = estimator.lam * estimator.kappa, fit.ref.shape[0]
    for i in range(d):
        fit.gradient[i] = rho * fit.ref[i]
        fit.anchor[i] = fit.bent[i] = fit.H_anchor[i] = 0.0
        for j in range(d):
            fit.H[i, j] = 0.0
    fit.T3[:] = 0.0
    fit.scalars[WAITING] = 0.0
    fit.scalars[LEAST_SLOPE] = math.inf
    _sum_over_data(estimator, family, fit, history, n, np.empty(BATCH))
    for i in range(d):
        fit.H[i, i] += rho
    invert(fit)
    renew_eigenvalue(fit, rho)


@kernel
def _sum_over_data(
    estimator: LazyNewton, family: Any, fit: NewtonFit, history: History, n: int, slopes: Vector
) -> None:
    """Adds all returned rewards to gradient, Hessian and T3; for T3 some may wait."""
    for row in range(n):
        if counts_for(history, row):
            x, y = history.x[row], history.y[row]
            slope, _ = _sum_up(estimator, family, fit, x, y, weight_of(history, row))
            if estimator.order == 2:
                add_outer(fit.H, slope, x)
                continue
            waiting = int(fit.scalars[WAITING])
            slopes[waiting - 1] = slope
            if waiting == BATCH:  # the Hessian is gathered in scratch of T3
                fit.scalars[WAITING] = 0.0
                multiply_all_pairs(fit.waiting, fit.T3)
                add_squares(slopes, fit.T3)
                add_thirds(fit.waiting, fit.bends, fit.T3)
    if estimator.order == 3:
        unpack_squares(fit.T3, fit.H)
        for b in range(int(fit.scalars[WAITING])):
            add_outer(fit.H, slopes[b], fit.waiting[b])


@allocating_kernel
def renew_eigenvalue(fit: NewtonFit, rho: float) -> None:
    """Renews the lower bound on the eigenvalues of H, less what rounding may have added."""
    d, shift, trace = fit.ref.shape[0], fit.scalars[SHIFT], 0.0
    v = np.empty(d)  # any direction would do: actions that are played often point where theta does
    known = dot(fit.ref, fit.ref) > 1e-100
    for i in range(d):
        trace += fit.H[i, i] + shift
        v[i] = fit.ref[i] if known else 1.0
    _, across = split_bound(fit.H, fit.H_inv, v)
    shifted = 0.999999 / across - 1e-14 * trace
    fit.scalars[EIGENVALUE] = max(rho, shifted - shift)


@factor_precision.case(NewtonFit)
def _factor_precision(fit: NewtonFit, state: State, U: Matrix) -> None:
    cholesky(fit.H, 0.0, U)
