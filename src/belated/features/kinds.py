"""Kinds of columns: how a value becomes the nonzero entries of its column's block."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from belated.core.arguments import shown, wrong
from belated.core.types import Vector
from belated.features.raw_rows import (
    ABSENT,
    Key,
    is_missing,
    named,
    number_of,
    tags_of,
    text_in,
    text_of,
)
from belated.features.unmatched import Unmatched

Entry: TypeAlias = tuple[int, float]  # position in the block, and value
Entries: TypeAlias = list[Entry]  # at least one, so that every block has a place in a row
ZERO: Entries = [(0, 0.0)]

OTHER, MISSING = "(other)", "(missing)"  # in names of features


class Kind(Protocol):
    """A column with what ``fit`` learned of it."""

    @property
    def names(self) -> list[str]:
        """A name for each feature of the block."""

    def entries(self, value: Any, row: int | None) -> tuple[Entries, list[Unmatched]]:
        """Returns the entries of a value, and the parts of it that no feature represents.

        ``value`` is ``ABSENT`` where a row lacks the column; ``row`` is for errors.
        """


class Number(NamedTuple):
    """A column of numbers, and the curve that takes them to [-1, 1]."""

    column: Key
    curve: Callable[[float], float]
    missing: bool  # whether numbers may be missing: an indicator says so

    @property
    def names(self) -> list[str]:
        """The column, and the indicator."""
        return [str(self.column), *([f"{self.column}={MISSING}"] if self.missing else [])]

    def entries(self, value: Any, row: int | None) -> tuple[Entries, list[Unmatched]]:
        """The scaled number, or the indicator."""
        if self.missing and is_missing(value):
            return [(1, 1.0)], []
        return [(0, self.curve(number_of(self.column, value, row)))], []


class Category(NamedTuple):
    """A column to encode one-hot."""

    column: Key
    values: list[Any]
    places: dict[str, int]  # of each category, by its text
    other: bool  # whether the first feature is for all further categories
    optional: bool

    @classmethod
    def of(cls, column: Key, values: list[Any], other: bool, optional: bool) -> "Category":
        """Returns the column with the places of its categories."""
        places = {text_of(value): k + other for k, value in enumerate(values)}
        return cls(column, values, places, other, optional)

    @property
    def names(self) -> list[str]:
        """One for each category; first that of the others, so that new categories come last."""
        return [f"{self.column}={value}" for value in ([OTHER] * self.other) + self.values]

    def entries(self, value: Any, row: int | None) -> tuple[Entries, list[Unmatched]]:
        """A one in the place of the category."""
        if value is ABSENT:
            return ZERO, _lacking(self.column, self.optional)
        place = self.places.get(text_in(self.column, value, row))
        if place is not None:
            return [(place, 1.0)], []
        return [(0, float(self.other))], [_unknown(self.column, value, self.other)]


class Tags(NamedTuple):
    """A column of lists of categories."""

    one: Category  # the column, if every list had one category
    bounded: bool  # whether the block has norm 1 at most

    @property
    def names(self) -> list[str]:
        """One for each category."""
        return self.one.names

    def entries(self, value: Any, row: int | None) -> tuple[Entries, list[Unmatched]]:
        """A one for each category, however often it is listed; shorter where bounded."""
        if value is ABSENT:
            return self.one.entries(value, row)
        each = [self.one.entries(tag, row) for tag in tags_of(self.one.column, value, row)]
        places = sorted({place for ((place, one),), _ in each if one})
        found = list(dict.fromkeys(what for _, unknown in each for what in unknown))
        length = 1.0 / math.sqrt(len(places)) if places and self.bounded else 1.0
        return [(place, length) for place in places] or ZERO, found


class Hashed(NamedTuple):
    """A column to hash."""

    column: Key
    buckets: int
    optional: bool

    @property
    def names(self) -> list[str]:
        """One for each bucket."""
        return [f"{self.column}#{bucket}" for bucket in range(self.buckets)]

    def entries(self, value: Any, row: int | None) -> tuple[Entries, list[Unmatched]]:
        """A sign in the bucket of the value."""
        if value is ABSENT:
            return ZERO, _lacking(self.column, self.optional)
        return [_bucket(text_in(self.column, value, row), self.buckets)], []


def _lacking(column: Key, optional: bool) -> list[Unmatched]:
    return [] if optional else [Unmatched("missing", column)]


def _unknown(column: Key, value: Any, other: bool) -> Unmatched:
    plain = value.item() if isinstance(value, np.generic) else value
    return Unmatched("other" if other else "category", column, shown(plain))


@lru_cache(maxsize=2**16)
def _bucket(text: str, buckets: int) -> Entry:
    """Bucket and sign of a value; not by Python's ``hash``, which differs between processes."""
    number = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
    return (number >> 1) % buckets, 1.0 - 2.0 * (number & 1)


# -------------------------------------------------------------------------------------- curves

LEVELS = 20  # a quantile column has this many parts, each with as many of the numbers of fit


def _log(number: float) -> float:
    return math.log(number) if number > 0.0 else -math.inf


def _log1p(number: float) -> float:
    return math.log1p(number) if number >= 0.0 else -math.inf


def _itself(number: float) -> float:
    return number


SCALES = ("linear", "log", "log1p", "quantile")
FUNCTIONS = {"linear": _itself, "log": _log, "log1p": _log1p}


def curve_by_range(how: str, low: float, high: float) -> Callable[[float], float]:
    """Returns the curve that takes the range to [-1, 1], evenly on the given scale."""
    scale = FUNCTIONS[how]
    return partial(_by_range, scale, scale(low), scale(high))


def _by_range(scale: Callable[[float], float], low: float, high: float, number: float) -> float:
    width = high / 2 - low / 2  # halves, since high - low may overflow
    at = scale(number)
    scaled = (at / 2 - low / 2) / width * 2 - 1 if width else at - low
    return min(max(scaled, -1.0), 1.0)


def quantiles_of(numbers: Vector) -> list[float]:
    """Returns the numbers between which equal parts of all of them are, with both ends.

    >>> quantiles_of(np.arange(101.0))[:3]
    [0.0, 5.0, 10.0]
    """
    halves = np.quantile(numbers / 2, np.arange(LEVELS + 1) / LEVELS)  # differences may overflow
    return [2.0 * float(half) for half in halves]


def curve_by_quantiles(quantiles: Iterable[float]) -> Callable[[float], float]:
    """Returns the curve that takes quantiles to even steps from -1 to 1, linear in between.

    A number that is several quantiles at once goes to the middle of their steps.

    >>> curve = curve_by_quantiles([0.0, 0.0, 1.0, 10.0, 20.0])
    >>> [curve(number) for number in (-5.0, 0.0, 0.5, 1.0, 15.0, 99.0)]
    [-0.75, -0.75, -0.375, 0.0, 0.75, 1.0]
    """
    ordered = list(quantiles)
    steps: dict[float, list[int]] = {}
    for k, quantile in enumerate(ordered):
        steps.setdefault(quantile, []).append(k)
    last = max(len(ordered) - 1, 1)
    levels = [(group[0] + group[-1]) / last - 1.0 for group in steps.values()]
    return partial(_by_quantiles, list(steps), levels)


def _by_quantiles(quantiles: list[float], levels: list[float], number: float) -> float:
    right = bisect_right(quantiles, number)
    if right in (0, len(quantiles)):
        return levels[max(right - 1, 0)]
    (low, high), (below, above) = quantiles[right - 1 : right + 1], levels[right - 1 : right + 1]
    width = high / 2 - low / 2  # halves, since high - low may overflow
    return below + (above - below) * ((number / 2 - low / 2) / width) if width else below


def refuse_for_scale(how: str, column: Key, number: float, row: int | None) -> None:
    """Raises where ``fit`` meets a number that the scale has no place for; later it is clipped."""
    if how in FUNCTIONS and FUNCTIONS[how](number) == -math.inf:
        expected = "above 0" if how == "log" else "0 or more"
        raise wrong(named(column, row), number, f"{expected} in fit, for scale {how!r}")
