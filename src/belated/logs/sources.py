"""Logs as their owners have them, read in batches: CSV, Parquet, JSON lines, data frames, ledgers.

A batch is a table of Arrow and the line of each of its rows. 100 million rows stream: one batch is
in memory at a time.
"""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from belated.core.arguments import wrong
from belated.core.files import refuse_missing
from belated.core.types import Integers
from belated.ledger.tools.parquet import arrow
from belated.ledger.tools.progress import Share
from belated.ledger.tools.tables import Row, columns_of, format_of, part_read, rows_in, rows_of
from belated.logs.bad_rows import NO_ROWS
from belated.logs.from_ledger import LedgerRows, is_ledger

BLOCK = 1 << 25  # bytes of a CSV file that are read at once
LONGEST = 4 * BLOCK  # a quoted cell of several lines ends within
BUFFER = 1 << 20  # bytes of each column of a Parquet file, of which a row group may be all
ROWS = 1 << 18  # of a Parquet file or a frame that are read at once
OBJECTS = 50_000  # rows at once where each is an object of Python
NOTHING = ["", "null", "NULL", "Null"]  # cells that hold no value
EXPECTED = "a file (CSV, Parquet, JSON lines), the URL of a ledger, or a data frame"


class Batch(NamedTuple):
    """Some rows of a log."""

    lines: Integers  # as an editor counts them; in Parquet, frames and ledgers numbers from 1
    table: Any
    whole: Callable[[Sequence[int]], list[Sequence[Any]]]  # all cells of the rows with these lines
    broken: Sequence[tuple[int, str]] = ()  # lines that are no rows, and why


class Source(Protocol):
    """A log that can be read."""

    names: Sequence[str]  # its columns
    share: Share  # the part that has been read

    @property
    def n_cancelled(self) -> int:
        """Returns how many decisions of a ledger were left out so far; of other logs 0."""

    def batches(self, wanted: Sequence[str]) -> Iterator[Batch]:
        """Yields the wanted columns of all rows."""


def open_source(source: Any, format: str | None = None, bandit: str | None = None) -> Source:
    """Returns the log in a file, a ledger or a data frame."""
    if is_ledger(source):
        ledger = LedgerRows(source, bandit)
        return _Objects(ledger.rows(), ledger=ledger)
    if bandit is not None:
        raise wrong("--bandit", bandit, "the URL of a ledger as the log: a file has no bandits")
    if isinstance(source, str | Path):
        path = Path(source)
        refuse_missing("log", str(source), path)
        if not path.stat().st_size:
            raise ValueError(f"{path}: the file is empty")
        if format is None and path.suffix == ".db":
            raise wrong("log", str(source), f"sqlite:///{source}, if it is a ledger")
        kind = format_of(path, format)
        if kind == "csv":
            return _Csv(path)
        if kind == "parquet":
            return _Parquet(path)
        share = Share()
        return _Objects(rows_of(path, kind, (), share), share)
    return _Frame(source)


class _Csv:
    n_cancelled = 0

    def __init__(self, path: Path) -> None:
        self.path, self.share = path, Share()
        self.names: Sequence[str] = columns_of(path, "csv") or []

    def batches(self, wanted: Sequence[str]) -> Iterator[Batch]:
        with self.path.open("rb") as file:
            self.share.position = part_read(self.path, file)
            header = _whole_rows(file, file.readline())
            if b"\r" in header.rstrip(b"\r\n") and b'"' not in header:
                raise ValueError(
                    f"{self.path}: its lines end with carriage returns alone, expected line feeds; "
                    "tr '\\r' '\\n' < OLD > NEW changes that"
                )
            line = 1 + _count_lines(header)
            while block := file.read(BLOCK):
                block = _whole_rows(file, block + file.readline())
                n_lines = _count_lines(block)
                yield self._batch(header, block, range(line, line + n_lines), wanted)
                line += n_lines

    def _batch(self, header: bytes, block: bytes, lines: range, wanted: Sequence[str]) -> Batch:
        """Returns the rows of a block, by Arrow; by Python where a row is not one line."""
        pa, _ = arrow()
        from pyarrow import csv as arrow_csv

        reading = arrow_csv.ReadOptions(column_names=self.names)
        converting = arrow_csv.ConvertOptions(
            include_columns=wanted,
            column_types=dict.fromkeys(wanted, pa.string()),
            strings_can_be_null=True,
            null_values=NOTHING,
        )
        try:
            table = arrow_csv.read_csv(pa.BufferReader(block), reading, convert_options=converting)
        except pa.ArrowInvalid:  # a row has too many cells, or too few, or a cell has several lines
            table = None
        if table is not None and table.num_rows == len(lines):
            return Batch(
                np.arange(lines.start, lines.stop),
                table,
                lambda wanted_lines: _cells(block, [line - lines.start for line in wanted_lines]),
            )
        moved = lines.start - 1 - _count_lines(header)
        name = f"{self.path}, counted from line {moved + 1:,}" if moved else str(self.path)
        rows = rows_in(io.BytesIO(header + block), name, "csv", self.names)
        moved_rows = [row._replace(line=row.line + moved) for row in rows]
        return _batch_of(moved_rows, wanted, self.names)


def _cells(block: bytes, places: Sequence[int]) -> list[Sequence[Any]]:
    """Returns the cells of some lines of a block."""
    lines = block.split(b"\n")
    return list(csv.reader(lines[place].decode(errors="replace").rstrip("\r") for place in places))


def _whole_rows(file: Any, block: bytes) -> bytes:
    """Returns a block that ends with a row: a cell in quotes may go on in the next line."""
    while block.count(b'"') % 2 and len(block) < LONGEST:
        more = file.readline()
        if not more:
            break
        block += more
    return block


def _count_lines(block: bytes) -> int:
    return block.count(b"\n") + (not block.endswith(b"\n"))


class _Parquet:
    n_cancelled = 0

    def __init__(self, path: Path) -> None:
        self.path, self.share = path, Share()
        self.names: Sequence[str] = columns_of(path, "parquet") or []

    def batches(self, wanted: Sequence[str]) -> Iterator[Batch]:
        pa, pq = arrow()
        number = 0
        beside = _Beside(self.path)
        try:
            with pq.ParquetFile(self.path, buffer_size=BUFFER, pre_buffer=False) as file:
                total = max(1, file.metadata.num_rows)
                self.share.position = lambda: number / total
                for batch in file.iter_batches(ROWS, columns=list(wanted)):
                    lines = np.arange(number + 1, number + 1 + batch.num_rows)
                    yield Batch(lines, pa.Table.from_batches([batch]), beside.cells)
                    number += batch.num_rows
        except pa.ArrowException as error:
            said = " ".join(str(error).split())  # pyarrow's errors may have several lines
            raise ValueError(f"{self.path}, after row {number}: {said}") from None


class _Beside:
    """All columns of a Parquet file, read a second time, as far as there are bad rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._batches: Any = None
        self._rows: Any = None  # the batch that was read last, and the number before its first row
        self._before = 0

    def cells(self, numbers: Sequence[int]) -> list[Sequence[Any]]:
        """Returns the cells of the rows with these numbers, which ascend from call to call."""
        _, pq = arrow()
        if self._batches is None:
            file = pq.ParquetFile(self.path, buffer_size=BUFFER, pre_buffer=False)
            self._batches = file.iter_batches(ROWS)
            self._rows = next(self._batches)
        result: list[Sequence[Any]] = []
        for number in numbers:
            while number - self._before > self._rows.num_rows:
                self._before += self._rows.num_rows
                self._rows = next(self._batches)
            row = self._rows.slice(number - self._before - 1, 1).to_pylist()[0]
            result.append(list(row.values()))
        return result


class _Frame:
    n_cancelled = 0

    def __init__(self, frame: Any) -> None:
        pa, _ = arrow()
        self.share = Share()
        if isinstance(frame, pa.Table):
            self._table = frame
        elif hasattr(frame, "to_arrow"):  # polars
            self._table = frame.to_arrow()
        elif hasattr(frame, "iloc"):
            self._table = pa.Table.from_pandas(frame, preserve_index=False)
        else:
            raise wrong("log", frame, EXPECTED)
        self.names: Sequence[str] = self._table.column_names

    def batches(self, wanted: Sequence[str]) -> Iterator[Batch]:
        table = self._table.select(list(wanted))
        for start in range(0, table.num_rows, ROWS):
            part = table.slice(start, ROWS)
            yield Batch(np.arange(start + 1, start + 1 + part.num_rows), part, self._cells)

    def _cells(self, numbers: Sequence[int]) -> list[Sequence[Any]]:
        rows = self._table.take([number - 1 for number in numbers]).to_pylist()
        return [list(row.values()) for row in rows]


class _Objects:
    """Rows that Python reads one by one; their columns are those of the first rows."""

    def __init__(
        self, rows: Iterator[Row], share: Share | None = None, ledger: LedgerRows | None = None
    ) -> None:
        first = list(islice(rows, OBJECTS))
        self._ledger = ledger
        self.share = share or Share()
        good = (row.cells for row in first if not row.problem)
        self.names: Sequence[str] = list(dict.fromkeys(name for cells in good for name in cells))
        if not self.names:
            raise ValueError(f"log: line {first[0].line}: {first[0].problem}" if first else NO_ROWS)
        self._rows = chain(first, rows)

    def batches(self, wanted: Sequence[str]) -> Iterator[Batch]:
        while rows := list(islice(self._rows, OBJECTS)):
            yield _batch_of(rows, wanted, self.names)

    @property
    def n_cancelled(self) -> int:
        return 0 if self._ledger is None else self._ledger.n_cancelled


def _batch_of(rows: Sequence[Row], wanted: Sequence[str], names: Sequence[str]) -> Batch:
    pa, _ = arrow()
    good = [row for row in rows if not row.problem]
    columns = {name: _column([row.cells.get(name) for row in good]) for name in wanted}
    lines = np.array([row.line for row in good], np.int64)
    by_line = {row.line: row for row in rows}

    def whole(lines: Sequence[int]) -> list[Sequence[Any]]:
        found = (by_line[line] for line in lines)
        return [
            [*row.cells.values()] if row.problem else [row.cells.get(name) for name in names]
            for row in found
        ]

    broken = [(row.line, row.problem) for row in rows if row.problem]
    return Batch(lines, pa.table(columns), whole, broken)


def _column(values: list[Any]) -> Any:
    """Returns a column of Arrow: of text where cells differ in type."""
    pa, _ = arrow()
    present = [None if isinstance(v, str) and v in NOTHING else v for v in values]
    try:
        return pa.array(present)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.array([None if value is None else str(value) for value in present])
