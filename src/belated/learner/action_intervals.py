"""Intervals of the mean rewards that a learner expects of actions, and a ranking by them."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from belated.core.ranking import IntervalKind, RankedAction, Ranking, verdict
from belated.core.types import Matrix, Vector
from belated.core.wording import counted_as_zero
from belated.learner.heard_law import variances_of_law
from belated.model.intervals import POSTERIOR_LEVEL, Z, posterior_widths, set_widths
from belated.model.protocols import probabilities, score_law

if TYPE_CHECKING:
    from belated.learner.learner import Learner

LEVEL_UNKNOWN = (
    "No window has closed without a conversion yet: means look too high, most of all where rewards "
    "come soon."
)


def interval_kind(learner: "Learner") -> IntervalKind:
    """Returns the kind of the intervals: by the policy's confidence set, or posterior."""
    return "confidence" if learner.has_set else "posterior"


def interval_level(learner: "Learner") -> float | None:
    """Returns the probability with which the intervals hold; None where the policy has none."""
    if not learner.has_set:
        return POSTERIOR_LEVEL
    delta: float | None = getattr(learner.policy, "delta", None)
    return None if delta is None else 1.0 - delta


def interval_width(learner: "Learner", x: Vector) -> float:
    """Returns half the confidence interval of ``x'theta_star``; NaN if there is no set."""
    return float(_half_widths(learner, x[np.newaxis])[0]) if learner.has_set else math.nan


def score_deviations(learner: "Learner", X: Matrix) -> Vector | None:
    """Returns the standard deviation of the score that the policy draws for each row of X.

    None for a policy that draws no scores: see ``score_law``.
    """
    if type(learner.policy) not in score_law.cases:
        return None
    mean, root = np.empty(len(X)), np.empty((len(X), (min if learner.is_sparse else max)(X.shape)))
    r = score_law(learner.policy, learner.state, learner.options(X), mean, root)
    return np.asarray(np.linalg.norm(root[:, :r], axis=1))


def rule_of(learner: "Learner") -> str:
    """Says how the policy chooses, in the words of an explanation."""
    kind = type(learner.policy)
    if kind in score_law.cases:
        return (
            "the policy drew a score for each action, normal around its estimate with the standard "
            "deviation sd, and played the action with the highest"
        )
    if kind in probabilities.cases:
        return "the policy gave each action a probability and drew one, no scores: there is no sd"
    if learner.draws:
        return "the policy drew scores whose law is not known in closed form: there is no sd"
    if learner.has_set:
        return (
            "the policy drew nothing: it is optimistic, and bonus says how far above its estimate "
            "the truth of an action may lie"
        )
    return "the policy drew nothing and has no confidence set: it played its highest score"


def intervals(learner: "Learner", X: Matrix) -> list[tuple[float, float, float]]:
    """Returns the estimated mean reward and both ends of its interval, for each row of X."""
    z, widths, mean = X @ learner.state.theta, _half_widths(learner, X), learner.mean
    ends = zip(z, z - widths, z + widths, strict=True)
    return [(mean(middle), mean(low), mean(high)) for middle, low, high in ends]


def ranking(
    learner: "Learner",
    names: Sequence[str],
    X: Matrix,
    played: Sequence[tuple[int | None, int | None]],
) -> Ranking:
    """Returns the actions with these vectors, the best first.

    ``played`` has the decisions and the rewards of each action, None if they are not known.
    """
    learner.check_norms(X)
    rows = [
        RankedAction(name, index, middle, _finite(low), _finite(high), *counts)
        for index, (name, (middle, low, high), counts) in enumerate(
            zip(names, intervals(learner, X), played, strict=True)
        )
    ]
    rows.sort(key=lambda row: -row.mean)
    sentence = verdict(rows, learner.n_observed)
    if _level_is_unknown(learner):
        sentence += f" {LEVEL_UNKNOWN}"
    if words := counted_as_zero(learner.n_counted_zero, learner.n_decided):
        sentence += f" {words}."
    return Ranking(sentence, interval_kind(learner), interval_level(learner), rows)


def _level_is_unknown(learner: "Learner") -> bool:
    """Returns whether a learner that hears silence has met no failure yet, only conversions."""
    return learner.hears and learner.n_observed > 0 and not (learner.history.y == 0.0).any()


def _half_widths(learner: "Learner", X: Matrix) -> Vector:
    """Returns half the interval of ``x'theta_star``, of either kind, for each row of ``X``."""
    if not learner.has_set:
        own = posterior_widths(learner.policy, learner.family, learner.state, X)
        return np.hypot(own, Z * np.sqrt(variances_of_law(learner, X))) if learner.hears else own
    widths = np.empty(len(X))
    set_widths(learner.policy, learner.state, X, widths)
    return widths


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
