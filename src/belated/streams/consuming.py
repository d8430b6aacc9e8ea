"""The consumer: read, hand in, put aside what cannot be used, acknowledge; in this order."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from threading import Event
from typing import Any, NamedTuple, Protocol

import msgspec

from belated.client import ServiceError
from belated.client.calls import WORTH_A_RETRY
from belated.core.events import Status
from belated.ledger.protocol import StoreUnavailableError
from belated.ledger.tools.reward_files import BATCH, Bad, Given, Send, given_or_bad
from belated.ledger.tools.tables import Row

log = logging.getLogger("belated.streams")
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds until a batch is handed in again


class Message(NamedTuple):
    """A message of a stream: where it stands there, and its content."""

    place: Any
    content: bytes | Mapping[str, Any]  # JSON, or fields by name


class Stream(Protocol):
    """A stream with a group of consumers that share its messages."""

    def read(self, most: int) -> list[Message]:
        """Returns the next messages of this consumer; none after a second without any."""

    def finish(self, messages: Sequence[Message], bad: Sequence[tuple[Message, str]]) -> None:
        """Puts bad messages aside, each with its reason, and acknowledges all of them."""

    def close(self) -> None:
        """Lets go of the connection."""


def consume(
    stream: Stream, send: Send, *, ended: Event, once: bool = False, batch: int = BATCH
) -> Counter[Status]:
    """Hand in the rewards of a stream until ``ended`` is set; returns how many of each status.

    With ``once``, until there is nothing to read. Where the ledger or the service cannot be
    reached, the batch is handed in again, a little later each time: nothing is acknowledged before.
    """
    counts = Counter[Status]()
    while not ended.is_set():
        messages = stream.read(batch)
        if not messages:
            if once:
                break
            continue
        rows = list(given_or_bad(_row(k, message) for k, message in enumerate(messages)))
        bad = [row for row in rows if isinstance(row, Bad)]
        given = [row for row in rows if isinstance(row, Given)]
        counts[Status.INVALID] += len(bad)
        if given:
            taken = _patiently(lambda: send(given), ended)  # noqa: B023 -- called at once
            if taken is None:
                break
            counts.update(taken.statuses)
            bad += taken.bad
        reasons = [(messages[row.line], f"{row.status}: {row.reason}") for row in sorted(bad)]
        stream.finish(messages, reasons)
    return +counts


def _patiently(send: Callable[[], Any], ended: Event) -> Any:
    """Returns what ``send`` returns, after as many tries as it takes; None if ended meanwhile."""
    pause = FIRST_PAUSE
    while True:
        try:
            return send()
        except (OSError, StoreUnavailableError, ServiceError) as error:
            if isinstance(error, ServiceError) and error.problem.status not in WORTH_A_RETRY:
                raise
            log.warning("tried again in %g s: %s", pause, error)
            if ended.wait(pause):
                return None
            pause = min(2.0 * pause, LONGEST_PAUSE)


def _row(number: int, message: Message) -> Row:
    """Returns a message as a row of a table, whose cells are its fields."""
    content = message.content
    if isinstance(content, Mapping):
        return Row(number, dict(content))
    try:
        return Row(number, msgspec.json.decode(content, type=dict[str, Any]))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Row(number, {}, f"the message is not a JSON object: {error}")
