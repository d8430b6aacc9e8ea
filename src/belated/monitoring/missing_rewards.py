"""Missing rewards over time: as many as the law of the delay says, or more?"""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.types import Vector

PERIODS = 12
UNLIKELY_Z = 4.5  # of one period among a dozen
LEAST_EXCESS = 0.02  # of the decisions of a period, worth a sentence


class Period(NamedTuple):
    """Decisions of some time, and their rewards that have not come."""

    begin: float  # seconds since 1970
    end: float
    decisions: int
    missing: int
    expected: float  # missing by the law, at the decisions' ages
    z: float  # standard normal, or nearly so, if the law holds

    @property
    def is_odd(self) -> bool:
        """True where far more, or fewer, are missing than chance would have it."""
        excess = abs(self.missing - self.expected) / self.decisions
        return abs(self.z) > UNLIKELY_Z and excess > LEAST_EXCESS


def missing_over_time(decided: Vector, missing: Any, waiting: Vector) -> list[Period]:
    """Returns periods of equally many decisions.

    Parameters
    ----------
    decided
        When each decision was made, in seconds since 1970.
    missing
        Whether its reward has not come.
    waiting
        The probability of that by the law.

    Examples
    --------
    >>> (period,) = missing_over_time(np.zeros(100), np.arange(100) < 60, np.full(100, 0.5))
    >>> period.missing, period.expected, round(period.z, 1)
    (60, 50.0, 2.0)
    """
    order = np.argsort(decided, kind="stable")
    # decisions of one moment are of one period
    starts = np.unique(
        np.searchsorted(decided[order], np.quantile(decided, np.arange(PERIODS) / PERIODS))
    )
    periods = []
    for rows in np.split(order, starts[1:]):
        n_missing, expected = int(missing[rows].sum()), float(waiting[rows].sum())
        variance = float((waiting[rows] * (1.0 - waiting[rows])).sum())
        z = (n_missing - expected) / math.sqrt(max(variance, 1e-12))
        first, last = float(decided[rows[0]]), float(decided[rows[-1]])
        periods.append(Period(first, last, rows.size, n_missing, expected, z))
    return periods
