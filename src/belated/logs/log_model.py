"""A model of rewards from a log: the posterior of the default policy's model.

Features are the action, the columns of the context, and pairs of both. Each group of them has one
prior variance, which is learnt, so effects of which the log says little are drawn towards zero. A
decision of a conversion loop that is silent so far counts by its age, as in the loop itself.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from belated.core.arguments import WIDEST
from belated.core.sparse import SparseRows
from belated.core.types import Integers, Matrix, Vector
from belated.estimators.laplace.fit import take_terms
from belated.families import Bernoulli, Gaussian, Poisson
from belated.learner.learner import Learner
from belated.logs.whole_log import WholeLog
from belated.model.protocols import Family, learns_noise
from belated.model.steps import DECIDE, LEARN
from belated.policies import AdaptiveThompson
from belated.worlds.shops.shop import Columns, Groups

ROWS = 50_000  # of the log that the model is fitted to, the latest
LEVELS = 12  # values of a column that are told apart; all others are one more
WIDEST_COUNTS = (
    4.0  # times their mean: the variance of counts, which is once their mean for Poisson
)
QUARTERS = (0.25, 0.5, 0.75)


def coded(column: Any) -> Integers:
    """Returns the category of each row: one of the frequent values, or a quarter of the numbers.

    >>> coded(np.array([1.0, 2.0, 3.0, 4.0, np.nan])).tolist()
    [0, 1, 2, 3, 4]
    >>> coded(np.array(["no", "se", "se"], object)).tolist()
    [1, 0, 0]
    """
    if column.dtype == object:
        texts = column.astype(str)
        levels, code, sizes = np.unique(texts, return_inverse=True, return_counts=True)
        place = np.empty(len(levels), np.int64)
        place[np.argsort(-sizes, kind="stable")] = np.arange(len(levels))
        return np.minimum(place[code], LEVELS)
    there = np.isfinite(column)
    cuts = np.quantile(column[there], QUARTERS) if there.any() else np.zeros(len(QUARTERS))
    quarter = np.where(there, np.searchsorted(cuts, column, side="left"), len(QUARTERS) + 1)
    return np.unique(quarter, return_inverse=True)[1]


def groups_of(columns: Columns) -> Groups:
    """Returns the groups of features: the action, each column of the context, pairs of both."""
    names = [("action",), *((name,) for name in columns), *(("action", name) for name in columns)]
    return dict.fromkeys(names, 1.0)


def family_of(rewards: Vector) -> tuple[Family, str]:
    """Returns the law of the rewards, and as ``Bandit`` takes it: conversions, counts, amounts.

    Whole numbers that vary far more than counts do are amounts, too: prices without cents.

    >>> family_of(np.array([0.0, 2.0, 1.0]))[1], family_of(np.array([0.0, 0.0, 40.0, 20.0]))[1]
    ('poisson', 'gaussian:16.583123951777')
    """
    if ((rewards == 0.0) | (rewards == 1.0)).all():
        return Bernoulli(), "bernoulli"
    counts = (rewards >= 0.0).all() and (rewards == np.rint(rewards)).all()
    if counts and rewards.var() <= WIDEST_COUNTS * rewards.mean():
        return Poisson(), "poisson"
    sd = float(rewards.std())
    return Gaussian(sd=sd), f"gaussian:{sd!r}"


def family_for(policy: Any, name: str) -> str:
    """Returns the family that a bandit is told: a policy that learns the noise gets none.

    Others would take it for 1, and get that of the log.

    >>> family_for(AdaptiveThompson(), "gaussian:16.5"), family_for(None, "gaussian:16.5")
    ('gaussian', 'gaussian:16.5')
    """
    return "gaussian" if name.startswith("gaussian:") and learns_noise(policy) else name


class Posterior(NamedTuple):
    """Theta given the log, normal: root @ root.T is its covariance."""

    mode: Vector
    root: Matrix


def posterior(
    log: WholeLog,
    columns: Columns,
    visitors: NDArray[np.int64],
    family: Family,
    reward: Vector,
    silence: Vector | None,
) -> Posterior:
    """Returns what the log says of theta.

    Parameters
    ----------
    log
        The log; its latest 50,000 rows are used.
    columns, visitors
        The columns of the context with their numbers of categories, and those of each row.
    family
        The law of the rewards.
    reward
        For each row; NaN where it is not known.
    silence
        For each row without a reward, the share of conversions that should have come at its age;
        None where a missing reward says nothing.
    """
    rows = slice(max(0, len(reward) - ROWS), len(reward))
    groups, sizes = groups_of(columns), {"action": len(log.names), **columns}
    lengths = [math.prod(sizes[column] for column in group) for group in groups]
    dim = sum(lengths) + 1
    if dim > WIDEST:
        raise ValueError(
            f"context: {dim:,} features with pairs of actions and contexts, expected {WIDEST:,} at "
            "most: name fewer columns"
        )
    code: dict[str, Any] = {"action": log.action[rows]}
    code |= {name: visitors[rows, k] for k, name in enumerate(columns)}
    places, start = [], 0
    for group, length in zip(groups, lengths, strict=True):
        place: Any = 0
        for column in group:
            place = place * sizes[column] + code[column]
        places.append(start + place)
        start += length
    constant = np.full(len(code["action"]), dim - 1)
    X = np.column_stack([*places, constant]).astype(np.int32)
    named = {" x ".join(group): size for group, size in zip(groups, lengths, strict=True)}
    learner = Learner(
        *(dim, family, AdaptiveThompson(), 1.0, {**named, "intercept": 1}),
        hears=silence is not None,
    )
    _take_in(learner, X, reward[rows])
    if silence is not None:
        open_rows = np.flatnonzero(np.isnan(reward[rows]))
        learner.hear(open_rows, silence[rows][open_rows])
    fit = learner.state.fit
    take_terms(fit)
    S = np.triu(fit.S) + np.triu(fit.S, 1).T
    return Posterior(learner.state.theta.copy(), np.linalg.cholesky(S))


def _take_in(learner: Learner, columns: Integers, reward: Vector) -> None:
    """Let the learner know of decisions with ones in these columns, and of their rewards."""
    n, known = len(columns), np.flatnonzero(~np.isnan(reward))
    nothing, last = np.zeros(n, np.int64), np.zeros(len(known), np.int64)
    last[-1:] = 1
    X = SparseRows(columns, np.ones(columns.shape))
    learner.fold(np.full(n, DECIDE), X, nothing, np.zeros(n), nothing)
    none = SparseRows(columns[:0], np.ones((0, columns.shape[1])))
    learner.fold(np.full(len(known), LEARN), none, known, reward[known], last)
