"""A bandit against its holdout, in reward per decision, while rewards are pending.

Both groups are estimated alike: a reward that has come counts for 1 / F(age) of its kind, where F
is the share of rewards that are seen at that age (``shares_seen.py``). F is estimated for each
group by itself, and in it by action. The bandit plays other actions than the baseline, so its
rewards may come sooner or later, and whoever compares the rewards that are there finds the faster
group better: the trap of the faster arm. Decisions so young that less than a tenth is seen, of
some action in some group, are left out on both sides, with all that are as young.

Of several rewards of one decision each has a delay of its own. In a conversion loop each is a term
of the mean, with the law of the first, the second ... reward of its action. Where every decision
gets a reward, nobody knows how many more come, and only decisions count whose window is over.

The unit that is assigned to a group is the subject, so the standard error is that of sums over
subjects: decisions of one subject need not be independent. The interval is valid at all looks
together (``anytime.py``). Where rewards are all alike, its length is that for subjects of equal
weight, as many as Kish's effective number.

References
----------
K. Liang, S. Zeger: Longitudinal data analysis using generalized linear models. Biometrika 1986
(standard errors by cluster).
L. Kish: Survey sampling. 1965 (the effective number of rows with unequal weights).
"""

from typing import Any, NamedTuple

import numpy as np

from belated.core.types import Integers, Vector
from belated.evaluation.anytime import Known, difference_interval
from belated.evaluation.confidence import slopes, standard_error
from belated.evaluation.off_policy import (
    conversion_rewards,
    estimate,
    explicit_rewards,
    self_normalised,
)
from belated.evaluation.shares_seen import (
    LEAST_OLD,
    LEAST_SEEN,
    OF_ITS_OWN,
    SharesSeen,
    converted_shares,
    returned_shares,
    strata_of,
)


class Decisions(NamedTuple):
    """The decisions of both groups, one element each.

    A further reward of a decision is an element of its own, see ``lift``.
    """

    held_out: Any
    action: Integers  # numbers from 0
    subject: Integers  # numbers from 0; one of its own for a decision without a subject
    age: Vector  # in seconds
    waited: Vector  # seconds until the reward was known; the age where it is not
    reward: Vector  # NaN where none has come


class Group(NamedTuple):
    """One side of the comparison."""

    name: str
    decisions: int
    pending: int  # decisions whose reward may still come
    too_young: int  # decisions that are left out of the estimate
    rewards: int  # that came, of the others
    mean: float | None  # reward per decision; None: too early to tell


class Lift(NamedTuple):
    """The bandit against its holdout."""

    groups: tuple[Group, Group]
    difference: float | None = None  # in reward per decision; None: too early to tell
    low: float | None = None
    high: float | None = None
    reason: str = ""  # why there is no estimate


ALL_ALIKE = (
    "all that came is alike in both groups, and nobody knows by how much the next may differ"
)


def lift(
    log: Decisions,
    *,
    conversions: bool,
    window: float | None = None,
    level: float = 0.95,
    range: float | None = None,
    place: Integers | None = None,
    closed_only: bool = False,
) -> Lift:
    """Returns the difference in reward per decision, with an interval that is valid at any time.

    Parameters
    ----------
    log
        The decisions.
    conversions
        Whether only conversions report, and silence is a 0 when the window closes. Else every
        decision gets a reward some day, or loses it for ever.
    window
        Seconds after which no reward comes; None: one may always come.
    level
        Of the interval.
    range
        By how much two rewards can differ; None: nobody knows.
    place
        For each element, 0 for a decision with its first reward, if any, and 1, 2, ... for a
        further reward of a decision; only of conversions. None: all are 0.
    closed_only
        Whether only decisions count whose window is over.
    """
    place = np.zeros(len(log.age), int) if place is None else place
    end = np.inf if window is None else window
    bandit, holdout = (
        _Side(
            name, Decisions(*(column[mine] for column in log)), place[mine], conversions, end, range
        )
        for name, mine in (("bandit", ~log.held_out), ("holdout", log.held_out))
    )
    until = max(bandit.too_young_until(), holdout.too_young_until())
    if closed_only:
        until = float(np.nextafter(end, 0.0))
    groups = bandit.group(until), holdout.group(until)
    reason = bandit.reason(groups[0]) or holdout.reason(groups[1])
    if reason:
        return Lift(groups, reason=reason)
    first, second = bandit.mean(until), holdout.mean(until)
    means = groups[0]._replace(mean=first.value), groups[1]._replace(mean=second.value)
    ends = difference_interval(first, second, level)
    if ends is None:
        return Lift(means, reason=ALL_ALIKE)
    return Lift(means, first.value - second.value, *ends)


class _Side:
    """The decisions of one group; the law of their delays is estimated from this group alone."""

    def __init__(
        self,
        name: str,
        log: Decisions,
        place: Integers,
        conversions: bool,
        end: float,
        range: float | None,
    ) -> None:
        self.name, self.log, self.conversions, self.end = name, log, conversions, end
        self.range, self.is_decision = range, place == 0
        self.came = ~np.isnan(log.reward) & (log.waited <= end)
        self.age = np.minimum(log.age, end)
        kinds = np.unique(np.stack([log.action, place]), axis=1, return_inverse=True)[1]
        self.strata = strata_of(kinds.ravel(), self.came)
        self.ones = np.ones(len(self.age))

    def law_at(self, rows: Integers) -> SharesSeen:
        """Returns the law of the delays, at the ages of these rows."""
        asked = self.age[rows], self.strata[rows]
        if self.conversions:
            return converted_shares(self.log.waited, self.came, self.age, self.strata, *asked)
        return returned_shares(self.log.waited, self.came, self.strata, *asked)

    def too_young_until(self) -> float:
        """Returns the largest age at which too little is seen of some action's rewards."""
        shares = self.law_at(np.arange(len(self.age))).shares(self.ones)
        return float(self.age[shares < LEAST_SEEN].max(initial=-1.0))

    def group(self, until: float) -> Group:
        """Returns what the group consists of, without its mean reward."""
        old = self.age > until
        return Group(
            self.name,
            int(self.is_decision.sum()),
            int((~self.came & (self.log.age < self.end)).sum()),
            int((~old & self.is_decision).sum()),
            int((self.came & old & self.is_decision).sum()),
            None,
        )

    def reason(self, group: Group) -> str:
        """Says why the mean reward cannot be estimated yet; "" if it can."""
        if self.conversions and self.age.max(initial=0.0) < self.end:
            return f"no window of the {self.name} is over: nobody knows how many convert late"
        n_old = int((self.came & (self.age >= self.end)).sum())
        if self.conversions and n_old < LEAST_OLD:
            return (
                f"the {self.name} has {n_old} conversions whose window is over, and {LEAST_OLD} "
                "are needed to know how many come late"
            )
        if group.rewards < OF_ITS_OWN:
            return (
                f"the {self.name} has {group.rewards} rewards of decisions that are old enough, "
                f"and {OF_ITS_OWN} are needed"
            )
        return ""

    def mean(self, until: float) -> Known:
        """Returns the mean reward of decisions older than ``until``."""
        used = np.flatnonzero(self.age > until)
        law, reward = self.law_at(used), np.where(self.came, self.log.reward, np.nan)[used]
        weighted = conversion_rewards if self.conversions else explicit_rewards
        shares = law.shares(self.ones)
        is_decision = self.is_decision[used].astype(np.float64)
        each_once = self_normalised(np.ones(len(used)))._replace(size_counted=is_decision)
        found = estimate(each_once, weighted(reward, shares))
        by_subject = np.bincount(self.log.subject, slopes(found, law, used)).astype(np.float64)
        n = len(np.unique(self.log.subject))
        # Silence says the more of a conversion, the more of them are seen at its age.
        said = shares if self.conversions else ~np.isnan(reward) / shares
        weight = np.bincount(self.log.subject[used], said * is_decision)
        effective = float(weight.sum() ** 2 / (weight @ weight))
        return Known(found.value, standard_error(by_subject), n, self.range, effective)
