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
    "fitting",
]


class FeatureMap(Protocol):
    """The methods that a ``Bandit`` calls on its ``features``; any object with them will do."""

    @property
    def dim(self) -> int:
        """Number of features."""

    def transform(self, actions: Any, context: Any = None) -> Matrix:
        """One row of ``dim`` features for each action."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the features as JSON can hold them, for files and logs."""


def fitting(features: Any, policy: object) -> Any:
    """Returns the features as a policy needs them: without a bound on norms if it needs none."""
    unbounded = getattr(features, "unbounded", None)
    return unbounded() if unbounded is not None and getattr(policy, "sparse", False) else features
