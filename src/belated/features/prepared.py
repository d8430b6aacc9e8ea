"""Actions that come again and again, each time with another context."""

from typing import Any

from belated.core.types import Matrix
from belated.features.columns import Features
from belated.features.rows import Key, records_of


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
        self._keys = {key for record in self._records for key in record}
        shared = [c for c in features.columns if all(c in record for record in self._records)]
        # a column that only some actions have is nobody's: each context decides
        self._possible = all(c in shared or c not in self._keys for c in features.columns)
        self._fixed = (
            {c: features.entries(c, self._records) for c in shared} if self._possible else {}
        )

    def transform(self, context: Any = None) -> Matrix:
        """One row of features for each action, of shape (K, dim)."""
        features, about = self._features, context or {}
        if not self._possible or not isinstance(about, dict) or self._keys & about.keys():
            return features.transform(self._records, context)  # which says what is wrong
        blocks: dict[Key, Any] = {
            c: self._fixed[c] if c in self._fixed else features.entries(c, [about])
            for c in features.columns
        }
        return features.rows_of(blocks, len(self._records))
