"""Tests whether delays of conversions drift, or depend on the reward; what then follows.

Silence is judged by one law of the delay for each action (``delay_law.py``). That is wrong where
recent conversions come later, or sooner, than those before, or large ones than small ones. Both are
tested by the log-rank test in reversed time (``truncated_delays.py``): of the e_j conversions whose
delay falls into a cell, as many should be of a part as its share of the r_j at risk says. Only
conversions of one action are compared, and the sums of all actions are judged: an action that is
played more than before cannot mislead. One step from equality, Peto's estimate, says by which
factor the hazards of the two parts differ in reversed time:

    log factor = (came - expected) / variance.

A doubt asks for a factor worth a sentence *and* for a difference that chance does not make. Where
few conversions are compared z is far from normal. But given what happened at longer delays, the
number of a part in a cell is hypergeometric, so by Bennett's inequality a difference of D or more
has probability at most

    exp(-variance h(D / variance)),        h(u) = (1 + u) log(1 + u) - u,

about exp(-z^2 / 2) where the variance is large. A hundred windows have 400 looks at some ten
comparisons, so that fewer than one log in a thousand is accused without a reason.
``tests/monitoring/test_delay_doubts.py`` simulates such logs and counts.

Conversions are often handed in in bundles, every night, say: their delay then depends on the time
of day at which the decision was made. So a drift is looked for in parts of whole days (or windows,
where they are shorter), and with ages in whole days.

While there is a doubt, open decisions are held, with their conversions. A drift is over when a
whole window has passed since it began and the conversions since then show none: all decisions that
were made before it are closed by then, and the law is estimated from those after it. A dependence
on the size is over when a look no longer finds it.

References
----------
S. Lagakos, L. Barraj, V. De Gruttola: Nonparametric analysis of truncated survival data, with
application to AIDS. Biometrika 1988.
D. Freedman: On tail probabilities for martingales. Annals of Probability 1975.
R. Peto and others: Design and analysis of randomized clinical trials requiring prolonged
observation of each patient, part II. British Journal of Cancer 1977.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.events import Broken
from belated.core.times import DAY, utc
from belated.core.types import Integers, Vector
from belated.monitoring.delay_law import CELLS, cells_of_ages, counts_of_cells
from belated.monitoring.log_rank import LogRank

LOOKS = 4  # in a window
LEAST = 20  # conversions, in each part that is compared
IMPROBABLE = 1e-7  # the bound on the probability of a difference that is not chance
FACTOR = 1.25  # between hazards in reversed time, worth a sentence
NAME_THEM = (
    " Or delays differ by action, and slow ones are played more, or less, than before: the actions "
    "had no names to tell. Pass names= to decide; over HTTP, actions with ids in place of a matrix."
)


class Seen(NamedTuple):
    """Conversions that were seen, in the order of their decisions."""

    rows: Integers  # of the decisions
    delays: Integers  # cells, from 1
    ages: Integers  # cells, none below the one of the delay
    groups: Integers  # numbers of the actions
    times: Integers  # of the decisions, in microseconds
    rewards: Vector

    def only(self, use: Integers) -> "Seen":
        """Returns some of the conversions."""
        columns: Any = self
        return Seen(*(column[use] for column in columns))


def log_rank_of_cells(seen: Seen, in_part: Integers) -> LogRank:
    """Compares a part of the conversions with the others, within each action."""
    n = 1 + int(seen.groups.max(initial=0))
    counts = counts_of_cells(seen.delays, seen.ages, 2 * seen.groups + in_part, 2 * n, CELLS)
    (came, at_risk), own = (count[0::2] + count[1::2] for count in counts), counts[1][1::2]
    share = own / np.maximum(at_risk, 1.0)
    # all of one cell are drawn from those at risk without replacement
    ties = came * (at_risk - came) / np.maximum(at_risk - 1.0, 1.0)
    sums = (counts[0][1::2], share * came, share * (1.0 - share) * ties)
    # in a fixed order, so that the same log gives the same bytes on every machine
    return LogRank(*(float(np.cumsum(part)[-1]) for part in sums))


def is_doubtful(test: LogRank) -> bool:
    """True where the two parts differ by more than chance, and by enough to matter."""
    if test.variance <= 0.0:
        return False
    u = abs(test.came - test.expected) / test.variance
    log_probability = -test.variance * ((1.0 + u) * math.log1p(u) - u)
    return bool(u >= math.log(FACTOR) and log_probability <= math.log(IMPROBABLE))


class Drift(NamedTuple):
    """Conversions of recent decisions come later, or sooner, than those before."""

    row: int  # of the first of these decisions
    since: int  # the beginning of the part that is compared, in microseconds
    test: LogRank  # of the recent ones


def drift(seen: Seen, window: int, now: int) -> Drift | None:
    """Compares decisions of the last 1, 2, 3, 4, 6, 9 ... whole days with those before."""
    span = min(window, DAY)
    whole_days = ((now - seen.times) // span * span).astype(np.float64)
    ages = np.minimum(cells_of_ages(whole_days, float(window), CELLS), seen.ages)
    old = seen._replace(ages=ages).only(np.flatnonzero(seen.delays <= ages))
    found, days = None, 1
    while len(old.times) and now - int(old.times[0]) >= (2 * days + 1) * span:
        since = now - (days + 1) * span
        recent = old.times >= since
        if min(recent.sum(), (~recent).sum()) >= LEAST:
            test = log_rank_of_cells(old, recent.astype(np.int64))
            if is_doubtful(test) and (found is None or abs(test.z) > abs(found.test.z)):
                found = Drift(int(old.rows[np.argmax(recent)]), since, test)
        days += max(1, days // 2)
    return found


def by_size(seen: Seen) -> LogRank | None:
    """Compares large rewards with small ones; None where they do not differ, or are too few."""
    if not len(seen.rewards):
        return None
    middle = float(np.median(seen.rewards))
    large = seen.rewards > middle if (seen.rewards > middle).any() else seen.rewards >= middle
    if min(large.sum(), (~large).sum()) < LEAST:
        return None
    test = log_rank_of_cells(seen, large.astype(np.int64))
    return test if is_doubtful(test) else None


class Doubts:
    """The findings of the looks at a log; see the module.

    Parameters
    ----------
    window
        How long a conversion is waited for, in microseconds.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.looked = -1  # the number of the quarter of a window in which the last look was taken
        self.first = 0  # the row from which on delays have one law, as far as is known
        self.since: int | None = None  # when the last drift began
        self.drifts = ""  # "later" or "sooner", while decisions are held for a drift
        self.by_size = ""  # the same of large rewards, while decisions are held for that

    def begins(self, now: int) -> bool:
        """Returns whether a look is due."""
        return now * LOOKS // self.window > self.looked

    def look(self, seen: Seen, now: int) -> None:
        """Look at the conversions from row ``first`` on."""
        self.looked = now * LOOKS // self.window
        found, size = drift(seen, self.window, now), by_size(seen)
        self.by_size = "" if size is None else _word(size)
        if found is not None:
            self.first, self.since, self.drifts = found.row, found.since, _word(found.test)
        elif self.since is not None and now - self.since >= self.window:
            self.drifts = ""

    @property
    def hold(self) -> bool:
        """True while open decisions count for nothing."""
        return bool(self.drifts or self.by_size)

    def listed(self, unnamed: bool = False) -> list[Broken]:
        """Returns the doubts there are.

        ``unnamed`` says whether actions had no names: those that are slow are then not told apart.
        """
        held = "Open decisions count for nothing, and are learnt when their window closes"
        doubts = []
        if self.drifts:
            assert self.since is not None
            until = f"not before {utc(self.since + self.window)}"
            sentence = (
                "Delays are taken not to change with time; conversions of decisions made since "
                f"{utc(self.since)} come {self.drifts} than those before."
            )
            change = f"{held}, until delays are steady again for a window: {until}."
            change += NAME_THEM if unnamed else ""
            doubts.append(Broken("delay-drift", sentence, change))
        if self.by_size:
            sentence = (
                "Delays are taken not to depend on the size of the reward; large rewards come "
                f"{self.by_size} than small ones."
            )
            change = f"{held}, as with open = 'hold'."
            doubts.append(Broken("delay-size", sentence, change))
        return doubts

    def header(self) -> dict[str, Any]:
        """Returns the state, as JSON can hold it."""
        return {name: value for name, value in vars(self).items() if name != "window"}

    def restore(self, header: dict[str, Any]) -> None:
        """Go on with the state of ``header``."""
        vars(self).update(header)


def _word(test: LogRank) -> str:
    return "later" if test.z > 0.0 else "sooner"
