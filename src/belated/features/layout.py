"""Rows put together from two sides: what an action holds, and what its context holds.

The place of every entry of a row is a number of the action plus a number of the context, and its
value is a number of the action times a number of the context. Each side is looked at once: an
action that comes again with another context costs nothing, and a context is read once for all
actions.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from belated.core.types import Integers, Matrix
from belated.features.kinds import Entries, Kind, Tags
from belated.features.raw_rows import ABSENT, Key, Record, numbered, refuse_both
from belated.features.unmatched import Unmatched

# how many parts are kept: numbers may make every action, or every context, a new one
REMEMBERED_ACTIONS, REMEMBERED_CONTEXTS = 2**12, 2**8

Factors: TypeAlias = list[tuple[Key, int]]  # columns of a block: a step of each is so many places


class Block(NamedTuple):
    """Features that stand side by side: a column, an interaction, or the constant."""

    start: int
    factors: Factors


class Part(NamedTuple):
    """The places and values that one action, or one context, adds to a row."""

    counts: tuple[int, ...]  # entries of each block
    places: bytes  # of all entries, as int32
    values: bytes  # as float64
    found: tuple[Unmatched, ...]  # what became zeros


class Stack(NamedTuple):
    """The parts of several actions, or of one context; shorter ones end in zeros in each block."""

    counts: tuple[int, ...]
    places: Integers  # (K, entries)
    values: Matrix
    found: list[Unmatched]


class Side:
    """Actions, or contexts, and the columns that they hold.

    Parameters
    ----------
    kinds
        The columns of this side.
    blocks
        All blocks, each with the columns of this side alone.
    known
        Keys that may be there.
    remembered
        How many parts to keep.
    refused
        Keys that the other side holds.
    """

    def __init__(
        self,
        kinds: Mapping[Key, Kind],
        blocks: Sequence[Block],
        known: frozenset[Key],
        remembered: int,
        refused: frozenset[Key] = frozenset(),
    ) -> None:
        self._kinds, self._blocks, self._known, self._refused = kinds, blocks, known, refused
        self._tags = [column for column, kind in kinds.items() if isinstance(kind, Tags)]
        # by values with their types, since 1 == True
        self._remembered: Callable[..., Part] = lru_cache(remembered, typed=True)(self._of_values)

    def stack(self, records: list[Record]) -> Stack:
        """Returns the parts of these records, or raises, naming the row."""
        if self._tags:
            records = [_hashable(record, self._tags) for record in records]
        try:
            parts = [self._remembered(tuple(r), *map(r.get, self._kinds)) for r in records]
        except (TypeError, ValueError):  # a list cannot be remembered; an error lacks its row
            for column, kind in self._kinds.items():
                if not any(column in record for record in records):
                    kind.entries(ABSENT, None)  # if it raises, no single row is to blame
            parts = [self._part(record, row) for row, record in numbered(records)]
        return _stacked(parts)

    def _of_values(self, keys: tuple[Any, ...], *values: Any) -> Part:
        """Returns the part of a record with these keys, of which only our columns count."""
        own = zip(self._kinds, values, strict=True)
        return self._part(dict.fromkeys(keys) | {c: value for c, value in own if c in keys})

    def _part(self, record: Record, row: int | None = None) -> Part:
        refuse_both(self._refused & record.keys(), row)
        of_columns: dict[Key, Entries] = {}
        found: list[Unmatched] = []
        for column, kind in self._kinds.items():
            of_columns[column], unknown = kind.entries(record.get(column, ABSENT), row)
            found += unknown
        unused = [key for key in record.keys() - self._known if isinstance(key, str)]
        found += [Unmatched("key", key[:200]) for key in unused]  # arrays have no names
        counts: list[int] = []
        together: Entries = []
        for block in self._blocks:
            entries = _product(block, of_columns)
            counts.append(len(entries))
            together += entries
        places, values = zip(*together, strict=True) if together else ((), ())
        at, factors = array("i", places), array("d", values)
        return Part(tuple(counts), at.tobytes(), factors.tobytes(), tuple(found))


def _hashable(record: Record, tags: list[Key]) -> Record:
    """Returns the record with tuples in place of lists of texts: these differ if their texts do."""
    lists = {c: record[c] for c in tags if c in record and isinstance(record[c], list)}
    frozen = {c: tuple(tags) for c, tags in lists.items() if set(map(type, tags)) <= {str}}
    return {**record, **frozen}


def _product(block: Block, of_columns: Mapping[Key, Entries]) -> Entries:
    """Returns the products of the entries of a block's columns; none has the product 1."""
    entries = [(block.start, 1.0)]
    for column, step in block.factors:
        new = of_columns[column]
        entries = [(at + step * place, a * b) for at, a in entries for place, b in new]
    return entries


def _stacked(parts: list[Part]) -> Stack:
    counts, of_places, of_values, of_found = zip(*parts, strict=True)
    places = np.frombuffer(b"".join(of_places), np.int32)
    values = np.frombuffer(b"".join(of_values))
    found = list(chain.from_iterable(of_found))
    n = len(parts)
    if counts.count(counts[0]) == n:
        return Stack(counts[0], places.reshape(n, -1), values.reshape(n, -1), found)
    most = np.max(counts, axis=0)
    filled = _ranks(most) < np.repeat(counts, most, axis=1)
    padded = np.zeros(filled.shape, np.int32), np.zeros(filled.shape)
    padded[0][filled], padded[1][filled] = places, values
    return Stack(tuple(most.tolist()), *padded, found)


def _ranks(counts: Iterable[int]) -> Integers:
    return np.concatenate([np.arange(count) for count in counts])


class Layout:
    """The two sides of rows whose context has given keys.

    Parameters
    ----------
    kinds
        All columns.
    blocks
        All blocks with all their columns.
    known
        Keys that rows may have.
    keys
        Keys of the context. A column that is none of them is one of the actions.
    scale
        What all entries are multiplied by.
    """

    def __init__(
        self,
        kinds: Mapping[Key, Kind],
        blocks: Sequence[Block],
        known: frozenset[Key],
        keys: frozenset[Any],
        scale: float,
    ) -> None:
        self.scale = scale
        shared = {column: kind for column, kind in kinds.items() if column in keys}
        own = {column: kind for column, kind in kinds.items() if column not in keys}
        of_actions = [_only(block.start, block, own) for block in blocks]
        of_context = [_only(0, block, shared) for block in blocks]
        self._actions = Side(own, of_actions, known, REMEMBERED_ACTIONS, refused=keys)
        self._context = Side(shared, of_context, known, REMEMBERED_CONTEXTS)
        self._single = (1,) * len(blocks)

    def actions(self, records: list[Record]) -> Stack:
        """Returns what the actions hold."""
        return self._actions.stack(records)

    def context(self, about: Record) -> Stack:
        """Returns what the context holds."""
        return self._context.stack([about])

    def rows(self, actions: Stack, about: Stack) -> tuple[Integers, Matrix]:
        """Returns the columns and values of the entries of each action's row."""
        if about.counts == actions.counts == self._single:
            columns, values = actions.places + about.places, actions.values * about.values
        else:  # in a block, each entry of the action meets each of the context
            times = np.repeat(about.counts, actions.counts)
            first = np.repeat(np.cumsum((0, *about.counts[:-1])), actions.counts)
            which = np.repeat(first, times) + _ranks(times)
            columns = np.repeat(actions.places, times, axis=1) + about.places[:, which]
            values = np.repeat(actions.values, times, axis=1) * about.values[:, which]
        values *= self.scale
        values += 0.0  # no -0.0: a vector has one spelling
        return columns, values


def _only(start: int, block: Block, kinds: Mapping[Key, Kind]) -> Block:
    return Block(start, [(column, step) for column, step in block.factors if column in kinds])


def dense(columns: Integers, values: Matrix, dim: int) -> Matrix:
    """Returns rows with all their zeros."""
    n = len(columns)
    flat = columns + dim * np.arange(n)[:, np.newaxis]
    x: Matrix = np.bincount(flat.ravel(), values.ravel(), n * dim).astype(np.float64, copy=False)
    return x.reshape(n, dim)
