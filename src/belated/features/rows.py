"""Reading rows as people have them: dicts, arrays, data frames; numbers and categories in them."""

import json
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from belated.core.arguments import wrong
from belated.core.types import Vector

Key: TypeAlias = str | int
Record: TypeAlias = Mapping[Any, Any]

ROWS = "a list of dicts, a 2-d numpy array or a pandas, polars or pyarrow table"
CATEGORY = "a str, int, bool, None or finite float"
MISSING = ""  # the text of a missing category: no JSON text is empty


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
        if not isinstance(record, Mapping):
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
    for k, (record, about) in enumerate(zip(records, contexts, strict=True)):
        for key in record.keys() & about.keys():
            where = f"key {key!r}{_in_row(k, records)}"
            raise ValueError(f"{where} is in actions and context: expected in one")
    return [{**about, **record} for record, about in zip(records, contexts, strict=True)]


def numbers_in(column: Key, records: list[Record]) -> Vector:
    """The column as finite numbers, one in every row."""
    values: list[Any] = [record.get(column) for record in records]
    # One look at each type, not at each value: the usual column has one.
    types = {kind for kind in set(map(type, values)) if issubclass(kind, Real)} - {bool}
    for k, value in enumerate(values):
        try:
            fits = type(value) in types and math.isfinite(value)
        except OverflowError:  # an int such as 10**400
            fits = False
        if not fits:
            where = f"column {column!r}{_in_row(k, records)}"
            raise wrong(where, value, "a finite number in every row")
    return np.array(values, np.float64)


def texts_in(column: Key, records: list[Record]) -> list[str]:
    """The column as texts of categories, ``MISSING`` where a row lacks it."""
    texts = []
    for k, record in enumerate(records):
        try:
            texts.append(text_of(record[column]) if column in record else MISSING)
        except (TypeError, ValueError):
            where = f"column {column!r}{_in_row(k, records)}"
            raise wrong(where, record[column], CATEGORY) from None
    return texts


def _in_row(k: int, records: list[Record]) -> str:
    """Names the row by its index, unless there is only one: the caller may count otherwise."""
    return f" in row {k}" if len(records) > 1 else ""


@lru_cache(maxsize=2**16, typed=True)  # typed, since 1 == True
def text_of(value: Any) -> str:
    """The JSON text of a category, by which categories are told apart, hashed and stored."""
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, str | int | float | None):
        raise TypeError
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, allow_nan=False)
