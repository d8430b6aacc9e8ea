"""A sample of decisions, each followed until its reward comes or its window closes."""

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np

from belated.monitoring.observations import Observations

CAPACITY = 4096
HOUR_US = 3600 * 1_000_000
SPAN_US = 8 * 24 * HOUR_US  # decisions older than this make room for new ones
WAITING, RETURNED, CENSORED = 0, 1, 2
LISTS = (
    "checksums",
    "decided_us",
    "closed_us",
    "outcomes",
    "rewards",
    "actions",
)  # one entry per decision


class FollowedDecisions:
    """Up to 4,096 decisions that stand for all.

    Which decisions are followed depends on their ids alone (one in ``keep_one_in``, by a checksum),
    never on what became of them: otherwise quick rewards would be over-represented. When the sample
    is full, every second one is let go; when decisions become rare, more are taken. The same
    decisions give the same sample in any batches.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.keep_one_in = 1
        self.hour = 0  # of the latest decision
        self.checksums: list[int] = []
        self.decided_us: list[int] = []
        self.closed_us: list[int] = []  # 0 while waiting
        self.outcomes: list[int] = []
        self.rewards: list[float | None] = []
        self.actions: list[int] = []  # their numbers; -1 for those of snapshots without them
        self.waiting: dict[bytes, int] = {}  # id -> place in the lists

    def decided(
        self, ids: Sequence[bytes], times_us: Sequence[int], actions: Sequence[int]
    ) -> None:
        """Add one in ``keep_one_in`` of these decisions to the sample, drawn by their ids."""
        for id, time_us, action in zip(ids, times_us, actions, strict=True):
            if time_us // HOUR_US > self.hour:
                self._new_hour(time_us)
            checksum = crc32(id)
            if checksum % self.keep_one_in:
                continue
            self.waiting[id] = len(self.outcomes)
            self.checksums.append(checksum)
            self.decided_us.append(time_us)
            self.closed_us.append(0)
            self.outcomes.append(WAITING)
            self.rewards.append(None)
            self.actions.append(action)
            if len(self.outcomes) > self.capacity:
                self._make_room(time_us)

    def closed(
        self, ids: Sequence[bytes], times_us: Sequence[int], rewards: Sequence[float | None]
    ) -> None:
        """Records that rewards came.

        A reward of None means that the window closed or the decision was cancelled.
        """
        for id, time_us, reward in zip(ids, times_us, rewards, strict=True):
            place = self.waiting.pop(id, None)
            if place is not None:
                self.closed_us[place] = time_us
                self.outcomes[place] = CENSORED if reward is None else RETURNED
                self.rewards[place] = reward

    def _new_hour(self, now_us: int) -> None:
        self.hour = now_us // HOUR_US
        if self.keep_one_in > 1 and sum(self._recent(now_us)) < self.capacity // 8:
            self.keep_one_in //= 2

    def _recent(self, now_us: int) -> list[bool]:
        return [time_us > now_us - SPAN_US for time_us in self.decided_us]

    def _make_room(self, now_us: int) -> None:
        keep = self._recent(now_us)
        if sum(keep) > self.capacity // 2:
            self.keep_one_in *= 2
            keep = [checksum % self.keep_one_in == 0 for checksum in self.checksums]
        self._keep([place for place, kept in enumerate(keep) if kept])

    def _keep(self, places: list[int]) -> None:
        for name in LISTS:
            old = getattr(self, name)
            setattr(self, name, [old[place] for place in places])
        moved = {old: new for new, old in enumerate(places)}
        self.waiting = {id: moved[old] for id, old in self.waiting.items() if old in moved}

    def observations(self, now_us: int) -> Observations:
        """Returns the sample as it is known now: pending decisions are censored at their age."""
        decided = np.array(self.decided_us, np.int64)
        outcomes = np.array(self.outcomes, np.int64)
        closed = np.where(outcomes == WAITING, now_us, np.array(self.closed_us, np.int64))
        return Observations(
            decided=decided / 1e6,
            delay=np.maximum(closed - decided, 0) / 1e6,  # clocks of two machines may disagree
            returned=outcomes == RETURNED,
            reward=np.array([np.nan if r is None else r for r in self.rewards], np.float64),
            action=np.array(self.actions, np.int64),
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the sample as lists and numbers; ids are in hexadecimal."""
        lists = {name: list(getattr(self, name)) for name in LISTS}
        waiting = {id.hex(): place for id, place in self.waiting.items()}
        return {"keep_one_in": self.keep_one_in, "hour": self.hour, **lists, "waiting": waiting}

    def load(self, saved: dict[str, Any]) -> None:
        """Take over what ``to_dict`` gave."""
        self.keep_one_in, self.hour = saved["keep_one_in"], saved["hour"]
        unknown = [-1] * len(saved["outcomes"])  # snapshots of version 0.1 hold no actions
        for name in LISTS:
            setattr(self, name, list(saved.get(name, unknown)))
        self.waiting = {bytes.fromhex(id): place for id, place in saved["waiting"].items()}
