"""Overlap of what was played with what a target policy plays, and refusals in words.

References
----------
A. Owen: Monte Carlo theory, methods and examples, chapter 9 (effective sample size).
X. Fan, I. Grama, Q. Liu: Exponential inequalities for martingales with applications. EJP 2015
(sums of terms that are no less than a bound, by the squares that were seen).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.types import Integers, Vector

LEAST_ROWS = 50  # effective ones
LEAST_REWARDS = 10  # effective ones that are not zero
LEAST_OLD = 0.5  # share of decisions that are old enough to say something
MISSING = 0.05  # share of the target's plays for which the log may have no counterpart
CHANCE = 1e-5  # about that of finding weights too large though propensities are right

WITHOUT_SUBJECTS = (
    ". If they are right, and a subject gets the same action again and again, say --map "
    "subject=COLUMN."
)


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
    return reasons


def unlikely_weights(
    found: list[Overlap], action: Integers, weight: Vector, subject: Integers | None = None
) -> list[str]:
    """Returns a reason where importance weights are not on average what the target plays.

    They are where propensities are right, for each action and for all together. That they are too
    large is found by a test that allows for chance with any number of rows, few plays of an action,
    and propensities that depend on earlier rows (if these are not of one subject). That they are
    too small is measured by the largest weight in the log: where right propensities are so small
    that none of these plays has come, the log cannot answer either, and is refused as well.

    Parameters
    ----------
    found
        The overlap of each action.
    action, weight
        The action of each row, and its importance weight.
    subject
        The subject of each row, a number from 0: rows of one need not be independent. None: every
        row has its own.
    """
    n = len(weight)
    groups, most = _groups(n, subject)
    off = np.bincount(groups, weight - 1.0)
    too_much = _reach(off, most, CHANCE) + MISSING * n
    too_little = _reach(off, most * float(weight.max()), CHANCE) + MISSING * n
    if -too_little <= off.sum() <= too_much:
        return met_too_often(found, action, weight, subject)
    average = float(weight.mean())
    said = (
        "plays where the log could not have, or hardly did" if average < 1.0 else "is met too often"
    )
    return [
        f"Importance weights average {average:.3f} in place of 1: the target {said}, or the "
        "propensities of the log are wrong."
    ]


def met_too_often(
    found: list[Overlap], action: Integers, weight: Vector, subject: Integers | None = None
) -> list[str]:
    """Returns a reason where importance weights make more of an action than the target plays.

    Less may be made of an action that could not be played in every row. The parameters are those of
    ``unlikely_weights``.
    """
    n = len(weight)
    groups, most = _groups(n, subject)
    for k, (name, _, target, _, matched) in enumerate(found):
        excess = n * (matched - (1.0 + MISSING) * target)
        if excess <= 0.0:
            continue
        off = np.bincount(groups, np.where(action == k, weight, 0.0) - target)
        if excess > _reach(off, most, CHANCE / len(found)):
            return [
                f"Importance weights make {matched:.3f} of {name!r} in place of {target:.3f}: the "
                "propensities of the log are wrong" + (WITHOUT_SUBJECTS if subject is None else ".")
            ]
    return []


def _groups(n: int, subject: Integers | None) -> tuple[Integers, float]:
    """Returns the group of each row, and the size of the largest."""
    groups = np.arange(n) if subject is None else subject
    return groups, float(np.bincount(groups).max())


def _reach(off: Any, least: float, chance: float) -> float:
    """Returns what the sum of terms with mean 0 and no less than ``-least`` hardly ever exceeds.

    The bound is proved for a given sum of squares. With the one that was seen, chance is up to
    three times as large (an exact count of terms of 1 and -1), which ``MISSING`` makes up for.
    """
    log_term = -math.log(chance)
    return math.sqrt(2.0 * log_term * float(off @ off)) + least * log_term
