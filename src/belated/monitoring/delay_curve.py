"""The Kaplan-Meier curve of the delay: the share of rewards that has come by each age.

A decision whose reward is still missing is not left out, which would make delays look shorter than
they are: it counts as waiting up to its age, and an expired one up to the end of its window.
"""

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from belated.core.arguments import array_of_numbers, probability, wrong
from belated.core.types import Vector


@dataclass(frozen=True)
class DelayCurve:
    """Share of decisions still waiting after each delay at which a reward came.

    Between two of ``times`` the share does not change; before the first it is 1.
    """

    times: Vector  # distinct delays at which rewards came, ascending
    waiting: Vector  # share that waits longer than this
    lower: Vector  # confidence band of ``waiting``
    upper: Vector
    at_risk: Vector  # decisions that waited at least this long
    n_returned: int
    n_censored: int

    def waiting_at(self, delays: Any) -> Vector:
        """Share that waits longer than each of ``delays``."""
        before = np.searchsorted(self.times, np.asarray(delays, np.float64), side="right")
        return np.concatenate(([1.0], self.waiting))[before]

    def quantile(self, share: float) -> float | None:
        """Delay within which at least ``share`` of the rewards come; None if never reached."""
        share = probability("share", share)
        # rounding in the product must not decide whether a half is a half
        reached = np.flatnonzero(self.waiting <= 1.0 - share + 1e-12)
        return float(self.times[reached[0]]) if reached.size else None

    @property
    def median(self) -> float | None:
        """Delay within which half of the rewards come; None if fewer ever came."""
        return self.quantile(0.5)


def checked_delays(delays: Any, returned: Any) -> tuple[Vector, Any]:
    """Delays as floats and the flags as bools, or an error that names what does not fit."""
    times = array_of_numbers("delays", delays)
    flags = np.asarray(returned)
    if flags.size == 0:
        flags = flags.astype(bool)
    if times.ndim != 1:
        raise ValueError(f"delays has shape {times.shape}: expected one dimension")
    if flags.shape != times.shape:
        raise ValueError(f"returned has shape {flags.shape}: expected {times.shape}, as delays")
    if flags.dtype.kind != "b":
        raise wrong("returned", returned, "True or False for each delay")
    bad = np.flatnonzero(~(np.isfinite(times) & (times >= 0.0)))
    if bad.size:
        raise wrong(f"delays[{bad[0]}]", float(times[bad[0]]), "a finite number, 0 or more")
    return times, flags


def delay_curve(delays: Any, returned: Any, confidence: float = 0.95) -> DelayCurve:
    """The Kaplan-Meier estimate, with Greenwood's band on the log(-log) scale.

    Parameters
    ----------
    delays
        For each decision, how long its reward took; where it has not come, how long we waited.
    returned
        For each decision, whether its reward has come.
    confidence
        Level of the pointwise band.

    Examples
    --------
    >>> curve = delay_curve([1.0, 2.0, 3.0, 4.0], [True, True, False, True])
    >>> curve.waiting.tolist()
    [0.75, 0.5, 0.0]
    >>> curve.median
    2.0
    """
    delays, returned = checked_delays(delays, returned)
    confidence = probability("confidence", confidence)
    times, came = np.unique(delays[returned], return_counts=True)
    # a reward that comes at the very age at which another decision is censored comes first
    at_risk = delays.size - np.searchsorted(np.sort(delays), times, side="left").astype(float)
    waiting = np.cumprod(1.0 - came / at_risk) if times.size else np.empty(0)
    lower, upper = greenwood_band(waiting, came, at_risk, confidence)
    return DelayCurve(
        times=times,
        waiting=waiting,
        lower=lower,
        upper=upper,
        at_risk=at_risk,
        n_returned=int(returned.sum()),
        n_censored=int(delays.size - returned.sum()),
    )


def greenwood_band(
    waiting: Vector, came: Any, at_risk: Vector, confidence: float
) -> tuple[Vector, Vector]:
    """Both ends of Greenwood's band on the log(-log) scale, which stays within [0, 1]."""
    z = NormalDist().inv_cdf(0.5 + 0.5 * confidence)
    inside = waiting > 0.0
    log_waiting = np.log(waiting[inside])
    variance = np.cumsum(came[inside] / (at_risk[inside] * (at_risk[inside] - came[inside])))
    spread = np.exp(z * np.sqrt(variance) / -log_waiting)
    lower, upper = np.zeros_like(waiting), np.ones_like(waiting)
    lower[inside], upper[inside] = np.exp(log_waiting * spread), np.exp(log_waiting / spread)
    if not inside.all():  # at zero the formula has no value: the bound before it still holds
        upper[~inside] = upper[inside][-1] if inside.any() else 1.0
    return lower, upper


def thinned(curve: DelayCurve, most: int) -> DelayCurve:
    """The curve at ``most`` of its steps at most, for drawing; the last one is kept."""
    if curve.times.size <= most:
        return curve
    keep = np.unique(np.linspace(0, curve.times.size - 1, most).round().astype(int))
    steps = ("times", "waiting", "lower", "upper", "at_risk")
    return replace(curve, **{name: getattr(curve, name)[keep] for name in steps})
