"""The law of a log's delays as a file, for ``--delay empirical:FILE``.

The law is a thousand equally likely delays. As far as the curve reaches they are its quantiles;
beyond it, those of the best fit for decisions that have waited that long. What never returns has
no delay: ``never`` says how many of the thousand it is. Of a conversion loop the law is that of
conversions, and all of them return: what does not convert is a failure, not a loss. ``per_day`` is
the number of decisions in a day of the log, by which ``simulate`` turns hours into decisions.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from belated.core.arguments import wrong
from belated.core.types import Vector
from belated.logs.delays import DelayReport, Delays
from belated.monitoring.delay_curve import DelayCurve
from belated.worlds.delays.laws import SECONDS

POINTS = 1000
UNITS = (*SECONDS, "rounds")


def write_law(report: DelayReport, path: str | Path, unit: str = "hours") -> None:
    """Write the law of all decisions of a log.

    Parameters
    ----------
    report
        The answer of ``delay_report``.
    path
        The file, of JSON.
    unit
        Seconds, minutes, hours, days, or ``"rounds"``: decisions of the log, at the rate at which
        it has them. All commands take all of them.
    """
    if unit not in UNITS:
        raise wrong("--law-unit", unit, f"one of {', '.join(UNITS)}")
    if report.all.best is None:
        raise ValueError("--law: no law could be fitted, because no reward has come")
    length = 1.0 / report.per_second if unit == "rounds" else SECONDS[unit]
    delays = law_delays(report.all)
    returning = np.isfinite(delays)
    content: dict[str, Any] = {
        "law": "empirical",
        "unit": unit,
        "per_day": float(f"{86_400.0 * report.per_second:.7g}"),
        "values": [float(f"{delay / length:.7g}") for delay in delays[returning]],
        "never": int((~returning).sum()),
    }
    Path(path).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def law_delays(delays: Delays, points: int = POINTS) -> Vector:
    """Returns equally likely delays in seconds, ascending; infinity for those that never return."""
    law, curve = delays.best, delays.curve
    assert law is not None
    shares = (np.arange(points) + 0.5) / points
    if isinstance(curve, DelayCurve):
        times, within, never = curve.times, 1.0 - curve.waiting, law.never
    else:  # known relative to the largest age, up to which the law says how many come
        reached = float(law.within_at(curve.longest_age))
        times, within, never = curve.times, curve.within * reached, 0.0
    place = np.searchsorted(within, shares)
    known = place < times.size
    result = np.full(points, math.inf)
    result[known] = times[place[known]]
    # of those that wait at the end of the curve, the law says how many come by when
    end, waiting = float(times[-1]), 1.0 - float(within[-1])
    at_end = never + (1.0 - never) * (1.0 - float(law.within_at(end)))
    left = at_end * (1.0 - shares[~known]) / max(waiting, 1e-12)  # share that waits longer by law
    comes = left > never
    beyond = np.full(left.size, math.inf)
    beyond[comes] = law.quantile((1.0 - left[comes]) / (1.0 - never))
    result[~known] = np.maximum(beyond, end)
    return result
