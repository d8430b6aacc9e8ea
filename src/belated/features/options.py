"""Checks of the options of ``Features``: columns, some of them, pairs of them, their scales."""

from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

from belated.core.arguments import wrong
from belated.features.kinds import SCALES
from belated.features.raw_rows import Key

A_SCALE = f"one of {', '.join(map(repr, SCALES))}"


def columns_in(name: str, columns: Iterable[Key]) -> list[Key]:
    """Returns the columns that an option lists, or raises."""
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise TypeError(f"{name} = {columns!r}: expected a list of columns")
    checked: list[Key] = []
    for column in columns:
        if isinstance(column, bool) or not isinstance(column, str | Integral):
            raise TypeError(f"{name} has column {column!r}: expected a str or an int")
        checked.append(column if isinstance(column, str) else int(column))
    return checked


def some_of(name: str, columns: Iterable[Key], what: str, listed: list[Key]) -> list[Key]:
    """Returns the columns that an option lists, all of them ``listed``, or raises."""
    checked = columns_in(name, columns)
    for column in checked:
        if column not in listed:
            raise wrong(name, column, f"one of the {what} {listed}")
    return checked


def pairs_of(interactions: Iterable[Any], columns: list[Key]) -> list[tuple[Key, Key]]:
    """Returns the interactions, each a pair of ``columns`` and there once, or raises."""
    pairs: list[tuple[Key, Key]] = []
    for k, pair in enumerate(interactions):
        listed = isinstance(pair, tuple | list) and all(column in columns for column in pair)
        if not listed or len(pair) != 2:
            raise wrong(f"interactions[{k}]", pair, f"a pair of the columns {columns}")
        left, right = (columns[columns.index(column)] for column in pair)
        if (left, right) in pairs or (right, left) in pairs:
            raise wrong(f"interactions[{k}]", pair, "every pair listed once")
        pairs.append((left, right))
    return pairs


def scales_of(scale: Mapping[Key, str] | None, numeric: list[Key]) -> dict[Key, str]:
    """Returns the scales of numeric columns, or raises."""
    if not isinstance(scale, Mapping | None):
        raise TypeError(f"scale = {scale!r}: expected a dict of column to {A_SCALE}")
    scale = scale or {}
    for column in some_of("scale", scale, "numeric columns", numeric):
        if scale[column] not in SCALES:
            raise wrong(f"scale[{column!r}]", scale[column], A_SCALE)
    return {column: scale[column] for column in columns_in("scale", scale)}
