"""Features built from named columns, with a norm that is guaranteed."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import lru_cache
from hashlib import blake2b
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from belated.core.arguments import positive, whole, wrong
from belated.core.types import Integers, Matrix, Vector
from belated.features.rows import MISSING, Key, Record, merged, numbers_in, text_of, texts_in
from belated.features.unmatched import Unmatched, UnmatchedCounts, complaint, found_in

# A block of features has at most one nonzero entry a row: its position in the block, its value.
Slot: TypeAlias = tuple[int, int]
Entries: TypeAlias = tuple[Integers, Vector]  # of all rows
NOTHING: Slot = 0, 0


class Features:
    """Scaling, one-hot encoding, hashing and interactions, with a norm that is guaranteed.

    Every row of ``transform`` has Euclidean norm at most ``max_norm``, whether its values were
    seen in ``fit`` or not. Each column, each interaction and the intercept is a block of norm at
    most 1; all are multiplied by the same constant, ``max_norm / sqrt(number of blocks)``.

    Parameters
    ----------
    numeric
        Columns of numbers. The range seen in ``fit`` becomes [-1, 1]; a value beyond it is
        clipped to -1 or 1. A column that was constant in ``fit`` becomes the difference from
        that constant, clipped to [-1, 1].
    categorical
        Columns to encode one-hot, by the categories seen in ``fit`` in the order they came. An
        unseen category, or a row without the key, gives all zeros and is counted in
        ``unmatched``. ``with_categories`` adds categories.
    hashed
        Number of buckets of each column to hash: one entry of -1 or 1, found by blake2b of the
        value's JSON text and so the same everywhere. A row without the key gives all zeros.
    interactions
        Pairs of the columns above: all products of a feature of one and a feature of the other.
    intercept
        Whether to add a constant feature.
    max_norm
        Bound on the norm of every row.
    ignore
        Keys that rows have and no column uses, on purpose. Those of the rows of ``fit`` need not be
        listed.
    optional
        Columns that rows may lack.
    strict
        Whether ``transform`` raises where it would otherwise give zeros and count: at an unknown
        category, a key that no column uses and a missing column.

    Attributes
    ----------
    unmatched
        An ``UnmatchedCounts``: what ``transform`` met and turned into zeros, and how often.

    Notes
    -----
    Rows are a list of dicts, a 2-d numpy array (its columns are 0, 1, ...) or a pandas, polars or
    pyarrow table. Columns that are not listed give no features; a listed column that is in no row
    of ``fit`` is an error. ``context`` is a dict that all rows share, or one row for each action;
    no key may be in both an action and its context.

    A category is a str, int, bool, None or finite float. Numbers are compared as numbers, so 1 and
    1.0 are the same category, but 1, True and "1" are three. None is a category like others.

    Examples
    --------
    >>> from belated.features import Features
    >>> features = Features(numeric=["price"], categorical=["ad"], interactions=[("price", "ad")])
    >>> features.fit_transform([{"price": 10, "ad": "a"}, {"price": 30, "ad": "b"}])
    array([[-0.5,  0.5,  0. , -0.5,  0. ,  0.5],
           [ 0.5,  0. ,  0.5,  0. ,  0.5,  0.5]])
    >>> features.names
    ['price', 'ad=a', 'ad=b', 'price * ad=a', 'price * ad=b', 'intercept']
    >>> features.transform([{"ad": "unseen"}], context={"price": 25})
    array([[0.25, 0.  , 0.  , 0.  , 0.  , 0.5 ]])
    >>> for what, count in features.unmatched.counts.items():
    ...     print(what, count)
    ad = 'unseen' is not a known category 1
    """

    def __init__(
        self,
        *,
        numeric: Iterable[Key] = (),
        categorical: Iterable[Key] = (),
        hashed: Mapping[Key, int] | None = None,
        interactions: Iterable[tuple[Key, Key]] = (),
        intercept: bool = True,
        max_norm: float = 1.0,
        ignore: Iterable[Key] = (),
        optional: Iterable[Key] = (),
        strict: bool = False,
    ) -> None:
        if not isinstance(hashed, Mapping | None):
            raise TypeError(f"hashed = {hashed!r}: expected a dict of column to number of buckets")
        self.numeric = _columns("numeric", numeric)
        self.categorical = _columns("categorical", categorical)
        self.hashed = {
            column: whole(f"hashed[{column!r}]", (hashed or {})[column])
            for column in _columns("hashed", hashed or {})
        }
        listed = [*self.numeric, *self.categorical, *self.hashed]
        for column, times in Counter(listed).items():
            if times > 1:
                raise ValueError(f"column {column!r} is listed twice: expected once")
        self.interactions = _pairs(interactions, listed)
        self.intercept = bool(intercept)
        self.max_norm = positive("max_norm", max_norm)
        self.ignore = _columns("ignore", ignore)
        self.optional = _columns("optional", optional)
        for column in self.optional:
            if column not in listed:
                raise wrong("optional", column, f"one of the columns {listed}")
        self.strict = bool(strict)
        self.unmatched = UnmatchedCounts()
        if not listed and not self.intercept:
            raise wrong("intercept", intercept, "True, or a column in numeric, categorical, hashed")
        self._fitted: _Fitted | None = None

    def fit(self, actions: Any, context: Any = None) -> "Features":
        """Learn the ranges of the numbers and the categories; refused rows change nothing."""
        records = merged(actions, context)
        ranges, categories = [], []
        for column in self.numeric:
            numbers = numbers_in(column, records)
            ranges.append([column, float(numbers.min()), float(numbers.max())])
        for column in (*self.categorical, *self.hashed):
            texts = dict.fromkeys(texts_in(column, records))
            if not any(texts):
                raise ValueError(f"column {column!r} is in no row: expected one of {[*records[0]]}")
            if column in self.categorical:
                categories.append([column, [json.loads(text) for text in texts if text]])
        others = {key for key in set[Any]().union(*records) if isinstance(key, str)}
        self._fitted = self._with_names(ranges, categories, sorted(others - {*self.columns}))
        return self

    def transform(self, actions: Any, context: Any = None) -> Matrix:
        """One row of features for each action, of shape (K, dim)."""
        self._need_fit()
        records = merged(actions, context)
        blocks = {c: self.entries(c, records) for c in self.columns}
        self.notice(self.unmatched_in(records, blocks))
        return self.rows_of(blocks, len(records))

    def unmatched_in(
        self, records: list[Record], blocks: Mapping[Key, Entries]
    ) -> Counter[Unmatched]:
        """Counts the rows in which an unknown value becomes zeros; ``blocks`` are their entries."""
        of_texts = {c: blocks[c] for c in (*self.categorical, *self.hashed) if c in blocks}
        return found_in(records, of_texts, self.optional, self._need_fit().keys)

    def check_action(self, action: Record) -> None:
        """Raise where strict features cannot use an action, whatever its context."""
        if self.strict:
            blocks = {c: self.entries(c, [action]) for c in self.columns if c in action}
            self.notice(self.unmatched_in([action], blocks))

    def notice(self, found: Mapping[Unmatched, int]) -> None:
        """Count what became zeros; raise at the first of it where the features are strict."""
        if not found:
            return
        if self.strict:
            what = next(iter(found))
            known = self._need_fit().slots.get(what.column, {})
            raise complaint(what, self.columns, map(json.loads, known))
        self.unmatched.add(found)

    @property
    def columns(self) -> list[Key]:
        """The names of all columns that the features use."""
        return [*self.numeric, *self.categorical, *self.hashed]

    def entries(self, column: Key, records: list[Record]) -> Entries:
        """Returns, for each row, the places and values of a column's block that are not zero."""
        fitted = self._need_fit()
        ranges, slots = fitted.ranges, fitted.slots
        if column in ranges:
            return _scaled(numbers_in(column, records), *ranges[column])
        texts = texts_in(column, records)
        if column in slots:
            return _arrays([slots[column].get(text, NOTHING) for text in texts])
        return _arrays([_hash_slot(text, self.hashed[column]) for text in texts])

    def rows_of(self, blocks: dict[Key, Entries], n: int) -> Matrix:
        """The rows that these entries of the columns give; those of one row stand for all."""
        names, entries = self._need_fit().names, dict[Any, Entries](blocks)
        for left, right in self.interactions:
            (i, a), (j, b) = blocks[left], blocks[right]
            entries[left, right] = i * len(names[right]) + j, a * b
        if self.intercept:
            entries[None] = np.zeros(1, np.int64), np.ones(1)
        x = np.zeros((n, self.dim))
        rows, start = np.arange(n), 0
        for block, (position, value) in entries.items():
            x[rows, start + position] = value
            start += len(names[block])
        return self.scaled(x)

    def scaled(self, x: Matrix) -> Matrix:
        """``x``, of whose entries none exceeds 1, with rows no longer than ``max_norm``.

        No entry exceeds the scale and a row has one per block, so rounding cannot add up: the norm
        stays within a few ulps of ``max_norm`` whatever the number of blocks.
        """
        x *= self.max_norm / math.sqrt(len(self.blocks))
        x += 0.0  # no -0.0: a vector has one spelling
        return x

    @property
    def blocks(self) -> list[Any]:
        """The blocks of a row: columns, pairs of columns, and None for the intercept."""
        return list(self._need_fit().names)

    def columns_of(self, block: Any) -> tuple[Key, ...]:
        """The columns behind a block."""
        return block if isinstance(block, tuple) else () if block is None else (block,)

    @property
    def widths(self) -> dict[Any, int]:
        """Number of features of each block."""
        return {block: len(names) for block, names in self._need_fit().names.items()}

    def with_categories(self, more: Mapping[Key, Iterable[Any]]) -> "Features":
        """These features with further categories; those there were stay what they are.

        See ``Bandit.grow``.

        >>> features = Features(categorical=["ad"]).fit([{"ad": "a"}, {"ad": "b"}])
        >>> features.with_categories({"ad": ["b", "c"]}).names
        ['ad=a', 'ad=b', 'ad=c', 'intercept']
        """
        from belated.features.growing import with_categories

        self._need_fit()
        return with_categories(self, more)

    def fit_transform(self, actions: Any, context: Any = None) -> Matrix:
        """``fit``, then ``transform`` of the same rows."""
        records = merged(actions, context)
        return self.fit(records).transform(records)

    @property
    def dim(self) -> int:
        """Number of features."""
        return sum(map(len, self._need_fit().names.values()))

    @property
    def names(self) -> list[str]:
        """A name for each feature, such as ``price``, ``country=NO`` or ``user#17``."""
        return [name for block in self._need_fit().names.values() for name in block]

    def to_dict(self) -> dict[str, Any]:
        """All options and what ``fit`` learned, exactly, as JSON can hold it."""
        # Options at their defaults are left out: a map of before they existed has the same dict.
        noticing = {"ignore": self.ignore, "optional": self.optional, "strict": self.strict}
        # Pairs in place of dicts, since JSON would turn the column 0 into "0".
        return {
            "kind": "features",
            "numeric": list(self.numeric),
            "categorical": list(self.categorical),
            "hashed": [list(item) for item in self.hashed.items()],
            "interactions": [list(pair) for pair in self.interactions],
            "intercept": self.intercept,
            "max_norm": self.max_norm,
            "fitted": deepcopy(self._fitted and self._fitted.learned),
            **{name: deepcopy(value) for name, value in noticing.items() if value},
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Features":
        """Inverse of ``to_dict``: the same features to the last bit.

        >>> features = Features(categorical=[0]).fit(np.array([[7], [8]]))
        >>> Features.from_dict(json.loads(json.dumps(features.to_dict()))).names
        ['0=7', '0=8', 'intercept']
        """
        if d.get("kind") != "features":
            raise wrong("kind", d.get("kind"), "'features'")
        options = {name: value for name, value in d.items() if name not in ("kind", "fitted")}
        features = cls(**options | {"hashed": dict(d["hashed"])})
        if d["fitted"] is not None:
            features._fitted = features._with_names(**deepcopy(d["fitted"]))
        return features

    def _need_fit(self) -> "_Fitted":
        if self._fitted is None:
            raise ValueError("these Features have seen no rows yet: call fit first")
        return self._fitted

    def _with_names(
        self, ranges: list[Any], categories: list[Any], others: list[str] | None = None
    ) -> "_Fitted":
        values = dict(categories)
        names: dict[Any, list[str]] = {column: [str(column)] for column in self.numeric}
        for column in self.categorical:
            names[column] = [f"{column}={value}" for value in values[column]]
        for column, buckets in self.hashed.items():
            names[column] = [f"{column}#{bucket}" for bucket in range(buckets)]
        for left, right in self.interactions:
            names[left, right] = [f"{a} * {b}" for a in names[left] for b in names[right]]
        if self.intercept:
            names[None] = ["intercept"]
        slots = {
            column: {text_of(value): (position, 1) for position, value in enumerate(values[column])}
            for column in self.categorical
        }
        learned = {"ranges": ranges, "categories": categories}
        learned |= {"others": others} if others else {}
        keys = frozenset([*self.columns, *self.ignore, *(others or ())])
        return _Fitted(names, {column: ends for column, *ends in ranges}, slots, learned, keys)


class _Fitted(NamedTuple):
    names: dict[Any, list[str]]  # of each block: a column, a pair of them, or None: the intercept
    ranges: dict[Key, list[float]]
    slots: dict[Key, dict[str, Slot]]  # of each category, by its text
    learned: dict[str, Any]  # the same, as ``to_dict`` gives it
    keys: frozenset[Key]  # that a row may have: columns, those to ignore, and others seen in fit


# ------------------------------------------------------------------------------------- options


def _columns(name: str, columns: Iterable[Key]) -> list[Key]:
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise TypeError(f"{name} = {columns!r}: expected a list of columns")
    checked: list[Key] = []
    for column in columns:
        if isinstance(column, bool) or not isinstance(column, str | Integral):
            raise TypeError(f"{name} has column {column!r}: expected a str or an int")
        checked.append(column if isinstance(column, str) else int(column))
    return checked


def _pairs(interactions: Iterable[Any], columns: list[Key]) -> list[tuple[Key, Key]]:
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


# -------------------------------------------------------------------------------------- blocks


def _scaled(numbers: Vector, low: float, high: float) -> Entries:
    width = high / 2 - low / 2  # halves, since high - low may overflow
    with np.errstate(over="ignore"):  # infinity is clipped to 1
        scaled = (numbers / 2 - low / 2) / width * 2 - 1 if width else numbers - low
    # np.clip takes longer for a single number, which a context has
    return np.zeros(len(numbers), np.int64), np.minimum(np.maximum(scaled, -1.0), 1.0)


def _arrays(slots: list[Slot]) -> Entries:
    positions, values = zip(*slots, strict=True)
    return np.array(positions, np.int64), np.array(values, np.float64)


@lru_cache(maxsize=2**16)
def _hash_slot(text: str, buckets: int) -> Slot:
    """Bucket and sign of a value; not by Python's ``hash``, which differs between processes."""
    if text == MISSING:
        return NOTHING
    number = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
    return (number >> 1) % buckets, 1 - 2 * (number & 1)
