"""Learning from silence: what a conversion loop takes in before its windows close, and when.

Nothing is learnt between two ticks. At a tick the rewards that have come since the last one and
the ages of all open decisions are taken in together: to learn conversions on arrival and let the
others wait would overstate the rate of whatever is new. A tick begins with a decision, before that
is recorded: with the first one in another 64th of the window, and sooner where enough decisions
were made since the last tick that making the estimate anew costs each of them little. Where nobody
has decided for a 64th of the window, as after a campaign, ticks begin at ends of transactions: when
the time since the latest decision has doubled, and when a sixteenth of the rewards and closed
windows is new. Whoever closes windows then writes a QUIET event, so that time passes in the log. A
tick also begins when no decision is open any more. So the estimate depends on the log alone, and
once all windows are closed it is the ordinary one.

How late conversions come is estimated anew at every tick, by action (``monitoring/delay_law.py``);
actions without names are one group: the rows of the next decision may come in another order.
A conversion counts by when it was handed in: that is what ended the silence. Where delays drift, or
depend on the size of the reward (``monitoring/delay_doubts.py``), open decisions are held instead,
and so are their conversions. Each decision costs three bytes.

After a promotion to another window each decision still closes, and is judged, by its own: one that
closed after W without a conversion says nothing of delays beyond W, and while it is open it counts
for the share F(age) / F(W) of a failure.
"""

from array import array
from bisect import bisect_right
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import numpy as np

from belated.core.events import Broken
from belated.core.types import Integers
from belated.learner.heard_law import HeardLaw
from belated.learner.learner import Learner
from belated.model.steps import LEARN, REVISE
from belated.monitoring.delay_doubts import Doubts, Seen
from belated.monitoring.delay_law import (
    CELLS,
    DelayLaw,
    cells_of_ages,
    cells_of_delays,
    law_of_cells,
)

TICKS = 64  # in a window
SHARE = 32  # a tick begins when one in so many open decisions is new, ...
LEAST = 16  # ... but not before so many, ...
PER_FEATURE = 4  # ... nor before the number of features divided by this, ...
OF_ALL = 512  # ... nor before one in so many of all decisions: the estimate is made of all of them
NEWS = 16  # where nobody decides, a tick begins when one in so many rewards is new
MOST_GROUPS = 1_024  # actions with a law of their own; all further ones share the last
UNNAMED = ""  # the group of all actions without names: a row number is no identity
NEVER = 255  # the code of a decision that was cancelled


class Hearing:
    """The silence of one bandit's decisions, row by row of the history.

    Parameters
    ----------
    window
        How long a conversion is waited for, grace included, in microseconds: that of the settings.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        # The cell of the delay of a conversion, from 1; 0 where none has come; or NEVER.
        self.codes = bytearray()
        # Where windows of decisions change, as promotions change them: the row, and the window from
        # there on. Empty where all of them have ``window``.
        self.windows: list[tuple[int, int]] = []
        self.groups = array("H")  # the place of the action in ``actions``
        self.actions: dict[str, int] = {}
        self.rewards: dict[int, float] = {}  # by row: not yet learnt
        self.tick = -1
        self.since = 0  # decisions since the last tick, ...
        self.come = 0  # ... and rewards and windows that closed
        self.n_open = 0  # silent decisions at the last tick, ...
        self.failures = 0.0  # ... and what they count for together, as failures
        self.doubts = Doubts(window)

    def decided(self, action: str, window: int | None = None) -> None:
        """Note a decision, in the next row; without ``window`` it has that of the settings."""
        window = self.window if window is None else window
        if window != self._window_of(len(self.codes)):
            self.windows.append((len(self.codes), window))
        place = min(len(self.actions), MOST_GROUPS - 1)
        self.codes.append(0)
        self.groups.append(self.actions.setdefault(action, place))
        self.since += 1

    def rewarded(self, row: int, reward: float, delay: int) -> None:
        """Note the reward of an open decision, and how late it was handed in, in microseconds.

        Of several rewards, the combined one counts, and the delay of the first one above zero.
        """
        self.rewards[row] = reward
        self.come += 1
        if reward == 0.0:
            self.codes[row] = 0
        elif self.codes[row] == 0 and delay > self.window < self._window_of(row):
            self.codes[row] = NEVER  # it counts, but no conversion is as late in the present window
        elif self.codes[row] == 0:
            share = np.array(min(max(delay, 0), self.window), np.float64)
            self.codes[row] = int(cells_of_delays(share, float(self.window), CELLS))

    def closed(self, row: int, reward: float) -> None:
        """Note that a window closed without a reward, or that another reward is to be learnt."""
        self.rewards[row] = reward
        self.come += 1
        if reward == 0.0 and self.codes[row] != NEVER:
            self.codes[row] = 0

    def cancelled(self, row: int) -> None:
        """Note that no reward is waited for."""
        self.codes[row] = NEVER
        self.rewards.pop(row, None)

    def begins(self, time: int, dim: int) -> bool:
        """Returns whether a tick begins with a decision at this time."""
        seconds, decisions = self.next_tick(time, dim)
        return seconds <= 0.0 or decisions <= 0

    def next_tick(self, time: int, dim: int) -> tuple[float, int]:
        """Returns after how many seconds, or decisions if they come first, one begins a tick."""
        of_all = len(self.codes) // OF_ALL
        enough = max(LEAST, dim // PER_FEATURE, self.n_open // SHARE, of_all)
        begins = -(-(self.tick + 1) * self.window // TICKS)  # rounded up
        return (begins - time) / 1e6, enough - self.since

    def begins_without_decision(self, time: int, decided: int, known: int, any_open: bool) -> bool:
        """Returns whether a tick begins at this time though nobody decides.

        ``decided`` is the time of the latest decision. ``known`` rewards and closed windows are in
        the log: a sixteenth of them makes a tick, so that many cost few.
        """
        if not any_open:
            return bool(self.rewards) or self.n_open > 0  # some may have been cancelled
        last, now = self.tick_of(decided), self.tick_of(time)
        if now <= last + 1:
            return False  # further decisions are expected, and will begin ticks
        is_twice_as_long = now - last >= 2 * (self.tick - last)
        return is_twice_as_long or (self.come > 0 and self.come * NEWS >= known)

    def tick_of(self, time: int) -> int:
        """Returns the number of the 64th of a window in which a time lies."""
        return time * TICKS // self.window

    def take_in(self, learner: Learner, times: Integers, now: int) -> None:
        """Let a tick begin: learn the rewards that have come, and hear what is silent.

        ``times`` are those of all decisions, in microseconds.
        """
        self.tick = max(self.tick, self.tick_of(now))
        self.since = self.come = 0
        n = learner.n_decided
        if n == 0:
            return
        ages, y = np.maximum(now - times, 0), learner.history.y[:n]
        windows = self._windows()
        codes = np.frombuffer(self.codes, np.uint8)
        seen = self._seen(codes, times, np.minimum(ages, windows), y)
        if self.doubts.begins(now):
            self.doubts.look(seen, now)
            seen = seen.only(np.flatnonzero(seen.rows >= self.doubts.first))
        self._learn(learner, ages >= windows)
        waiting = np.flatnonzero((codes == 0) & np.isnan(y))
        silence = np.zeros(len(waiting))
        if not self.doubts.hold:
            all_groups, law = np.array(self.groups, np.int64), self._law(seen)
            learner.law = HeardLaw(law.within[:-1], law.variance[:-1], all_groups)
            groups = all_groups[waiting]
            silence = law.within_at(ages[waiting].astype(np.float64), groups)
            if self.windows:
                at_the_end = law.within_at(windows[waiting].astype(np.float64), groups)
                silence = np.minimum(silence / at_the_end, 1.0)
        self.n_open, self.failures = len(waiting), float(np.cumsum(np.append(0.0, silence))[-1])
        learner.hear(waiting, silence)

    def _seen(self, codes: Any, times: Integers, ages: Integers, y: Any) -> Seen:
        """Returns the conversions that came since delays have changed last."""
        rows = np.flatnonzero((codes > 0) & (codes < NEVER))
        rows = rows[np.searchsorted(rows, self.doubts.first) :]
        delays = codes[rows].astype(np.int64)
        cells = cells_of_ages(ages[rows].astype(np.float64), float(self.window), CELLS)
        rewards = y.copy()
        rewards[list(self.rewards)] = list(self.rewards.values())
        groups = np.array(self.groups, np.int64)[rows]
        seen = Seen(rows, delays, cells, groups, times[rows], rewards[rows])
        return seen.only(np.flatnonzero(delays <= cells))

    def _learn(self, learner: Learner, closed: Any) -> None:
        """Learn rewards that have come; where there are doubts, only of closed decisions."""
        if self.doubts.hold:
            self._unlearn_open(learner, closed)
        wanted = {
            row: reward
            for row, reward in self.rewards.items()
            if not self.doubts.hold or closed[row]
        }
        if not wanted:
            return
        rows = np.array(list(wanted), np.int64)
        known = ~np.isnan(learner.history.y[rows])
        later = np.zeros(len(rows), np.int64)  # the estimate is brought up to date by ``hear``
        nothing = np.zeros((0, learner.dim))
        values = np.array(list(wanted.values()))
        learner.fold(np.where(known, REVISE, LEARN), nothing, rows, values, later)
        self.rewards = {row: y for row, y in self.rewards.items() if row not in wanted}

    def _unlearn_open(self, learner: Learner, closed: Any) -> None:
        """Unlearns the rewards of open decisions and keeps them until their windows close."""
        y = learner.history.y[: len(closed)]
        rows = np.flatnonzero(~closed & ~np.isnan(y))
        self.rewards = {int(row): float(y[row]) for row in rows} | self.rewards
        learner.unlearn(rows)

    def _window_of(self, row: int) -> int:
        place = bisect_right(self.windows, row, key=itemgetter(0))
        return self.windows[place - 1][1] if place else self.window

    def _windows(self) -> Integers:
        """Returns the windows of all decisions."""
        begin, windows = [0], [self.window]
        for row, window in self.windows:
            begin.append(row)
            windows.append(window)
        return np.repeat(np.array(windows, np.int64), np.diff([*begin, len(self.codes)]))

    def _law(self, seen: Seen) -> DelayLaw:
        n_groups = max(self.actions.values()) + 1
        return law_of_cells(float(self.window), seen.delays, seen.ages, seen.groups, n_groups)

    def broken(self) -> list[Broken]:
        """Returns the assumptions about delays that the log speaks against."""
        return self.doubts.listed(unnamed=UNNAMED in self.actions)

    def pass_on_silence(self, learner: Learner, old: Learner) -> None:
        """Gives a learner that took over the history of another the silence of that one."""
        learner.law, silence = old.law, old.history.silence[: old.n_decided]
        rows = np.flatnonzero(silence > 0.0)
        if len(rows):
            learner.hear(rows, silence[rows])

    # ------------------------------------------------------------------------------- snapshots

    def header(self) -> dict[str, Any]:
        """Returns everything but the arrays, as JSON can hold it."""
        return {
            "actions": self.actions,
            "rewards": list(self.rewards.items()),
            "counts": [self.tick, self.since, self.come, self.n_open],
            "failures": self.failures,
            "doubts": self.doubts.header(),
            **({"windows": self.windows} if self.windows else {}),
        }

    def arrays(self) -> dict[str, Any]:
        """Returns the arrays, by name."""
        return {
            "hearing.codes": np.frombuffer(bytes(self.codes), np.uint8),
            "hearing.groups": np.array(self.groups, np.uint16),
        }

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Go on where a snapshot was taken."""
        self.actions = dict(header["actions"])
        self.rewards = {int(row): float(reward) for row, reward in header["rewards"]}
        self.tick, self.since, self.come, self.n_open = header["counts"]
        self.failures = header["failures"]
        self.doubts.restore(header["doubts"])
        self.windows = [(row, window) for row, window in header.get("windows", ())]
        self.codes = bytearray(arrays["hearing.codes"].tobytes())
        self.groups = array("H", arrays["hearing.groups"].tobytes())
