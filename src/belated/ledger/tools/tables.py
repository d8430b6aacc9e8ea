"""Logs as people have them: CSV, Parquet, JSON lines, and the dsjson of Vowpal Wabbit."""

import csv
import io
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from belated.core.arguments import wrong
from belated.ledger.tools.parquet import arrow
from belated.ledger.tools.progress import Share

FORMATS = ("csv", "parquet", "jsonl", "dsjson")
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
WORDS = {"": None, "true": True, "false": False, "null": None}


class Row(NamedTuple):
    """One row: its place in the file and its cells, or what is wrong with them.

    ``line`` is the row's first line, as an editor counts them, with the header; for Parquet, it is
    the row's number from 1.
    """

    line: int
    cells: dict[str, Any]
    problem: str = ""


def format_of(path: Path, given: str | None) -> str:
    """Returns the format of a file: the one the user gave, or by the file's name."""
    if given is None and path.suffix in COMPRESSED:
        raise ValueError(f"{path}: it is compressed; unpack it first, or write it as Parquet")
    found = given or {"json": "jsonl", "ndjson": "jsonl"}.get(path.suffix[1:], path.suffix[1:])
    if found not in FORMATS:
        raise wrong("--format", given or path.name, f"{', '.join(FORMATS)}, or such a file name")
    return found


def parse_map(text: str, fields: Collection[str]) -> dict[str, str]:
    """Returns the columns that ``--map`` names, by field.

    >>> parse_map("time=shown_at, reward=sale", ["time", "reward", "id"])
    {'time': 'shown_at', 'reward': 'sale'}
    """
    columns = {}
    for part in filter(None, text.split(",")):
        field, _, column = (piece.strip() for piece in part.partition("="))
        if field not in fields or not column:
            raise wrong("--map", part, f"field=column, with a field of {', '.join(fields)}")
        columns[field] = column
    return columns


def columns_of(path: Path, format: str) -> list[str] | None:
    """Returns the columns of a table; None if every row may have its own."""
    if format == "csv":
        with path.open(encoding="utf-8-sig", newline="") as file:
            try:
                names = next(csv.reader(file), [])
            except UnicodeDecodeError as error:
                line = error.object[: error.start].count(b"\n") + 1
                raise ValueError(
                    f"{path}, line {line}: expected text in UTF-8 ({error.reason}); iconv -t UTF-8 "
                    "-f LATIN1, or -f UTF-16, makes it so"
                ) from None
        for sign in (";", "\t"):
            if len(names) == 1 and sign in names[0]:
                raise ValueError(f"{path}: expected commas between columns, and it has {sign!r}")
        if not names:
            raise ValueError(
                f"{path}: expected the names of columns in the first line, it is empty"
            )
        return names
    if format == "parquet":
        pa, pq = arrow()
        try:
            return list(pq.read_schema(path).names)
        except pa.ArrowException as error:
            raise ValueError(f"{path}: {' '.join(str(error).split())}") from None
    return None


def rows_of(path: Path, format: str, texts: Collection[str], share: Share) -> Iterator[Row]:
    """Yields the rows of a file; in a CSV file, the cells of the columns ``texts`` stay text.

    ``share`` tells from then on what part of the file has been read.
    """
    with path.open("rb") as file:
        share.position = part_read(path, file)
        yield from rows_in(file, str(path), format, texts, share)


def rows_in(
    file: IO[bytes], name: str, format: str, texts: Collection[str], share: Share | None = None
) -> Iterator[Row]:
    """Yields the rows of an open file, as ``rows_of``; ``name`` is what errors call it."""
    if format == "csv":
        return _csv_rows(file, name, texts)
    if format == "parquet":
        return _parquet_rows(file, name, share or Share())
    return _json_rows(file, format == "dsjson")


def _csv_rows(raw: IO[bytes], path: str, texts: Collection[str]) -> Iterator[Row]:
    file = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
    reader = csv.reader(file, strict=True)
    try:
        names = next(reader, [])
        readers = [str if name in texts else typed for name in names]
        first = reader.line_num + 1  # a row may have several lines, in quotes
        for values in reader:
            line, first = first, reader.line_num + 1
            if not values:  # a blank line
                continue
            if len(values) != len(names):
                said = f"{len(values)} cells: expected {len(names)}, as in the first line"
                yield Row(line, dict(zip(_wide(names, len(values)), values, strict=False)), said)
                continue
            read = [reads(text) for reads, text in zip(readers, values, strict=True)]
            yield Row(line, dict(zip(names, read, strict=True)))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}, after line {reader.line_num}: {error}") from None
    finally:
        file.detach()  # else it would close the file of the caller


def _wide(names: list[str], n: int) -> list[str]:
    """Returns the names of the columns, and of the cells of a row that has too many."""
    return [*names[:n], *(f"cell {k}" for k in range(len(names) + 1, n + 1))]


def part_read(path: Path, file: IO[bytes]) -> Callable[[], float]:
    """Returns a function that tells which part of an open file has been read."""
    size = max(1, path.stat().st_size)
    return lambda: 1.0 if file.closed else file.tell() / size


def typed(text: str) -> Any:
    """Returns a cell of a CSV file as it looks: a number, true or false, a list, None or text.

    >>> [typed(text) for text in ("2", "0.5", "true", "", "red", "[1, 2]")]
    [2, 0.5, True, None, 'red', [1, 2]]
    """
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        pass
    if text[:1] in ("[", "{"):
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text
    return WORDS.get(text.lower(), text)


def _parquet_rows(opened: IO[bytes], path: str, share: Share) -> Iterator[Row]:
    pa, pq = arrow()
    number = 0
    try:
        with pq.ParquetFile(opened) as file:
            total = max(1, file.metadata.num_rows)
            share.position = lambda: number / total
            for batch in file.iter_batches(10_000):
                for cells in batch.to_pylist():
                    number += 1
                    yield Row(number, cells)
    except pa.ArrowException as error:
        said = " ".join(str(error).split())  # pyarrow's errors may have several lines
        raise ValueError(f"{path}, after row {number}: {said}") from None


def _json_rows(file: IO[bytes], flat: bool) -> Iterator[Row]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            cells = decode(line)
            yield Row(number, _cells_of_dsjson(cells) if flat else cells)
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
            yield Row(number, {"text": line.decode(errors="replace").rstrip()}, str(error))


def _cells_of_dsjson(event: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a decision of Vowpal Wabbit's contextual bandit (cb_adf) as flat cells.

    The features of the context and of the chosen action become cells named ``namespace.feature``.
    A cost is a negative reward. The name of the action is its ``_tag``, or its place.
    """
    context = event.get("c")
    if "_labelIndex" not in event or not isinstance(context, Mapping):
        raise ValueError("expected a decision with _labelIndex and c; others cannot be imported")
    if event.get("_skipLearn"):
        raise ValueError("_skipLearn: the decision was not carried out")
    if event.get("pdrop"):
        expected = "0, because rows count once; leave it out where all have the same"
        raise wrong("pdrop", event["pdrop"], expected)
    index, actions = event["_labelIndex"], context.get("_multi", [])
    if not isinstance(index, int) or not 0 <= index < len(actions):
        raise wrong("_labelIndex", index, f"one of {len(actions)} actions in c._multi")
    cost = event.get("_label_cost")
    shared = {name: value for name, value in context.items() if name != "_multi"}
    return {
        **_flat(shared),
        **_flat(actions[index]),
        "id": event.get("EventId"),
        "time": event.get("Timestamp"),
        "action": str(actions[index].get("_tag", index)),
        "reward": None if cost is None else 0.0 - cost,
        "propensity": event.get("_label_probability"),
    }


def _flat(features: Any, prefix: str = "") -> dict[str, Any]:
    """Returns nested features by the path that leads to them; lists of numbers by their place."""
    if isinstance(features, list):
        features = dict(enumerate(features))
    if not isinstance(features, Mapping):
        return {prefix: features}
    cells: dict[str, Any] = {}
    for name, value in features.items():
        if not str(name).startswith("_"):
            cells |= _flat(value, f"{prefix}.{name}" if prefix else str(name))
    return cells


def is_missing(value: Any) -> bool:
    """Returns whether a cell holds nothing: tables write missing numbers as NaN."""
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))
