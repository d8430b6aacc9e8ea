"""Alarms: each says in words what is wrong with a bandit that runs.

Each alarm looks at numbers and answers with a sentence, or with None. Those that test a hypothesis
(rewards stopped, delays changed, delay depends on reward, rewards missing) ask for an effect worth
a sentence *and* for a z or a probability so extreme that a healthy loop shows it in fewer than one
look in a thousand; ``tests/monitoring/test_alarms.py`` simulates healthy loops and counts.
"""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from belated.core.types import Vector
from belated.core.wording import about, counted, duration, grown, moment, percent
from belated.monitoring.delay_curve import delay_curve
from belated.monitoring.delay_tests import by_reward
from belated.monitoring.log_rank import log_rank
from belated.monitoring.observations import Observations


class Alarm(NamedTuple):
    """Something that a person should look at."""

    key: str
    severity: Literal["warn", "bad"]
    sentence: str


LEAST_RETURNED = 20  # rewards, in each group that is looked at: fewer say little

LEAST_SILENCE = 30.0  # seconds: shorter ones are not worth a sentence
UNUSUAL_GAP = 2.0  # times the usual number of decisions between two rewards
IMPROBABLE = 1e-6


def rewards_stopped(
    now: float,
    last_reward: float | None,
    observed: Observations,
    pending_ages: Vector,
    pending_counts: Vector,
    decided_since: int,
    usual_gap: int,
) -> Alarm | None:
    """Raised when rewards stopped: by the delays seen before, some should have come.

    Rewards that are sent in bundles leave gaps in which many are due: a gap counts only if more
    decisions were made in it than in the usual one (``usual_gap``), twice over.
    """
    if last_reward is None or now - last_reward < LEAST_SILENCE:
        return None
    before = observed.as_of(last_reward)
    curve = delay_curve(before.delay, before.returned)
    if curve.n_returned < LEAST_RETURNED:
        return None
    waiting_then = curve.waiting_at(np.maximum(pending_ages - (now - last_reward), 0.0))
    waiting_now = curve.waiting_at(pending_ages)
    chance = 1.0 - waiting_now / np.maximum(waiting_then, 1e-12)
    due = float(chance @ pending_counts)
    log_probability = float(np.log1p(-np.minimum(chance, 1.0 - 1e-12)) @ pending_counts)
    if log_probability > math.log(IMPROBABLE) or decided_since <= UNUSUAL_GAP * usual_gap:
        return None
    silence = duration(now - last_reward)
    return Alarm(
        "rewards-stopped",
        "bad",
        f"Rewards stopped {silence} ago: {about(due)} should have come since then.",
    )


SPLITS = 32
CHANGE_Z = 4.75  # one-sided 1e-6, times 32 places where the change may be
CHANGE_RATIO = 1.5
QUANTILES = (("half", 0.5), ("a quarter", 0.25), ("a tenth", 0.1), ("1 %", 0.01), ("some", 1e-9))


def delays_changed(now: float, observed: Observations) -> Alarm | None:
    """Decisions since some time wait longer than those before of the same actions."""
    if observed.delay.size < 2 * LEAST_RETURNED:
        return None
    splits = np.unique(np.quantile(observed.decided, np.linspace(0.05, 0.98, SPLITS)))
    after = observed.decided >= splits[:, np.newaxis]
    test = log_rank(observed.delay, observed.returned, after, observed.action)
    before = observed.returned.sum() - test.came
    z = np.where(np.minimum(test.came, before) >= LEAST_RETURNED, test.z, 0.0)
    best = int(np.argmin(z))
    if z[best] > -CHANGE_Z:
        return None
    recent, earlier = (
        delay_curve(observed.delay[group], observed.returned[group])
        for group in (after[best], ~after[best])
    )
    share = 1.0 - float(max(recent.waiting[-1], earlier.waiting[-1]))  # that both have reached
    name, level = next((n, level) for n, level in QUANTILES if level <= share)
    new, old = recent.quantile(level), earlier.quantile(level)
    if new is None or old is None or new < CHANGE_RATIO * old:
        return None
    since = moment(float(splits[best]), now)
    return Alarm(
        "delays-changed",
        "warn",
        f"Delays have {grown(new / old) if old else 'grown'} since {since}: {name} of the rewards "
        f"come within {duration(new)}, before within {duration(old)}.",
    )


DEPENDENCE_Z = 4.5
DEPENDENCE_RATIO = 1.25


def delay_depends_on_reward(observed: Observations, now: float) -> Alarm | None:
    """High rewards of an action come sooner, or later, than its low ones; see ``by_reward``."""
    found = by_reward(
        observed.delay,
        observed.returned,
        observed.reward,
        observed.decided,
        now - observed.decided,
        observed.action,
    )
    if found is None or found.median is None or found.other is None:
        return None
    slow, fast = max(found.median, found.other), min(found.median, found.other)
    if abs(found.z) < DEPENDENCE_Z or slow < DEPENDENCE_RATIO * fast:
        return None
    sooner, later = ("High", "low") if found.z < 0 else ("Low", "high")
    return Alarm(
        "delay-depends-on-reward",
        "bad",
        f"Delay depends on reward: the guarantee does not hold. {sooner} rewards come after "
        f"{duration(fast)}, {later} ones after {duration(slow)} (medians).",
    )


MISSING_Z = 4.5


def rewards_missing(lost: int, closed: int, lost_before: int, closed_before: int) -> Alarm | None:
    """More decisions got no reward within their window than of the decisions before these."""
    if not closed or not closed_before:
        return None
    usual, share = lost_before / closed_before, lost / closed
    # a share known from few decisions is itself uncertain
    n = 1.0 / (1.0 / closed + 1.0 / closed_before)
    pooled = (lost + lost_before) / (closed + closed_before)
    spread = math.sqrt(max(pooled * (1.0 - pooled), 1.0 / closed) / n)
    if share - usual < MISSING_Z * spread or share - usual < max(0.01, 0.2 * usual):
        return None
    return Alarm(
        "rewards-missing",
        "bad" if share > 0.5 > usual else "warn",
        f"{percent(share)} of decisions never got a reward within the window, expected "
        f"{percent(usual)}.",
    )


LEAST_REFUSED = 10


def rewards_refused(unknown: int, conflicts: int, rewards: int) -> Alarm | None:
    """Callers send rewards that cannot be used; all three numbers are of the last hour."""
    refused = unknown + conflicts
    share = refused / max(refused + rewards, 1)
    if refused < LEAST_REFUSED or share < 0.01:
        return None
    kinds = [
        f"{n:,} {what}"
        for n, what in ((unknown, "for an unknown decision"), (conflicts, "conflicting"))
        if n
    ]
    return Alarm(
        "rewards-refused",
        "bad" if share > 0.2 else "warn",
        f"Rewards come back that cannot be used: {' and '.join(kinds)} in the last hour "
        f"({percent(share)} of all).",
    )


SHARE_LATE = 0.1


def rewards_late(late: int, rewards: int) -> Alarm | None:
    """Many rewards come after their window has closed, and are kept in the log only."""
    share = late / max(rewards, 1)
    if late < LEAST_RETURNED or share < SHARE_LATE:
        return None
    return Alarm(
        "rewards-late",
        "bad" if share > 3.0 * SHARE_LATE else "warn",
        f"{percent(share)} of all rewards came after their window had closed and are not learnt: "
        "the window is too short (belated retrain --window changes it).",
    )


def nothing_learnt_yet(waiting: str) -> Alarm | None:
    """A conversion loop has learnt nothing yet; ``waiting`` says what it waits for."""
    if not waiting:
        return None
    return Alarm(
        "nothing-learnt-yet",
        "warn",
        f"Nothing has been learnt yet: {waiting}. Until something is, every action is drawn with "
        "the same probability.",
    )


def assumption_broken(name: str, words: str) -> Alarm:
    """The rewards speak against an assumption of the policy or the family."""
    return Alarm(f"assumption-{name}", "bad", words)


MOST_NAMED = 3  # findings in a sentence


def features_unmatched(zeros: Mapping[str, int], decisions: int) -> Alarm | None:
    """Parts of actions and contexts become zeros because no feature stands for them.

    Parameters
    ----------
    zeros
        In how many decisions of the last hour each was met, the most frequent first.
    decisions
        All decisions of the last hour.
    """
    if not zeros:
        return None
    named = [f"{what} ({counted(n, 'decision')})" for what, n in zeros.items()]
    more = f"; and {len(named) - MOST_NAMED:,} more" if len(named) > MOST_NAMED else ""
    return Alarm(
        "features-unmatched",
        "bad" if max(zeros.values()) > 0.2 * max(decisions, 1) else "warn",
        f"Features became zeros in the last hour: {'; '.join(named[:MOST_NAMED])}{more}. Correct "
        "what is sent, add the category to the bandit's features, or list the key in ignore or "
        "the column in optional.",
    )


def actions_retired(names: Mapping[str, str]) -> Alarm | None:
    """Settings name actions that are not registered (any more): by setting, the action."""
    if not names:
        return None
    listed = " and ".join(f"{setting} = {name!r}" for setting, name in names.items())
    return Alarm(
        "action-not-registered",
        "warn",
        f"{listed}: no action of this name is registered. Register it, or change the setting.",
    )


def replica_behind(seconds: float, decisions: int | None, limit: float = 10.0) -> Alarm | None:
    """The process has not read the end of the log; ``decisions`` is None where nobody can tell."""
    if seconds <= limit:
        return None
    unseen = "" if decisions is None else f", {counted(decisions, 'decision')} it has not seen"
    return Alarm(
        "replica-behind",
        "bad" if seconds > 10.0 * limit else "warn",
        f"This replica is {duration(seconds)} behind the log{unseen}.",
    )


def propensity_below_floor(lowest: float | None, floor: float | None) -> Alarm | None:
    """An action was played with a smaller chance than the floor promises."""
    if lowest is None or floor is None or lowest >= floor * (1.0 - 1e-9):
        return None
    return Alarm(
        "propensity-below-floor",
        "warn",
        f"An action was played with probability {lowest:.2g}, below the floor of {floor:.2g}: "
        "estimates for other policies will be poor.",
    )
