"""The log-rank test: do two groups of decisions wait equally long? Censored delays count, too."""

from typing import Any, NamedTuple

import numpy as np

from belated.core.types import Integers, Vector


class LogRank(NamedTuple):
    """Rewards of a group that came, and how many should have if both groups wait alike."""

    came: Any  # numbers, or one number per group
    expected: Any
    variance: Any

    @property
    def z(self) -> Any:
        """Standard normal if both wait alike; below 0 if the group waits longer."""
        return (self.came - self.expected) / np.sqrt(np.maximum(self.variance, 1e-300))


def log_rank(delays: Vector, returned: Any, in_group: Any, strata: Any = None) -> LogRank:
    """Compare the decisions in a group with the others; ``in_group`` may hold one group per row.

    ``strata`` has a number for each decision: only those of one stratum are compared, so that what
    differs between strata cannot mislead.
    """
    (ranks,), n_ranks = ranks_within(strata, delays)
    order = np.argsort(ranks, kind="stable")
    ranks, returned = ranks[order], returned[order]
    group = np.asarray(in_group)[..., order].astype(np.float64)
    times, came = np.unique(ranks[returned], return_counts=True)
    if not times.size:
        nothing = np.zeros(group.shape[:-1])
        return LogRank(nothing, nothing, nothing)
    first = np.searchsorted(ranks, times, side="left")
    last = np.searchsorted(ranks, (times // n_ranks + 1) * n_ranks, side="left")
    at_risk = (last - first).astype(np.float64)
    share = (count_before(group, last) - count_before(group, first)) / at_risk
    # all that come at one time are drawn from those at risk without replacement
    ties = came * (at_risk - came) / np.maximum(at_risk - 1.0, 1.0)
    return LogRank(
        came=(group * returned).sum(axis=-1),
        expected=share @ came,
        variance=(share * (1.0 - share)) @ ties,
    )


def ranks_within(strata: Any, *columns: Vector) -> tuple[Any, int]:
    """Returns ranks of times, one row per column, and how many each stratum has for itself.

    Those of the stratum k begin at k times that number: all of one stratum are before the next.
    """
    values, ranks = np.unique(np.concatenate(columns), return_inverse=True)
    ranks = ranks.reshape(len(columns), -1).astype(np.int64)
    return ranks if strata is None else ranks + np.asarray(strata) * values.size, values.size


def count_before(group: Any, ends: Integers) -> Any:
    """Returns the numbers of group members among the first few, for each of ``ends``."""
    first = np.zeros((*group.shape[:-1], 1))
    return np.concatenate((first, np.cumsum(group, axis=-1)), axis=-1)[..., ends]
