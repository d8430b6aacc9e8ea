"""The law of the delay that silence is judged by: how much of what converts has done so by an age.

The window is cut into cells, at whose ends x_1, ..., x_m = window the law is known. A conversion
counts by the cell of its delay, rounded up, and of its decision's age, rounded down; F(window) is
1, because later conversions do not count. Of the r_j conversions at risk at x_j (delay <= x_j <=
age), e_j fell into the cell before it, so the factors

    q_j = F(x_{j-1}) / F(x_j) = (r_j - e_j) / r_j

are the product limit in reversed time (``truncated_delays.py``) of grouped delays, the chain ladder
of actuaries. Alone it says nothing beyond the largest age, and falls to 0 where all at risk have
one delay. So each factor is drawn towards that of a simpler law, which counts for so many
conversions at risk:

    for all together    (r_j - e_j + 1 s_j) / (r_j + 1),    s_j of an exponential law
    for a group g       (r_gj - e_gj + 5 q_j) / (r_gj + 5),    q_j of all together.

That is the posterior mean under independent beta priors of the factors (a beta process in reversed
time). Where nobody is at risk the simpler law is all there is: beyond the largest age the tail is
exponential, the one law with a single parameter that can be told from truncated delays. Its rate
makes what was seen likeliest, with one further conversion in the middle of the window, so that it
is even (uniform) before the first one. A rate below zero, conversions that pile up at the end of
the window, is not taken: a young log cannot tell it from chance.

All of it is sums, products and quotients in a fixed order, so the same conversions give the same
bytes on every machine.

References
----------
T. Mack: Distribution-free calculation of the standard error of chain ladder reserve estimates.
ASTIN Bulletin 1993.
N. Hjort: Nonparametric Bayes estimators based on beta processes in models for life history data.
Annals of Statistics 1990.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from belated.core.arguments import positive, whole, wrong
from belated.core.types import Matrix, Vector
from belated.monitoring.truncated_delays import checked_truncated

CELLS = 64
TO_SIMPLE, TO_ALL = 1.0, 5.0  # conversions at risk that the simpler law counts for
HALVINGS = 60  # of the interval for the ratio of the exponential law


@dataclass(frozen=True)
class DelayLaw:
    """Shares of conversions that come within each cell of the window, one row per group."""

    window: float
    within: Matrix  # (groups + 1, cells + 1), the last row for all together; 0 at 0, 1 at the end
    n: int  # conversions that it was estimated from

    @property
    def log_waiting(self) -> Matrix:
        """log(1 - F) at the ends of cells: 0 for a decision just made, -inf at the window's end."""
        rows = [[math.log1p(-F) if F < 1.0 else -math.inf for F in row] for row in self.within]
        return np.array(rows)

    def cell_of(self, ages: Any) -> Any:
        """Returns the cell up to whose end a decision of each age has waited."""
        return _cells_within(np.asarray(ages, np.float64), self.window, self.within.shape[1] - 1)

    def within_at(self, ages: Any, group: int = -1) -> Vector:
        """Share of conversions that come within the cells before each age."""
        return self.within[group, self.cell_of(ages)]


def delay_law(
    delays: Any,
    ages: Any,
    window: float,
    groups: Any = None,
    n_groups: int = 0,
    cells: int = CELLS,
) -> DelayLaw:
    """Estimates the law from conversions that were seen.

    Parameters
    ----------
    delays, ages
        As in ``truncated_curve``; an age may exceed the window, a delay may not.
    window
        How long a conversion is waited for.
    groups
        For each conversion, the number of its group, from 0; None if there are none.
    n_groups
        The number of groups.
    cells
        Cells of the window.

    Examples
    --------
    >>> law = delay_law([], [], window=4.0, cells=4)    # nothing seen: even over the window
    >>> law.within.round(9).tolist()
    [[0.0, 0.25, 0.5, 0.75, 1.0]]
    """
    late, old = checked_truncated(delays, ages)
    window, cells = positive("window", window), whole("cells", cells, least=2)
    if late.size and late.max() > window:
        raise wrong("delays", float(late.max()), f"at most the window, {window:g}")
    of = np.zeros(late.size, np.int64) if groups is None else np.asarray(groups)
    if of.shape != late.shape or (groups is not None and of.dtype.kind not in "iu"):
        raise wrong("groups", groups, "a whole number for each delay")
    if groups is not None and of.size and not 0 <= of.min() <= of.max() < n_groups:
        raise wrong("groups", int(of.max()), f"numbers from 0 to {n_groups - 1}")
    # the cell of a delay ends no earlier than the delay, that of an age no later than the age
    first = np.maximum(1, np.ceil(late / window * cells)).astype(np.int64)
    last = _cells_within(old, window, cells)
    seen = first <= last
    came, at_risk = _counts(first[seen], last[seen], cells)
    ratios = _drawn(came, at_risk, TO_SIMPLE, _exponential_ratios(came, at_risk))
    rows = []
    for g in range(n_groups):
        mine = seen & (of == g)
        rows.append(_drawn(*_counts(first[mine], last[mine], cells), TO_ALL, ratios))
    return DelayLaw(window, np.array([_law(row) for row in [*rows, ratios]]), late.size)


def _cells_within(ages: Vector, window: float, cells: int) -> Any:
    return np.minimum(np.floor(ages / window * cells), cells).astype(np.int64)


def _counts(first: Any, last: Any, cells: int) -> tuple[Vector, Vector]:
    """Returns e_j and r_j for the cells j = 1, ..., m."""
    came = np.bincount(first, minlength=cells + 1)
    left = np.bincount(last, minlength=cells + 1)
    at_risk = np.cumsum(came) - np.concatenate(([0], np.cumsum(left)[:-1]))
    return came[1:].astype(np.float64), at_risk[1:].astype(np.float64)


def _drawn(came: Vector, at_risk: Vector, worth: float, simple: Vector) -> Vector:
    return (at_risk - came + worth * simple) / (at_risk + worth)


def _law(ratios: Vector) -> Vector:
    """Returns F at 0, x_1, ..., x_m from its factors."""
    return np.concatenate((np.cumprod(ratios[::-1])[::-1], [1.0]))


def _exponential_ratios(came: Vector, at_risk: Vector) -> Vector:
    """Returns the factors of the likeliest law whose cells hold 1, a, a^2, ... for some a <= 1.

    With J the cell of a delay, the likelihood is largest where the sum of all J is what it is
    expected to be, each given that J is no later than the cell of the age. That grows with a.
    """
    m = came.size
    j = np.arange(1.0, m + 1.0)
    ends = at_risk - np.append(at_risk[1:] - came[1:], 0.0)  # conversions whose age ends in cell j
    ends[-1] += 1.0
    total = float(np.cumsum(j * came)[-1]) + 0.5 * (m + 1.0)
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        a = 0.5 * (low + high)
        mass = np.cumprod(np.full(m, a)) / a
        expected = float(np.cumsum(ends * np.cumsum(j * mass) / np.cumsum(mass))[-1])
        if expected < total:
            low = a
        else:
            high = a
    share = np.cumsum(np.cumprod(np.full(m, high)))
    return np.append(0.0, share[:-1]) / share
