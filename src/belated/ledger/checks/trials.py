"""Drafts that the checks write into a store, and the log as they read it back."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import msgspec

from belated.core.arguments import shown
from belated.core.events import Status
from belated.ledger.events import (
    START,
    Decided,
    Draft,
    Event,
    Facts,
    Kind,
    Outcome,
    Position,
    Stretch,
)
from belated.ledger.ids import Ids
from belated.ledger.protocol import Ledger

NewLedger = Callable[[], Ledger]
SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND


def expect(found: object, wanted: object, rule: str) -> None:
    """Raises ``AssertionError`` with the rule if a store did not do what the rule asks for."""
    if found != wanted:
        raise AssertionError(f"{rule}: found {shown(found)}, expected {shown(wanted)}")


class Writer:
    """Makes drafts with ids from a clock that moves only when it is told to."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.now = ledger, NOW
        self._ids = Ids(lambda: self.now, seed=1)

    def decided(
        self,
        bandit: str = "shop",
        *,
        id: bytes | None = None,
        due: int | None = None,
        closes: int | None = None,
        combine: str | None = None,
        request: str = "",
        digest: bytes = b"",
        subject: str = "",
        stretch: Stretch | None = None,
    ) -> Draft:
        """Returns a draft of a decision, with a new id unless one is given."""
        numbers = 0.0, 0.0, 0.0
        decided = Decided(
            *(b"x" * 8, "a", 0, 1.0, 0, "p", *numbers),
            request=request,
            subject=subject,
            stretch=stretch,
        )
        return Draft(
            Kind.DECIDED,
            bandit,
            id or self._ids(),
            self.now,
            due=due,
            body=msgspec.msgpack.encode(decided),
            request=request,
            digest=digest,
            subject=subject,
            closes=closes,
            combine=combine,
        )

    def about(
        self,
        kind: Kind,
        id: bytes,
        value: float | None = None,
        *,
        bandit: str = "",
        at: int | None = None,
        event_id: str = "",
        body: bytes = b"",
    ) -> Draft:
        """Returns a draft of something that happens to a decision, now unless ``at`` is given."""
        time = self.now if at is None else at
        return Draft(kind, bandit, id, time, value, body=body, received=self.now, event_id=event_id)

    def commit(self, *drafts: Draft) -> list[Status]:
        """Commit drafts in one transaction; returns what became of each."""
        return [outcome.status for outcome in self.ledger.commit(drafts)]

    def decide(self, bandit: str = "shop", due: int | None = None) -> bytes:
        """Write a decision; returns its id."""
        draft = self.decided(bandit, due=due)
        expect(self.commit(draft), [Status.ACCEPTED], "commit must write a decision with a new id")
        return draft.id

    def reward(self, id: bytes, value: float, *, bandit: str = "", at: int | None = None) -> Status:
        """Write a reward; returns what became of it."""
        (status,) = self.commit(self.about(Kind.REWARDED, id, value, bandit=bandit, at=at))
        return status


@dataclass
class Memory:
    """A follower that remembers decisions."""

    position: Position
    remembered: dict[bytes, Facts]
    strict: bool = False

    def accepts(self, bandit: str, kind: Kind, reward: float) -> bool:
        """Returns True: every reward is in the support."""
        return True

    def open_decisions(self, ids: Collection[bytes]) -> dict[bytes, Facts]:
        """Returns those of the decisions that are remembered."""
        return {id: self.remembered[id] for id in ids if id in self.remembered}

    def approve(self, outcomes: Sequence[Outcome]) -> None:
        """Raises if a strict follower sees a conflict."""
        if self.strict and any(outcome.status == Status.CONFLICT for outcome in outcomes):
            raise RuntimeError("a conflict")


def whole_log(ledger: Ledger, limit: int = 100_000) -> list[Event]:
    """Returns the whole log, as a reader that starts now sees it."""
    events: list[Event] = []
    position = START
    while True:
        more, last = ledger.follow(position, limit)
        if not more:
            return events
        expect(last > position, True, "follow must return events after its position, and the last")
        position = last
        events += more
