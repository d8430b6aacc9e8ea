"""``belated delays``: how late the rewards of a log are, and whether that may be taken for granted.

>>> import numpy as np, pandas as pd
>>> rng = np.random.default_rng(1)
>>> decided = 1_700_000_000 + np.arange(5000) * 60.0
>>> late = rng.exponential(7200.0, 5000)
>>> came = decided + late <= decided[-1]
>>> frame = pd.DataFrame({"time": decided, "reward_time": np.where(came, decided + late, np.nan)})
>>> report = delay_report(frame)
>>> report.all.best.law, round(report.all.best.mean / 3600, 1)
('exponential', 2.0)
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import wrong
from belated.core.extras import extra
from belated.core.times import LATEST, SECOND, iso, microseconds
from belated.core.types import Integers, Vector
from belated.ledger.tools.progress import progress
from belated.logs.bad_rows import NO_ROWS, BadRows
from belated.logs.chunks import Chunk, Log, open_log
from belated.logs.from_ledger import loop_of
from belated.logs.log_sample import LogSample, Sampled
from belated.logs.values import PENDING, empty
from belated.monitoring import delay_tests
from belated.monitoring.delay_curve import DelayCurve, delay_curve
from belated.monitoring.delay_fit import DelayFit, all_fits
from belated.monitoring.delay_tests import BLOCKS, Difference
from belated.monitoring.missing_rewards import Period, missing_over_time
from belated.monitoring.truncated_delays import TruncatedCurve, truncated_curve

LOOPS = ("explicit", "conversion")
MOST_GROUPS = 100  # of which each has a curve of its own; the largest ones
MOST_ACTIONS = 12  # whose missing rewards are measured by a law of their own; the largest ones
LEAST_REWARDS = 20  # of a group with a curve
TESTED = 100_000  # rows, of the sample: enough to find what matters
NAMELESS = "(none)"  # the group of rows without one


class Counts(NamedTuple):
    """Numbers of decisions of all rows, not of the sample alone."""

    decisions: int = 0
    returned: int = 0


@dataclass(frozen=True)
class Delays:
    """Delays of a group of decisions: their curve and the laws that were fitted to them."""

    counts: Counts
    curve: DelayCurve | TruncatedCurve
    fits: list[DelayFit]  # the best first

    @property
    def best(self) -> DelayFit | None:
        """Returns the law with the smallest AIC; None where none could be fitted."""
        return self.fits[0] if self.fits else None


@dataclass(frozen=True)
class DelayReport:
    """The answer of ``delay_report``. Delays are in seconds, times in microseconds since 1970."""

    columns: str  # as --map would say them
    unused: list[str]  # columns that were not read
    loop: str
    window: float | None  # seconds
    now: int
    n_rows: int  # that could be used
    n_sampled: int  # that curves, fits and tests are made of
    n_late: int  # rewards after the end of the window, which count as missing
    all: Delays
    has_actions: bool  # whether the log says what was played; else actions are not told apart
    by: str  # what groups are: segment, action or nothing
    groups: Mapping[str, Delays]  # the largest first
    n_small_groups: int  # with too few rewards for a curve
    n_further_groups: int  # with rewards enough, beyond the hundred largest
    tests: Mapping[str, Difference | None]  # by what delays may depend on
    periods: list[Period]  # missing rewards over time, against the best law of each action
    bad: BadRows = field(repr=False)

    @property
    def per_second(self) -> float:
        """Returns how many decisions a second the log has, from its first to its last."""
        first, last = self.periods[0].begin, self.periods[-1].end
        return self.n_rows / max(last - first, 1e-6)


def delay_report(
    source: Any,
    *,
    columns: str = "",
    format: str | None = None,
    bandit: str | None = None,
    loop: str | None = None,
    window: str | float | None = None,
    now: Any = None,
    by: str | None = None,
    bad: Path | None = None,
    strict: bool = False,
) -> DelayReport:
    """Reads a log once and says how late its rewards are.

    Parameters
    ----------
    source, columns, format, bandit
        As in ``open_log``.
    loop
        ``"explicit"`` if every decision gets a reward some day, or loses it: one without is as late
        as it is old. ``"conversion"`` if only conversions report: one without may never convert.
        Default that of the ledger, or explicit.
    window
        How long a reward is waited for: seconds, or a text such as ``"7d"``; later rewards count as
        missing. Default that of the ledger, or none.
    now
        When the log was written; default the latest time in it. What is later is not known yet.
    by
        ``"segment"`` or ``"action"``: a curve and a law for each.
    bad
        A file for the rows that cannot be used; None for none.
    strict
        Whether bad rows are an error.
    """
    with extra("experiments"):
        import pandas  # noqa: F401
        import pyarrow  # noqa: F401
    loop, seconds = loop_of(source, bandit, loop, window)
    if loop not in LOOPS:
        raise wrong("loop", loop, " or ".join(LOOPS))
    if by not in (None, "segment", "action"):
        raise wrong("by", by, "segment or action")
    log = open_log(source, columns=columns, format=format, bandit=bandit)
    if by is not None and by not in log.columns:
        raise wrong("by", by, f"a column of it; say --map {by}=COLUMN")
    bad_rows = BadRows(bad, source)
    rows = _Rows(None if now is None else microseconds("now", now), seconds, by, bad_rows)
    with progress("reading the log", share=log.source.share) as told:
        for chunk in log.chunks(bad_rows, loop=loop):
            rows.add(chunk)
            told(chunk.decided.size)
    if strict or not bad_rows.n_good:
        bad_rows.refuse()
    if not bad_rows.n_good:
        raise ValueError(NO_ROWS)
    with bad_rows.told_in_errors():
        if not rows.counts.decisions:
            raise wrong("--now", now, f"a time after the first decision, {iso(rows.earliest)}")
        return rows.report(log, loop)


class _Rows:
    """Counts of all rows and a sample of them, kept while a log is read."""

    def __init__(self, now: int | None, window: float | None, by: str | None, bad: BadRows) -> None:
        self.now, self.window, self.by, self.bad = now, window, by, bad
        self.latest, self.earliest = 0, int(LATEST)
        self.n_late = 0
        self.counts = Counts()
        self.by_group: dict[str, Counts] = {}
        self.sample = LogSample()

    def add(self, chunk: Chunk) -> None:
        """Take in the rows of a chunk."""
        self.earliest = int(chunk.decided.min(initial=self.earliest))
        if self.now is not None:
            chunk = self._as_of(chunk, self.now)
        if not chunk.decided.size:
            return
        self.latest = max(self.latest, int(chunk.decided.max()), int(chunk.returned.max()))
        if self.window is not None:
            chunk = self._in_time(chunk, self.window)
        self.sample.add(chunk)
        came = chunk.returned != PENDING
        self.counts = _sum(self.counts, came.size, int(came.sum()))
        for name, decisions, returned in self._by_group(chunk, came):
            self.by_group[name] = _sum(self.by_group.get(name, Counts()), decisions, returned)

    def _as_of(self, chunk: Chunk, now: int) -> Chunk:
        """Returns what was known at a time: no later decision, and no later reward."""
        made = chunk.decided <= now
        self.bad.n_after_now += int((~made).sum())
        columns = {
            name: column[made]
            for name, column in chunk._asdict().items()
            if name != "context" and column is not None
        }
        return _without_rewards(chunk._replace(**columns), columns["returned"] > now)

    def _in_time(self, chunk: Chunk, window: float) -> Chunk:
        """Returns the chunk with rewards after the window taken for missing."""
        late = chunk.returned - chunk.decided > window * SECOND
        self.n_late += int(late.sum())
        return _without_rewards(chunk, late)

    def _by_group(self, chunk: Chunk, came: Any) -> Iterator[tuple[str, int, int]]:
        if self.by is None:
            return
        import pandas as pd

        codes, names = pd.factorize(_named(getattr(chunk, self.by)))
        for name, decisions, returned in zip(
            names, np.bincount(codes), np.bincount(codes, came), strict=True
        ):
            yield name, int(decisions), int(returned)

    def report(self, log: Log, loop: str) -> DelayReport:
        """Returns the answer."""
        now = self.latest if self.now is None else self.now
        rows = self.sample.rows()
        sample = _Sample(rows, loop == "conversion", now, self.window)
        everything = sample.delays(slice(None), self.counts)
        best = everything.best
        few = sample.first(TESTED)
        large = [name for name, counts in self._largest() if counts.returned >= LEAST_REWARDS]
        return DelayReport(
            columns=log.spelled,
            unused=log.unused(),
            loop=loop,
            window=self.window,
            now=now,
            n_rows=self.sample.n,
            n_sampled=rows.decided.size,
            n_late=self.n_late,
            all=everything,
            has_actions=rows.action is not None,
            by=self.by or "",
            groups=dict(self._groups(sample, large[:MOST_GROUPS])),
            n_small_groups=len(self.by_group) - len(large),
            n_further_groups=max(0, len(large) - MOST_GROUPS),
            tests=few.tests(),
            periods=few.periods(best) if best is not None else [],
            bad=self.bad,
        )

    def _largest(self) -> list[tuple[str, Counts]]:
        """Returns the groups with their counts, the largest first."""
        return sorted(self.by_group.items(), key=lambda item: (-item[1].decisions, item[0]))

    def _groups(self, sample: "_Sample", names: list[str]) -> Iterator[tuple[str, Delays]]:
        own = _named(getattr(sample.rows, self.by)) if self.by else None
        for name in names:
            yield name, sample.delays(np.flatnonzero(own == name), self.by_group[name])


def _sum(counts: Counts, decisions: int, returned: int) -> Counts:
    return Counts(counts.decisions + decisions, counts.returned + returned)


def _without_rewards(chunk: Chunk, missing: Any) -> Chunk:
    """Returns a chunk in which the rewards of some decisions have not come."""
    return chunk._replace(
        returned=np.where(missing, PENDING, chunk.returned),
        reward=np.where(missing, np.nan, chunk.reward),
    )


def _named(names: Any) -> Any:
    """Returns names of groups, with a name for rows that have none."""
    return np.where(empty(names), NAMELESS, names)


class _Sample:
    """Sampled rows with their delays and ages, in seconds."""

    def __init__(self, rows: Sampled, is_conversion: bool, now: int, window: float | None) -> None:
        self.rows, self.is_conversion, self.now, self.window = rows, is_conversion, now, window
        self.returned = rows.returned != PENDING
        self.age = _in_seconds(now - rows.decided)
        waited = self.age if window is None else np.minimum(self.age, window)
        late = _in_seconds(rows.returned - rows.decided)
        self.delay = np.where(self.returned, late, waited)  # until the reward, or until now
        self.reach = np.maximum(waited, self.delay)  # the longest delay that could have been seen

    def first(self, n: int) -> "_Sample":
        """Returns every so many-th row, n at most."""
        every = max(1, -(-self.rows.decided.size // n))
        return _Sample(
            self.rows.only(slice(None, None, every)), self.is_conversion, self.now, self.window
        )

    def delays(self, use: Any, counts: Counts) -> Delays:
        """Returns curve and fits of some rows."""
        delay, returned = self.delay[use], self.returned[use]
        curve: DelayCurve | TruncatedCurve
        if self.is_conversion:
            curve = truncated_curve(delay[returned], self.reach[use][returned])
        else:
            curve = delay_curve(delay, returned)
        return Delays(counts, curve, self._fits(use))

    def _fits(self, use: Any) -> list[DelayFit]:
        never = (True,) if self.is_conversion else (False, True)
        return all_fits(self.delay[use], self.returned[use], never=never)

    def tests(self) -> dict[str, Difference | None]:
        """Returns what delays depend on, by name.

        Decisions of one action are compared. Actions are compared within blocks of time, so that a
        drift of all of them is not taken for a difference between those of then and those of now.
        """
        rows, came = self.rows, self.returned
        use: Any = came if self.is_conversion else slice(None)
        decided, actions = rows.decided[use] / SECOND, self._actions()[use]
        delays: delay_tests.Censored | delay_tests.Truncated
        if self.is_conversion:
            delays = delay_tests.Truncated(self.delay[came], self.reach[came], actions)
            by_reward = delay_tests.by_size(delays, rows.reward[came])
        else:
            delays = delay_tests.Censored(self.delay, came, actions)
            columns = self.delay, came, rows.reward, decided, self.age, actions
            by_reward = delay_tests.by_reward(*columns)
        found = {"reward": by_reward}
        blocks = delay_tests.blocks_of_time(decided)
        for name, strata in (("action", blocks), ("segment", actions * BLOCKS + blocks)):
            groups = getattr(rows, name)
            if groups is not None:
                within = delays._replace(strata=strata)
                found[name] = delay_tests.by_group(within, _named(groups[use]))
        return found | {"time": delay_tests.by_time(delays, decided)}

    def _actions(self) -> Integers:
        """Returns the number of each row's action, from 0; 0 for all where the log has none."""
        if self.rows.action is None:
            return np.zeros(self.delay.size, np.int64)
        import pandas as pd

        return pd.factorize(_named(self.rows.action))[0]

    def periods(self, law: DelayFit) -> list[Period]:
        """Returns the missing rewards over time, against the law of each action.

        The largest actions have laws of their own, all others one together. ``law`` is for those
        for which none can be fitted.
        """
        waiting = law.waiting_at(self.reach)
        of_action = delay_tests.rows_by_stratum(self._actions())
        largest = sorted(of_action, key=lambda rows: -rows.size)
        others = largest[MOST_ACTIONS:]
        for rows in [*largest[:MOST_ACTIONS], *([np.concatenate(others)] if others else [])]:
            if len(of_action) > 1 and self.returned[rows].sum() >= LEAST_REWARDS:
                best = self._fits(rows)[0]
                waiting[rows] = best.waiting_at(self.reach[rows])
        return missing_over_time(self.rows.decided / SECOND, ~self.returned, waiting)


def _in_seconds(times: Integers) -> Vector:
    return np.asarray(times / SECOND, np.float64)
