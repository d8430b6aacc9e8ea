"""Ridge regression: the penalised maximum likelihood estimate of the Gaussian family."""

from typing import Any, NamedTuple

import numpy as np

from belated.core.types import Matrix, Vector
from belated.model.protocols import factor_precision, refit, revise, take_in
from belated.model.state import History, State
from belated.numerics.linalg import cholesky
from belated.numerics.lowered.products import matvec


class RidgeFit(NamedTuple):
    """The sufficient statistic besides ``W``."""

    b: Vector  # (d,) sum of y x over returned rounds


class Ridge(NamedTuple):
    """``theta = W^-1 sum of y x`` over returned rounds: exact, O(d^2), never looks back."""

    @property
    def looks_back(self) -> bool:
        """False: old rewards are never needed again."""
        return False

    def new_fit(self, dim: int) -> RidgeFit:
        """Returns the fit without any reward."""
        return RidgeFit(np.zeros(dim))


@take_in.case(Ridge)
def _take_in(estimator: Ridge, family: Any, state: State, x: Vector, y: float) -> None:
    b = state.fit.b
    for i in range(x.shape[0]):
        b[i] += y * x[i]


@revise.case(Ridge)
def _revise(estimator: Ridge, family: Any, state: State, x: Vector, old: float, new: float) -> None:
    b = state.fit.b
    for i in range(x.shape[0]):
        b[i] += (new - old) * x[i]


@factor_precision.case(RidgeFit)
def _factor_precision(fit: RidgeFit, state: State, U: Matrix) -> None:
    cholesky(state.W, 0.0, U)


@refit.case(Ridge)
def _refit(estimator: Ridge, family: Any, state: State, history: History) -> None:
    matvec(state.W_inv, state.fit.b, state.theta)
