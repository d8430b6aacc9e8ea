"""Actions that come again and again, each time with another context."""

from collections.abc import Mapping
from typing import Any

from belated.core.sparse import SparseRows
from belated.core.types import Integers, Matrix
from belated.features.columns import LAYOUTS, Features
from belated.features.layout import Layout, Stack
from belated.features.raw_rows import merged, records_of


class Prepared:
    """``Features.transform`` of the same actions; only the context is looked at anew.

    >>> from belated.features import Features
    >>> features = Features(numeric=["hour"], categorical=["ad"], interactions=[("hour", "ad")])
    >>> _ = features.fit([{"ad": "a", "hour": 0}, {"ad": "b", "hour": 24}])
    >>> ads = [{"ad": "a"}, {"ad": "b"}]
    >>> again = Prepared(features, ads).transform({"hour": 18})
    >>> (again == features.transform(ads, {"hour": 18})).all()
    np.True_
    """

    def __init__(self, features: Features, actions: Any) -> None:
        self._features = features
        self._records = records_of("actions", actions)
        self._stacks: dict[tuple[Any, ...], tuple[Layout, Stack]] = {}  # by keys of the context

    def transform(self, context: Any = None) -> Matrix:
        """One row of features for each action, of shape (K, dim)."""
        return self._features.dense(*self._entries(context))

    def sparse_rows(self, context: Any = None) -> "SparseRows":
        """The entries of ``transform`` that may be nonzero: no array is as wide as ``dim``."""
        return SparseRows(*self._entries(context))

    def _entries(self, context: Any) -> tuple[Integers, Matrix]:
        about = {} if context is None else context
        if not isinstance(about, Mapping):  # one for each action
            return self._features.entries(merged(self._records, about))
        keys = tuple(about)
        known = self._stacks.get(keys)
        if known is None:
            shape = self._features.layout(keys)
            known = shape, shape.actions(self._records)
            self._stacks = {**self._stacks, keys: known} if len(self._stacks) < LAYOUTS else {}
        return self._features.rows(*known, about)
