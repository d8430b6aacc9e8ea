"""(context, action) pairs as people have them, turned into vectors of bounded norm."""

from collections.abc import Mapping
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
    "bound_on_rows",
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


def fitting(features: Any, policy: object, known: Mapping[str, Any] | None = None) -> Any:
    """Returns the features as a policy needs them: without a bound on norms if it needs none.

    ``known`` are the features that the bandit has already, as JSON can hold them: rows that were
    bounded so far, as all but those of the default once were, stay bounded.
    """
    unbounded = getattr(features, "unbounded", None)
    if unbounded is None:
        return features
    # Rows of another library's transformer may be as long as they like: not all policies take such.
    bound_matters = not getattr(policy, "sparse", False)
    if isinstance(features, Features):
        bound_matters = getattr(policy, "needs_bound", True)
    needs = bound_matters if known is None else known.get("bounded", True)
    return features if needs else unbounded()


def bound_on_rows(features: Any, policy: object, max_norm: float) -> float:
    """Returns the bound on the norm of rows: ``max_norm``, or their own where a policy needs none.

    >>> from belated.policies import Thompson
    >>> ads = Features(categorical=["ad"]).fit([{"ad": "a"}]).unbounded()
    >>> bound_on_rows(ads, Thompson(), 1.0) ** 2      # two entries of 1: the ad and the constant
    2.0000000000000004
    """
    if getattr(policy, "needs_bound", True):
        return max_norm
    return max(max_norm, getattr(features, "longest", 0.0))
