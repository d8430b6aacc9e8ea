"""The input of users to a bandit: actions to choose from, rewards, settings that are not given."""

import warnings
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from belated.core.arguments import array_of_numbers, shown, wrong_type
from belated.core.types import Matrix
from belated.features import FeatureMap, UnmatchedCounts, UnmatchedFeaturesWarning

MOST_WARNINGS = 20  # of one bandit; further ones are only counted
USUAL = {"window": None, "default_reward": None, "late": "keep"}  # the settings of a new bandit


class AsInLog(Enum):
    """The value of a setting that is not given."""

    AS_IN_LOG = "as in the log"

    def __repr__(self) -> str:  # in the signature of Bandit
        return self.name


AS_IN_LOG = AsInLog.AS_IN_LOG


def action_matrix(actions: Any, context: Any, features: FeatureMap | None, dim: int) -> Matrix:
    """Return the vectors of the actions, one row per action, or raise where they do not fit."""
    if features is not None:
        matrix = array_of_numbers("features", features.transform(actions, context))
        _warn_of(counts_of(features))
        if hasattr(actions, "__len__") and len(matrix) != len(actions):
            raise ValueError(
                f"features gave {len(matrix)} rows: expected {len(actions)}, one per action"
            )
    elif context is not None:
        raise wrong_type("context", context, "None for a bandit without features")
    else:
        matrix = array_of_numbers("actions", actions)
    if matrix.ndim != 2 or matrix.shape[1] != dim or matrix.shape[0] == 0:
        raise ValueError(f"actions has shape {matrix.shape}: expected (K, {dim}) with K >= 1")
    return matrix


def counts_of(features: FeatureMap | None) -> UnmatchedCounts:
    """Returns the counts of zeros that the features keep; empty for a map that does not count."""
    counts = getattr(features, "unmatched", None)
    return counts if isinstance(counts, UnmatchedCounts) else UnmatchedCounts()


def _warn_of(unmatched: UnmatchedCounts) -> None:
    """Warn of inputs that became zeros for the first time, at the line that called the bandit."""
    new = unmatched.take_new()
    left = MOST_WARNINGS - (len(unmatched.counts) - len(new))
    for what in new[: max(left, 0)]:
        warnings.warn(
            f"{what}: it becomes zeros. bandit.unmatched counts how often; Features(strict=True) "
            "raises instead, ignore= and optional= say what is meant to be so, and bandit.grow "
            "adds categories",
            UnmatchedFeaturesWarning,
            stacklevel=4,
        )


def reward_pairs(rewards: Any) -> list[tuple[Any, Any]]:
    """Return an iterable of pairs as a list; an error of the iterable's own passes through."""
    usage = "expected learn(id, reward) or learn([(id, reward), ...])"
    if not isinstance(rewards, Iterable) or isinstance(rewards, Mapping):
        raise TypeError(f"learn({shown(rewards)}): {usage}")
    pairs = []
    for pair in rewards:
        try:
            id, y = pair
        except (TypeError, ValueError):
            raise TypeError(f"learn([..., {shown(pair)}, ...]): {usage}") from None
        pairs.append((id, y))
    return pairs
