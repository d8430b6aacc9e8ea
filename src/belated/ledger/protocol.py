"""The interface of a store that is a ledger. ``check_ledger`` tests all of it."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from belated.ledger.events import (
    NOBODY,
    START,
    Draft,
    Event,
    Facts,
    Kind,
    Outcome,
    Position,
    Waiting,
)
from belated.ledger.upkeep import Base, Retained

PAGE = 1000  # parked rewards, unless asked for more


class LedgerError(RuntimeError):
    """A ledger cannot be used: another schema, another ledger, a damaged file."""


class StoreUnavailableError(LedgerError):
    """The store cannot be read or written now: a full disk, a lost connection. Try again."""


class StoreBusyError(StoreUnavailableError):
    """Another process is writing, and this ledger was told not to wait. Nothing was written."""


class CompactedError(StoreUnavailableError):
    """The events that a reader asked for were dropped: the log begins later, with a base."""

    def __init__(self, position: Position) -> None:
        super().__init__(f"the log begins after ({position.tx}, {position.seq}): read it anew")
        self.position = position


class TooOldError(StoreUnavailableError):
    """A decision whose id is as old as those that were dropped: it may have been one of them."""

    def __init__(self, id: bytes) -> None:
        super().__init__(
            f"decision {id.hex()} is as old as the part of the log that was compacted and may have "
            "been in it: expected a younger one, and a clock that was not set back"
        )


class NewBanditError(StoreUnavailableError):
    """Another process has made this bandit, and its first event has not been read here yet."""

    def __init__(self, bandit: str) -> None:
        super().__init__(f"bandit {bandit!r} is new here: try again in a moment")
        self.bandit = bandit


Accepts = Callable[[str, Kind, float], bool]  # can this bandit have this reward, or revision?


class Follower(Protocol):
    """A reader of a log that also writes to it, and knows what a store would have to look up."""

    @property
    def position(self) -> Position:
        """The place in the log up to which this follower has taken it in."""

    def accepts(self, bandit: str, kind: Kind, reward: float) -> bool:
        """Returns whether a bandit can have such a reward, or revision."""

    def open_decisions(self, ids: Collection[bytes]) -> dict[bytes, Facts]:
        """Returns the given decisions that are still open; some may be left out.

        A decision is open while no reward, cancellation or expiry has been taken in. Guardrail
        outcomes are left out of the facts: a store that must know them looks them up.
        """

    def approve(self, outcomes: Sequence[Outcome]) -> None:
        """Called after every draft was judged and before anything is written.

        If it raises, nothing is written. The outcome of a conflict carries the facts.
        """


@dataclass(frozen=True, slots=True)
class Importer:
    """Writes into a log without following it."""

    accepts: Accepts
    position: Position = START

    def open_decisions(self, ids: Collection[bytes]) -> dict[bytes, Facts]:
        """Returns none: an importer has taken nothing in."""
        return {}

    def approve(self, outcomes: Sequence[Outcome]) -> None:
        """Approve of all outcomes."""


class Ledger(Protocol):
    """An append-only log of decisions and what became of them."""

    park_for: int  # microseconds for which a reward may precede its decision
    identity: str  # drawn when the ledger was made: snapshots of another one are refused by it

    def commit(self, drafts: Sequence[Draft], follower: Follower | None = None) -> list[Outcome]:
        """Write the drafts that are new, all in one transaction; durable when this returns.

        A ``follower`` says which rewards a bandit can have; the others are INVALID. A draft that is
        not ACCEPTED, PARKED or EXPIRED leaves no trace. Raises ``StoreUnavailableError``, and then
        nothing was written.
        """
        return self.commit_all([drafts], follower)[0]

    def commit_all(
        self, batches: Sequence[Sequence[Draft]], follower: Follower | None = None
    ) -> list[list[Outcome]]:
        """Commit one batch after the other, for callers that have many of them.

        Each is a transaction of its own in the log. A store may make them durable together: after
        an error, or when the process is killed, the first few of them are there and the others not.
        """

    def follow(self, after: Position, limit: int = 100_000) -> tuple[list[Event], Position]:
        """Returns the next events in commit order, whole transactions, about ``limit`` of them.

        Every event is returned exactly once to a reader that passes on the position it got. If no
        events are returned, none was committed after ``after`` by the time of the call. Raises
        ``CompactedError`` if events after ``after`` were dropped.
        """

    def story(self, id: bytes) -> list[Event]:
        """Returns all events of a decision, in the order of the log; none if it was dropped."""

    def requested(self, bandit: str, request: str) -> tuple[Event, bytes] | None:
        """Returns the decision that a request got, and the digest of the request's content."""

    def subject(self, bandit: str, subject: str) -> list[bytes]:
        """Returns the decisions that concern a subject."""

    def forget(self, bandit: str, subject: str, time: int) -> int:
        """Erase a subject's decisions, rewards and requests; returns how many decisions.

        Their events stay in the log with an empty body and no value; a FORGOTTEN event is added.
        Decisions before the base are not among them: nobody knows whose they were.
        """

    def parked(self, limit: int = PAGE, after: bytes = NOBODY) -> list[Waiting]:
        """Returns the next ``limit`` parked rewards whose decision has an id after ``after``.

        They are sorted by that id, which begins with a time, so the oldest come first.
        """

    def end_parked(self, before: int) -> int:
        """Delete rewards that wait for a decision made before a time; returns how many."""

    def rare(self, kind: Kind, after: Position) -> list[Event]:
        """Returns the events of a rare kind (FORGOTTEN, KEYS, PROMOTED) after a position."""

    def behind(self, after: Position) -> int:
        """Returns the number of committed events after a position."""

    def retain(self, before: int, *, dry_run: bool = False) -> Retained:
        """Take from decisions made before a time what the state does not depend on.

        Their context, subject, request and the features of other actions are blanked, the requests
        that led to them dropped, and so are rewards parked before that time. Vector, action,
        propensity and rewards stay: every fold of the log is what it was. So a decision that began
        a stretch keeps its subject while no decision of its bandit is as late as the stretch's end.
        If it is interrupted, a part is done, and it can be called again.
        """

    def base(self) -> Base | None:
        """Returns where a compacted log begins; None if it holds everything from the first event.

        ``story`` and ``rare`` also find the events that the base carries, ``follow`` does not.
        """

    def base_content(self, base: Base, bandit: str) -> bytes:
        """Returns the arrays of a bandit at a base.

        If another base has replaced it, returns what is left of them.
        """

    def carried(self) -> Iterable[Event]:
        """Returns the events before the base that stay at hand, in the order of the log."""

    def compact(
        self,
        base: Base,
        contents: Iterable[tuple[str, bytes]],
        carried: Iterable[Event],
        seen: Position,
    ) -> None:
        """Let the log begin with a base, in one step; ``drop`` then deletes what was before it.

        ``contents`` are the arrays of each bandit. Raises ``StoreUnavailableError``, and the log is
        as it was, if since ``seen`` a decision was erased that the base holds, or if the log has
        another base than ``base.previous`` by now.
        """

    def drop(self) -> int:
        """Delete the events up to the base, and requests and subjects; returns how many events.

        If it is interrupted, a part is done, and it can be called again.
        """

    def problems(self) -> list[str]:
        """Returns what is wrong with the store itself, in words; the log is not looked at."""

    def backup(self, target: Path) -> None:
        """Copy the whole ledger, as of now, to a new file; the copy gets an identity of its own.

        Raises ``LedgerError`` if the store has tools of its own for that.
        """

    def close(self) -> None:
        """Let go of the store."""
