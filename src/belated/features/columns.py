"""Features built from named columns, with a norm that is guaranteed."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from belated.core.arguments import flag, positive, whole, wrong
from belated.core.sparse import SparseRows
from belated.core.types import Integers, Matrix
from belated.features.fitted import Fitted, fitted, learned_from
from belated.features.growing import with_categories
from belated.features.layout import Layout, Side, Stack, dense
from belated.features.options import columns_in, pairs_of, scales_of, some_of
from belated.features.raw_rows import Key, Record, merged, records_of, sides_of
from belated.features.unmatched import Unmatched, UnmatchedCounts, complaint

LAYOUTS = 16  # contexts with so many different keys are remembered


class Features:
    """Scaling, one-hot encoding, hashing and interactions, with a norm that is guaranteed.

    Every row of ``transform`` has Euclidean norm at most ``max_norm``, whether its values were
    seen in ``fit`` or not. Each column, each interaction and the intercept is a block of norm at
    most 1; all are multiplied by the same constant, ``max_norm / sqrt(number of blocks)``.
    ``unbounded`` returns the same features without that constant.

    Parameters
    ----------
    numeric
        Columns of numbers. The range seen in ``fit`` becomes [-1, 1]; a value beyond it is
        clipped to -1 or 1. A column that was constant in ``fit`` becomes the difference from
        that constant, clipped to [-1, 1]. See ``scale`` and ``missing``.
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
        Keys that rows have on purpose although no column uses them. Keys of the rows of ``fit``
        need not be listed.
    optional
        Columns that rows may lack.
    strict
        Whether ``transform`` raises at an unknown category, a key that no column uses and a missing
        column. Otherwise it gives zeros and counts them.
    missing
        Numeric columns whose number may be None, NaN or absent. Such a column has a second feature,
        the indicator. If the number is missing, the indicator is 1 and the first feature 0.
    tags
        Columns that hold a list of categories. The features of all categories in the list have the
        same value: 1 for ``unbounded`` features, otherwise of norm 1 together. Categories are those
        seen in ``fit``, as in ``categorical``.
    scale
        How to scale a numeric column. "linear", the default: evenly. "log": evenly in the
        logarithm; numbers in ``fit`` must be above 0. "log1p": evenly in log(1 + number); numbers
        in ``fit`` must be 0 or more. "quantile": evenly in the share of the numbers of ``fit`` that
        are smaller, linear between 21 quantiles.
    other
        Categorical columns and tags with one more feature, for all categories that ``fit`` has not
        seen. Such categories are counted in ``unmatched``; ``strict`` features accept them.

    Attributes
    ----------
    bounded
        False after ``unbounded``.
    unmatched
        An ``UnmatchedCounts``: the parts of rows that ``transform`` turned into zeros, and how
        often.

    Notes
    -----
    Rows are a list of dicts, a 2-d numpy array (its columns are 0, 1, ...) or a pandas, polars or
    pyarrow table. Columns that are not listed give no features; a listed column that is in no row
    of ``fit`` is an error. ``context`` is a dict that all rows share, or one row for each action
    (in ``fit``, any number of rows); no key may be in both an action and its context.

    A category is a str, int, bool, None or finite float. Numbers are compared as numbers, so 1 and
    1.0 are the same category, but 1, True and "1" are three. None is a category like others. NaN,
    which tables have in the place of a missing text, is read as None.

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
        missing: Iterable[Key] = (),
        tags: Iterable[Key] = (),
        scale: Mapping[Key, str] | None = None,
        other: Iterable[Key] = (),
    ) -> None:
        if not isinstance(hashed, Mapping | None):
            raise TypeError(f"hashed = {hashed!r}: expected a dict of column to number of buckets")
        self.numeric = columns_in("numeric", numeric)
        self.categorical = columns_in("categorical", categorical)
        self.hashed = {
            column: whole(f"hashed[{column!r}]", (hashed or {})[column])
            for column in columns_in("hashed", hashed or {})
        }
        self.tags = columns_in("tags", tags)
        listed = self.columns
        for column, times in Counter(listed).items():
            if times > 1:
                raise ValueError(f"column {column!r} is listed twice: expected once")
        self.interactions = pairs_of(interactions, listed)
        self.intercept = bool(intercept)
        self.max_norm = positive("max_norm", max_norm)
        self.ignore = columns_in("ignore", ignore)
        self.optional = some_of("optional", optional, "columns", listed)
        self.missing = some_of("missing", missing, "numeric columns", self.numeric)
        many = [*self.categorical, *self.tags]
        self.other = some_of("other", other, "categorical and tags columns", many)
        self.scale = scales_of(scale, self.numeric)
        self.strict = bool(strict)
        self.bounded = True
        self.unmatched = UnmatchedCounts()
        if not listed and not self.intercept:
            columns = "a column in numeric, categorical, hashed, tags"
            raise wrong("intercept", intercept, f"True, or {columns}")
        self._fitted: Fitted | None = None
        self._layouts: dict[tuple[Any, ...], Layout] = {}

    def fit(self, actions: Any, context: Any = None) -> "Features":
        """Learns the ranges of the numbers and the categories; refused rows change nothing.

        There may be more actions than contexts, or fewer. Every column is learnt by itself, from
        the side that has it, and an interaction has all products of the features of its two
        columns. So it makes no difference which action stood beside which context. One dict as
        ``context`` is one context: its categories are all that ``fit`` sees.

        >>> features = Features(categorical=["ad", "device"], interactions=[("ad", "device")])
        >>> ads = [{"ad": "a"}, {"ad": "b"}, {"ad": "c"}]
        >>> features.fit(ads, [{"device": "phone"}, {"device": "desktop"}]).groups
        {'ad': 3, 'device': 2, 'ad * device': 6, 'intercept': 1}
        >>> features.fit(ads, {"device": "phone"}).groups
        {'ad': 3, 'device': 1, 'ad * device': 3, 'intercept': 1}
        """
        self._take_over(learned_from(self, sides_of(actions, context)))
        return self

    def transform(self, actions: Any, context: Any = None) -> Matrix:
        """Returns one row of features for each action, of shape (K, dim)."""
        return self.dense(*self.entries(actions, context))

    def sparse_rows(self, actions: Any, context: Any = None) -> "SparseRows":
        """Returns the entries of ``transform`` that may be nonzero: no array is as wide as ``dim``.

        >>> features = Features(categorical=["ad"], intercept=False).fit([{"ad": "a"}, {"ad": "b"}])
        >>> features.sparse_rows([{"ad": "b"}, {"ad": "a"}, {"ad": "unseen"}])
        SparseRows(columns=array([[1],
               [0],
               [0]], dtype=int32), values=array([[1.],
               [1.],
               [0.]]))
        """
        return SparseRows(*self.entries(actions, context))

    def entries(self, actions: Any, context: Any = None) -> tuple[Integers, Matrix]:
        """Returns columns and values of the entries of each action's row."""
        if isinstance(context, Mapping):
            records, about = records_of("actions", actions), context
        else:  # a context for each action, or none
            records, about = merged(actions, context), {}
        shape = self.layout(tuple(about))
        return self.rows(shape, shape.actions(records), about)

    def rows(self, shape: Layout, actions: Stack, about: Record) -> tuple[Integers, Matrix]:
        """Returns columns and values of each action's entries; counts what became zeros."""
        of_context = shape.context(about)
        if actions.found or of_context.found:
            self.notice(Counter(actions.found + of_context.found * len(actions.places)))
        return shape.rows(actions, of_context)

    def layout(self, keys: tuple[Any, ...]) -> Layout:
        """Returns the layout of rows whose context has these keys."""
        known = self._layouts.get(keys)
        if known is None:
            fitted, blocks = self._need_fit(), len(self.blocks)
            scale = self.max_norm / math.sqrt(blocks) if self.bounded else 1.0
            known = Layout(fitted.kinds, fitted.blocks, fitted.keys, frozenset(keys), scale)
            self._layouts = {**self._layouts, keys: known} if len(self._layouts) < LAYOUTS else {}
        return known

    def dense(self, columns: Integers, values: Matrix) -> Matrix:
        """Returns the rows with these entries.

        No entry exceeds the scale and a row has one per block, so rounding cannot add up: the norm
        stays within a few ulps of ``max_norm`` whatever the number of blocks.
        """
        return dense(columns, values, self.dim)

    def check_action(self, action: Record) -> None:
        """Raises if the features cannot use an action, whatever its context."""
        fitted = self._need_fit()
        own = {column: kind for column, kind in fitted.kinds.items() if column in action}
        found = Side(own, [], fitted.keys, remembered=0).stack([action]).found
        if self.strict:
            self.notice(Counter(found))

    def notice(self, found: Mapping[Unmatched, int]) -> None:
        """Counts what became zeros; raises at the first of it if the features are strict."""
        places = {column: k for k, column in enumerate(self.columns)}

        def order(what: Unmatched) -> tuple[int, str]:  # by columns, then keys that are no column
            return places.get(what.column, len(places)), str(what.column)

        ordered = sorted(found, key=order)
        forbidden = [what for what in ordered if what.kind != "other"]
        if self.strict and forbidden:
            known = dict(self._need_fit().learned["categories"])
            raise complaint(forbidden[0], self.columns, known.get(forbidden[0].column, ()))
        self.unmatched.add({what: found[what] for what in ordered})

    @property
    def columns(self) -> list[Key]:
        """The names of all columns that the features use."""
        return [*self.numeric, *self.categorical, *self.hashed, *self.tags]

    @property
    def blocks(self) -> list[Any]:
        """The blocks of a row: columns, pairs of columns, and None for the intercept."""
        return list(self._need_fit().names)

    def columns_of(self, block: Any) -> tuple[Key, ...]:
        """Returns the columns behind a block."""
        return block if isinstance(block, tuple) else () if block is None else (block,)

    @property
    def widths(self) -> dict[Any, int]:
        """Number of features of each block."""
        return {block: len(names) for block, names in self._need_fit().names.items()}

    @property
    def longest(self) -> float:
        """Bound on the norm of every row; a list is assumed to have all tags of its column.

        >>> features = Features(categorical=["ad"], tags=["likes"])
        >>> _ = features.fit([{"ad": "a", "likes": ["sea", "snow"]}])
        >>> features.longest, features.unbounded().longest    # of a column, two tags, the constant
        (1.0, 2.0)
        """
        if self.bounded:
            return self.max_norm
        most = {
            column: self.widths[column] if column in self.tags else 1 for column in self.columns
        }
        products = (
            math.prod(most[column] for column in self.columns_of(block)) for block in self.blocks
        )
        return math.sqrt(sum(products))

    @property
    def groups(self) -> dict[str, int]:
        """Name and number of features of each block, in the order of the features.

        >>> features = Features(categorical=["ad", "hour"], interactions=[("ad", "hour")])
        >>> features.fit([{"ad": "a", "hour": 0}, {"ad": "b", "hour": 1}]).groups
        {'ad': 2, 'hour': 2, 'ad * hour': 4, 'intercept': 1}
        """
        groups: dict[str, int] = {}
        for block, width in self.widths.items():
            name = " * ".join(map(str, self.columns_of(block)))
            # the columns 0 and "0", or a column that has the name of the constant
            while name in groups or name == "intercept":
                name += "'"
            groups[name if block is not None else "intercept"] = width
        return groups

    def unbounded(self) -> "Features":
        """Returns these features with rows as long as they come: nothing is divided.

        A category is a 1, a number is between -1 and 1, an interaction is the product of its
        columns and the intercept is 1. This is for policies that need no bound on the norm.

        >>> features = Features(numeric=["price"], categorical=["ad"])
        >>> _ = features.fit([{"price": 10, "ad": "a"}, {"price": 30, "ad": "b"}])
        >>> features.unbounded().transform([{"price": 15, "ad": "b"}])
        array([[-0.5,  0. ,  1. ,  1. ]])
        """
        copy = type(self).from_dict(self.to_dict() | {"bounded": False})
        copy.unmatched = deepcopy(self.unmatched)
        return copy

    def with_categories(self, more: Mapping[Key, Iterable[Any]]) -> "Features":
        """Returns these features with further categories; the old ones stay what they are.

        See ``Bandit.grow``.

        >>> features = Features(categorical=["ad"]).fit([{"ad": "a"}, {"ad": "b"}])
        >>> features.with_categories({"ad": ["b", "c"]}).names
        ['ad=a', 'ad=b', 'ad=c', 'intercept']
        """
        self._need_fit()
        return with_categories(self, more)

    def fit_transform(self, actions: Any, context: Any = None) -> Matrix:
        """Fits the features and returns ``transform`` of the same rows."""
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
        """Returns all options and what ``fit`` learned, exactly, as JSON can hold it."""
        # Options at their defaults are left out: a map of before they existed has the same dict.
        later = {"ignore": self.ignore, "optional": self.optional, "strict": self.strict}
        later |= {"missing": self.missing, "tags": self.tags, "other": self.other}
        later |= {"scale": [list(item) for item in self.scale.items()]}
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
            **{name: deepcopy(value) for name, value in later.items() if value},
            **({} if self.bounded else {"bounded": False}),
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Features":
        """Returns the features of a ``to_dict``, the same to the last bit.

        >>> import json
        >>> features = Features(categorical=[0]).fit([{0: 7}, {0: 8}])
        >>> Features.from_dict(json.loads(json.dumps(features.to_dict()))).names
        ['0=7', '0=8', 'intercept']
        """
        if d.get("kind") != "features":
            raise wrong("kind", d.get("kind"), "'features'")
        options = {k: v for k, v in d.items() if k not in ("kind", "fitted", "bounded")}
        options |= {name: dict(options.get(name, ())) for name in ("hashed", "scale")}
        features = cls(**options)
        features.bounded = flag("bounded", d.get("bounded", True))
        if d["fitted"] is not None:
            features._take_over(deepcopy(d["fitted"]))
        return features

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles leave out what is computed again when needed."""
        return {**self.__dict__, "_layouts": {}}

    def _take_over(self, learned: dict[str, Any]) -> None:
        """Go on with what ``fit`` learned, as ``to_dict`` gives it."""
        self._fitted, self._layouts = fitted(self, learned), {}

    def _need_fit(self) -> Fitted:
        if self._fitted is None:
            raise ValueError("these Features have seen no rows yet: call fit first")
        return self._fitted
