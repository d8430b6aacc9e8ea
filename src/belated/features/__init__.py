"""(context, action) pairs as people have them, turned into vectors of bounded norm."""

from typing import Any, Protocol

from belated.core.types import Matrix
from belated.features.columns import Features
from belated.features.transformed import Transformed
from belated.features.unmatched import Unmatched, UnmatchedCounts, UnmatchedFeaturesWarning

__all__ = [
    "FeatureMap",
    "Features",
    "Transformed",
    "Unmatched",
    "UnmatchedCounts",
    "UnmatchedFeaturesWarning",
]


class FeatureMap(Protocol):
    """What a ``Bandit`` needs of its ``features``; any object with these will do."""

    @property
    def dim(self) -> int:
        """Number of features."""

    def transform(self, actions: Any, context: Any = None) -> Matrix:
        """One row of ``dim`` features for each action."""

    def to_dict(self) -> dict[str, Any]:
        """What a snapshot keeps, as JSON can hold it."""
