"""Tests of what is taken for granted about delays: that they depend on nothing but chance.

Each test compares groups of decisions by the log-rank test: in ordinary time where every decision
gets a reward some day (``log_rank.py``), in reversed time where only conversions report
(``truncated_delays.py``). Peto's estimate, one step from equality, says by which factor the hazards
differ: log factor = (came - expected) / variance. Where the largest of several differences is
judged, its probability is multiplied by their number (Bonferroni).

Delays may differ by action, and actions in what they earn and in when they are played. So each test
compares within strata: decisions of one action, say, or of about the same time.
"""

import math
from statistics import NormalDist
from typing import Any, NamedTuple, Protocol

import numpy as np

from belated.core.types import Integers, Vector
from belated.monitoring.delay_curve import delay_curve
from belated.monitoring.log_rank import LogRank, log_rank
from belated.monitoring.truncated_delays import truncated_curve, truncated_log_rank

LEAST = 20  # rewards, in each group that is compared
LEAST_VARIANCE = 0.25 * LEAST  # of a comparison: that of as many rewards, half of them of the group
SPLITS = 32  # places at which delays may have changed
MOST_GROUPS = 20  # the most frequent ones are compared
BLOCKS = 8  # of time, within which groups, and large and small rewards, are compared
UNLIKELY = 0.001  # a difference is called one where chance makes it more rarely
FACTOR = 1.1  # and where hazards differ by this much


class Delays(Protocol):
    """Delays of which groups can be compared."""

    def compare(self, in_group: Any) -> LogRank:
        """Compares a group with the others; a z above 0 says that the group comes *later*."""

    def median(self, in_group: Any) -> float | None:
        """Returns the delay within which half of the group's rewards come, if it is known."""

    def rewards(self, in_group: Any) -> Any:
        """Returns how many rewards of the group have come."""


class Censored(NamedTuple):
    """Delays of decisions that all get a reward; ages of those that wait."""

    delay: Vector
    returned: Any
    strata: Any = None  # a number for each; None: all may be compared

    def compare(self, in_group: Any) -> LogRank:
        """Compares a group with the others; a z above 0 says that the group comes *later*."""
        found = log_rank(self.delay, self.returned, in_group, self.strata)
        return LogRank(found.expected, found.came, found.variance)

    def median(self, in_group: Any) -> float | None:
        """Returns the delay within which half of the group's rewards come, if it is known."""
        return delay_curve(self.delay[in_group], self.returned[in_group]).median

    def rewards(self, in_group: Any) -> Any:
        """Returns how many rewards of the group have come."""
        return (np.asarray(in_group) & self.returned).sum(axis=-1)


class Truncated(NamedTuple):
    """Delays of conversions, which are seen only if they are early, and ages of their decisions."""

    delay: Vector
    age: Vector
    strata: Any = None  # a number for each; None: all may be compared

    def compare(self, in_group: Any) -> LogRank:
        """Compares a group with the others; a z above 0 says that the group comes *later*."""
        return truncated_log_rank(self.delay, self.age, in_group, self.strata)

    def median(self, in_group: Any) -> float | None:
        """Returns the delay within which half of the group's rewards come, if it is known."""
        return truncated_curve(self.delay[in_group], self.age[in_group]).quantile(0.5)

    def rewards(self, in_group: Any) -> Any:
        """Returns how many rewards of the group have come."""
        return np.asarray(in_group).sum(axis=-1)


class Difference(NamedTuple):
    """Two groups of decisions, and how their delays differ."""

    name: str  # of the group
    z: float  # above 0 if the group comes later
    p: float  # the probability of such a difference, or a larger one, if there is none
    factor: float  # between the hazards, 1 or more
    median: float | None  # delay of the group
    other: float | None  # delay of the others

    @property
    def matters(self) -> bool:
        """True where chance does not make the difference, and it is worth a sentence."""
        return self.p < UNLIKELY and self.factor >= FACTOR


def by_time(delays: Delays, decided: Vector) -> Difference | None:
    """Compares the decisions since some time with those before; the name is that time."""
    if not decided.size:
        return None
    splits = np.unique(np.quantile(decided, np.linspace(0.05, 0.95, SPLITS)))
    after = [decided >= split for split in splits]
    return _largest(delays, [repr(float(split)) for split in splits], after)


def by_group(delays: Delays, groups: Any) -> Difference | None:
    """Compares each of the most frequent groups with all others."""
    names, counts = np.unique(groups, return_counts=True)
    names = names[np.argsort(-counts, kind="stable")][:MOST_GROUPS]
    return _largest(delays, [str(name) for name in names], [groups == name for name in names])


def _largest(delays: Delays, names: list[str], groups: list[Any]) -> Difference | None:
    """Returns the largest difference between a group and the others; None if all are too small."""
    large = [
        (name, group)
        for name, group in zip(names, groups, strict=True)
        if min(delays.rewards(group), delays.rewards(~group)) >= LEAST
    ]
    if not large:
        return None
    test = delays.compare(np.array([group for _, group in large]))
    told = test.variance >= LEAST_VARIANCE
    if not told.any():
        return None
    best = int(np.argmax(np.where(told, np.abs(test.z), -1.0)))
    name, group = large[best]
    one = LogRank(*(float(part[best]) for part in test))
    return _difference(name, one, int(told.sum()), delays.median(group), delays.median(~group))


def _difference(
    name: str, test: LogRank, looks: int, median: float | None, other: float | None
) -> Difference:
    z = float(test.z)
    p = min(1.0, 2.0 * looks * NormalDist().cdf(-abs(z)))
    log_factor = abs(test.came - test.expected) / max(test.variance, 1e-300)
    return Difference(name, z, p, math.exp(min(log_factor, 50.0)), median, other)


def blocks_of_time(decided: Vector) -> Integers:
    """Returns the number of each decision's block, of decisions made at about the same time."""
    if not decided.size:
        return np.zeros(0, np.int64)
    edges = np.quantile(decided, np.linspace(0.0, 1.0, BLOCKS + 1)[1:-1])
    return np.searchsorted(edges, decided, side="right")


def by_reward(
    delay: Vector,
    returned: Any,
    reward: Vector,
    decided: Vector,
    age: Vector,
    strata: Any = None,
) -> Difference | None:
    """Compares rewards above the middle with the others, where every decision gets a reward.

    Only rewards that came can be compared. Of young decisions only the quick ones have come, so
    if rewards drift, young and old would differ for that reason alone: the test looks at decisions
    old enough for 95 % of the rewards that came, at delays up to that age, and compares within
    blocks of decisions made at about the same time, and within strata.
    """
    if not returned.any():
        return None
    enough = float(np.quantile(delay[returned], 0.95))
    use = returned & (age >= enough)
    of = None if strata is None else strata[use]
    high, blocks, late = large_rewards(reward[use], of), blocks_of_time(decided[use]), delay[use]
    within = blocks if of is None else of * BLOCKS + blocks
    delays = Censored(np.minimum(late, enough), late <= enough, within)
    found = _largest(delays, ["large rewards"], [high])
    if found is None:
        return None
    return found._replace(median=float(np.median(late[high])), other=float(np.median(late[~high])))


def by_size(delays: Truncated, reward: Vector) -> Difference | None:
    """Compares conversions worth more than the middle with the others."""
    return _largest(delays, ["large rewards"], [large_rewards(reward, delays.strata)])


def large_rewards(reward: Vector, strata: Any = None) -> Any:
    """Returns which rewards are above the median of their stratum, or at it if none is above."""
    if strata is not None:
        large = np.empty(reward.size, bool)
        for rows in rows_by_stratum(strata):
            large[rows] = large_rewards(reward[rows])
        return large
    middle = float(np.median(reward)) if reward.size else 0.0
    return reward > middle if (reward > middle).any() else reward >= middle


def rows_by_stratum(strata: Integers) -> list[Integers]:
    """Returns the rows of each stratum, in the order of their numbers."""
    order = np.argsort(strata, kind="stable")
    return np.split(order, 1 + np.flatnonzero(np.diff(strata[order])))
