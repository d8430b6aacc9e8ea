"""A test of whether delays depend on the reward, which estimates for pending ones cannot bear."""

from typing import Any

import numpy as np

from belated.core.wording import duration
from belated.logs.whole_log import WholeLog
from belated.monitoring.delay_tests import (
    UNLIKELY,
    Difference,
    Truncated,
    by_reward,
    by_size,
)


def late_by_reward(log: WholeLog, window: float | None) -> str:
    """Returns a warning where large rewards come later than small ones, or sooner; else "".

    Rewards of one action are compared, because delays and rewards may both depend on the action.

    Parameters
    ----------
    log
        The log.
    window
        Of a conversion loop, in seconds; None: every decision gets a reward.
    """
    end = np.inf if window is None else window
    came = ~np.isnan(log.reward) & (log.waited <= end)
    if not (~came & (log.age < end)).any():
        return ""  # nothing is pending
    found = {}
    for k, name in enumerate(log.names):
        difference = _compared(log, came, log.action == k, window)
        if difference is not None:
            found[name] = difference
    if not found:
        return ""
    name, largest = min(found.items(), key=lambda one: one[1].p)
    if not largest.matters or len(found) * largest.p >= UNLIKELY:
        return ""
    return _words(name, largest)


def _compared(log: WholeLog, came: Any, own: Any, window: float | None) -> Difference | None:
    """Compares large rewards of an action with its small ones; None where they are too few."""
    if window is None:
        columns = log.waited, came, log.reward, log.decided / 1e6, log.age
        return by_reward(*(column[own] for column in columns))
    use = own & came
    return by_size(Truncated(log.waited[use], np.minimum(log.age[use], window)), log.reward[use])


def _words(name: str, found: Difference) -> str:
    late = found.z > 0.0
    half = ""
    if found.median is not None and found.other is not None:
        half = f" (half within {duration(found.median)} against {duration(found.other)})"
    return (
        f"large rewards of {name} come {'later' if late else 'sooner'} than its small ones{half}, "
        "and nothing below allows for that. What has come is no fair sample of what is pending: "
        f"the answers are too {'low' if late else 'high'}, outside of their intervals, by as much "
        "as the log cannot say. Leave out decisions that are so young that many rewards are "
        "pending."
    )
