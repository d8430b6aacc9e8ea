"""Files that hold a log without loss: JSON lines, or Parquet.

The first line of a JSON lines file says what it is and the last line how much there was, so that
half a file, or a damaged one, is told from a whole one. Parquet files have such marks of their
own.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec.structs import astuple

from belated.core.arguments import wrong
from belated.ledger.events import NOBODY, Event, Kind
from belated.ledger.ids import from_text, to_text
from belated.ledger.tools.parquet import CHUNK, arrow, write_rows
from belated.ledger.tools.progress import Share
from belated.ledger.tools.tables import part_read

FORMAT, VERSION = "belated-events", 2
READABLE = (1, 2)  # version 1, of belated 0.1, has no fields after ``digest``
SUFFIXES = (".jsonl", ".parquet")
_KINDS = {kind.name.lower(): kind for kind in Kind}


class EventRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One event in a file. ``digest`` is the digest of the decision's request, if it had one."""

    tx: int
    seq: int
    kind: str
    bandit: str
    id: str
    time: int
    value: float | None
    due: int | None
    body: bytes
    digest: bytes | None = None
    received: int | None = None
    closes: int | None = None
    combine: str | None = None


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """First line of a JSON lines file."""

    format: str
    version: int


class Footer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Last line of a JSON lines file: how many events, and a digest of all lines before."""

    events: int
    sha256: str


class DamagedFileError(ValueError):
    """A file that is not what was written."""


def row_of(event: Event, digest: bytes | None) -> EventRow:
    """Returns an event as a file holds it."""
    tx, seq, kind, bandit, id, time, value, due, body, *later = astuple(event)
    name = to_text(id) if id else ""
    return EventRow(
        tx, seq, kind.name.lower(), bandit, name, time, value, due, body, digest, *later
    )


def event_of(row: EventRow) -> Event:
    """Returns the event from which ``row_of`` made the row."""
    if row.kind not in _KINDS:
        raise wrong("kind", row.kind, f"one of {', '.join(_KINDS)}")
    id = from_text(row.id) if row.id else NOBODY
    if id is None:
        raise wrong("id", row.id, "the id of a decision, or nothing")
    kind = _KINDS[row.kind]
    about = row.time, row.value, row.due, row.body, row.received, row.closes, row.combine
    return Event(row.tx, row.seq, kind, row.bandit, id, *about)


def write_events(file: IO[bytes], suffix: str, rows: Iterable[EventRow]) -> int:
    """Write a file of events; returns how many it has."""
    return write_rows(file, _schema(), rows) if suffix == ".parquet" else _write_lines(file, rows)


def is_event_file(path: Path) -> bool:
    """Returns whether this is a file of events, rather than somebody else's log."""
    if path.suffix == ".parquet":
        pa, pq = arrow()
        try:
            return FORMAT.encode() in (pq.read_schema(path).metadata or {})
        except pa.ArrowException as error:
            raise DamagedFileError(f"{path}: {error}") from None
    with path.open("rb") as file:
        return f'"{FORMAT}"'.encode() in file.readline(200)


def read_events(path: Path, share: Share) -> Iterator[tuple[int, EventRow]]:
    """Yields every event with its line or row, from 1. Raises at the end if the file is damaged.

    A caller that must not act on half a file reads it to the end first. ``share`` tells from then
    on what part of the file has been read.
    """
    return (_read_parquet if path.suffix == ".parquet" else _read_lines)(path, share)


def _write_lines(file: IO[bytes], rows: Iterable[EventRow]) -> int:
    encode, digest, n = msgspec.json.Encoder().encode, sha256(), 0

    def write(line: bytes) -> None:
        digest.update(line)
        file.write(line)

    write(encode(Header(FORMAT, VERSION)) + b"\n")
    for row in rows:
        write(encode(row) + b"\n")
        n += 1
    file.write(encode(Footer(n, digest.hexdigest())) + b"\n")
    return n


def _read_lines(path: Path, share: Share) -> Iterator[tuple[int, EventRow]]:
    decode, digest = msgspec.json.Decoder(EventRow).decode, sha256()
    with path.open("rb") as file:
        share.position = part_read(path, file)
        held = file.readline()  # one line is held back, because the last is no event
        _check_version(path, _decoded(path, 1, held, Header).version)
        digest.update(held)
        number, held = 2, file.readline()
        for line in file:
            try:
                row = decode(held)
            except msgspec.DecodeError as error:
                raise DamagedFileError(f"{path}, line {number}: {error}") from None
            yield number, row
            digest.update(held)
            number, held = number + 1, line
    footer = _decoded(path, number, held, Footer)
    if footer != Footer(number - 2, digest.hexdigest()):
        raise DamagedFileError(f"{path}: changed since it was written; export again")


def _decoded(path: Path, number: int, line: bytes, type: Any) -> Any:
    try:
        return msgspec.json.decode(line, type=type)
    except msgspec.DecodeError:
        what = "first" if type is Header else "last"
        raise DamagedFileError(
            f"{path}, line {number}: expected the {what} line of an export; it was cut off, or is "
            "damaged. Export again"
        ) from None


def _check_version(path: Path, version: int) -> None:
    if version not in READABLE:
        raise DamagedFileError(
            f"{path} has format version {version}: expected {VERSION} or less, which this belated "
            "reads"
        )


def _schema() -> Any:
    pa, _ = arrow()
    types = {
        "tx": pa.int64(),
        "seq": pa.int64(),
        "kind": pa.dictionary(pa.int8(), pa.string()),
        "bandit": pa.string(),
        "id": pa.string(),
        "time": pa.int64(),
        "value": pa.float64(),
        "due": pa.int64(),
        "body": pa.binary(),
        "digest": pa.binary(),
        "received": pa.int64(),
        "closes": pa.int64(),
        "combine": pa.string(),
    }
    return pa.schema(types.items(), {FORMAT: str(VERSION)})


def _read_parquet(path: Path, share: Share) -> Iterator[tuple[int, EventRow]]:
    pa, pq = arrow()
    number = 0
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            _check_version(path, int(file.schema_arrow.metadata[FORMAT.encode()]))
            total = max(1, file.metadata.num_rows)
            share.position = lambda: number / total
            for batch in file.iter_batches(CHUNK):
                for cells in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    number += 1
                    yield number, EventRow(*cells)
    except (pa.ArrowException, OSError) as error:
        said = " ".join(str(error).split())  # pyarrow's errors may have several lines
        raise DamagedFileError(f"{path}, after row {number}: {said}") from None
