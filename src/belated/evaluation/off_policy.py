"""Estimates of what a target policy would have earned, from the log of another one.

Notation: a row i of the log has the probability p_i with which its action was played, the
probability t_i with which the target plays it, the importance weight w_i = t_i / p_i, a reward
r_i, and the share F_i of rewards that are seen at its age. Two numbers say what is known of the
reward:

    earned_i  = r_i / F_i if the reward has come, else 0
    counted_i = 1 / F_i if it has come, else 0    (explicit loops)
              = 1 for every row                   (conversion loops, where silence is a 0 so far)

A pending reward is not zero, it has no weight, and those that came stand for it: inverse
probability of censoring weights. Without pending rewards F_i = 1, and the estimates are the usual
ones bit for bit:

    IPS       sum w earned / n
    clipped   the same with min(w, limit)
    SNIPS     sum w earned / sum w counted
    direct    sum q(x, target) / n
    DR        sum [q(x, target) + w (earned - counted q(x, action))] / n
    replay    sum earned / sum counted over the rows whose action is the target's

Each is a sum of terms over a sum of sizes, both affine in earned and counted: ``Terms``. Value,
influence of a row and dependence on F follow from that once for all.

Assumptions: p_i is right and above 0 wherever the target plays; a decision's reward does not depend
on others; and the delay does not depend on the reward nor on the context, given the stratum by
which F is estimated (for conversions: of those that convert, F(window) = 1).

References
----------
D. Horvitz, D. Thompson: A generalization of sampling without replacement from a finite universe.
JASA 1952 (IPS).
E. Ionides: Truncated importance sampling. JCGS 2008 (clipped; a limit of sqrt(n)).
A. Swaminathan, T. Joachims: The self-normalized estimator for counterfactual learning. NIPS 2015.
M. Dudik, J. Langford, L. Li: Doubly robust policy evaluation and learning. ICML 2011.
L. Li, W. Chu, J. Langford, X. Wang: Unbiased offline evaluation of contextual-bandit-based news
article recommendation algorithms. WSDM 2011 (replay).
K. Kubota, M. Takahashi, Y. Saito: Off-policy evaluation and learning for survival outcomes under
censoring. arXiv 2603.22900, 2026 (IPCW-IPS, IPCW-DR; their outcome is a time, and what they
estimate is the law of the censoring: here ages are known, and the law of the delay is estimated).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from belated.core.types import Vector


class Rewards(NamedTuple):
    """The rewards of a log, weighted for those that are pending."""

    earned: Vector
    counted: Vector
    counts_seen: bool  # whether ``counted``, too, has the factor 1 / F


def explicit_rewards(reward: Vector, shares: Vector) -> Rewards:
    """Returns the rewards of a loop where every decision gets one; NaN stands for a pending one.

    >>> explicit_rewards(np.array([3.0, np.nan]), np.array([0.5, 0.25]))
    Rewards(earned=array([6., 0.]), counted=array([2., 0.]), counts_seen=True)
    """
    came = ~np.isnan(reward)
    counted = _over_share(came.astype(np.float64), shares)
    return Rewards(_over_share(np.where(came, reward, 0.0), shares), counted, True)


def conversion_rewards(reward: Vector, shares: Vector) -> Rewards:
    """Returns the rewards of a loop where only conversions report; NaN stands for silence."""
    came = ~np.isnan(reward)
    return Rewards(_over_share(np.where(came, reward, 0.0), shares), np.ones(len(reward)), False)


def _over_share(values: Vector, shares: Vector) -> Vector:
    """Returns values / shares, where a share may be 0 only if the value is."""
    return np.divide(values, shares, out=np.zeros_like(values), where=values != 0.0)


class Terms(NamedTuple):
    """An estimate: sum(base + gain earned - loss counted) / sum(size + size_counted counted)."""

    base: Any
    gain: Any
    loss: Any
    size: Any
    size_counted: Any


def inverse_propensity(weight: Vector) -> Terms:
    """Returns IPS; with ``np.minimum(weight, limit)`` for the weight, clipped IPS."""
    return Terms(0.0, weight, 0.0, 1.0, 0.0)


def self_normalised(weight: Vector) -> Terms:
    """Returns SNIPS; with 1 for a match and 0 for a miss as the weight, replay."""
    return Terms(0.0, weight, 0.0, 0.0, weight)


def doubly_robust(weight: Vector, q_action: Vector, q_target: Vector) -> Terms:
    """Returns DR with the mean rewards that a model predicts, for the action and the target."""
    return Terms(q_target, weight, weight * q_action, 1.0, 0.0)


def direct(q_target: Vector, of_fit: Vector, q_fit: Vector, rewards: Rewards) -> Terms:
    """Returns the direct method with the mean rewards that a model predicts for the target.

    The model was fitted to rewards: the residual of row i from ``q_fit``, which the fit made of its
    own row, moves the value by ``of_fit`` / n times the residual. The sum of these is taken off.
    """
    moved = of_fit * (rewards.earned - rewards.counted * q_fit)
    return Terms(q_target - moved.mean(), of_fit, of_fit * q_fit, 1.0, 0.0)


class Estimate(NamedTuple):
    """A value and its derivatives."""

    value: float
    direct: Vector  # by the count of each row, for given shares F
    pull: Vector  # by the logarithm of 1 / F of each row


class Recounted:
    """Estimates with rows counted anew and with other shares F, as a bootstrap needs them.

    Sums of terms and of sizes are sums over rows of ``counts (a + b / F)``, where a and b stay as
    they are: what is left for each replicate are products of ``counts`` and of ``counts / F``.

    Parameters
    ----------
    terms
        The estimates.
    rewards
        The rewards as they are where every F is 1.
    """

    def __init__(self, terms: Sequence[Terms], rewards: Rewards) -> None:
        earned, counted, counts_seen = rewards
        self.came = (earned != 0.0) | (counted != 0.0) if counts_seen else earned != 0.0
        without, with_share = (0.0, counted) if counts_seen else (counted, 0.0)
        self.above = [
            (t.base - t.loss * without, t.gain * earned - t.loss * with_share) for t in terms
        ]
        self.below = [
            (t.size + t.size_counted * without, t.size_counted * with_share) for t in terms
        ]

    def values(self, counts: Vector, shares: Vector) -> Vector:
        """Returns each estimate."""
        there = self.came & (counts > 0.0)
        weighted = np.divide(counts, shares, out=np.zeros_like(counts), where=there)
        above, below = (
            [_total(counts, a) + _total(weighted, b) for a, b in sums]
            for sums in (self.above, self.below)
        )
        return np.array(above) / np.array(below)


def _total(counts: Vector, values: Any) -> float:
    """Returns the sum of the values, or of one for all rows, each so many times."""
    if np.ndim(values) == 0:
        return float(counts.sum() * values)
    return float(np.einsum("i,i", counts, values))  # BLAS has its threads wait for each other here


def estimate(terms: Terms, rewards: Rewards) -> Estimate:
    """Returns the estimate and how it follows from the rows and from F."""
    above, below = _sums(terms, rewards)
    total = np.broadcast_to(below, above.shape).sum()
    found = float(above.sum() / total)
    with_share = rewards.counted if rewards.counts_seen else 0.0
    losses = (terms.loss + found * terms.size_counted) * with_share
    pull = (terms.gain * rewards.earned - losses) / total
    return Estimate(found, (above - found * below) / total, pull)


def _sums(terms: Terms, rewards: Rewards) -> tuple[Vector, Any]:
    above = terms.base + terms.gain * rewards.earned - terms.loss * rewards.counted
    return above, terms.size + terms.size_counted * rewards.counted
