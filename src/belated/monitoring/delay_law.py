"""The law of the delay that silence is judged by: how much of what converts has done so by an age.

The window is cut into cells that end at x_j = window (j / m)^2, short ones first: most conversions
come early. A conversion counts by the cell of its delay, rounded up, and of its decision's age,
rounded down; F(window) is 1, because later conversions do not count, and within a cell F is
linear. Of the r_j conversions at risk at x_j (delay <= x_j <=
age), e_j fell into the cell before it, so the factors

    q_j = F(x_{j-1}) / F(x_j) = (r_j - e_j) / r_j

are the product limit in reversed time (``truncated_delays.py``) of grouped delays, the chain ladder
of actuaries. Alone it says nothing beyond the largest age, and falls to 0 where all at risk have
one delay. So each factor is drawn towards that of a simpler law, which counts for so many
conversions at risk:

    for all together    (r_j - e_j + 1 s_j) / (r_j + 1),    s_j of an exponential law
    for a group g       (r_gj - e_gj + 5 q_j) / (r_gj + 5),    q_j of all together.

That is the posterior mean under independent beta priors of the factors (a beta process in reversed
time), in which log q_j has about the variance (1 - q_j) / (q_j (n + 1)), with n what counts at
risk: r_j + 1, or r_gj + 5. Where nobody is at risk the simpler law is all there is: beyond the
largest age the tail is exponential, the one law with a single parameter that can be told from
truncated delays. Its rate makes what was seen likeliest, with one further conversion spread over
the window, so that it is even (uniform) before the first one. A rate below zero, conversions that
pile up at the end of the window, is not taken: a young log cannot tell it from chance.

All of it is sums, products and quotients in a fixed order, so the same conversions give the same
bytes on every machine.

References
----------
T. Mack: Distribution-free calculation of the standard error of chain ladder reserve estimates.
ASTIN Bulletin 1993.
N. Hjort: Nonparametric Bayes estimators based on beta processes in models for life history data.
Annals of Statistics 1990.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from belated.core.arguments import positive, whole, wrong
from belated.core.types import Matrix, Vector
from belated.monitoring.truncated_delays import checked_truncated

CELLS = 64
TO_SIMPLE, TO_ALL = 1.0, 5.0  # conversions at risk that the simpler law counts for
HALVINGS = 60  # of the interval for the parameter of the exponential law
EVEN = 1.0 - 1e-9  # its largest value, at which the law is even but for rounding


@dataclass(frozen=True)
class DelayLaw:
    """Shares of conversions that come by the end of each cell of the window, one row per group."""

    window: float
    within: Matrix  # (groups + 1, cells + 1), the last row for all together; 0 at 0, 1 at the end
    variance: (
        Matrix  # (groups + 1, cells) of the logarithms of the factors; 0 for that of the first
    )
    n: int  # conversions that it was estimated from

    def within_at(self, ages: Any, groups: Any = -1) -> Vector:
        """Share of conversions that come within each age; -1 stands for all groups together."""
        cells = self.within.shape[1] - 1
        share = np.minimum(np.asarray(ages, np.float64) / self.window, 1.0)
        j = np.minimum(np.floor(cells * np.sqrt(share)), cells - 1.0)
        into = np.clip((share * cells**2 - j * j) / (2.0 * j + 1.0), 0.0, 1.0)
        cell = j.astype(np.int64)
        below, above = self.within[groups, cell], self.within[groups, cell + 1]
        return below + into * (above - below)


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
    >>> law.within.round(4).tolist()
    [[0.0, 0.0625, 0.25, 0.5625, 1.0]]
    >>> law.within_at([1.0, 3.0]).round(4).tolist()
    [0.25, 0.75]
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
    first, last = cells_of_delays(late, window, cells), cells_of_ages(old, window, cells)
    return law_of_cells(window, first, last, of, n_groups, cells)


def cells_of_delays(delays: Any, window: float, cells: int) -> Any:
    """Returns the cell of each delay, from 1: it ends no earlier than the delay."""
    return np.maximum(1, np.ceil(cells * np.sqrt(delays / window))).astype(np.int64)


def cells_of_ages(ages: Any, window: float, cells: int) -> Any:
    """Returns the cell of each age, from 0: it ends no later than the age, or with the window."""
    return np.minimum(np.floor(cells * np.sqrt(ages / window)), cells).astype(np.int64)


def law_of_cells(
    window: float, delays: Any, ages: Any, groups: Any, n_groups: int, cells: int = CELLS
) -> DelayLaw:
    """Returns the law from the cells of delays and ages."""
    seen = delays <= ages  # the others have come before a decision of their age was looked at
    first, last, of = delays[seen], ages[seen], groups[seen]
    came, at_risk = counts_of_cells(first, last, np.zeros(len(of), np.int64), 1, cells)
    factors = _drawn(came, at_risk, TO_SIMPLE, _exponential_ratios(came[0], at_risk[0]))
    n = at_risk + TO_SIMPLE
    if n_groups:
        came, at_risk = counts_of_cells(first, last, of, n_groups, cells)
        factors = np.concatenate((_drawn(came, at_risk, TO_ALL, factors), factors))
        n = np.concatenate((at_risk + TO_ALL, n))
    within = np.cumprod(factors[:, ::-1], axis=1)[:, ::-1]  # F(x_{j-1}), the product from j on
    within = np.concatenate((within, np.ones((len(factors), 1))), axis=1)
    variance = (1.0 - factors) / (np.where(factors > 0.0, factors, np.inf) * (n + 1.0))
    return DelayLaw(window, within, variance, len(delays))


def counts_of_cells(first: Any, last: Any, of: Any, n: int, cells: int) -> tuple[Matrix, Matrix]:
    """Returns e_j and r_j for the cells j = 1, ..., m, one row per group; all ages reach delays."""
    width = cells + 1
    came = np.bincount(of * width + first, minlength=n * width).reshape(n, width)
    left = np.bincount(of * width + last, minlength=n * width).reshape(n, width)
    at_risk = np.cumsum(came, axis=1) - np.cumsum(left, axis=1) + left
    return came[:, 1:].astype(np.float64), at_risk[:, 1:].astype(np.float64)


def _drawn(came: Matrix, at_risk: Matrix, worth: float, simple: Any) -> Any:
    return (at_risk - came + worth * simple) / (at_risk + worth)


def _exponential_ratios(came: Vector, at_risk: Vector) -> Vector:
    """Returns the factors of the likeliest law with F(x_j) proportional to 1 - a^(j^2), a < 1.

    That is an exponential law cut at the window. Its log-likelihood, the sum of (r_j - e_j) log
    F(x_{j-1}) + e_j log(F(x_j) - F(x_{j-1})) - r_j log F(x_j), has one maximum in a, between whose
    bounds the sign of its slope decides. One further conversion is spread evenly over the window.
    """
    m = came.size
    j = np.arange(1.0, m + 1.0)
    squares, steps = j * j, 2.0 * j - 1.0
    came, at_risk = came + steps / m**2, at_risk + squares / m**2
    low, high = 0.0, EVEN
    for _ in range(HALVINGS):
        a = 0.5 * (low + high)
        short, long = _powers(a, m)
        in_step, in_all = steps * short / (1.0 - short), squares * long / (1.0 - long)
        slope = came * (squares - steps - in_step) + at_risk * in_all
        slope[1:] -= (at_risk - came)[1:] * in_all[:-1]
        if float(np.cumsum(slope)[-1]) > 0.0:
            low = a
        else:
            high = a
    share = 1.0 - _powers(high, m)[1]
    return np.append(0.0, share[:-1]) / share


def _powers(a: float, m: int) -> tuple[Vector, Vector]:
    """Returns a^(2 j - 1) and a^(j^2) for j = 1, ..., m, by products alone."""
    short: Any = np.cumprod(np.append(a, np.full(m - 1, a * a)))
    return short, np.cumprod(short)
