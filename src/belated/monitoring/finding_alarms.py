"""The alarms of a bandit, found in its statistics."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from belated.core.types import Integers, Vector
from belated.monitoring import alarms
from belated.monitoring.alarms import Alarm
from belated.monitoring.statistics import DECIDED, LOST, PENDING, RETURNED, Statistics

MICROSECONDS = 1e6
RECENT_HOURS = 24


@dataclass(frozen=True)
class Facts:
    """Facts about a bandit that are not in its log; the numbers are those of this process, now."""

    learns_on_arrival: bool = True  # False for a conversion loop, which waits for the window
    waiting: str = ""  # of a conversion loop that has learnt nothing: what it waits for
    floor: float | None = None  # least probability of an action
    unknown: int = 0  # rewards of the last hour for decisions that do not exist
    conflicts: int = 0  # rewards of the last hour that contradict an earlier one
    late: int = 0  # rewards that came too late to be learnt ...
    rewards: int = 0  # ... of so many
    zeros: Mapping[str, int] = field(default_factory=dict)  # features of the last hour, in words
    retired: Mapping[str, str] = field(default_factory=dict)  # by setting: no registered action
    broken: Mapping[str, str] = field(default_factory=dict)  # assumptions by name, in words
    behind_seconds: float = 0.0
    behind_decisions: int | None = 0  # None: the store does not say


def find_alarms(statistics: Statistics, now_us: int, facts: Facts) -> list[Alarm]:
    """Returns all alarms, the worst first."""
    now = now_us / MICROSECONDS
    last = statistics.last_reward_us
    observed = statistics.followed.observations(now_us)
    found = [
        alarms.rewards_stopped(
            now,
            last / MICROSECONDS if last else None,
            observed,
            *pending_by_age(statistics, now_us),
            decided_since_reward(statistics, now_us),
            usual_gap(statistics, now_us),
        ),
        alarms.delay_depends_on_reward(observed, now) if facts.learns_on_arrival else None,
        alarms.delays_changed(now, observed),
        alarms.rewards_missing(*closed_decisions(statistics, now_us)),
        alarms.rewards_refused(
            facts.unknown, facts.conflicts, _last_hour(statistics, now_us, RETURNED)
        ),
        alarms.rewards_late(facts.late, facts.rewards),
        alarms.features_unmatched(facts.zeros, _last_hour(statistics, now_us, DECIDED)),
        alarms.nothing_learnt_yet(facts.waiting),
        alarms.actions_retired(facts.retired),
        alarms.replica_behind(facts.behind_seconds, facts.behind_decisions),
        alarms.propensity_below_floor(_lowest(statistics, now_us), facts.floor),
        *(alarms.assumption_broken(*broken) for broken in facts.broken.items()),
    ]
    return sorted((alarm for alarm in found if alarm), key=lambda alarm: alarm.severity != "bad")


def pending_by_age(statistics: Statistics, now_us: int) -> tuple[Vector, Vector]:
    """Ages in seconds and how many decisions of that age wait; finer for young ones."""
    fine, coarse = statistics.fine, statistics.coarse
    starts, counts = fine.starts(now_us), fine.until(now_us, PENDING)
    hours, totals = coarse.starts(now_us), coarse.until(now_us, PENDING)
    # the part of each hour that the fine slices do not cover
    inside = np.searchsorted(hours, starts, side="right") - 1
    rest = totals - np.bincount(inside, counts, hours.size).astype(np.int64)
    older = statistics.n_pending - totals.sum()
    middles = np.concatenate((starts + fine.width_us / 2, hours + coarse.width_us / 2))
    ages = np.maximum(now_us - middles, 0.0) / MICROSECONDS
    oldest = coarse.length * coarse.width_us / MICROSECONDS
    all_counts = np.concatenate((counts, rest, [older])).astype(np.float64)
    ages = np.append(ages, oldest)
    return ages[all_counts > 0], all_counts[all_counts > 0]


def decided_since_reward(statistics: Statistics, now_us: int) -> int:
    """Decisions in the slices after that of the last reward."""
    fine, coarse = statistics.fine, statistics.coarse
    within = statistics.last_reward_us >= fine.starts(now_us)[0]
    slices = fine if within else coarse
    after = slices.starts(now_us) > statistics.last_reward_us
    return int(slices.until(now_us, DECIDED)[after].sum())


def usual_gap(statistics: Statistics, now_us: int) -> int:
    """Decisions made between two rewards where that is many: the third longest gap.

    Not the longest: an outage that is over must not hide the next one.
    """
    gaps = []
    for slices in (statistics.fine, statistics.coarse):
        before = slices.starts(now_us) <= statistics.last_reward_us
        silent = slices.until(now_us, RETURNED)[before] == 0
        gaps.append(np.sort(_runs(slices.until(now_us, DECIDED)[before], silent))[-3:][:1].sum())
    return int(max(gaps))


def _runs(counts: Integers, inside: Integers) -> Integers:
    """Sum of the counts of each run of slices that are inside."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], inside, [False])).astype(int)))
    totals = np.concatenate(([0], np.cumsum(counts)))
    return totals[edges[1::2]] - totals[edges[::2]]


def closed_decisions(statistics: Statistics, now_us: int) -> tuple[int, int, int, int]:
    """Lost and all decisions of the last 24 hours that are closed, and of the hours before.

    Hours count by when decisions were made, and only when nothing of them is pending: else quick
    rewards would be counted before slow losses.
    """
    decided, pending, lost = (
        statistics.coarse.until(now_us, kind) for kind in (DECIDED, PENDING, LOST)
    )
    still_open = np.flatnonzero(pending)
    end = int(still_open[0]) if still_open.size else decided.size - 1
    split = max(end - RECENT_HOURS, 0)
    recent, before = slice(split, end), slice(0, split)
    parts = (lost[recent], decided[recent], lost[before], decided[before])
    n_lost, n_decided, lost_before, decided_before = (int(part.sum()) for part in parts)
    return n_lost, n_decided, lost_before, decided_before


def _last_hour(statistics: Statistics, now_us: int, kind: int) -> int:
    """Decisions that were made, or rewards that came, in the last hour."""
    return int(statistics.fine.until(now_us, kind)[-360:].sum())


def _lowest(statistics: Statistics, now_us: int) -> float | None:
    """The lowest propensity of this hour and the one before."""
    hour = now_us // 3_600_000_000
    held = statistics.lowest_propensities
    recent = [held[h] for h in (hour - 1, hour) if h in held]
    return min(recent, default=None)
