"""What users pass to a bandit, checked: actions to choose from, rewards by the id of a decision."""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from belated.core.arguments import any_number, array_of_numbers, shown, wrong, wrong_type
from belated.core.events import ConflictingRewardError, Decision, UnknownDecisionError
from belated.core.types import Matrix
from belated.features import FeatureMap, UnmatchedCounts, UnmatchedFeaturesWarning
from belated.learner.learner import Learner

MOST_WARNINGS = 20  # of one bandit; more are counted only


def action_matrix(actions: Any, context: Any, features: FeatureMap | None, dim: int) -> Matrix:
    """The vectors of the actions, one a row."""
    if features is not None:
        matrix = array_of_numbers("features", features.transform(actions, context))
        _warn_of(counts_of(features))
        if hasattr(actions, "__len__") and len(matrix) != len(actions):
            raise ValueError(
                f"features gave {len(matrix)} rows: expected {len(actions)}, one an action"
            )
    elif context is not None:
        raise wrong_type("context", context, "None for a bandit without features")
    else:
        matrix = array_of_numbers("actions", actions)
    if matrix.ndim != 2 or matrix.shape[1] != dim or matrix.shape[0] == 0:
        raise ValueError(f"actions has shape {matrix.shape}: expected (K, {dim}) with K >= 1")
    return matrix


def counts_of(features: FeatureMap | None) -> UnmatchedCounts:
    """What features turned into zeros; nothing where a map of one's own does not count."""
    counts = getattr(features, "unmatched", None)
    return counts if isinstance(counts, UnmatchedCounts) else UnmatchedCounts()


def _warn_of(unmatched: UnmatchedCounts) -> None:
    """Warn of what became zeros for the first time, in the name of who called the bandit."""
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
    """The pairs of an iterable of them; an error of the iterable's own passes through."""
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


def new_rewards(pairs: list[tuple[Any, Any]], learner: Learner) -> dict[int, float]:
    """Rows of the history and the rewards that they do not have yet."""
    new: dict[int, float] = {}
    for id, y in pairs:
        row, value = _row_and_reward(id, y, learner)
        known = new.get(row, learner.history.y[row])
        if known != known:  # NaN: not returned yet
            new[row] = value
        elif known != value:
            raise ConflictingRewardError(
                f"reward = {shown(y)} for id = {id!r}: expected {float(known)!r}, the reward "
                "this decision already has"
            )
    return new


def _row_and_reward(id: Any, y: Any, learner: Learner) -> tuple[int, float]:
    support, n_decided = learner.family.support, learner.n_decided
    try:
        if isinstance(id, bool):
            raise TypeError
        row, value = id.__index__() - 1, any_number(y)
    except OverflowError:
        raise wrong(f"reward (of id = {id!r})", y, str(support)) from None
    except (AttributeError, TypeError, ValueError):
        hint = "; pass decision.id" if isinstance(id, Decision) else ""
        raise TypeError(
            f"learn({shown(id)}, {shown(y)}): expected the id of a decision, a whole number, "
            f"and a reward, a number{hint}"
        ) from None
    if not 0 <= row < n_decided:
        raise UnknownDecisionError(
            f"id = {shown(id)}: expected the id of a decision this bandit made, "
            + (f"1 to {n_decided}" if n_decided else "and it has made none yet")
        )
    if not support.contains(value):
        raise wrong(f"reward (of id = {id!r})", y, str(support))
    return row, value
