"""A lossless export into a ledger that does not have its bandits, or has part of them."""

from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import astuple

from belated.ledger import Ledger, LedgerError
from belated.ledger.events import START, Decided, Draft, Event, Kind, Outcome
from belated.ledger.replica import system_clock
from belated.ledger.rules import WRITTEN, handed_in
from belated.ledger.tools.event_files import DamagedFileError, EventRow, event_of, read_events
from belated.ledger.tools.invariants import Rules
from belated.ledger.tools.progress import Share, progress
from belated.ledger.tools.reading import events_of
from belated.ledger.tools.write_behind import without_collector, written_behind

BATCH = 5000  # events that become durable together
_decided = msgspec.msgpack.Decoder(Decided)


class _Share:
    """The part of one bandit's events that the ledger has already."""

    def __init__(self) -> None:
        self.n = 0
        self.digest = blake2b()

    def take(self, event: Event) -> None:
        """Count one more event."""
        self.n += 1
        self.digest.update(msgspec.msgpack.encode(astuple(event)[2:]))


class Plan(NamedTuple):
    """The content of a file, and the part of each of its bandits that the ledger has already."""

    events: int
    skipped: dict[str, int]

    def described(self) -> dict[str, Any]:
        """Returns the plan as the user sees it."""
        there = sum(self.skipped.values())
        return {"events": self.events, "new": self.events - there, "already_there": there}


def check_events(ledger: Ledger, path: Path) -> Plan:
    """Read the whole file; raise where it is no log, or not the one the ledger has part of."""
    if ledger.base() is not None:
        raise LedgerError(
            f"{path}: the ledger was compacted and may have had these events; expected another one"
        )
    held: dict[str, _Share] = {}
    with progress("reading the ledger", ledger.behind(START)) as told:
        for event in events_of(ledger, told):
            held.setdefault(event.bandit, _Share()).take(event)
    rules, shares, total = Rules(system_clock()), dict[str, _Share](), 0
    read = Share()
    with progress("checking events", share=read) as told:
        for line, row in read_events(path, read):
            total += 1
            event = _event(path, line, row)
            said = rules.problem(event)
            if said:
                raise DamagedFileError(f"{path}, line {line}: {row.kind} event {said}")
            share = shares.setdefault(event.bandit, _Share())
            if event.bandit in held and share.n < held[event.bandit].n:
                share.take(event)
            told(1)
    ours = {name: share for name, share in held.items() if name in shares}
    for name, share in ours.items():
        if shares[name].digest.digest() != share.digest.digest():
            raise LedgerError(
                f"{path}: the ledger has other events of {name or 'API keys'!r}, or more; expected "
                "one without that bandit, or one into which this very file was being imported"
            )
    return Plan(total, {name: share.n for name, share in ours.items()})


def write_events(ledger: Ledger, path: Path, plan: Plan) -> None:
    """Write the events transaction by transaction: rewards that came together stay together."""
    with progress("importing events", plan.events) as told, without_collector():
        for _, outcomes in written_behind(ledger.commit_all, _batches(path, plan, told)):
            check_written(path, outcomes)


def _batches(path: Path, plan: Plan, told: Callable[[int], None]) -> Iterator[list[list[Draft]]]:
    """Yields the transactions that are not there yet, about ``BATCH`` events at a time."""
    left = Counter(plan.skipped)
    batches: list[list[Draft]] = []
    tx = waiting = 0
    for line, row in read_events(path, Share()):
        told(1)
        if left[row.bandit] > 0:
            left[row.bandit] -= 1
            continue
        if row.tx != tx and waiting >= BATCH:
            yield batches
            batches, waiting = [], 0
        if row.tx != tx or not batches:
            batches.append([])
        tx, waiting = row.tx, waiting + 1
        batches[-1].append(draft_again(_event(path, line, row), row.digest))
    yield batches


def check_written(source: object, batches: list[list[Outcome]]) -> None:
    """Raises if an event of ``source`` was not written."""
    for outcome in chain.from_iterable(batches):
        if outcome.status not in WRITTEN:
            raise LedgerError(
                f"{source}: {outcome.status} event of {outcome.bandit!r}; expected a ledger into "
                "which nobody else writes the same"
            )


def _event(path: Path, line: int, row: EventRow) -> Event:
    try:
        return event_of(row)
    except ValueError as error:
        raise DamagedFileError(f"{path}, line {line}: {error}") from None


def draft_again(event: Event, digest: bytes | None) -> Draft:
    """Returns the draft that writes an event into another log; ``digest`` is of its request."""
    if event.id and event.kind in (Kind.REWARDED, Kind.REVISED):
        return handed_in(event)
    _, _, kind, bandit, id, time, value, due, body, *later = astuple(event)
    request = subject = ""
    if kind == Kind.DECIDED and id:
        decided = _decided.decode(body)
        subject = decided.subject
        request = "" if digest is None else decided.request
    return Draft(kind, bandit, id, time, value, due, body, request, digest or b"", subject, *later)
