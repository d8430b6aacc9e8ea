"""Actions that come again and again, each time with another context."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from belated.core.types import Matrix
from belated.features.columns import Entries, Features
from belated.features.rows import Key, records_of
from belated.features.unmatched import Unmatched


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
        self._in_actions: Mapping[Unmatched, int] = {}
        self._records = records_of("actions", actions)
        self._keys = {key for record in self._records for key in record}
        shared = [c for c in features.columns if all(c in record for record in self._records)]
        # a column that only some actions have is nobody's: each context decides
        mixed = any(c not in shared and c in self._keys for c in features.columns)
        squared = any(left == right and left not in shared for left, right in features.interactions)
        self._possible = not (mixed or squared)
        if self._possible:
            self._factor(shared)

    def _factor(self, shared: list[Key]) -> None:
        """Every entry is a number of its action times a number of the context."""
        features, n = self._features, len(self._records)
        widths, fixed = features.widths, {}
        blocks = {column: features.entries(column, self._records) for column in shared}
        self._in_actions = features.unmatched_in(self._records, blocks)
        for column, (places, values) in blocks.items():
            fixed[column] = np.zeros((n, widths[column]))
            fixed[column][np.arange(n), places] = values
        others = [column for column in features.columns if column not in fixed]
        of_actions, positions = [], []
        for block in features.blocks:
            part, position = np.ones((n, 1)), dict.fromkeys(others, np.full(1, -1))
            for column in features.columns_of(block):  # of a pair, the second varies faster
                width = widths[column]
                mine = fixed.get(column, np.ones((n, width)))
                part = (part[:, :, None] * mine[:, None, :]).reshape(n, -1)
                position = {c: np.repeat(p, width) for c, p in position.items()}
                if column in position:
                    position[column] = np.tile(np.arange(width), part.shape[1] // width)
            of_actions.append(part)
            positions.append(position)
        self._of_actions = np.concatenate(of_actions, axis=1)
        # for each column of the context: at which of its positions an entry counts; -1: always
        self._positions = {c: np.concatenate([p[c] for p in positions]) for c in others}
        self._always = {c: (position < 0) * 1.0 for c, position in self._positions.items()}

    def transform(self, context: Any = None) -> Matrix:
        """One row of features for each action, of shape (K, dim)."""
        features, about = self._features, context or {}
        if not self._possible or not isinstance(about, dict) or self._keys & about.keys():
            return features.transform(self._records, context)  # which says what is wrong
        of_context = np.ones(self._of_actions.shape[1])
        blocks = {column: features.entries(column, [about]) for column in self._positions}
        for column, positions in self._positions.items():
            (position,), (value,) = blocks[column]
            of_context *= np.where(positions == position, value, self._always[column])
        features.notice({**self._in_actions, **self._in_context(about, blocks)})
        return features.scaled(self._of_actions * of_context)

    def _in_context(
        self, about: dict[Any, Any], blocks: dict[Key, Entries]
    ) -> Mapping[Unmatched, int]:
        """Returns the parts of the context that become zeros in all rows."""
        found = self._features.unmatched_in([about], blocks)
        return dict.fromkeys(found, len(self._records)) if found else found
