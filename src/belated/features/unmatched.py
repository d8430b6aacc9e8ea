"""Values in rows that the features cannot use. They become zeros, so they are counted and named."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple

from belated.features.raw_rows import Key

MOST_NAMED = 200  # different findings that are told apart: what people send has no bound
OTHERS = "(others)"  # stands for all further ones
SLICE = 300_000_000  # microseconds: recent findings are counted in slices of five minutes
HOUR = 12  # slices


def _now() -> int:
    return time.time_ns() // 1000


class Unmatched(NamedTuple):
    """Something in an action or a context that became zeros.

    Attributes
    ----------
    kind
        "category": a value that is none of the column's categories. "key": a key that no column
        uses, as a misspelt one. "missing": a column that neither the action nor the context has.
        "other": a value that counts as the category of all others, which is no surprise: it is
        counted and no more.
    column
        The column, or the key.
    value
        Of a category, known or other: its ``repr``.
    """

    kind: Literal["category", "key", "missing", "other"]
    column: Key
    value: str = ""

    def unnamed(self) -> "Unmatched":
        """The finding without its name: what is counted where there are too many."""
        if self.kind == "key":
            return self._replace(column=OTHERS)
        return self._replace(value=OTHERS)

    def __str__(self) -> str:
        return {
            "category": f"{self.column} = {self.value} is not a known category",
            "key": f"no column uses the key {self.column!r}",
            "other": f"{self.column} = {self.value} counts as other",
            "missing": f"the column {self.column!r} is missing",
        }[self.kind]


class UnmatchedFeaturesWarning(UserWarning):
    """A part of an action or of a context became zeros."""


class UnmatchedCounts:
    """Counts of each ``Unmatched``. Threads that add at the same time may lose a count.

    Parameters
    ----------
    by_row
        Count every row, not every call of ``transform``: of rows that are decisions of their own.
    clock
        Returns microseconds; for ``lately``.
    """

    def __init__(self, *, by_row: bool = False, clock: Callable[[], int] = _now) -> None:
        self.by_row, self.clock = by_row, clock
        self.counts: dict[Unmatched, int] = {}
        self.total = 0
        self._new: list[Unmatched] = []
        self._slices: Counter[tuple[Unmatched, int]] = Counter()

    def add(self, found: Mapping[Unmatched, int]) -> None:
        """Count the findings of one call; ``found`` says in how many rows each was."""
        now = self.clock() // SLICE
        for what, rows in found.items():
            if what not in self.counts and len(self.counts) >= MOST_NAMED:
                what = what.unnamed()
            count = rows if self.by_row else 1
            if what.kind != "other":
                if what not in self.counts:
                    self._new.append(what)
                self._slices[what, now] += count
                self.total += count
            self.counts[what] = self.counts.get(what, 0) + count
        for old in [key for key in list(self._slices) if key[1] <= now - HOUR]:
            self._slices.pop(old, None)

    def lately(self) -> dict[Unmatched, int]:
        """The counts of the last hour, the most frequent first."""
        first, recent = self.clock() // SLICE - HOUR, Counter[Unmatched]()
        for (what, slice), count in list(self._slices.items()):
            if slice > first:
                recent[what] += count
        return dict(recent.most_common())

    def take_new(self) -> list[Unmatched]:
        """Findings that are met for the first time since the last call."""
        new, self._new = self._new, []
        return new


def complaint(
    what: Unmatched, columns: Iterable[Key], categories: Iterable[Any] = ()
) -> ValueError:
    """The error for a finding, where ``strict`` forbids it."""
    if what.kind == "missing":
        return ValueError(
            f"column {what.column!r} is missing: expected in the action or its context, or named "
            "in optional="
        )
    known = list(map(repr, categories if what.kind == "category" else columns))
    given = what.value if what.kind == "category" else repr(what.column)
    like = get_close_matches(given, known, 1)
    hint = f"; did you mean {like[0]}?" if like else ""
    listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    if what.kind == "category":
        said = f"column {what.column!r} = {given}: expected a known category, one of {listed}"
    else:
        said = f"key {given}: expected a column, one of {listed}, or the key named in ignore="
    return ValueError(said + hint)
