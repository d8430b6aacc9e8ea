"""PolicyElimination of Dudik et al. (2011): finitely many contexts and policies, all spelled out.

In every round one has to find a distribution P over the policies that are left with

    E_x[1 / W'(x, pi(x))] <= 2 K for each of them,   W' = (1 - K mu) W_P + mu,

where W_P(x, a) is the chance that P plays a in context x. Maximise the concave function
E_x[sum_a log W'(x, a)] over P: its gradient at pi is (1 - K mu) E_x[1 / W'(x, pi(x))], and at the
maximum no entry exceeds the average under P, which is sum_a E_x[1 - mu / W'(x, a)], at most
K - mu K^2 by convexity. So even K is within reach there. The function is the log-likelihood of
mixing weights; the update of expectation maximisation, P_pi times its entry of the gradient,
normalised, climbs it, and more than doubles the weight of a policy whose entry is above 2 K.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import Probability, array_of_numbers, checked, parameters, wrong
from belated.core.types import Integers, Matrix, Vector
from belated.model.protocols import Family
from belated.policies.shared.arms import ArmPlayer, outside_unit_interval

MOST_STEPS = 100_000


@parameters
class PolicyElimination(NamedTuple):
    """PolicyElimination: a toy for finitely many known contexts and policies; arms are rows.

    A context is a decision set as a whole, one of finitely many that are known beforehand; a policy
    names a row for each context. Of the policies that are left it takes a distribution P with
    ``E_x[1 / W'(x, pi(x))] <= 2 K`` for each, ``W' = (1 - K mu) W_P + mu``, and plays from W'. Then
    policies are dropped whose mean reward, estimated by inverse propensities, is more than 2 b
    below the best. With n rewards returned, N policies, and delta_n = delta / (4 N n^2),

        b = 2 sqrt(2 K log(1 / delta_n) / n),
        mu = min(1 / (2 K), sqrt(log(1 / delta_m) / (2 K m))), m = n + 1.

    It plays in simulations only.

    Parameters
    ----------
    contexts
        The decision sets, an array (contexts, K, d); any other one is refused. By default all
        decision sets are one context: a bandit with K arms.
    policies
        Rows to play, an array (policies, contexts). By default the K policies that play the same
        row in every context.
    weights
        Chance of each context; equal by default.
    delta
        Chance that the best policy is dropped.

    Assumptions
    -----------
    Rewards in [0, 1]. Contexts are independent draws from the law given. The delay is the same in
    every round; the proof has no other delays. Here others are played, and not proved, but must not
    depend on the rewards.

    Cost
    ----
    A decision O(N c) times the steps to P, N policies and c contexts; a returned reward O(N). Fit
    for a thousand policies and ten arms, not for more.

    Deviations
    ----------
    From memory of Dudik et al. (2011), which could not be read; Joulani et al. (2013, Table 1) say
    that a constant delay adds tau sqrt(log T) to its regret. The number of returned rewards stands
    for the round in b and mu; without delay that is the same. Its RandomizedUCB, which would need
    no list of policies, is not offered.

    References
    ----------
    M. Dudik, D. Hsu, S. Kale, N. Karampatziakis, J. Langford, L. Reyzin, T. Zhang: Efficient
    Optimal Learning for Contextual Bandits, UAI 2011.
    """

    contexts: Any = None
    policies: Any = None
    weights: Any = None
    delta: Probability = 0.05

    def checked(self) -> "PolicyElimination":
        """Raises where a parameter does not fit."""
        contexts, weights = self.contexts, self.weights
        if contexts is not None:
            contexts = array_of_numbers("contexts", contexts)
            if contexts.ndim != 3 or 0 in contexts.shape:
                raise wrong("contexts", self.contexts, "an array (contexts, K, d)")
        n = 1 if contexts is None else len(contexts)
        if weights is not None:
            weights = array_of_numbers("weights", weights)
            if weights.shape != (n,) or not (weights > 0.0).all() or abs(weights.sum() - 1) > 1e-9:
                raise wrong("weights", self.weights, f"{n} chances above 0, whose sum is 1")
        K = None if contexts is None else contexts.shape[1]
        policies = None if self.policies is None else _rows("policies", self.policies, n, K)
        return self._replace(contexts=contexts, policies=policies, weights=weights)

    def refuses(self, family: Family) -> str:
        """Returns why it refuses this family: rewards must be in [0, 1]."""
        return outside_unit_interval(family)

    def start(self, dim: int, rng: np.random.Generator) -> "PolicyEliminationPlayer":
        """Returns a player that knows nothing yet."""
        self = checked(self)
        if self.contexts is not None and self.contexts.shape[2] != dim:
            raise wrong("contexts", self.contexts, f"decision sets with {dim} columns")
        return PolicyEliminationPlayer(self, rng)


def _rows(name: str, values: Any, contexts: int, K: int | None) -> Integers:
    rows = array_of_numbers(name, values)
    expected = f"an array (policies, {contexts}) of rows, whole numbers from 0 to {K or 'K'} - 1"
    if rows.ndim != 2 or rows.shape[1] != contexts or len(rows) == 0:
        raise wrong(name, values, expected)
    if not (rows >= 0).all() or (rows % 1.0).any() or (K is not None and not (rows < K).all()):
        raise wrong(name, values, expected)
    return rows.astype(np.int64)


class PolicyEliminationPlayer(ArmPlayer):
    """One run of ``PolicyElimination``."""

    def meet(self, K: int) -> None:
        """Prepares for ``K`` arms, the rows of the first decision set."""
        super().meet(K)
        contexts, table, weights, _ = self.policy
        n = 1 if contexts is None else len(contexts)
        if table is None:
            table = np.repeat(np.arange(K)[:, np.newaxis], n, axis=1)
        self.table: Integers = _rows("policies", table, n, K) if contexts is None else table
        self.weights: Vector = np.full(n, 1.0 / n) if weights is None else weights
        self.cells = self.table + K * np.arange(n)  # of each policy in a table (contexts, K)
        N = len(self.table)
        self.active = np.ones(N, bool)
        self.P: Vector = np.full(N, 1.0 / N)
        self.sums: Vector = np.zeros(N)  # of rewards over propensities
        self.made: dict[int, tuple[int, float]] = {}  # by round: context, propensity

    def pick(self, actions: Matrix, t: int) -> int:
        """Returns an arm drawn from the distribution of the round."""
        context = self.context_of(actions, t)
        self.eliminate()
        chances = self.chances(self.mu())[context]
        level = self.rng.random() * chances.sum()
        arm = min(int(np.searchsorted(np.cumsum(chances), level, side="right")), self.K - 1)
        self.made[t] = context, float(chances[arm])
        return arm

    def observe(self, x: Vector, y: float, t: int) -> None:
        """Takes in the reward of round ``t``."""
        arm = self.played[t]
        context, propensity = self.made.pop(t)
        super().observe(x, y, t)
        self.sums[self.table[:, context] == arm] += y / propensity

    def context_of(self, actions: Matrix, t: int) -> int:
        """Returns the index of this decision set among the known ones; raises if unknown."""
        contexts = self.policy.contexts
        if contexts is None:
            return 0
        same = (
            (contexts == actions).all(axis=(1, 2))
            if contexts.shape[1:] == actions.shape
            else np.zeros(len(contexts), bool)
        )
        if not same.any():
            raise wrong(f"actions in round {t}", actions, "one of the contexts")
        return int(np.argmax(same))

    def log_term(self, n: int) -> float:
        """Returns log(1 / delta_n)."""
        return math.log(4.0 * len(self.table) * n * n / self.policy.delta)

    def mu(self) -> float:
        """Returns the least chance of an arm."""
        n = int(self.observed.sum()) + 1
        return min(0.5 / self.K, math.sqrt(self.log_term(n) / (2.0 * self.K * n)))

    def eliminate(self) -> None:
        """Drop the policies that are too far below the best."""
        n = int(self.observed.sum())
        if n == 0:
            return
        b = 2.0 * math.sqrt(2.0 * self.K * self.log_term(n) / n)
        value = self.sums / n
        keep = self.active & (value >= value[self.active].max() - 2.0 * b)
        if keep.sum() < self.active.sum():
            self.active = keep
            self.P = np.where(keep, self.P + 1e-12, 0.0)  # none starts from nothing
            self.P /= self.P.sum()

    def chances(self, mu: float) -> Matrix:
        """Moves P until the constraint holds; returns W' (contexts, K)."""
        for _ in range(MOST_STEPS):
            played = self._mixed(mu)
            load = self._load(played)
            if load.max() <= 2.0 * self.K:
                return played
            self.P = self.P * load
            self.P /= self.P.sum()
        raise ArithmeticError(f"no distribution over the policies found in {MOST_STEPS} steps")

    def _mixed(self, mu: float) -> Matrix:
        n = len(self.weights)
        weight = np.repeat(self.P, n)
        mixed = np.bincount(self.cells.ravel(), weight, n * self.K).reshape(n, self.K)
        return np.asarray((1.0 - self.K * mu) * mixed + mu)

    def _load(self, played: Matrix) -> Vector:
        """Returns E_x[1 / W'(x, pi(x))] for the policies that are left, 0 for the others."""
        load = (self.weights / played.ravel()[self.cells]).sum(axis=1)
        return np.where(self.active, load, 0.0)
