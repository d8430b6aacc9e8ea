"""The answer of ``GET /v1/dashboard``: the numbers of one bandit, small enough to poll.

Times are in seconds since 1970, durations in seconds, shares between 0 and 1. Lists of one message
that belong together have equal lengths, a few hundred at most.
"""

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from belated.core.ranking import IntervalKind, RankedAction
from belated.monitoring.finding_alarms import Facts


class Rates(msgspec.Struct):
    """Decisions and rewards a second, in the half minutes of the last half hour."""

    times: list[float]  # when each half minute began
    decisions: list[float]
    rewards: list[float]


class PendingBar(msgspec.Struct):
    """Waiting decisions, those whose reward may still come, by age."""

    age: str  # such as "1 to 10 minutes"
    count: int


class DelayView(msgspec.Struct):
    """Share of decisions whose reward has returned within a delay (Kaplan-Meier)."""

    times: list[float]  # delays; at each of them the curve takes a step
    returned: list[float]
    lower: list[float]  # 95 % confidence band
    upper: list[float]
    fit: list[float] | None  # the fitted law at the same delays
    law: str | None  # the fitted law in words
    median: float | None  # None: fewer than half have returned
    within_90: float | None  # delay within which 90 % return
    n_returned: int  # decisions of the sample that the curve is made of
    n_waiting: int  # decisions of the sample whose reward may still come
    n_closed: int = 0  # decisions of the sample that expired or were cancelled without a reward


class ActionBar(msgspec.Struct):
    """One action: how often it is played, and what it earns."""

    name: str
    decisions: int
    share: float
    rewards: int  # of its decisions, how many have a known reward
    mean: float | None  # of those rewards


class RewardView(msgspec.Struct):
    """Cumulative reward, against what the baseline action would have earned."""

    times: list[float]
    total: list[float]
    baseline: list[float] | None  # None where there is none, see ``note``
    lower: list[float] | None  # 95 % confidence band of the baseline
    upper: list[float] | None
    note: str  # how to read it, or why there is no baseline


class WidthView(msgspec.Struct):
    """Mean width of the confidence interval of the played action."""

    times: list[float]
    width: list[float]


class BestView(msgspec.Struct):
    """The card that says which action is best, and how sure that is."""

    verdict: str = ""
    kind: IntervalKind = "posterior"
    level: float | None = None
    actions: list[RankedAction] = []  # the best first
    note: str = ""  # in which context, which actions are left out, or why there is no ranking


class AlarmView(msgspec.Struct):
    """Something that a person should look at."""

    key: str
    severity: Literal["warn", "bad"]
    sentence: str


class BanditView(msgspec.Struct):
    """One bandit as the page shows it."""

    name: str
    policy: str
    loop: Literal["explicit", "conversion"]
    decisions: int
    rewards: int  # that came in time
    missing: int  # waiting: their reward may still come
    expired: int
    late: int  # rewards that came after their window
    decisions_a_second: float  # in the last minute
    rewards_a_second: float
    last_reward: float | None
    model_version: int  # events that the model has taken in
    behind_seconds: float  # staleness: what of the log the model has not seen
    behind_decisions: int | None  # null: the store does not say
    alarms: list[AlarmView]
    rates: Rates
    pending: list[PendingBar]
    delay: DelayView
    actions: list[ActionBar]  # the dozen played most, then all others as one
    reward: RewardView
    width: WidthView
    best: BestView
    holdout: float  # share of subjects that get the baseline


class Dashboard(msgspec.Struct):
    """The answer: all names, and the bandit that was asked for (the first, if none was)."""

    time: float  # of the server
    bandits: list[str]
    bandit: BanditView | None  # None: there is no bandit yet


@dataclass(frozen=True)
class BanditFacts:
    """Facts that the service has on a bandit beside its statistics."""

    name: str
    policy: str = ""
    model_version: int = 0
    baseline: str | None = None  # name of the baseline action
    default_reward: float | None = None  # of a decision that expired; None: it has no reward
    facts: Facts = field(default_factory=Facts)
    best: BestView = field(default_factory=BestView)
    holdout: float = 0.0
