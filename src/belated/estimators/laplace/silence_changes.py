"""Open rows that have become more silent, or less: their terms are exchanged, and no others.

S is inverted, which gives the Hessian at center. Each row whose silence has changed adds the
difference of its weights there, and that of its pulls to the gradient at ref; S is the inverse of
the sum. So the cost is that of two inverses and of the rows that changed, however many there were
before. Where few have changed, S takes in one after the other.

The certificate needs the largest x'S x of all rows that count. It can grow where weights fall, as
they may when the law of the delay is estimated anew. Let no weight fall by more than the share
``mild``, but for some that fall by u, more than that. What the Hessian H loses is then

    at most mild H + sum of u x x' <= (mild + sum of u x'S x) H,

since the largest eigenvalue of a positive matrix is at most its trace, and x'S x grows by
1 / (1 - mild - sum of u x'S x) at most. Where that is a factor of ``MOST_GROWTH`` or more, the
center moves instead.
"""

from typing import Any

from belated.core.jit import kernel
from belated.core.types import Vector
from belated.estimators.laplace.fit import (
    DISPERSION,
    HEARD,
    HIGHEST,
    SILENT,
    VARIANCE,
    Laplace,
    add_square,
    note_length,
    take_terms,
    variance_of,
)
from belated.estimators.laplace.renewing import add_to_hessian, renew, step_from_ref
from belated.estimators.laplace.silence import silent_pull, silent_weight
from belated.model.protocols import hear
from belated.model.state import DECIDED, State, weight_of
from belated.numerics.entries import entry, inner, n_entries
from belated.numerics.symmetric import invert

MILD = 0.05  # the share by which a weight may fall before its row is looked at
MOST_GROWTH = 2.0  # of the bound on x'S x


@kernel
def _weight_change(family: Any, state: State, history: Any, row: int, to: float) -> float:
    """Returns what a row adds to the Hessian when its silence changes, as a multiple of xx'."""
    fit = state.fit
    z, old = inner(history, row, fit.center), history.silence[row]
    before = silent_weight(family, z, old) if old > 0.0 else 0.0
    after = silent_weight(family, z, to) if to > 0.0 else 0.0
    return weight_of(history, row) * ((after - before) / fit.scalars[DISPERSION])


@kernel
def _change_gradient(family: Any, state: State, history: Any, row: int, to: float) -> None:
    """Exchanges the pull of a row at ref."""
    fit = state.fit
    z, old = inner(history, row, fit.ref), history.silence[row]
    before = silent_pull(family, z, old) if old > 0.0 else 0.0
    after = silent_pull(family, z, to) if to > 0.0 else 0.0
    residual = weight_of(history, row) * ((after - before) / fit.scalars[DISPERSION])
    for k in range(n_entries(history, row)):
        j, value = entry(history, row, k)
        fit.gradient[j] += residual * value


@kernel
def _share_lost(family: Any, state: State, history: Any, silence: Vector) -> tuple[float, int]:
    """Returns mild + sum of u x'S x, and the number of rows that change."""
    fit = state.fit
    mild, rest, changed = 0.0, 0.0, 0
    for row in range(state.counts[DECIDED]):
        old, to = history.silence[row], silence[row]
        if old == to:
            continue
        changed += 1
        if old > 0.0:
            change = _weight_change(family, state, history, row, to)
            weight = silent_weight(family, inner(history, row, fit.center), old)
            whole = weight_of(history, row) * (weight / fit.scalars[DISPERSION])
            if -change > MILD * whole:
                rest -= change * variance_of(fit, history, row)
            elif change < 0.0:
                mild = max(mild, -change / whole)
    return mild + rest, changed


@hear.case(Laplace)
def _hear(estimator: Laplace, family: Any, state: State, history: Any, silence: Vector) -> None:
    fit, S, n = state.fit, state.fit.S, state.counts[DECIDED]
    take_terms(fit)
    lost, changed = _share_lost(family, state, history, silence)
    if changed == 0:
        return
    few = changed < 2 * S.shape[0]  # then taking in one row after the other is cheaper
    if not few:
        invert(S)
    for row in range(n):
        to = silence[row]
        if history.silence[row] != to:
            change = _weight_change(family, state, history, row, to)
            _change_gradient(family, state, history, row, to)
            if few:
                add_square(fit, history, row, change)
            else:
                add_to_hessian(S, history, row, change)
    if few:
        take_terms(fit)
    else:
        invert(S)
    growth = 1.0 / (1.0 - lost) if lost < 1.0 else MOST_GROWTH
    fit.scalars[VARIANCE] *= growth
    for row in range(n):
        old, to = history.silence[row], silence[row]
        if old != to:
            fit.scalars[HEARD] += abs(to - old)
            if old == 0.0:
                note_length(fit, history, row)
                fit.scalars[SILENT] += 1.0
                fit.scalars[HIGHEST] = max(fit.scalars[HIGHEST], inner(history, row, fit.center))
                fit.scalars[VARIANCE] = max(fit.scalars[VARIANCE], variance_of(fit, history, row))
            if to == 0.0:
                fit.scalars[SILENT] -= 1.0
            history.silence[row] = to
    if growth >= MOST_GROWTH:
        renew(estimator, family, state, history)
    else:
        step_from_ref(fit)
