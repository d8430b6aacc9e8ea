"""Columns of Arrow as arrays of NumPy: names, numbers and times, whatever type a file gave them.

Whole columns are converted at once. Only where that fails, each cell that stands in the way is
read by the rules of ``belated ledger import``.
"""

import math
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import any_number
from belated.core.times import LATEST, SECOND, microseconds
from belated.core.types import Integers, Vector
from belated.ledger.tools.parquet import arrow
from belated.ledger.tools.tables import is_missing, typed

PENDING = -1  # the time of a reward that has not come; no time of a log is before 2000
DATE = r"^\d{4}-\d\d-\d\d([ T]\d\d(:\d\d(:\d\d(\.\d{1,6})?)?)?)?"
ZONE = r"(Z|[+-]\d\d(:?\d\d)?)$"


class Numbers(NamedTuple):
    """A column of numbers."""

    values: Vector  # NaN where there is none
    unreadable: Any  # True where a cell holds something else


class Times(NamedTuple):
    """A column of times."""

    values: Integers  # microseconds since 1970; PENDING where there is none
    unreadable: Any  # True where a cell holds something else
    zoned: Any  # True where a cell says its zone, as numbers since 1970 do


def names(column: Any) -> Any:
    """Returns texts as an array of objects, None where a cell is empty."""
    column = texts(column)
    head = column.slice(0, 1000)
    if len(head.unique()) > len(head) // 2:  # ids, say: there is nothing to share
        return column.to_numpy(zero_copy_only=False)
    coded = column.dictionary_encode()
    known = np.append(coded.dictionary.to_numpy(zero_copy_only=False), [None])
    return known[coded.indices.fill_null(len(known) - 1).to_numpy()]


def texts(column: Any) -> Any:
    """Returns a column of Arrow as texts."""
    pa, _ = arrow()
    if pa.types.is_nested(column.type):
        return pa.array([None if cell is None else str(cell) for cell in column.to_pylist()])
    return column if _is_text(column.type) else column.cast(pa.string())


def empty(texts: Any) -> Any:
    """Returns where an array of texts has none."""
    nothing: Any = None
    return np.equal(texts, nothing)


def numbers(column: Any) -> Numbers:
    """Returns numbers; texts such as 0.5, true and false are read."""
    pa, _ = arrow()
    with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
        values = column.cast(pa.float64()).fill_null(math.nan).to_numpy()
        return Numbers(values, np.zeros(values.size, bool))
    values, unreadable = np.full(len(column), math.nan), np.zeros(len(column), bool)
    for row, cell in enumerate(column.to_pylist()):
        found = typed(cell) if isinstance(cell, str) else cell
        if not is_missing(found):
            try:
                values[row] = any_number(found)
            except (TypeError, ValueError, OverflowError):
                unreadable[row] = True
    return Numbers(values, unreadable)


def times(column: Any) -> Times:
    """Returns times: timestamps, dates, ISO texts, or seconds or the like since 1970."""
    pa, _ = arrow()
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        zoned = getattr(kind, "tz", None) is not None
        unit = pa.timestamp("us", "UTC" if zoned else None)
        return _read(_moments(column.cast(unit, safe=False)), zoned)
    if not _is_text(kind):
        return _read(_since_1970(numbers(column).values), True)
    first = int(np.argmax(column.is_valid().to_numpy(zero_copy_only=False))) if len(column) else 0
    text = column[first].as_py() if len(column) else None
    for read, pattern, zoned in FORMS:  # most often, all cells look like the first
        if text is None or re.match(pattern, text):
            with suppress(pa.ArrowInvalid):
                return _read(read(column), zoned)
    return _mixed_times(column)


def _is_text(kind: Any) -> bool:
    pa, _ = arrow()
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _read(values: Integers, zoned: bool) -> Times:
    return Times(values, np.zeros(values.size, bool), np.full(values.size, zoned))


def _moments(column: Any) -> Integers:
    pa, _ = arrow()
    return column.cast(pa.int64()).fill_null(PENDING).to_numpy()


def _local(texts: Any) -> Integers:
    pa, _ = arrow()
    return _moments(texts.cast(pa.timestamp("us")))


def _with_zone(texts: Any) -> Integers:
    pa, _ = arrow()
    return _moments(texts.cast(pa.timestamp("us", "UTC")))


def _counted(texts: Any) -> Integers:
    pa, _ = arrow()
    return _since_1970(texts.cast(pa.float64()).fill_null(math.nan).to_numpy())


def _since_1970(values: Vector) -> Integers:
    """Returns microseconds; units are told by the size of a number, as in core/times.py."""
    size = np.abs(values)
    unit = np.where(size * SECOND < LATEST, SECOND, np.where(size * 1000 < LATEST, 1000, 1))
    return np.where(np.isfinite(values), np.rint(values * unit), PENDING).astype(np.int64)


# The forms of a time that whole columns are read in, and how a cell of each form looks.
FORMS: tuple[tuple[Callable[[Any], Integers], str, bool], ...] = (
    (_local, DATE + "$", False),
    (_with_zone, DATE + ZONE, True),
    (_counted, r"^\d+(\.\d*)?$", True),
)


def _mixed_times(texts: Any) -> Times:
    """Returns the times of a column whose cells are not all of one form."""
    pa, _ = arrow()
    import pyarrow.compute as pc

    n = len(texts)
    result = Times(np.full(n, PENDING), np.zeros(n, bool), np.zeros(n, bool))
    left = texts.is_valid().to_numpy(zero_copy_only=False)
    for read, pattern, zoned in FORMS:
        looks = pc.match_substring_regex(texts, pattern).fill_null(False)
        fits = looks.to_numpy(zero_copy_only=False) & left
        with suppress(pa.ArrowInvalid):  # 2026-02-31 looks like a date
            result.values[fits] = read(texts.filter(pa.array(fits)))
            result.zoned[fits] = zoned
            left &= ~fits
    for row in np.flatnonzero(left):
        try:
            text = texts[int(row)].as_py()
            result.values[row] = microseconds("time", typed(text))
            result.zoned[row] = datetime.fromisoformat(text).tzinfo is not None
        except ValueError:
            result.unreadable[row] = True
    return result
