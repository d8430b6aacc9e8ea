"""The log-rank test: do two groups of decisions wait equally long? Censored delays count, too."""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.types import Vector


class LogRank(NamedTuple):
    """Rewards of a group that came, and how many should have if both groups wait alike."""

    came: Any  # numbers, or one number per group
    expected: Any
    variance: Any

    @property
    def z(self) -> Any:
        """Standard normal if both wait alike; below 0 if the group waits longer."""
        return (self.came - self.expected) / np.sqrt(np.maximum(self.variance, 1e-300))


def log_rank(delays: Vector, returned: Any, in_group: Any) -> LogRank:
    """Compare the decisions in a group with the others; ``in_group`` may hold one group per row."""
    order = np.argsort(delays, kind="stable")
    delays, returned = delays[order], returned[order]
    group = np.asarray(in_group)[..., order].astype(np.float64)
    times, came = np.unique(delays[returned], return_counts=True)
    if not times.size:
        nothing = np.zeros(group.shape[:-1])
        return LogRank(nothing, nothing, nothing)
    first = np.searchsorted(delays, times, side="left")
    at_risk = (delays.size - first).astype(np.float64)
    share = np.cumsum(group[..., ::-1], axis=-1)[..., ::-1][..., first] / at_risk
    # all that come at one time are drawn from those at risk without replacement
    ties = came * (at_risk - came) / np.maximum(at_risk - 1.0, 1.0)
    return LogRank(
        came=(group * returned).sum(axis=-1),
        expected=share @ came,
        variance=(share * (1.0 - share)) @ ties,
    )


def stratified_log_rank(delays: Vector, returned: Any, in_group: Any, strata: Any) -> LogRank:
    """Compare only within strata, so that what differs between strata cannot mislead."""
    parts = [
        log_rank(delays[strata == s], returned[strata == s], in_group[strata == s])
        for s in np.unique(strata)
    ]
    came, expected, variance = (math.fsum(column) for column in zip(*parts, strict=True))
    return LogRank(came, expected, variance)
