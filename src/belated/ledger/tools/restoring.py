"""A ledger as it was at a moment, in a new one.

The copy ends before the first transaction that was written after the moment: it holds nothing
later, and where the clocks of several writers disagree it may end earlier, by as much. Data that
were erased since are gone from the log, and so from its copy. Keys that were revoked since stay
revoked: the copy gets their revocations, too.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from belated.core.arguments import wrong
from belated.core.files import sync_folder, unfinished_file
from belated.core.times import iso, utc
from belated.ledger import Ledger, LedgerError, open_ledger
from belated.ledger.events import START, Draft, Event, KeyChange, Kind, Position
from belated.ledger.replica import Progress
from belated.ledger.tools.exporting import request_digest
from belated.ledger.tools.importing_events import check_written, draft_again
from belated.ledger.tools.maintenance import without_password
from belated.ledger.tools.progress import progress
from belated.ledger.tools.reading import events_of, opened
from belated.ledger.tools.verifying import verify
from belated.ledger.tools.write_behind import without_collector, written_behind

TOGETHER = 1_000  # transactions that become durable together
SQLITE = "sqlite:///"


class _End(NamedTuple):
    """The end of the log at a moment."""

    position: Position = START
    events: int = 0
    last: int = 0  # when the last event was written


def restore(url: str, target: str, until: int, *, dry_run: bool) -> dict[str, Any]:
    """Copy the log up to a time into a new ledger and verify it; a copy that is not sound goes.

    Raises if there is nothing before that time.
    """
    with opened(url) as source:
        base = source.base()
        if base is not None:
            raise LedgerError(
                f"a copy as of a moment needs the whole log: events up to {utc(base.until)} were "
                "compacted and dropped; belated ledger backup copies what is there"
            )
        total = source.behind(START)
        with progress("looking for the end", total) as told:
            end = _end(source, until, told)
        if not end.events:
            raise _nothing_before(source, until)
        revocations = _revocations(source, end.position)
        report: dict[str, Any] = {
            "ledger": without_password(target),
            "until": iso(until),
            "events": end.events,
            "last": iso(end.last),
            "left_out": total - end.events,
            "keys_revoked_since": len(revocations),
        }
        if dry_run:
            return report | {"written": False, "sound": True}
        with _new(target) as (place, keep), closing(open_ledger(place)) as copy:
            if copy.behind(START):
                raise wrong("--out", report["ledger"], "a ledger without events")
            _copy(source, copy, end, revocations)
            found = verify(copy, None)
            if found["sound"]:
                keep()
    return {**report, **found, "events": end.events, "written": found["sound"]}


def _transactions(source: Ledger, told: Progress) -> Iterator[list[Event]]:
    for _, events in groupby(events_of(source, told), attrgetter("tx")):
        yield list(events)


def _end(source: Ledger, until: int, told: Progress) -> _End:
    end = _End()
    for events in _transactions(source, told):
        if any(event.written > until for event in events):
            break
        last = events[-1]
        end = _End(Position(last.tx, last.seq), end.events + len(events), last.written)
    return end


def _nothing_before(source: Ledger, until: int) -> ValueError:
    first = next(events_of(source), None)
    if first is None:
        return ValueError("there is nothing to copy: this ledger has no events")
    return wrong("--until", iso(until), f"{iso(first.written)}, when the log begins, or later")


def _revocations(source: Ledger, end: Position) -> list[Draft]:
    """Returns the drafts of the revocations of keys that were made before a place, after it."""
    known = {_key(e).id for e in source.rare(Kind.KEYS, START) if (e.tx, e.seq) <= end}
    since = source.rare(Kind.KEYS, end)
    return [draft_again(e, None) for e in since if _key(e).revoked and _key(e).id in known]


def _key(event: Event) -> KeyChange:
    return msgspec.msgpack.decode(event.body, type=KeyChange)


def _copy(source: Ledger, copy: Ledger, end: _End, revocations: list[Draft]) -> None:
    """Write the log transaction by transaction: rewards that came together stay together."""

    def batches(told: Progress) -> Iterator[list[list[Draft]]]:
        left = end.events
        transactions = _transactions(source, told)
        while left:
            several = []
            for events in islice(transactions, TOGETHER):
                several.append([draft_again(e, request_digest(source, e)) for e in events])
                left -= len(events)
                if not left:
                    break
            yield several
        if revocations:
            yield [revocations]

    with progress("copying", end.events) as told, without_collector():
        for _, outcomes in written_behind(copy.commit_all, batches(told)):
            check_written("the log", outcomes)


@contextmanager
def _new(target: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yields the URL to write to, and a function that says that the copy is good.

    A SQLite file is moved into place when it is.
    """
    if not target.startswith(SQLITE):
        yield target, lambda: None
        return
    out, good = Path(target.removeprefix(SQLITE)), []
    if out.exists():
        raise wrong("--out", target, "the name of a new file")
    if not out.parent.is_dir():
        raise wrong("--out", target, "a name in a folder that exists")
    with unfinished_file(out.parent) as part:
        yield f"{SQLITE}{part}", lambda: good.append(True)
        if good:
            part.rename(out)
    sync_folder(out.parent)
