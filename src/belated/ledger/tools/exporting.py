"""A ledger as a file: its log without loss, or its decisions joined with their rewards."""

from collections.abc import Iterator
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from belated.core.arguments import wrong
from belated.core.files import replacing
from belated.core.times import utc
from belated.ledger import Ledger, LedgerError
from belated.ledger.base import described
from belated.ledger.events import START, Decided, Event, Kind
from belated.ledger.replica import Progress
from belated.ledger.tools import event_files, joining
from belated.ledger.tools.event_files import EventRow, row_of, write_events
from belated.ledger.tools.joining import joined, write_joined
from belated.ledger.tools.progress import progress
from belated.ledger.tools.reading import bandits_of, events_of, only_bandit

_decided = msgspec.msgpack.Decoder(Decided)


class Selection(NamedTuple):
    """The events to export: those of one bandit, handed in from a time, before a time."""

    bandit: str | None = None
    since: int | None = None
    until: int | None = None

    def wants(self, event: Event) -> bool:
        """Returns whether the event is selected."""
        return (
            self.bandit in (None, event.bandit)
            and (self.since is None or event.written >= self.since)
            and (self.until is None or event.written < self.until)
        )


def export(
    ledger: Ledger, out: Path, selection: Selection, *, as_joined: bool, dry_run: bool
) -> dict[str, Any]:
    """Write a file, all of it or nothing; returns a description of what was written."""
    suffixes = joining.SUFFIXES if as_joined else event_files.SUFFIXES
    if out.suffix not in suffixes:
        hint = "" if as_joined or out.suffix != ".csv" else "; CSV is for --joined"
        raise wrong("--out", str(out), f"a name that ends in {', '.join(suffixes)}{hint}")
    if selection.bandit is not None:
        only_bandit(bandits_of(ledger), selection.bandit)  # raises if there is no such bandit
    base = ledger.base()
    if base is not None and not as_joined and (selection.since or 0) <= base.until:
        raise LedgerError(
            f"events up to {utc(base.until)} were compacted and dropped: expected --since with a "
            "later time, --joined, or a copy of the whole ledger (belated ledger backup, pg_dump)"
        )
    passes = 2 if as_joined else 1
    file: Any = nullcontext(_Nowhere()) if dry_run else replacing(out)
    with progress("exporting", passes * ledger.behind(START)) as told, file as to:
        n = _write(to, ledger, out.suffix, selection, as_joined, told)
    said = {"rows": n, "kind": "decisions" if as_joined else "events", "file": str(out)}
    return said | described(base)


def _write(
    to: IO[bytes],
    ledger: Ledger,
    suffix: str,
    selection: Selection,
    as_joined: bool,
    told: Progress,
) -> int:
    if as_joined:
        return write_joined(to, suffix, joined(ledger, selection.wants, told))
    return write_events(to, suffix, _rows(ledger, selection, told))


def _rows(ledger: Ledger, selection: Selection, told: Progress) -> Iterator[EventRow]:
    for event in events_of(ledger, told):
        if selection.wants(event):
            yield row_of(event, request_digest(ledger, event))


def request_digest(ledger: Ledger, event: Event) -> bytes | None:
    """Returns the digest that tells a retry from another request of the same name."""
    if event.kind != Kind.DECIDED or not event.id:
        return None
    request = _decided.decode(event.body).request
    found = ledger.requested(event.bandit, request) if request else None
    return found[1] if found is not None and found[0].id == event.id else None


class _Nowhere(BytesIO):
    """A file that keeps nothing."""

    def write(self, data: Any) -> int:
        return len(data)
