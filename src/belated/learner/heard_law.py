"""The part of a posterior variance that is the law of the delay's: it is estimated, too.

The gradient of the silent terms depends on F (``estimators/laplace/silence.py``). With z = x'theta
and p the chance of a reward above zero, the derivative of a term's pull by log F is

    d/d(log F) of F p' / (1 - p F) = F p' / (1 - p F)^2,        p' = dp/dz,

which is F p (1 - p) / (1 - p F)^2 for conversions. F is a product of factors q_k
(``monitoring/delay_law.py``), of those of later cells, and of a part of that of its own, between
whose ends F is linear. So with c_gk the sum over silent rows x of group g

    c_gk = sum of x F p' / (1 - p F)^2 dlog F / dlog q_gk,

the last of which is 1 for later cells and F(x_{k-1}) (F(x_k) - F) / ((F(x_k) - F(x_{k-1})) F) for
its own, the mode moves by -S c_gk for each unit of log q_gk, with S the posterior covariance. The
factors are independent, so

    S + S (sum over g and k of var(log q_gk) c_gk c_gk') S

is the covariance with the law's error in it. Bandits play by S alone.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from belated.core.types import Integers, Matrix, Vector
from belated.estimators.laplace.fit import DISPERSION, covariance_times
from belated.estimators.laplace.silence import slopes_by_law
from belated.learner.rows import rows_at
from belated.numerics.entries import sparse

if TYPE_CHECKING:
    from belated.learner.learner import Learner

SAMPLE = 4_000  # silent rows that are looked at, spread over all of them


class HeardLaw(NamedTuple):
    """The law of the delay by which the open decisions of a learner count; see ``DelayLaw``."""

    within: Matrix = np.ones((0, 2))  # (groups, cells + 1)
    variance: Matrix = np.zeros((0, 1))  # (groups, cells) of the logarithms of factors
    groups: Integers = np.zeros(0, np.int64)  # of the decisions, row by row


def variances_of_law(learner: "Learner", X: Matrix) -> Vector:
    """Returns what the error of the law adds to the variance of x'theta, for each row of X."""
    law, history = learner.law, learner.history
    silent = np.flatnonzero(history.silence[: len(law.groups)] > 0.0)
    rows = silent[:: max(1, -(-len(silent) // SAMPLE))]
    F, groups, sample = history.silence[rows], law.groups[rows], rows_at(history, rows)
    fit: Any = learner.state.fit
    counts = np.full(len(rows), len(silent) / max(len(rows), 1) / fit.scalars[DISPERSION])
    if len(history.weight):
        counts *= history.weight[rows]
    slopes = np.empty(len(rows))
    slopes_by_law(learner.family, _along(sample, learner.state.theta), F, slopes)
    G, m = law.variance.shape
    cell = np.minimum((law.within[groups] <= F[:, np.newaxis]).sum(axis=1) - 1, m - 1)
    below, above = law.within[groups, cell], law.within[groups, cell + 1]
    own = below * (above - F) / ((above - below) * F)
    place, variances, Sx = groups * m + cell, np.empty(len(X)), np.empty(learner.dim)
    for k in range(len(X)):
        covariance_times(fit, sparse(X), k, Sx)
        pulls = counts * slopes * _along(sample, Sx)
        whole = np.bincount(place, pulls, G * m).reshape(G, m)
        part = np.bincount(place, pulls * own, G * m).reshape(G, m)
        c = np.cumsum(whole, axis=1) - whole + part  # x'S c_gk: whole ones of younger rows
        variances[k] = (law.variance * c * c).sum()
    return variances


def _along(rows: Any, vector: Vector) -> Vector:
    return np.asarray((rows.values * vector[rows.columns]).sum(axis=1))
