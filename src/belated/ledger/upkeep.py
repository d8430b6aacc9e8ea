"""Retention, erasure and compaction: what is taken from a log. Shared by all stores.

Under retention the events themselves are kept: the state of a bandit is a fold over them. The parts
that the fold does not read (the context, the subject of a decision, the caller's request, the
features of the other actions) can go, and the state stays the same, bit for bit. The subject of a
decision that began a stretch (``sticky.py``) goes when the stretch is over.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from belated.ledger.events import NOBODY, Decided, Draft, Erasure, Event, Kind, Position

PIECE = 4_000_000  # bytes of a base in one row of a store
AFTER_ALL = 2**63 - 1  # a time later than the end of every stretch
_decided = msgspec.msgpack.Decoder(Decided)


class Retained(NamedTuple):
    """Counts of what retention took, or would take."""

    decisions: int = 0  # blanked
    requests: int = 0  # names under which callers could ask again for their decision
    parked: int = 0  # rewards whose decision never came

    def plus(self, other: "Retained") -> "Retained":
        """Returns the sum of both counts."""
        return Retained(*(a + b for a, b in zip(self, other, strict=True)))


class Blanked(NamedTuple):
    """The body of a decision after retention, and the request and subject taken from it."""

    body: bytes
    request: str
    subject: str


def blanked(body: bytes, latest: int = AFTER_ALL) -> Blanked | None:
    """Returns the body of a decision after retention; None if there is nothing left to take.

    ``latest`` is the time of the latest decision of its bandit in the log, left open where the
    decision is part of a base, which remembers by itself which stretches are open.
    """
    decided = _decided.decode(body)
    goes_on = decided.stretch is not None and decided.stretch.until > latest
    subject = "" if goes_on else decided.subject
    if not (decided.context or subject or decided.request or decided.matrix):
        return None
    kept = decided.subject if goes_on else ""
    rest = msgspec.structs.replace(decided, context=b"", subject=kept, request="", matrix=b"")
    return Blanked(msgspec.msgpack.encode(rest), decided.request, subject)


def erased(event: Event) -> Event:
    """Returns what is left of an event after its subject was erased."""
    names = ("value", "due", "received", "closes", "combine")
    nothing: dict[str, Any] = dict.fromkeys(names)
    return msgspec.structs.replace(event, id=NOBODY, body=b"", **nothing)


def erasure(bandit: str, time: int, decisions: Sequence[Event]) -> tuple[list[str], Draft]:
    """Returns the requests that led to decisions, and the draft that says that they are erased."""
    requests = [_decided.decode(event.body).request for event in decisions]
    first = min((Position(event.tx, event.seq) for event in decisions), default=None)
    body = msgspec.msgpack.encode(Erasure(len(decisions), first))
    return requests, Draft(Kind.FORGOTTEN, bandit, NOBODY, time, body=body)


class BasedBandit(msgspec.Struct, array_like=True, frozen=True):
    """A bandit at the base of a compacted log; see ``ledger/base.py``."""

    name: str
    header: bytes  # ``Fold.header`` as JSON
    digest: str  # ``Fold.digest``
    sha256: str  # of the arrays, as ``base.packed`` writes them


class Base(msgspec.Struct, array_like=True, frozen=True):
    """Where a compacted log begins, and what was dropped before; see ``ledger/base.py``."""

    position: Position  # of the last event that was dropped
    until: int  # the latest time at which one of them was handed in
    events: int  # how many there were, carried ones included
    last_id: bytes  # the greatest id among their decisions
    carried: int  # how many of them stay at hand
    carried_digest: str
    bandits: tuple[BasedBandit, ...]
    previous: str = ""  # digest of the base on which this one was folded

    @property
    def digest(self) -> str:
        """Names the base: it depends on everything above, and on all earlier bases."""
        return sha256(msgspec.msgpack.encode(self)).hexdigest()


def pieces(contents: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, int, bytes]]:
    """Yields bandit, number and content of the pieces in which stores keep a base."""
    for name, content in contents:
        for k, start in enumerate(range(0, len(content), PIECE)):
            yield name, k, content[start : start + PIECE]
