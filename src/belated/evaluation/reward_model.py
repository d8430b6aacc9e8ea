"""Mean rewards by action and context, for the direct method and doubly robust estimates.

One ridge regression per action on the features of the context. Every action is drawn towards the
mean reward of all rows, as if by one further row, so an action that was played twice does not run
away. Rows are dealt into two folds, and the rewards of one fold are predicted by the model of the
other. The mean that actions are drawn towards is of both folds: of what a row is predicted by, that
alone has seen its reward, with the weight of one row in all.

The regression is linear for counts and conversions, too. A doubly robust estimate is right with any
model if the propensities are; what a better model earns is a narrower interval.

References
----------
V. Chernozhukov et al.: Double/debiased machine learning for treatment and structural parameters.
Econometrics Journal 2018 (cross-fitting).
"""

from typing import NamedTuple

import numpy as np

from belated.core.types import Integers, Matrix, Vector
from belated.evaluation.off_policy import Rewards

RIDGE = 1.0
SEED = 1  # of the halves, so that the same log has the same answer


class RidgeByAction(NamedTuple):
    """A fitted model: mean reward = mean + x' coefficients of the action."""

    mean: float
    coefficients: Matrix  # one row per action
    inverses: Matrix  # (actions, features, features), of the regularised sums of x x'

    def of_actions(self, x: Matrix, action: Integers) -> Vector:
        """Returns the mean reward of the given action of each row."""
        return self.mean + np.einsum("ij,ij->i", x, self.coefficients[action])

    def of_target(self, x: Matrix, chances: Matrix) -> Vector:
        """Returns the mean reward of a policy that plays with these chances, one row each."""
        return chances.sum(axis=1) * self.mean + ((x @ self.coefficients.T) * chances).sum(axis=1)


def fit(
    x: Matrix, action: Integers, n_actions: int, rewards: Rewards, mean: float
) -> RidgeByAction:
    """Fits the regressions; a row counts by ``counted``, with ``earned`` for its reward."""
    d = x.shape[1]
    inverses = np.tile(np.eye(d) / RIDGE, (n_actions, 1, 1))
    coefficients = np.zeros((n_actions, d))
    above = rewards.earned - mean * rewards.counted
    order = np.argsort(action, kind="stable")
    ends = np.searchsorted(action[order], np.arange(n_actions + 1))
    for k in np.flatnonzero(np.diff(ends)):
        rows = order[ends[k] : ends[k + 1]]
        own = x[rows]
        moments = (own * rewards.counted[rows, np.newaxis]).T @ own
        inverses[k] = np.linalg.inv(moments + RIDGE * np.eye(d))
        coefficients[k] = inverses[k] @ (own.T @ above[rows])
    return RidgeByAction(mean, coefficients, inverses)


class CrossFitted:
    """Two models, each fitted to one half of the rows, and what they predict for the other half.

    Parameters
    ----------
    x
        Features of the context, one row per row of the log; one of them is a constant.
    action
        The number of the action that was played, from 0.
    n_actions
        The number of actions.
    rewards
        The rewards, weighted for those that are pending.
    """

    def __init__(self, x: Matrix, action: Integers, n_actions: int, rewards: Rewards) -> None:
        self.x, self.action, self.rewards = x, action, rewards
        # drawn: of a log whose actions alternate, every second row is of one action alone
        self.fold = np.random.default_rng(SEED).permutation(len(x)) % 2
        self.mean = float(rewards.earned.sum() / max(rewards.counted.sum(), 1e-300))
        self.models = [self._fitted(1, n_actions), self._fitted(0, n_actions)]  # for fold 0, 1
        self.q_action = self._predicted(self.fold)
        self.q_fit = self._predicted(1 - self.fold)
        self.q_target = np.empty(len(x))
        self._loads = np.zeros((2, n_actions, x.shape[1]))

    def _fitted(self, fold: int, n_actions: int) -> RidgeByAction:
        own = self.fold == fold
        earned, counted, counts_seen = self.rewards
        rewards = Rewards(earned[own], counted[own], counts_seen)
        return fit(self.x[own], self.action[own], n_actions, rewards, self.mean)

    def _predicted(self, model: Integers) -> Vector:
        """Returns the mean reward of each row's action by the model of the given number."""
        first, second = (m.of_actions(self.x, self.action) for m in self.models)
        return np.where(model == 0, first, second)

    def add_target(self, start: int, chances: Matrix) -> None:
        """Take in the chances with which the target plays, for some rows from ``start`` on."""
        x = self.x[start : start + len(chances)]
        fold = self.fold[start : start + len(chances)]
        for k, model in enumerate(self.models):
            own = fold == k
            predicted = model.of_target(x[own], chances[own])
            self.q_target[start : start + len(chances)][own] = predicted
            self._loads[k] += chances[own].T @ x[own]

    def of_fit(self) -> Vector:
        """Returns, per row, the derivative of the sum of ``q_target`` by the row's residual."""
        moves = [
            np.einsum("aij,aj->ai", model.inverses, load)
            for model, load in zip(self.models, self._loads, strict=True)
        ]
        first, second = (np.einsum("ij,ij->i", self.x, move[self.action]) for move in moves)
        return np.where(self.fold == 1, first, second)  # fold 1 was fitted for fold 0
