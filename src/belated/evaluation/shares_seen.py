"""The share of rewards that have come by the age of each decision, estimated from the log itself.

A reward that came is seen only because its delay is no longer than the age of its decision. If
delays do not depend on the reward, given the stratum (the action, say), the probability of that is
F(age), and the reward counts for 1 / F(age) of its kind. F is a product limit, by stratum:

``returned_shares``
    Every decision gets a reward some day, or loses it for ever. F = 1 - S, where S is the
    Kaplan-Meier estimate: pending decisions are censored at their age.
``converted_shares``
    Only conversions report, and F is the law of their delay, which is 1 at the end of the window.
    Their delays are right-truncated by the age, and the product limit runs in reversed time, as in
    ``monitoring/truncated_delays.py``. It knows delays up to the age of the oldest decisions, and
    is 1 there. An action that is younger than the window has no law up to the window: beyond the
    age that 50 of its conversions have reached, its law goes on as that of all actions.

Estimates that use F are as uncertain as F. So both can be computed with a count for each row, as a
bootstrap needs, and both have the derivative of log F by these counts, which is exact: with e
events among r at risk, a factor 1 - e / r changes its logarithm by

    -1 / (r - e) for a row with the event,    + e / (r (r - e)) for a row at risk.

The sum of the squares of such derivatives over rows is Greenwood's variance.

References
----------
J. Robins, A. Rotnitzky: Recovery of information and adjustment for dependent censoring using
surrogate markers. AIDS Epidemiology, 1992: weights 1 / P(seen).
L. Jaeckel: The infinitesimal jackknife. Bell Laboratories, 1972.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from belated.core.types import Integers, Vector

LEAST_SEEN = 0.1  # share below which a weight would be above 10, and a row says next to nothing
OF_ITS_OWN = 50  # rewards of an action that has a law of its own
LEAST_OLD = 10  # conversions whose window is over, to know how many come late


class SharesSeen(Protocol):
    """F at the ages of the decisions that an estimate is made of, and how it follows the rows."""

    def shares(self, counts: Vector) -> Vector:
        """Returns F at each of these ages, with every row of the log counted so many times."""

    def slope(self, pull: Vector) -> Vector:
        """Returns the derivative of ``sum(pull * log(shares))`` by the count of every row."""


class AllSeen(NamedTuple):
    """No reward is pending: every share is 1."""

    n_rows: int
    n_ages: int

    def shares(self, counts: Vector) -> Vector:
        """Returns ones."""
        return np.ones(self.n_ages)

    def slope(self, pull: Vector) -> Vector:
        """Returns zeros."""
        return np.zeros(self.n_rows)


class _ProductLimit(NamedTuple):
    """Rows at risk at the times ``first`` to ``last - 1``, some with an event at ``place``."""

    n_times: int
    has_event: Any
    place: Integers  # of rows with an event
    first: Integers
    last: Integers

    def counted(self, counts: Vector) -> tuple[Vector, Vector]:
        """Returns the events at each time, and the rows at risk."""
        m = self.n_times
        events = _sums(self.place, counts[self.has_event], m)
        entered = _sums(self.first, counts, m + 1)
        left = _sums(self.last, counts, m + 1)
        return events, np.cumsum(entered - left)[:m]

    def factors(self, counts: Vector) -> Vector:
        events, at_risk = self.counted(counts)
        return 1.0 - _ratio(events, at_risk)

    def slope(self, load: Vector) -> Vector:
        """Returns the derivative of ``sum(load * log(factors))`` by the count of every row."""
        events, at_risk = self.counted(np.ones(len(self.first)))
        staying = at_risk - events
        drift = np.append(0.0, np.cumsum(_ratio(load * events, at_risk * staying)))
        result = drift[self.last] - drift[self.first]
        result[self.has_event] -= _ratio(load, staying)[self.place]
        return result


def _sums(places: Integers, values: Vector, n: int) -> Vector:
    """Returns the sum of the values at each of n places."""
    return np.bincount(places, values, n).astype(np.float64)  # of no values it would be integers


def _ratio(above: Vector, below: Vector) -> Vector:
    """Returns the quotients; 0 where nobody is left, which no share that is used rests on."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0.0)


class _Returned:
    """F of one stratum by Kaplan and Meier."""

    def __init__(self, waited: Vector, came: Any, ages: Vector) -> None:
        times, place = np.unique(waited[came], return_inverse=True)
        # a reward that comes at the very age at which another decision is censored comes first
        last = np.searchsorted(times, waited, side="right")
        self.limit = _ProductLimit(len(times), came, place, np.zeros_like(last), last)
        self.until = np.searchsorted(times, ages, side="right")

    def _waiting(self, counts: Vector) -> Vector:
        return np.append(1.0, np.cumprod(self.limit.factors(counts)))[self.until]

    def shares(self, counts: Vector) -> Vector:
        return 1.0 - self._waiting(counts)

    def slope(self, pull: Vector) -> Vector:
        waiting = self._waiting(np.ones(len(self.limit.first)))
        by_log_waiting = -_ratio(pull * waiting, 1.0 - waiting)
        load = _sums(self.until, by_log_waiting, self.limit.n_times + 1)
        return self.limit.slope(_sums_from(load)[1:])


class _Converted:
    """F of one stratum from its conversions, each seen because its delay is within its age."""

    def __init__(self, delays: Vector, ages_of_delays: Vector, ages: Vector) -> None:
        times, place = np.unique(delays, return_inverse=True)
        last = np.searchsorted(times, ages_of_delays, side="right")
        everywhere = np.ones(len(delays), bool)
        self.limit = _ProductLimit(len(times), everywhere, place, place, last)
        self.until = np.searchsorted(times, ages, side="right")

    def shares(self, counts: Vector) -> Vector:
        later = np.cumprod(self.limit.factors(counts)[::-1])[::-1]
        return np.append(later, 1.0)[self.until]

    def slope(self, pull: Vector) -> Vector:
        load = _sums(self.until, pull, self.limit.n_times + 1)
        return self.limit.slope(np.cumsum(load)[:-1])


def _sums_from(values: Vector) -> Vector:
    """Returns for each place the sum of the values from there on."""
    return np.cumsum(values[::-1])[::-1]


class _Part(NamedTuple):
    """A stratum: its law, the rows that this follows, and the ages at which it is asked for."""

    law: _Returned | _Converted
    rows: Integers
    at: Integers


class _ByStratum(NamedTuple):
    """F of every stratum: the product of all laws that are asked for it."""

    parts: Sequence[_Part]
    n_rows: int
    n_ages: int

    def shares(self, counts: Vector) -> Vector:
        result = np.ones(self.n_ages)
        for law, rows, at in self.parts:
            result[at] *= law.shares(counts[rows])
        return result

    def slope(self, pull: Vector) -> Vector:
        result = np.zeros(self.n_rows)
        for law, rows, at in self.parts:
            result[rows] += law.slope(pull[at])
        return result


def returned_shares(
    waited: Vector, came: Any, strata: Integers, ages: Vector, strata_of_ages: Integers
) -> SharesSeen:
    """Returns the shares of rewards that have come, where every decision gets one.

    Parameters
    ----------
    waited
        For each row of the log, how long its reward took; where it has not come, its age.
    came
        For each row, whether its reward has come.
    strata
        For each row, the number of its stratum, from 0; -1 for a row that is too lonely for one,
        whose share is by the law of all rows.
    ages, strata_of_ages
        Ages at which F is asked for, and the stratum of each.

    Examples
    --------
    >>> none = np.zeros(4, int)
    >>> law = returned_shares(
    ...     np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, True, False, True]), none,
    ...     np.array([1.5, 4.0]), none[:2],
    ... )
    >>> law.shares(np.ones(4))
    array([0.25, 1.  ])
    """
    if came.all():
        return AllSeen(len(waited), len(ages))
    lonely = np.arange(len(strata)), np.flatnonzero(strata_of_ages == -1)
    parts = [
        _Part(_Returned(waited[rows], came[rows], ages[at]), rows, at)
        for rows, at in [*_own_strata(strata, strata_of_ages), lonely]
        if at.size
    ]
    return _ByStratum(parts, len(waited), len(ages))


def converted_shares(
    delays: Vector, came: Any, age: Vector, strata: Integers, ages: Vector, strata_of_ages: Integers
) -> SharesSeen:
    """Returns the shares of conversions that have come, where only conversions report.

    Parameters
    ----------
    delays
        For each row of the log, how long its conversion took; not used where none has come.
    age
        For each row, its age, or the window if it is older.
    came, strata, ages, strata_of_ages
        As in ``returned_shares``. F of a stratum is F given its ``known_until``, from its own rows,
        times F of all rows from there on.

    Examples
    --------
    >>> none = np.zeros(3, int)
    >>> law = converted_shares(
    ...     np.array([1.0, 2.0, 3.0]), np.ones(3, bool), np.array([2.5, 4.0, 5.0]), none,
    ...     np.array([1.0, 2.5, 4.0]), none,
    ... )
    >>> law.shares(np.ones(3))    # one of two at risk comes at 3, one of two at 2
    array([0.25, 0.5 , 1.  ])
    """
    parts, later = [], ages.copy()
    for rows, at in _own_strata(strata, strata_of_ages):
        seen = rows[came[rows]]
        end = known_until(age[seen])
        seen = seen[delays[seen] <= end]
        own = _Converted(delays[seen], np.minimum(age[seen], end), np.minimum(ages[at], end))
        parts.append(_Part(own, seen, at))
        later[at] = np.maximum(ages[at], end)
    seen, everywhere = np.flatnonzero(came), np.arange(len(ages))
    parts.append(_Part(_Converted(delays[seen], age[seen], later), seen, everywhere))
    return _ByStratum(parts, len(delays), len(ages))


def known_until(ages: Vector) -> float:
    """Returns up to where conversions of decisions with these ages know the law of the delay.

    >>> known_until(np.repeat([1.0, 4.0, 7.0], [60, 49, 1])), known_until(np.ones(49))
    (4.0, 0.0)
    """
    return float(np.sort(ages)[-OF_ITS_OWN]) if len(ages) >= OF_ITS_OWN else 0.0


def _own_strata(strata: Integers, strata_of_ages: Integers) -> list[tuple[Integers, Integers]]:
    """Returns for each stratum its rows, and the places of the ages it is asked for."""
    own = range(int(strata.max(initial=-1)) + 1)
    return [(np.flatnonzero(strata == k), np.flatnonzero(strata_of_ages == k)) for k in own]


def strata_of(action: Integers, came: Any) -> Integers:
    """Returns the number of each decision's stratum: its action's; -1 where rewards are few.

    >>> strata_of(np.array([0] * 2 + [1] * 60 + [2] * 50), np.ones(112, bool))[[0, 2, 62]].tolist()
    [-1, 0, 1]
    """
    own = np.bincount(action[came], minlength=int(action.max(initial=0)) + 1) >= OF_ITS_OWN
    return np.where(own, np.cumsum(own) - 1, -1)[action]
