"""Ridge regression: the penalised maximum likelihood estimate of the Gaussian family."""

from typing import Any, NamedTuple

import numpy as np

from belated.core.jit import inlined_kernel
from belated.core.types import Matrix, Vector
from belated.model.protocols import (
    factor_precision,
    refit,
    remake,
    revise,
    revise_row,
    take_in,
    take_in_row,
)
from belated.model.state import DECIDED, History, State, counts_for, weight_of
from belated.numerics.linalg import cholesky
from belated.numerics.lowered.products import matvec


class RidgeFit(NamedTuple):
    """The sufficient statistic besides ``W``."""

    b: Vector  # (d,) sum of weight y x over returned rounds


class Ridge(NamedTuple):
    """``theta = W^-1 sum of y x`` over returned rounds: exact, O(d^2), never looks back."""

    @property
    def looks_back(self) -> bool:
        """False: old rewards are never needed again."""
        return False

    def new_fit(self, dim: int) -> RidgeFit:
        """Returns the fit without any reward."""
        return RidgeFit(np.zeros(dim))


@inlined_kernel
def _add(b: Vector, x: Vector, y: float) -> None:
    for i in range(x.shape[0]):
        b[i] += y * x[i]


@take_in.case(Ridge)
def _take_in(estimator: Ridge, family: Any, state: State, x: Vector, y: float) -> None:
    _add(state.fit.b, x, y)


@take_in_row.case(Ridge)
def _take_in_row(
    estimator: Ridge, family: Any, state: State, history: History, row: int, y: float
) -> None:
    _add(state.fit.b, history.x[row], weight_of(history, row) * y)


@revise.case(Ridge)
def _revise(estimator: Ridge, family: Any, state: State, x: Vector, old: float, new: float) -> None:
    _add(state.fit.b, x, new - old)


@revise_row.case(Ridge)
def _revise_row(
    estimator: Ridge, family: Any, state: State, history: History, row: int, old: float, new: float
) -> None:
    _add(state.fit.b, history.x[row], weight_of(history, row) * (new - old))


@remake.case(Ridge)
def _remake(estimator: Ridge, family: Any, state: State, history: History) -> None:
    b = state.fit.b
    for i in range(b.shape[0]):
        b[i] = 0.0
    for row in range(state.counts[DECIDED]):
        if counts_for(history, row):
            _add(b, history.x[row], weight_of(history, row) * history.y[row])


@factor_precision.case(RidgeFit)
def _factor_precision(fit: RidgeFit, state: State, U: Matrix) -> None:
    cholesky(state.W, 0.0, U)


@refit.case(Ridge)
def _refit(estimator: Ridge, family: Any, state: State, history: History) -> None:
    matvec(state.W_inv, state.fit.b, state.theta)
