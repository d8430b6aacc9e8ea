"""A policy that learns, played on a log as it would have learnt, late rewards included.

Replay with rejection. In the order of time, a row is accepted with probability c / p, where p is
its propensity and c the smallest of all; the accepted rows are as if actions had been drawn evenly.
The policy keeps the row if it chooses the logged action, with the reward at the time at which it
really came; all other rows are dropped, and it never hears of them. The rows that it keeps are a
log that the policy itself could have made, so their mean reward is what it earns.

The answer is for the policy's first n decisions, where n is the number of rows that it keeps: with
K actions about one row in K. Its traffic is thinned by as much, and a delay of a day passes over
fewer decisions than it would in production: late rewards hurt less. A world that is fitted to the
log and played at full traffic answers that, and rests on the fit; replay rests on propensities.

References
----------
L. Li, W. Chu, J. Langford, X. Wang: Unbiased offline evaluation of contextual-bandit-based news
article recommendation algorithms. WSDM 2011.
M. Dudik, D. Erhan, J. Langford, L. Li: Sample-efficient nonstationary policy evaluation for
contextual bandits. UAI 2012 (rejection).
"""

import heapq
from typing import Any

import numpy as np

from belated.bandit import Bandit
from belated.core.types import Integers
from belated.features import Features
from belated.logs.log_model import family_for, family_of
from belated.logs.values import PENDING
from belated.logs.whole_log import WholeLog
from belated.model.protocols import with_horizon
from belated.registry import POLICIES, parse

FITTED = 100_000  # rows that numbers are scaled by
COLUMN = "action"


class Player:
    """A bandit that decides at the times of the log and gets rewards when they came.

    Parameters
    ----------
    log
        The log; it has times and propensities.
    policy
        Name and parameters of a registered policy. One that asks for a horizon gets the number of
        rows over the number of actions.
    window
        Of a conversion loop, in seconds: silence becomes 0 when it closes. None: every decision
        gets a reward, and nothing is learnt from those that are pending.
    seed
        Of the rejections and of the policy.
    """

    def __init__(self, log: WholeLog, policy: str, window: float | None, seed: int) -> None:
        self.log, self.seed, self.rng = log, seed, np.random.default_rng((seed, 1))
        self.longest = np.inf if window is None else window * 1e6  # later conversions do not count
        self.actions = [{COLUMN: name} for name in log.names]
        self.now = int(log.decided.min())
        self.waiting: list[tuple[int, int, Any, float]] = []  # when, row, id, reward
        loop: dict[str, Any] = {}
        if window is not None:
            loop = {"window": window, "default_reward": 0.0}
        rewards = log.reward if window is None else np.nan_to_num(log.reward)
        _, family = family_of(rewards[~np.isnan(rewards)])
        horizon = max(1, len(log.action) // len(log.names))
        made = with_horizon(parse(POLICIES, policy), horizon)
        self.bandit = Bandit(
            family=family_for(made, family),
            policy=made,
            features=features_of(log),
            seed=seed,
            clock=lambda: self.now / 1e6,
            **loop,
        )

    def kept_rows(self) -> Integers:
        """Returns the rows that the policy keeps, in the order of time."""
        order = np.argsort(self.log.decided, kind="stable")
        coins = np.random.default_rng(self.seed).random(len(order))
        offered = order[coins < self.log.propensity.min() / self.log.propensity[order]]
        return np.array([row for row in offered.tolist() if self._keeps(row)], np.int64)

    def _keeps(self, row: int) -> bool:
        """Returns whether the bandit chooses the action of the row, and if so takes it in."""
        self._learn_until(int(self.log.decided[row]))
        context = {name: plain_cell(column[row]) for name, column in self.log.context.items()}
        action = int(self.log.action[row])
        if self.rng.random() >= self.bandit.probabilities(self.actions, context)[action]:
            return False
        decision = self.bandit.decide([self.actions[action]], context, probabilities=False)
        returned = int(self.log.returned[row])
        if returned != PENDING and returned - self.log.decided[row] <= self.longest:
            reward = float(self.log.reward[row])
            heapq.heappush(self.waiting, (returned, row, decision.id, reward))
        return True

    def _learn_until(self, time: int) -> None:
        while self.waiting and self.waiting[0][0] <= time:
            self.now, _, id, reward = heapq.heappop(self.waiting)
            self.bandit.learn(id, reward)
        self.now = time


def plain_cell(cell: Any) -> Any:
    """Returns a cell as Features take it: a number or a text."""
    return cell.item() if hasattr(cell, "item") else cell


def features_of(log: WholeLog) -> Features:
    """Returns features of the action, of each column of the context, and of their products."""
    texts = [name for name, column in log.context.items() if column.dtype == object]
    numbers = [name for name in log.context if name not in texts]
    features = Features(
        categorical=[COLUMN, *texts],
        numeric=numbers,
        missing=numbers,
        interactions=[(COLUMN, name) for name in log.context],
    )
    step = max(1, len(log.action) // FITTED)
    contexts = {name: column[::step] for name, column in log.context.items()}
    n = len(log.action[::step])
    rows = [
        {COLUMN: log.names[k % len(log.names)]}
        | {name: plain_cell(column[k % n]) for name, column in contexts.items()}
        for k in range(max(n, len(log.names)))
    ]
    return features.fit(rows)
