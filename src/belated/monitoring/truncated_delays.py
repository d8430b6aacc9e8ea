"""Estimates the delay of conversions from those that are seen only because they are early.

Of a loop where only conversions report, nobody knows which of the silent decisions will still
convert. The delays at hand are *right-truncated*: each is no longer than the age of its decision,
so delays look shorter than they are, the more so the younger the log. The likelihood of what is
seen is the product of f(delay) / F(age).

Read from the largest age downwards it is an ordinary survival problem: a conversion enters at its
age and leaves at its delay. With distinct delays x_1 < ... < x_m, e_i conversions of delay x_i and
r_i conversions at risk (delay <= x_i <= age), the likelihood is largest where

    F(x_{i-1}) = F(x_i) (1 - e_i / r_i),        F(x_m) = F(largest age).

F is thus known relative to its value at the largest age, and not beyond. Given the conversions at
risk, e_i is binomial, and the factors are uncorrelated, so Greenwood's formula gives the variance

    var log F(x) = sum over x_i > x of e_i / (r_i (r_i - e_i)).

References
----------
S. Lagakos, L. Barraj, V. De Gruttola: Nonparametric analysis of truncated survival data, with
application to AIDS. Biometrika 1988.
J. Kalbfleisch, J. Lawless: Inference based on retrospective ascertainment. JASA 1989.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from belated.core.arguments import array_of_numbers, probability, wrong
from belated.core.types import Vector
from belated.monitoring.delay_curve import greenwood_band
from belated.monitoring.log_rank import LogRank, count_before, ranks_within


@dataclass(frozen=True)
class TruncatedCurve:
    """Share of conversions that come within each delay, of those within the largest age.

    Between two of ``times`` the share does not change; before the first it is 0.
    """

    times: Vector  # distinct delays of conversions, ascending
    within: Vector  # F(x_i) / F(largest age)
    lower: Vector  # pointwise confidence band of ``within``
    upper: Vector
    at_risk: Vector  # conversions with this delay or less, of decisions at least this old
    longest_age: float
    n: int

    def within_at(self, delays: Any) -> Vector:
        """Share of conversions that come within each of ``delays``."""
        return _step(self.times, self.within, delays)

    def quantile(self, share: float) -> float | None:
        """Delay within which at least ``share`` of them come; None where none was seen."""
        share = probability("share", share)
        reached = np.flatnonzero(self.within >= share - 1e-12)
        return float(self.times[reached[0]]) if reached.size else None

    def band_at(self, delays: Any) -> tuple[Vector, Vector]:
        """Both ends of the band of ``within_at``."""
        return _step(self.times, self.lower, delays), _step(self.times, self.upper, delays)


def _step(times: Vector, values: Vector, at: Any) -> Vector:
    before = np.searchsorted(times, np.asarray(at, np.float64), side="right")
    return np.concatenate(([0.0], values))[before]


def checked_truncated(delays: Any, ages: Any) -> tuple[Vector, Vector]:
    """Delays and ages as floats, or an error that names what does not fit."""
    late, old = array_of_numbers("delays", delays), array_of_numbers("ages", ages)
    if late.ndim != 1:
        raise ValueError(f"delays has shape {late.shape}: expected one dimension")
    if old.shape != late.shape:
        raise ValueError(f"ages has shape {old.shape}: expected {late.shape}, as delays")
    for name, values in (("delays", late), ("ages", old)):
        bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0.0)))
        if bad.size:
            raise wrong(f"{name}[{bad[0]}]", float(values[bad[0]]), "a finite number, 0 or more")
    bad = np.flatnonzero(late > old)
    if bad.size:
        expected = f"at most the age of its decision, {float(old[bad[0]]):g}"
        raise wrong(f"delays[{bad[0]}]", float(late[bad[0]]), expected)
    return late, old


def truncated_curve(delays: Any, ages: Any, confidence: float = 0.95) -> TruncatedCurve:
    """The product limit in reversed time, with Greenwood's band on the log(-log) scale.

    Where all conversions at risk have the same delay, nothing is known of shorter ones: F is 0
    there, and the band reaches up to its value above.

    Parameters
    ----------
    delays
        For each conversion that was seen, how long after its decision it came.
    ages
        For each of them, how old its decision is now: the delay with which it could have been seen.
    confidence
        Level of the pointwise band.

    Examples
    --------
    >>> curve = truncated_curve([1.0, 2.0, 3.0], [2.5, 4.0, 5.0])
    >>> curve.within.tolist()    # one of two at risk comes at 3, one of two at 2
    [0.25, 0.5, 1.0]
    """
    late, old = checked_truncated(delays, ages)
    confidence = probability("confidence", confidence)
    if not late.size:
        nothing = np.empty(0)
        return TruncatedCurve(nothing, nothing, nothing, nothing, nothing, 0.0, 0)
    times, came = np.unique(late, return_counts=True)
    at_risk = _at_risk(np.sort(late), np.sort(old), times)
    staying = np.asarray(1.0 - came / at_risk, np.float64)
    below: Any = np.cumprod(staying[::-1])  # F(x_{m-1}), ..., F(x_1), F(x_0) = 0
    lower, upper = greenwood_band(below, came[::-1], at_risk[::-1], confidence)
    return TruncatedCurve(
        times=times,
        within=_upwards(below),
        lower=_upwards(lower),
        upper=_upwards(upper),
        at_risk=at_risk,
        longest_age=float(old.max()),
        n=late.size,
    )


def _at_risk(late: Vector, old: Vector, times: Vector) -> Vector:
    """Returns, for each time x, the number of conversions with delay <= x <= age.

    Conversions of decisions that are younger than x have a smaller delay, too.
    """
    young = np.searchsorted(old, times, side="left")
    return (np.searchsorted(late, times, side="right") - young).astype(np.float64)


def _upwards(below: Vector) -> Vector:
    return np.concatenate((below[-2::-1], [1.0]))


def truncated_log_rank(delays: Any, ages: Any, in_group: Any, strata: Any = None) -> LogRank:
    """Compare the conversions of a group with the others; ``in_group`` may hold a group per row.

    The log-rank test in reversed time. Below the largest delays, as many of the e_i conversions of
    delay x_i should be of the group as its share of those at risk says. Its z is standard normal
    if both come equally late, and above 0 if the group comes *later*: in reversed time it is the
    late ones that come first. One F for all of G groups is refused at the level alpha where a
    |z| exceeds the quantile of alpha / G. Only conversions of one stratum are compared: of the
    strata before, all are younger than x and have a smaller delay.
    """
    late, old = ranks_within(strata, *checked_truncated(delays, ages))[0]
    group = np.asarray(in_group).astype(np.float64)
    times, came = np.unique(late, return_counts=True)
    if not times.size:
        nothing = np.zeros(group.shape[:-1])
        return LogRank(nothing, nothing, nothing)
    by_delay, by_age = np.argsort(late, kind="stable"), np.argsort(old, kind="stable")
    at_risk = _at_risk(late[by_delay], old[by_age], times)
    seen = count_before(group[..., by_delay], np.searchsorted(late[by_delay], times, "right"))
    young = count_before(group[..., by_age], np.searchsorted(old[by_age], times, "left"))
    share = (seen - young) / at_risk
    # all of one delay are drawn from those at risk without replacement
    ties = came * (at_risk - came) / np.maximum(at_risk - 1.0, 1.0)
    return LogRank(
        came=group.sum(axis=-1),
        expected=(share * came).sum(axis=-1),
        variance=(share * (1.0 - share) * ties).sum(axis=-1),
    )
