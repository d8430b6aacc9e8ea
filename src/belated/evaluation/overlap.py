"""Overlap of what was played with what a target policy plays, and refusals in words.

References
----------
A. Owen: Monte Carlo theory, methods and examples, chapter 9 (effective sample size).
"""

from typing import NamedTuple

import numpy as np

from belated.core.types import Integers, Vector

LEAST_ROWS = 50  # effective ones
LEAST_REWARDS = 10  # effective ones that are not zero
LEAST_OLD = 0.5  # share of decisions that are old enough to say something
MISSING = 0.05  # share of the target's plays for which the log may have no counterpart


class Overlap(NamedTuple):
    """The shares of an action in the log and in the target's play, and how well these meet."""

    action: str
    logged: float  # share of rows
    target: float  # mean probability
    least_propensity: float | None  # None: never played
    matched: float  # sum of importance weights over n, ``target`` on average if p is right


def effective_rows(weight: Vector) -> float:
    """Returns the number of rows of equal weight that would say as much.

    >>> effective_rows(np.array([1.0, 1.0, 1.0, 1.0])), effective_rows(np.array([1.0, 0.0, 0.0]))
    (4.0, 1.0)
    """
    squares = float(weight @ weight)
    return float(weight.sum()) ** 2 / squares if squares > 0.0 else 0.0


def overlap(
    names: list[str], action: Integers, propensity: Vector, weight: Vector, target: Vector
) -> list[Overlap]:
    """Returns the overlap of each action; ``target`` has the mean probability of each."""
    n, k = len(action), len(names)
    least = np.full(k, np.inf)
    np.minimum.at(least, action, propensity)
    logged, matched = np.bincount(action, minlength=k) / n, np.bincount(action, weight, k) / n
    return [
        Overlap(name, float(a), float(t), float(p) if a else None, float(m))
        for name, a, t, p, m in zip(names, logged, target, least, matched, strict=True)
    ]


def too_young(old: float) -> list[str]:
    """Returns a reason where less than half of the decisions, ``old``, are old enough."""
    if old >= LEAST_OLD:
        return []
    return [
        f"Only {old:.0%} of the decisions are old enough for a tenth of their rewards to have "
        "come: wait, or take a log that reaches further back."
    ]


def all_alike(range: float) -> list[str]:
    """Returns a reason where all rewards are alike, and nothing says by how much others differ."""
    if range > 0.0:
        return []
    return [
        "All rewards that came are alike, and are neither 0 nor 1: nobody knows by how much the "
        "next may differ."
    ]


def refusals(found: list[Overlap], weight: Vector, counted: Vector, earned: Vector) -> list[str]:
    """Returns the reasons why the log cannot answer, each as a sentence; none if it can.

    Parameters
    ----------
    found
        The overlap of each action.
    weight
        Importance weights.
    counted, earned
        Of ``Rewards``.
    """
    reasons = []
    never = [o for o in found if o.least_propensity is None and o.target > 0.0]
    if sum(o.target for o in never) > MISSING:
        named = ", ".join(repr(o.action) for o in never[:5])
        reasons.append(
            f"The target plays {named} in {sum(o.target for o in never):.0%} of the decisions, and "
            "the log never did: nothing is known of these rewards."
        )
    rows, rewarded = effective_rows(weight * counted), effective_rows(weight * (earned != 0.0))
    if rows < LEAST_ROWS:
        reasons.append(
            f"The rows that are like the target's plays are worth {rows:.1f} rows of its own; "
            f"expected {LEAST_ROWS} or more."
        )
    elif rewarded < LEAST_REWARDS:
        reasons.append(
            f"The rewards that are not zero and like the target's are worth {rewarded:.1f}; "
            f"expected {LEAST_REWARDS} or more."
        )
    if found and not reasons:
        reasons += _unlikely_weights(weight)
    return reasons


def _unlikely_weights(weight: Vector) -> list[str]:
    """Returns a reason where importance weights are far from 1 on average, as they should be."""
    average, error = float(weight.mean()), float(weight.std()) / np.sqrt(len(weight))
    if abs(average - 1.0) <= MISSING + 4.0 * error:
        return []
    said = "plays where the log could not have" if average < 1.0 else "is met too often"
    return [
        f"Importance weights average {average:.3f} in place of 1: the target {said}, or the "
        "propensities of the log are wrong."
    ]
