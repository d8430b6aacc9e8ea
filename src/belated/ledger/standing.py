"""The standing of a decision: pending, rewarded, expired, late or cancelled."""

from collections.abc import Sequence
from dataclasses import dataclass

from belated.core.events import Standing
from belated.ledger.events import Event, Kind, added_reward, is_late


@dataclass(slots=True)
class Ending:
    """The state of a decision's story: its reward, its time, its status."""

    due: int | None
    closes: int | None = None
    reward: float | None = None
    time: int | None = None
    received: int | None = None  # when the reward was handed in
    expired: bool = False
    status: Standing = "pending"

    def take(self, event: Event) -> None:
        """Take in one more event about the decision."""
        added = added_reward(event)
        if added is not None and added.late:
            return  # it was kept, and changes nothing
        if event.kind in (Kind.REWARDED, Kind.REVISED):
            window = self.due, self.closes, self.expired
            late = event.kind == Kind.REWARDED and is_late(event.time, event.received, *window)
            self.status = "late" if late else "rewarded"
            self.reward = event.value
            if self.time is None:  # a revision is no delay
                self.time, self.received = event.time, event.written
        elif event.kind == Kind.EXPIRED:
            self.expired = True
            self.status = "expired" if self.status == "pending" else self.status
        elif event.kind == Kind.CANCELLED:
            self.status = "cancelled"


def ending_of(story: Sequence[Event]) -> Ending:
    """Returns how a decision stands; ``story`` is all its events, in the order of the log."""
    ending = Ending(story[0].due, story[0].closes)
    for event in story[1:]:
        ending.take(event)
    return ending
