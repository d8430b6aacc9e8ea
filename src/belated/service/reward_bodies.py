"""Files of rewards as bodies of requests: however small, they may hold millions of rows."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import islice
from typing import Any

from belated import wire
from belated.core.arguments import wrong
from belated.core.events import Status
from belated.ledger.tools.parquet import arrow
from belated.ledger.tools.reward_files import (
    BATCH,
    COLUMNS,
    FIELDS,
    IN_THE_LOG,
    REASONS,
    Bad,
    Given,
    given_or_bad,
    texts,
)
from belated.ledger.tools.tables import Row, rows_in
from belated.service.http.problems import INVALID, Problem
from belated.service.rewarding import FILES, reward
from belated.service.service import Service

MOST_ROWS = 50_000
LONGEST_TEXT = 1_000  # bytes of a cell: a dictionary in Parquet repeats it for nothing
MOST_UNPACKED = 50_000_000  # bytes, by what a Parquet file says of itself
AT_ONCE = 500  # rows of Parquet: no other thread runs while they become Python objects


async def take_file(
    service: Service, bandit: str, raw: bytes, media_type: str
) -> wire.RewardsTaken:
    """Hand in the rewards of a file, some at a time: decisions come in between."""
    service.fold(bandit)
    async with service.one_file:
        try:
            rows = await asyncio.to_thread(_read, raw, FILES[media_type])
        except (ValueError, OSError, ModuleNotFoundError) as error:
            raise Problem(INVALID, f"{str(error).rstrip('.')}.") from None
        statuses, n_bad, first = Counter[Status](), 0, list[Bad]()
        for start in range(0, len(rows), BATCH):
            bad = await _hand_in(service, bandit, rows[start : start + BATCH], statuses)
            n_bad += len(bad)
            first += sorted(bad)[: wire.MOST_BAD_ROWS - len(first)]
            await asyncio.sleep(0)  # nothing above waits where no row can be written
    counts = {status: n for status, n in statuses.items() if n}
    return wire.RewardsTaken(len(rows), counts, n_bad, [wire.BadReward(*row) for row in first])


async def _hand_in(
    service: Service, bandit: str, rows: Sequence[Given | Bad], statuses: Counter[Status]
) -> list[Bad]:
    """Hand in some rows, and count their statuses; returns those that could not be used."""
    bad = [row for row in rows if isinstance(row, Bad)]
    given = [row for row in rows if isinstance(row, Given)]
    statuses[Status.INVALID] += len(bad)
    items = [
        wire.RewardItem(
            row.decision_id,
            row.reward,
            at=None if row.at is None else row.at / 1e6,
            event_id=row.event_id or None,
        )
        for row in given
    ]
    answer = await reward(service, items, bandit)
    statuses.update(answer.statuses)
    reasons = answer.reasons or [""] * len(given)
    for row, status, reason in zip(given, answer.statuses, reasons, strict=True):
        if status not in IN_THE_LOG:
            bad.append(Bad(row.line, status, reason or REASONS[status]))
    return bad


def _read(raw: bytes, format: str) -> list[Given | Bad]:
    if format == "parquet":
        rows = _parquet_rows(raw)
    else:
        rows = rows_in(BytesIO(raw), "the body", format, texts(COLUMNS))
    read = list(islice(given_or_bad(rows), MOST_ROWS + 1))
    if len(read) > MOST_ROWS:
        raise _too_many("more")
    return read


def _too_many(rows: object) -> ValueError:
    return ValueError(
        f"rows of the body: expected {MOST_ROWS:,} at most, got {rows}; send several files, "
        "or use `belated rewards FILE --url`, which takes any number"
    )


def _parquet_rows(raw: bytes) -> Iterator[Row]:
    """Yields the rows, with the columns that are used; texts stay packed until they are checked."""
    pa, pq = arrow()
    number = 0
    try:
        with pq.ParquetFile(BytesIO(raw)) as file:
            columns = _columns(pa, file)
        with pq.ParquetFile(BytesIO(raw), read_dictionary=columns) as file:
            for batch in file.iter_batches(AT_ONCE, columns=columns):
                _check_texts(pa, batch)
                for cells in batch.to_pylist():
                    number += 1
                    yield Row(number, cells)
    except pa.ArrowException as error:
        said = " ".join(str(error).split())  # pyarrow's errors may have several lines
        raise ValueError(f"the body, after row {number}: {said}") from None


def _columns(pa: Any, file: Any) -> list[str]:
    """Returns the names of the columns that are used; raises where the file is too large."""
    metadata, columns = file.metadata, [c for c in file.schema_arrow if c.name in FIELDS]
    if metadata.num_rows > MOST_ROWS:
        raise _too_many(f"{metadata.num_rows:,}")
    # Of columns nothing is asked: pyarrow ends the process where their statistics are damaged.
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    unpacked = sum(group.total_byte_size for group in groups)
    if unpacked > MOST_UNPACKED:
        raise wrong("unpacked size", unpacked, f"{MOST_UNPACKED:,} bytes at most")
    for column in columns:
        type = column.type
        is_wide = pa.types.is_fixed_size_binary(type) and type.byte_width > LONGEST_TEXT
        if pa.types.is_nested(type) or is_wide:
            raise wrong(column.name, str(type), "a column of texts, numbers or times")
    names = [column.name for column in columns]
    if len(set(names)) < len(names):
        raise wrong("columns of the body", names, "each name once")
    return names


def _check_texts(pa: Any, batch: Any) -> None:
    import pyarrow.compute as pc

    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_dictionary(column.type):
            longest = pc.max(pc.binary_length(column.dictionary)).as_py() or 0
            if longest > LONGEST_TEXT:
                raise wrong(name, f"a text of {longest} bytes", f"{LONGEST_TEXT} at most")
