"""Estimators that take each reward in once, as it returns: constant memory.

The purpose of their steps is explained in ``policies/gloc.py``, ``policies/ecolog.py`` and
``policies/glb_omd.py``.
"""

import math
from typing import Any, NamedTuple, TypeVar

import numpy as np

from belated.core.jit import kernel
from belated.core.types import Matrix, Vector
from belated.estimators.proximal import POINT, TOWARDS, Pull, proximal_point
from belated.model.protocols import cumulant, derivatives, mean, refit, take_in
from belated.model.state import OBSERVED, REFACTOR_EVERY, History, State
from belated.numerics.linalg import copy, grow
from belated.numerics.lowered.products import dot, matvec, quadratic
from belated.numerics.pruning import new_cap, renew

E = TypeVar("E")
SQUARED_PULLS, SQUARED_PREDICTIONS = 0, 1  # slots of NewtonStepsFit.scalars
LOSSES, MOVES, FAILED = 0, 1, 2  # slots of Curved.scalars: implicit steps
GAINED = 0  # slot of Curved.scalars: mirror steps


def _in_one_pass(estimator_type: type[E]) -> type[E]:
    """Class decorator: old rewards are never needed again, and the order of rewards matters."""
    made: Any = estimator_type
    made.looks_back, made.order_matters = False, True
    return estimator_type


@_in_one_pass
class NewtonSteps(NamedTuple):
    """Online Newton steps of an iterate, and the regression of its predictions."""

    m1: float
    kappa: float

    def new_fit(self, dim: int) -> "NewtonStepsFit":
        """Returns the fit without any reward."""
        return NewtonStepsFit(np.zeros(dim), np.zeros(dim), np.zeros(2))


class NewtonStepsFit(NamedTuple):
    """The arrays that the steps update."""

    iterate: Vector  # (d,) where the next prediction is made; in the ball
    b: Vector  # (d,) sum of z x
    scalars: Vector  # (2,) sums of g^2 ||x||^2_{W^-1} and of z^2


@take_in.case(NewtonSteps)
def _take_in_newton(estimator: NewtonSteps, family: Any, state: State, x: Vector, y: float) -> None:
    fit, work = state.fit, state.work
    z = dot(x, fit.iterate)
    g = mean(family, z) - y
    q = quadratic(state.W_inv, x, work[TOWARDS])
    fit.scalars[SQUARED_PULLS] += g * g * q
    fit.scalars[SQUARED_PREDICTIONS] += z * z
    for i in range(x.shape[0]):
        fit.b[i] += z * x[i]
    step = Pull(g / estimator.kappa, 0.0, 0.0)
    proximal_point(step, family, state.W, state.W_inv, fit.iterate, x, estimator.m1, work)
    copy(work[POINT], fit.iterate)


@refit.case(NewtonSteps)
def _refit_newton(estimator: NewtonSteps, family: Any, state: State, history: History) -> None:
    matvec(state.W_inv, state.fit.b, state.theta)


class Curved(NamedTuple):
    """The design weighted by mu', as the fit of an estimator; theta itself is the iterate."""

    H: Matrix  # (d, d) lam I + sum of weight x x'
    H_inv: Matrix  # (d, d)
    cap: Vector  # (d + 4,) bound on H_inv: see numerics/pruning.py
    scalars: Vector  # sums that the radius needs


def new_curved(dim: int, lam: float, scalars: int) -> Curved:
    """Returns the fit without any reward."""
    return Curved(lam * np.eye(dim), np.eye(dim) / lam, new_cap(dim, lam), np.zeros(scalars))


@kernel
def grow_curved(fit: Curved, state: State, weight: float, x: Vector) -> None:
    """``H += weight x x'``."""
    fresh = state.counts[OBSERVED] % REFACTOR_EVERY == 0
    grow(fit.H, fit.H_inv, 0.0, weight, x, fresh, state.work[0])


@_in_one_pass
class ImplicitSteps(NamedTuple):
    """Each reward moves theta to the minimiser of its loss plus the distance gone."""

    m1: float
    lam: float
    eta: float
    trials: float  # the largest reward

    def new_fit(self, dim: int) -> Curved:
        """Returns the fit without any reward."""
        return new_curved(dim, self.lam, 3)


@take_in.case(ImplicitSteps)
def _take_in_implicit(
    estimator: ImplicitSteps, family: Any, state: State, x: Vector, y: float
) -> None:
    fit, theta, work = state.fit, state.theta, state.work
    eta, m1, new, moved = estimator.eta, estimator.m1, work[POINT], work[0]
    matvec(fit.H_inv, x, work[TOWARDS])
    both = Pull(-eta * estimator.trials, 0.0, 2.0 * eta)
    bar = proximal_point(both, family, fit.H, fit.H_inv, theta, x, m1, work)
    z = proximal_point(Pull(-eta * y, 0.0, eta), family, fit.H, fit.H_inv, theta, x, m1, work)
    for i in range(x.shape[0]):
        moved[i] = new[i] - theta[i]
    fit.scalars[MOVES] += quadratic(fit.H, moved, work[TOWARDS])
    fit.scalars[LOSSES] += cumulant(family, bar) - cumulant(family, z) - y * (bar - z)
    slope = derivatives(family, z)[1]
    if derivatives(family, bar)[1] > 2.0 * slope:
        fit.scalars[FAILED] += 1.0
    copy(new, theta)
    grow_curved(fit, state, slope, x)


@_in_one_pass
class MirrorSteps(NamedTuple):
    """Each reward moves theta by one Newton-like step, kept in the ball."""

    m1: float
    lam: float
    eta: float
    a_phi: float

    def new_fit(self, dim: int) -> Curved:
        """Returns the fit without any reward."""
        return new_curved(dim, self.lam, 1)


@take_in.case(MirrorSteps)
def _take_in_mirror(estimator: MirrorSteps, family: Any, state: State, x: Vector, y: float) -> None:
    fit, theta, work = state.fit, state.theta, state.work
    eta, a_phi, new, moved = estimator.eta, estimator.a_phi, work[POINT], work[0]
    matvec(fit.H_inv, x, work[TOWARDS])
    old = dot(x, theta)
    mu, slope, _ = derivatives(family, old)
    surrogate = Pull(eta * (mu - y - slope * old) / a_phi, eta * slope / a_phi, 0.0)
    z = proximal_point(surrogate, family, fit.H, fit.H_inv, theta, x, estimator.m1, work)
    for i in range(x.shape[0]):
        moved[i] = new[i] - theta[i]
    gained = cumulant(family, old) - cumulant(family, z) - y * (old - z)
    r = mean(family, z) - mu - slope * (z - old)
    gained += abs(r) * (estimator.m1 * math.sqrt(dot(x, x)) + abs(z))
    fit.scalars[GAINED] += 2.0 * eta * gained / a_phi - quadratic(fit.H, moved, work[TOWARDS])
    copy(new, theta)
    grow_curved(fit, state, derivatives(family, z)[1] / a_phi, x)


@refit.case(ImplicitSteps, MirrorSteps)
def _refit_curved(estimator: Any, family: Any, state: State, history: History) -> None:
    fit = state.fit
    renew(fit.cap, fit.H, fit.H_inv, state.counts[OBSERVED], state.work[0])
