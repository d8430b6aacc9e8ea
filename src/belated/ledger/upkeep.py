"""Retention and erasure: what is taken from decisions. Shared by all stores.

Under retention the events themselves are kept: the state of a bandit is a fold over them. The parts
that the fold does not read (the context, the subject of a decision, the caller's request, the
features of the other actions) can go, and the state stays the same, bit for bit.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from belated.ledger.events import NOBODY, Decided, Draft, Erasure, Event, Kind, Position

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


def blanked(body: bytes) -> Blanked | None:
    """Returns the body of a decision after retention; None if there is nothing left to take."""
    decided = _decided.decode(body)
    if not (decided.context or decided.subject or decided.request or decided.matrix):
        return None
    rest = msgspec.structs.replace(decided, context=b"", subject="", request="", matrix=b"")
    return Blanked(msgspec.msgpack.encode(rest), decided.request, decided.subject)


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
