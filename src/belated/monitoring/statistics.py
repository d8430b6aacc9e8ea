"""The numbers behind a dashboard, kept up to date by the fold of a log, in bounded memory."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

from belated.core.arguments import wrong
from belated.monitoring.action_totals import AllActions
from belated.monitoring.buckets import Buckets
from belated.monitoring.sample import FollowedDecisions
from belated.monitoring.series import Series

FORMAT = 2
TEN_SECONDS_US, HOUR_US = 10_000_000, 3_600_000_000
TWO_HOURS, EIGHT_DAYS = 720, 192  # in slices of ten seconds, in hours

# what is counted by time; the last two by the time of the decision, whenever it happens
DECIDED, RETURNED, PENDING, LOST = range(4)


class Statistics:
    """Counts, recent rates, a sample of delays and the long-term series of one bandit.

    Every method takes a batch: sequences of equal length, in the order of the log. A decision must
    be told before what became of it; apart from that, batches may be cut in any way and kinds told
    in any order: the same events give the same statistics, bit for bit. Each decision is closed at
    most once: by ``returned``, ``expired`` or ``cancelled``.
    """

    def __init__(self) -> None:
        self.fine = Buckets(TEN_SECONDS_US, TWO_HOURS, 4)
        self.coarse = Buckets(HOUR_US, EIGHT_DAYS, 4)
        self.followed = FollowedDecisions()
        self.actions = AllActions()
        self.widths = Series()
        self.rewards = Series()
        self.expiries = Series()
        self.revisions = Series()
        self.n_decided = self.n_returned = self.n_expired = self.n_cancelled = self.n_late = 0
        self.last_reward_us = 0  # 0: none has come yet
        self.lowest_propensities: dict[int, float] = {}  # by hour, of the last two hours

    @property
    def n_pending(self) -> int:
        """Decisions whose reward is still waited for."""
        return self.n_decided - self.n_returned - self.n_expired - self.n_cancelled

    # ---------------------------------------------------------------------------- what happened

    def decided(
        self,
        ids: Sequence[bytes],
        times_us: Sequence[int],
        actions: Sequence[str],
        propensities: Sequence[float | None],
        widths: Sequence[float | None],
    ) -> list[int]:
        """Decisions were made; ``widths`` are those of their confidence intervals, if any.

        Returns a number for each action, under which ``revised`` knows it.
        """
        _same_length(times_us=times_us, ids=ids, actions=actions)
        _same_length(times_us=times_us, propensities=propensities, widths=widths)
        places = self.actions.decided(actions)
        self.followed.decided(ids, times_us, places)
        self.widths.add(times_us, widths)
        self._lowest(times_us, propensities)
        slices = _slices(times_us)
        self._count(DECIDED, slices)
        self._count(PENDING, slices)
        self.n_decided += len(ids)
        return places

    def returned(
        self,
        ids: Sequence[bytes],
        decided_us: Sequence[int],
        times_us: Sequence[int],
        actions: Sequence[str],
        rewards: Sequence[float],
    ) -> None:
        """Rewards came while they were waited for."""
        _same_length(times_us=times_us, ids=ids, decided_us=decided_us)
        _same_length(times_us=times_us, actions=actions, rewards=rewards)
        known = self.actions.by_name
        for action, reward in zip(actions, rewards, strict=True):
            totals = known.get(action) or self.actions.of(action)
            totals.returned += 1
            totals.reward += reward
            totals.reward_squares += reward * reward
        self.followed.closed(ids, times_us, rewards)
        self.rewards.add(times_us, rewards)
        self._count(RETURNED, _slices(times_us))
        self._count(PENDING, _slices(decided_us), -1)
        self.n_returned += len(ids)
        self.last_reward_us = max([self.last_reward_us, *times_us])

    def expired(
        self,
        ids: Sequence[bytes],
        decided_us: Sequence[int],
        times_us: Sequence[int],
        actions: Sequence[str],
    ) -> None:
        """Take in that windows closed without a reward, at ``times_us``."""
        _same_length(times_us=times_us, ids=ids, decided_us=decided_us)
        _same_length(times_us=times_us, actions=actions)
        for action in actions:
            self.actions.of(action).expired += 1
        self.followed.closed(ids, times_us, [None] * len(ids))
        self.expiries.add(times_us, [0.0] * len(ids))
        slices = _slices(decided_us)
        self._count(PENDING, slices, -1)
        self._count(LOST, slices)
        self.n_expired += len(ids)

    def cancelled(
        self, ids: Sequence[bytes], decided_us: Sequence[int], times_us: Sequence[int]
    ) -> None:
        """Decisions were not carried out: no reward is waited for."""
        _same_length(times_us=times_us, ids=ids, decided_us=decided_us)
        self.followed.closed(ids, times_us, [None] * len(ids))
        self._count(PENDING, _slices(decided_us), -1)
        self.n_cancelled += len(ids)

    def late(self, count: int) -> None:
        """Rewards came after their window."""
        self.n_late += count

    def revised(
        self,
        times_us: Sequence[int],
        places: Sequence[int],
        before: Sequence[float | None],
        after: Sequence[float],
    ) -> None:
        """Rewards took the place of others; ``places`` are what ``decided`` returned.

        Where a decision had expired, ``before`` is the default reward, or None if it had none:
        then it counts as rewarded only from now on.
        """
        _same_length(times_us=times_us, places=places)
        _same_length(times_us=times_us, before=before, after=after)
        changes, all_totals = [], list(self.actions.by_name.values())
        for place, old, new in zip(places, before, after, strict=True):
            totals = all_totals[place]
            totals.gained += old is None
            totals.revision += new - (old or 0.0)
            totals.revision_squares += new * new - (old or 0.0) ** 2
            changes.append(new - (old or 0.0))
        self.revisions.add(times_us, changes)

    def _count(self, kind: int, slices: Mapping[int, int], each: int = 1) -> None:
        counts = {start: each * n for start, n in slices.items()}
        self.fine.add(kind, counts)
        self.coarse.add(kind, counts)  # an hour is a whole number of the finer slices

    def _lowest(self, times_us: Sequence[int], propensities: Sequence[float | None]) -> None:
        lowest, hours = self.lowest_propensities, [time // HOUR_US for time in times_us]
        for hour, propensity in set(zip(hours, propensities, strict=True)):
            if propensity is not None and propensity < lowest.get(hour, 2.0):
                lowest[hour] = propensity
        while len(lowest) > 2:
            del lowest[min(lowest)]

    # ------------------------------------------------------------------------------- snapshots

    def to_dict(self) -> dict[str, Any]:
        """Returns all statistics as dicts, lists, numbers and texts, for JSON."""
        return {
            "format": FORMAT,
            "counts": [
                *(self.n_decided, self.n_returned, self.n_expired),
                *(self.n_cancelled, self.n_late, self.last_reward_us),
            ],
            "lowest_propensities": sorted([*pair] for pair in self.lowest_propensities.items()),
            **{name: part.to_dict() for name, part in self._parts().items()},
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        """The statistics that gave this dict."""
        if saved.get("format") != FORMAT:
            raise wrong("format", saved.get("format"), f"{FORMAT}, the one this version writes")
        new = cls()
        new.n_decided, new.n_returned, new.n_expired = saved["counts"][:3]
        new.n_cancelled, new.n_late, new.last_reward_us = saved["counts"][3:]
        new.lowest_propensities = dict(saved["lowest_propensities"])
        for name, part in new._parts().items():
            part.load(saved[name])
        return new

    def _parts(self) -> dict[str, Buckets | FollowedDecisions | AllActions | Series]:
        return {
            "fine": self.fine,
            "coarse": self.coarse,
            "followed": self.followed,
            "actions": self.actions,
            "widths": self.widths,
            "rewards": self.rewards,
            "expiries": self.expiries,
            "revisions": self.revisions,
        }


def _slices(times_us: Sequence[int]) -> dict[int, int]:
    """Returns the number of times in each slice of ten seconds, by the start of the slice."""
    counts = Counter([time // TEN_SECONDS_US for time in times_us])
    return {number * TEN_SECONDS_US: n for number, n in counts.items()}


def _same_length(**sequences: Sequence[Any]) -> None:
    """Raises if sequences differ in length, before anything is counted."""
    lengths = {name: len(sequence) for name, sequence in sequences.items()}
    if len(set(lengths.values())) > 1:
        raise wrong("lengths", lengths, "sequences of equal length")
