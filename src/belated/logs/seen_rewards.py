"""The rewards of a log that have come, weighted for those that are pending.

Delays may differ by action: the trap of the faster arm, whose rewards come first and count for all.
So the share that is seen at an age is estimated by action; actions with fewer than 50 rewards have
the law of all together. Decisions so young that less than a tenth is seen would have weights above
10 and say next to nothing; they have a part in the law of the delay, and are left out of the mean,
as are all decisions as young as they, whatever their action: the answer is for the older ones.
"""

from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import positive, wrong
from belated.core.times import utc
from belated.core.types import Integers, Vector
from belated.core.wording import duration
from belated.evaluation.off_policy import Rewards, conversion_rewards, explicit_rewards
from belated.evaluation.shares_seen import (
    LEAST_OLD,
    LEAST_SEEN,
    AllSeen,
    SharesSeen,
    converted_shares,
    returned_shares,
    strata_of,
)
from belated.logs.whole_log import WholeLog

EXPLICIT = "explicit"
CONVERSION = "conversion"


class SeenRewards(NamedTuple):
    """The rows that estimates are made of, and the law by which their rewards are weighted."""

    law: SharesSeen
    used: Integers  # rows of the log
    reward: Vector  # of these; NaN where none has come
    shares: Vector  # of rewards seen at their age
    rewards: Rewards
    n_rows: int  # of the log
    n_pending: int  # rows without a reward
    n_open: int  # of these, rows whose reward may still come
    window: float | None  # of a conversion loop, in seconds
    reward_range: tuple[float, float] | None = None  # as the user knows it

    def with_shares(self, shares: Vector) -> Rewards:
        """Returns the rewards as they would be weighted by other shares."""
        weighted = explicit_rewards if self.window is None else conversion_rewards
        return weighted(self.reward, shares)

    @property
    def said(self) -> Vector:
        """The share of its reward that each row shows.

        Silence says the more of a conversion, the more of them are seen at its age.
        """
        return self.rewards.counted if self.window is None else self.shares

    @property
    def knows_range(self) -> bool:
        """True where the user says between which numbers rewards are, or all are 0 or 1."""
        return self.reward_range is not None or bool(np.isin(self._came, (0.0, 1.0)).all())

    @property
    def range(self) -> float:
        """By how much two rewards can differ, as far as the log tells; 0 if it does not."""
        return float(np.ptp(self._ends if self.window is None else np.append(self._ends, 0.0)))

    def widest(self, weight: Any) -> float:
        """Returns the width of the interval in which the term of any row is, by its weight.

        The largest weight of these rows is taken for the largest that there can be, and so are
        their rewards, unless ``knows_range``.
        """
        most = float((weight / self.shares).max()) * self.n_rows / len(self.used)
        return most * float(np.ptp(np.append(self._ends, 0.0)))

    @property
    def _came(self) -> Vector:
        return self.reward[~np.isnan(self.reward)]

    @property
    def _ends(self) -> Vector:
        """The smallest and the largest reward that there can be, as far as is known."""
        if self.reward_range is not None:
            return np.array(self.reward_range)
        return np.array((0.0, 1.0)) if self.knows_range else self._came


def seen_rewards(
    log: WholeLog,
    loop: str,
    window: float | None = None,
    reward_range: tuple[float, float] | None = None,
) -> SeenRewards:
    """Returns the rewards of a log, weighted for those that are pending.

    Parameters
    ----------
    log
        The log.
    loop
        ``"explicit"``: every decision gets a reward some day, or loses it for ever.
        ``"conversion"``: only conversions report, within the window.
    window
        How long a conversion counts, in seconds.
    reward_range
        The smallest and the largest reward that there can be; None: nobody says.
    """
    window = conversion_window(log, loop, window)
    if reward_range is not None:
        _refuse_range(log.reward[~np.isnan(log.reward)], reward_range)
    seen = _explicit(log) if window is None else _of_conversions(log, window)
    return seen._replace(reward_range=reward_range)


def _refuse_range(came: Vector, reward_range: tuple[float, float]) -> None:
    """Raises where this is no range, or where rewards that came are outside of it."""
    low, high = reward_range
    least, most = came.min(initial=np.inf), came.max(initial=-np.inf)
    if not (np.isfinite(reward_range).all() and low < high):
        raise wrong("--reward-range", reward_range, "two numbers, the smaller one first")
    if least < low or most > high:
        raise wrong(
            "--reward-range",
            reward_range,
            f"a range of all rewards, and those of the log are between {least:g} and {most:g}",
        )


def conversion_window(log: WholeLog, loop: str, window: float | None) -> float | None:
    """Returns the window of a conversion loop; None for an explicit loop, which needs none.

    Raises where there is no such loop, or where the log cannot be of one with this window. An
    explicit loop of a ledger may have a window, by which rewards are late.
    """
    if loop not in (EXPLICIT, CONVERSION):
        raise wrong("--loop", loop, f"{EXPLICIT} or {CONVERSION}")
    if loop == EXPLICIT:
        return None
    if window is None:
        raise wrong("--window", window, "how long a conversion counts, such as 7d")
    if log.age.max() < positive("--window", window):
        raise wrong(
            "--window",
            duration(window),
            f"at most the age of the oldest decision, {duration(log.age.max())}: nobody has seen "
            "how many conversions come later",
        )
    n_old = int((_converted(log, window) & (log.age >= window)).sum())
    if n_old < LEAST_OLD:
        raise wrong(
            "--window",
            duration(window),
            f"a window that is over for {LEAST_OLD} conversions at least, and it is over for "
            f"{n_old}: too few have seen how many conversions come later",
        )
    return window


def _converted(log: WholeLog, window: float) -> Any:
    """Returns for each row whether its conversion has come, within the window."""
    return ~np.isnan(log.reward) & (log.waited <= window)


def _explicit(log: WholeLog) -> SeenRewards:
    came, age, waited = ~np.isnan(log.reward), log.age, log.waited
    if came.all():
        return _used(log, np.ones(len(came), bool), AllSeen(len(came), len(came)), None, came)
    if not came.any():
        raise ValueError(f"log: expected rewards, and none has come by {utc(log.now)}")
    if not log.has_delays:
        raise ValueError(
            "rewards are missing, and the log does not say when the others came: expected columns "
            "with both times, --map time=...,reward-time=..."
        )
    refuse_alike(log.reward[came])
    strata = strata_of(log.action, came)
    law = returned_shares(waited, came, strata, age, strata)
    old = age > _too_young(law, age)
    at = np.flatnonzero(old)
    return _used(log, old, returned_shares(waited, came, strata, age[at], strata[at]), None, came)


def _of_conversions(log: WholeLog, window: float) -> SeenRewards:
    age, waited = log.age, log.waited
    came = _converted(log, window)
    strata, capped = strata_of(log.action, came), np.minimum(age, window)
    law = converted_shares(waited, came, capped, strata, capped, strata)
    old = capped > _too_young(law, capped)
    at = np.flatnonzero(old)
    law = converted_shares(waited, came, capped, strata, capped[at], strata[at])
    return _used(log, old, law, window, came)


def _too_young(law: SharesSeen, age: Vector) -> float:
    """Returns the largest age at which too little is seen of some action's rewards."""
    shares = law.shares(np.ones(len(age)))
    return float(age[shares < LEAST_SEEN].max(initial=-1.0))


def _used(log: WholeLog, old: Any, law: SharesSeen, window: float | None, came: Any) -> SeenRewards:
    used = np.flatnonzero(old)
    reward = np.where(came, log.reward, np.nan)[used]
    shares = law.shares(np.ones(len(log.reward)))
    rewards = (explicit_rewards if window is None else conversion_rewards)(reward, shares)
    is_open = ~came & (True if window is None else log.age < window)
    counts = len(came), int((~came).sum()), int(is_open.sum())
    return SeenRewards(law, used, reward, shares, rewards, *counts, window)


def refuse_alike(rewards: Vector) -> None:
    """Raises where all rewards are alike: the others would count as if they were so, too."""
    if np.ptp(rewards) == 0.0:
        raise ValueError(
            f"log: expected rewards that differ, and all that came are {rewards[0]:g}; where only "
            "conversions report, say --loop conversion and --window"
        )
