"""Refitting: move the anchor, then the reference point, until the certificate suffices."""

import math
from typing import Any

from belated.core.jit import inlined_kernel, kernel
from belated.core.types import Integers, Matrix, Vector
from belated.estimators.newton.certificate import certify
from belated.estimators.newton.fit import (
    BEST,
    EIGENVALUE,
    GRADIENT,
    LEAST_SLOPE,
    LONGEST,
    MULTIPLIER,
    OFF,
    PRODUCT,
    RENEW_AT,
    SHIFT,
    STEP,
    THETA,
    LazyNewton,
    NewtonFit,
    move_anchor,
    pass_over_data,
    renew_eigenvalue,
)
from belated.estimators.newton.sphere import minimise_quadratic
from belated.model.protocols import cumulant, refit, self_concordance
from belated.model.state import (
    DECIDED,
    ERROR,
    OBSERVED,
    PASSES,
    ROWS,
    SLACK,
    History,
    State,
)
from belated.numerics.linalg import copy
from belated.numerics.lowered.products import dot, matvec

MOST_PASSES = 200  # in one refit; Newton's method needs a handful
MOST_ANCHORS = 4  # in one refit, before the reference moves


@kernel
def _objective(
    estimator: LazyNewton, family: Any, theta: Vector, history: History, n: int
) -> float:
    """F(theta)."""
    total = 0.5 * estimator.lam * estimator.kappa * dot(theta, theta)
    for row in range(n):
        y = history.y[row]
        if y == y:
            z = dot(history.x[row], theta)
            total += cumulant(family, z) - y * z
    return total


@kernel
def _line_search(
    estimator: LazyNewton,
    family: Any,
    fit: NewtonFit,
    step: Vector,
    history: History,
    n: int,
    theta: Vector,
) -> float:
    """Largest share 1, 1/2, 1/4, ... of the step that lowers F as it should (Armijo); or 0."""
    here, slope = _objective(estimator, family, fit.ref, history, n), dot(fit.gradient, step)
    share = 1.0
    for _ in range(20):
        for i in range(step.shape[0]):
            theta[i] = fit.ref[i] + share * step[i]
        if _objective(estimator, family, theta, history, n) <= here + 0.25 * share * slope:
            return share
        share *= 0.5
    return 0.0


@kernel
def _minimise_model(
    estimator: LazyNewton, family: Any, fit: NewtonFit, step: Vector, work: Matrix
) -> float:
    """Minimise the model with the anchor it has: fills ``step`` and returns its certificate."""
    gradient = work[GRADIENT]
    for i in range(step.shape[0]):
        gradient[i] = fit.gradient[i] + fit.bent[i]
    minimise_quadratic(fit, gradient, estimator.radius, estimator.tol, step, work)
    return certify(estimator, family, fit, step, work)


@kernel
def _refine(
    estimator: LazyNewton, family: Any, fit: NewtonFit, error: float, step: Vector, work: Matrix
) -> float:
    """The inverse is only as good as its updates: one step of iterative refinement, if needed."""
    off, product, theta = work[OFF], work[PRODUCT], work[THETA]
    if (
        error <= estimator.tol
        or fit.scalars[SHIFT] > 0.0
        or fit.scalars[MULTIPLIER] > 0.0
        or not dot(off, off) > 1e-6 * estimator.tol**2 * fit.scalars[EIGENVALUE]
    ):
        return error
    matvec(fit.H_inv, off, product)
    for i in range(step.shape[0]):
        theta[i] = fit.ref[i] + step[i] - product[i]
    if dot(theta, theta) > estimator.radius**2:
        return error
    for i in range(step.shape[0]):
        step[i] -= product[i]
    return certify(estimator, family, fit, step, work)


@kernel
def _propose(
    estimator: LazyNewton, family: Any, fit: NewtonFit, step: Vector, work: Matrix
) -> float:
    """Fill ``step`` with the best that the Taylor coefficients give; returns its certificate."""
    error = _minimise_model(estimator, family, fit, step, work)
    return _propose_better(estimator, family, fit, error, step, work)


@kernel
def _propose_better(
    estimator: LazyNewton, family: Any, fit: NewtonFit, error: float, step: Vector, work: Matrix
) -> float:
    """``step`` minimises the model, ``error`` is its certificate: better ones, where it is no good.

    The step becomes the anchor and the model is minimised again, as long as that helps.
    """
    error = _refine(estimator, family, fit, error, step, work)
    if error <= estimator.tol or estimator.order == 2:
        return error
    best = work[BEST]
    copy(step, best)
    far = 4.0 * dot(step, step)
    for _ in range(MOST_ANCHORS):
        move_anchor(fit, step)
        now = _minimise_model(estimator, family, fit, step, work)
        now = _refine(estimator, family, fit, now, step, work)
        if dot(step, step) > far:  # it diverges: the step is too long for a Taylor model
            break
        better = now < error
        if better:
            copy(step, best)
            error = now
        if error <= estimator.tol or not better:
            break
    copy(best, step)
    return error


@inlined_kernel
def _drift(estimator: LazyNewton, family: Any, fit: NewtonFit, step: Vector) -> float:
    """M X ||step||, by which the logarithm of mu' may have changed between ref and ref + step."""
    length = math.sqrt(dot(step, step))
    reach = math.sqrt(dot(fit.ref, fit.ref)) + length
    M = self_concordance(family, fit.scalars[LONGEST] * min(reach, estimator.radius))
    return M * fit.scalars[LONGEST] * length


@refit.case(LazyNewton)
def _refit(estimator: LazyNewton, family: Any, state: State, history: History) -> None:
    fit, work, d = state.fit, state.work, state.theta.shape[0]
    step = work[STEP]
    if state.counts[OBSERVED] >= fit.scalars[RENEW_AT]:
        renew_eigenvalue(fit, estimator.lam * estimator.kappa)
        fit.scalars[RENEW_AT] = state.counts[OBSERVED] + 1 + state.counts[OBSERVED] // 16
    for i in range(d):
        step[i] = state.theta[i] - fit.ref[i]
    error = _minimise_model(estimator, family, fit, step, work)
    if not _is_enough(estimator, family, fit, error, step):
        error = _improve(estimator, family, fit, error, history, state.counts, step, work)
    for i in range(d):  # where nothing is proved, the last point that surely was an improvement
        state.theta[i] = fit.ref[i] + (step[i] if error < math.inf else 0.0)
    # H >= share W, because rho = kappa lam: the certificate in the norm of W
    share = min(estimator.kappa, fit.scalars[LEAST_SLOPE])
    state.scalars[ERROR] = error
    state.scalars[SLACK] = error / math.sqrt(share) if share > 0.0 else math.inf


@inlined_kernel
def _is_enough(
    estimator: LazyNewton, family: Any, fit: NewtonFit, error: float, step: Vector
) -> bool:
    """Whether a step with this certificate needs no improvement."""
    return error <= estimator.tol and (
        estimator.drift == math.inf or _drift(estimator, family, fit, step) <= estimator.drift
    )


@kernel
def _improve(
    estimator: LazyNewton,
    family: Any,
    fit: NewtonFit,
    error: float,
    history: History,
    counts: Integers,
    step: Vector,
    work: Matrix,
) -> float:
    """Move the anchor, then the reference, until the certificate of ``step`` suffices; returns it.

    ``step`` comes in as the minimiser of the model, ``error`` as its certificate.
    """
    decided, passes, from_zero = counts[DECIDED], 0, False
    error = _propose_better(estimator, family, fit, error, step, work)
    while passes < MOST_PASSES and not _is_enough(estimator, family, fit, error, step):
        share = 1.0
        if error == math.inf:
            share = _line_search(estimator, family, fit, step, history, decided, work[THETA])
        if share == 0.0:
            # a reward far from what ref predicts can make H there singular to rounding: start anew
            if from_zero:
                break
            from_zero = True
        for i in range(step.shape[0]):
            fit.ref[i] = fit.ref[i] + share * step[i] if share > 0.0 else 0.0
            step[i] *= 1.0 - share
        pass_over_data(estimator, family, fit, history, decided)
        passes += 1
        error = _propose(estimator, family, fit, step, work)
    counts[PASSES] += passes
    counts[ROWS] += passes * counts[OBSERVED]
    return error
