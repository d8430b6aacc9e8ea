"""Retention that deletes: the oldest events become the base of the log and are dropped.

The base is folded from the log itself, never from a snapshot, and read back before anything is
deleted: it is the only thing that is left of those events.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from belated.core.times import duration, iso, utc
from belated.ledger import Ledger, LedgerError
from belated.ledger.base import as_carried, based, digest_of, is_carried, load, packed, start_of
from belated.ledger.events import NOBODY, START, Event, Kind, Position
from belated.ledger.replica import Progress, system_clock
from belated.ledger.tools.progress import progress
from belated.ledger.tools.reading import CHUNK, Rebuilding, opened
from belated.ledger.upkeep import Base


class Old(NamedTuple):
    """The events that are to be dropped: how many, up to where and up to when."""

    position: Position
    until: int = 0
    events: int = 0
    last_id: bytes = NOBODY


def compact(
    url: str, older_than: str, *, dry_run: bool, clock: Callable[[], int] = system_clock
) -> dict[str, Any]:
    """Compact the events that were handed in before a time; returns what was done."""
    before = clock() - duration("--older-than", older_than)
    with opened(url) as ledger:
        return compacted(ledger, before, dry_run=dry_run)


def compacted(ledger: Ledger, before: int, *, dry_run: bool = False) -> dict[str, Any]:
    """Compact a ledger; a compaction that was interrupted is finished first."""
    dropped = 0 if dry_run else ledger.drop()
    base = ledger.base()
    with progress("folding the old events", ledger.behind(start_of(ledger))) as told:
        replica, old, seen = _folded(ledger, base, before, told)
    _refuse_promoted(ledger, old.position)
    there, is_open = _events_to(ledger, old.position), _open_in(replica)
    carried = [as_carried(event) for event in there if is_carried(event, is_open)]
    found = {
        "before": iso(before),
        "events": old.events - (0 if base is None else base.events),
        "log_begins_after": utc(old.until) if old.events else None,
        "carried": len(carried),
        "bandits": len(replica.folds),
        "deleted": dropped,
        "written": False,
    }
    if dry_run or old.position == start_of(ledger):
        return found
    contents = [(name, packed(fold)) for name, fold in replica.folds.items()]
    new = Base(
        old.position,
        old.until,
        old.events,
        old.last_id,
        len(carried),
        digest_of(carried),
        tuple(based(replica.folds[name], content) for name, content in contents),
        "" if base is None else base.digest,
    )
    ledger.compact(new, contents, carried, seen)
    said = problems_of(ledger, new)
    if said:  # the events are all there: nothing was deleted yet
        raise LedgerError(f"the base cannot be read back, so nothing was deleted: {said[0]}")
    return found | {"deleted": dropped + ledger.drop(), "written": True}


def _folded(
    ledger: Ledger, base: Base | None, before: int, told: Progress
) -> tuple[Rebuilding, Old, Position]:
    """Fold the transactions at the beginning of the log all of whose events are old.

    The last transaction of the log always stays. Returns the bandits, what was folded, and the
    position that the log had reached by then.
    """
    replica = Rebuilding(ledger)
    seen = max((Position(e.tx, e.seq) for e in ledger.rare(Kind.FORGOTTEN, START)), default=START)
    replica.begin()
    old = Old(START) if base is None else Old(base.position, base.until, base.events, base.last_id)
    read, waiting = replica.position, list[Event]()
    while True:
        events, read = ledger.follow(read, CHUNK)
        waiting += events
        young = [event.tx for event in waiting if event.written >= before]
        last = min(young[0] if young else waiting[-1].tx, waiting[-1].tx) if waiting else 0
        ripe = [event for event in waiting if event.tx < last]
        if ripe:
            old = _added(old, ripe)
            replica.take_in(ripe, old.position)
            told(len(ripe))
        waiting = waiting[len(ripe) :]
        if young or not events:
            return replica, old, seen


def _refuse_promoted(ledger: Ledger, end: Position) -> None:
    """Raises if a bandit was promoted after ``end``: what led there is needed to fold it anew."""
    for event in ledger.rare(Kind.PROMOTED, end):
        expected = "expected a shorter --older-than, or to wait until that is as old"
        if not ledger.behind(Position(event.tx, event.seq)):
            expected = "it is the last event of the log, which stays: compact after the next one"
        raise LedgerError(
            f"{event.bandit!r} was promoted at {utc(event.written)}, and is folded from its first "
            f"event on: {expected}"
        )


def _open_in(replica: Rebuilding) -> Callable[[str, bytes], bool]:
    return lambda bandit, id: replica.folds[bandit].pending.get(id) is not None


def _added(old: Old, events: list[Event]) -> Old:
    decided = (event.id for event in events if event.kind is Kind.DECIDED)
    return Old(
        Position(events[-1].tx, events[-1].seq),
        max(old.until, *(event.written for event in events)),
        old.events + len(events),
        max(old.last_id, max(decided, default=NOBODY)),
    )


def _events_to(ledger: Ledger, end: Position) -> Iterator[Event]:
    """Yields the events up to a position that are still at hand."""
    yield from ledger.carried()
    position = start_of(ledger)
    while position < end:
        events, position = ledger.follow(position, CHUNK)
        yield from (event for event in events if (event.tx, event.seq) <= end)


def problems_of(ledger: Ledger, base: Base) -> list[str]:
    """Returns what is wrong with the base of a ledger, in words; it is read back for that."""
    found = []
    replica = Rebuilding(ledger)
    for bandit in base.bandits:
        try:
            fold = load(ledger, base, bandit, replica.empty_fold)
        except Exception as error:  # damaged bytes can break a reader anywhere
            found.append(f"{bandit.name!r}: {type(error).__name__}: {error}")
            continue
        if fold.digest() != bandit.digest:
            found.append(f"{bandit.name!r} is not what was compacted")
    carried = list(ledger.carried())
    if len(carried) != base.carried:
        found.append(f"{len(carried)} events are carried, expected {base.carried}")
    elif digest_of(carried) != base.carried_digest:
        found.append("events that are carried were changed")
    return found
