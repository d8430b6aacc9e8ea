"""Reading rows as people have them: dicts, arrays, data frames; numbers and categories in them."""

import json
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from belated.core.arguments import wrong

Key: TypeAlias = str | int
Record: TypeAlias = Mapping[Any, Any]

ROWS = "a list of dicts, a 2-d numpy array or a pandas, polars or pyarrow table"
PANDAS_MISSING = ("NAType", "NaTType")  # by name: pandas need not be installed
CATEGORY = "a str, int, bool, None or finite float"
ABSENT = object()  # stands for the value of a column that a row lacks


def records_of(name: str, rows: Any) -> list[Record]:
    """``rows`` of any kind as dicts; ``name`` is what errors call them."""
    # Tables are told by their methods, so that none of their libraries has to be installed.
    if isinstance(rows, np.ndarray):
        if rows.ndim != 2:
            raise ValueError(f"{name} has shape {rows.shape}: expected a 2-d array")
        rows = [dict(enumerate(row)) for row in rows.tolist()]
    elif hasattr(rows, "to_dicts"):
        rows = rows.to_dicts()
    elif hasattr(rows, "to_pylist"):
        rows = rows.to_pylist()
    elif hasattr(rows, "iterrows"):
        rows = rows.to_dict(orient="records")
    if isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        raise TypeError(f"{name} = {rows!r}: expected {ROWS}")
    records = list(rows)
    for k, record in enumerate(records):
        if type(record) is not dict and not isinstance(record, Mapping):
            raise TypeError(f"{name}[{k}] = {record!r}: expected a dict; pass {ROWS}")
    if not records:
        raise ValueError(f"{name} has no rows: expected at least one")
    return records


def merged(actions: Any, context: Any) -> list[Record]:
    """One dict for each action: its own keys and those of its context."""
    records = records_of("actions", actions)
    if context is None:
        return records
    shared = isinstance(context, Mapping)
    contexts = [context] * len(records) if shared else records_of("context", context)
    if len(contexts) != len(records):
        raise wrong("rows of context", len(contexts), f"{len(records)}, one for each action")
    for (row, record), about in zip(numbered(records), contexts, strict=True):
        refuse_both(record.keys() & about.keys(), row)
    return [{**about, **record} for record, about in zip(records, contexts, strict=True)]


def sides_of(actions: Any, context: Any) -> list[list[Record]]:
    """Rows to learn columns from: each action with its context, or either side by itself.

    Of 20 actions and 2 contexts there are no pairs. None are needed: a column is on one side alone.
    """
    records = records_of("actions", actions)
    if context is None or isinstance(context, Mapping):
        return [merged(records, context)]
    contexts = records_of("context", context)
    if len(contexts) == len(records):
        return [merged(records, contexts)]
    refuse_both(set().union(*records) & set().union(*contexts), None)
    return [records, contexts]


def refuse_both(keys: Iterable[Any], row: int | None) -> None:
    """Raises if there are keys that both an action and its context have."""
    for key in keys:
        raise ValueError(f"key {key!r}{_in_row(row)} is in actions and context: expected in one")


def number_of(column: Key, value: Any, row: int | None) -> float:
    """Returns a finite number as a float, or raises."""
    if type(value) is float and math.isfinite(value):  # the usual number, quickly
        return value
    try:
        if type(value) is not bool and isinstance(value, Real) and math.isfinite(value):
            return float(value)
    except OverflowError:  # an int such as 10**400
        pass
    expected = "a finite number in every row"
    if is_missing(value):
        value, expected = (
            None if value is ABSENT else value,
            f"{expected}, or the column in missing=",
        )
    raise wrong(named(column, row), value, expected)


def is_missing(value: Any) -> bool:
    """Returns whether a value is missing: None, NaN, NA or NaT of pandas, or no value at all."""
    if value is None or value is ABSENT or type(value).__name__ in PANDAS_MISSING:
        return True
    return isinstance(value, Real) and bool(value != value)


def text_in(column: Key, value: Any, row: int | None) -> str:
    """Returns the text of a category, or raises."""
    try:
        return text_of(value)
    except (TypeError, ValueError):
        raise wrong(named(column, row), value, CATEGORY) from None


def tags_of(column: Key, value: Any, row: int | None) -> list[Any]:
    """Returns the categories that a value lists, or raises."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list | tuple):
        raise wrong(named(column, row), value, "a list of categories")
    return list(value)


def numbered(records: list[Record]) -> Iterable[tuple[int | None, Record]]:
    """Returns rows with their index, unless there is only one: the caller may count otherwise."""
    return enumerate(records) if len(records) > 1 else [(None, records[0])]


def _in_row(row: int | None) -> str:
    """Names the row in a message."""
    return "" if row is None else f" in row {row}"


def named(column: Key, row: int | None) -> str:
    """Names a value of the column in a message."""
    return f"column {column!r}{_in_row(row)}"


@lru_cache(maxsize=2**16, typed=True)  # typed, since 1 == True
def text_of(value: Any) -> str:
    """The JSON text of a category, by which categories are told apart, hashed and stored.

    A value that is missing is None: tables write NaN where there is no text.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if is_missing(value):
        value = None
    if not isinstance(value, str | int | float | None):
        raise TypeError
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, allow_nan=False)
