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

One replay is one path. With other luck the policy would have learnt something else and earned more
or less: a greedy one that meets two bad draws of the best action may never come back to it. So the
log is replayed several times. Rejections and the policy are drawn anew, and so is, after the first
time, the order of the rows: they are dealt to the times of the log, each with its delay, at most a
tenth of the log from where it was. Rows that are near in time are exchangeable unless the world
changes that fast, so every replay is as right on average as the first. ``policy_values.with_luck``
has what their spread does to the interval.

References
----------
L. Li, W. Chu, J. Langford, X. Wang: Unbiased offline evaluation of contextual-bandit-based news
article recommendation algorithms. WSDM 2011.
M. Dudik, D. Erhan, J. Langford, L. Li: Sample-efficient nonstationary policy evaluation for
contextual bandits. UAI 2012 (rejection).
J. Mary, P. Preux, O. Nicol: Improving offline evaluation of contextual bandit algorithms via
bootstrapping techniques. ICML 2014 (several replays of rows that are drawn anew).
"""

import heapq
from collections.abc import Callable
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
NEAR = 0.05  # of the rows of a log: a row and the one whose place it takes move by so many at most


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
        self.log, self.seed = log, seed
        self.longest = np.inf if window is None else window * 1e6  # later conversions do not count
        self.actions = [{COLUMN: name} for name in log.names]
        loop: dict[str, Any] = {}
        if window is not None:
            loop = {"window": window, "default_reward": 0.0}
        rewards = log.reward if window is None else np.nan_to_num(log.reward)
        _, family = family_of(rewards[~np.isnan(rewards)])
        horizon = max(1, len(log.action) // len(log.names))
        made = with_horizon(parse(POLICIES, policy), horizon)
        self.settings = {
            "family": family_for(made, family),
            "policy": made,
            "features": features_of(log),
            "clock": lambda: self.now / 1e6,
            **loop,
        }
        self._begin(seed)

    def _begin(self, seed: int) -> None:
        self.now = int(self.log.decided.min())
        self.waiting: list[tuple[int, int, Any, float]] = []  # when, row, id, reward
        self.rng = np.random.default_rng((seed, 1))
        self.bandit = Bandit(seed=seed, **self.settings)

    def kept_rows(
        self, replay: int = 0, told: Callable[[int], None] = lambda rows: None
    ) -> Integers:
        """Returns the rows that the policy keeps, in the order in which they come.

        Parameters
        ----------
        replay
            The number of the replay; number 0 has the rows in the order of time.
        told
            Called with 1 after each row.
        """
        seed = self.seed
        if replay:
            seed = int(np.random.default_rng((self.seed, replay)).integers(2**31))
        self._begin(seed)
        order = np.argsort(self.log.decided, kind="stable")
        times = self.log.decided[order].tolist()
        if replay:
            order = order[dealt(len(order), np.random.default_rng((seed, 2)))]
        coins = np.random.default_rng(seed).random(len(order))
        offered = coins < self.log.propensity.min() / self.log.propensity[order]
        kept = []
        for row, time, is_offered in zip(order.tolist(), times, offered, strict=True):
            if is_offered and self._keeps(row, time):
                kept.append(row)
            told(1)
        return np.array(kept, np.int64)

    def _keeps(self, row: int, time: int) -> bool:
        """Returns whether the bandit chooses the action of the row, and if so takes it in."""
        self._learn_until(time)
        context = {name: plain_cell(column[row]) for name, column in self.log.context.items()}
        action = int(self.log.action[row])
        if self.rng.random() >= self.bandit.probabilities(self.actions, context)[action]:
            return False
        decision = self.bandit.decide([self.actions[action]], context, probabilities=False)
        returned = int(self.log.returned[row])
        late = returned - int(self.log.decided[row])
        if returned != PENDING and late <= self.longest:
            reward = float(self.log.reward[row])
            heapq.heappush(self.waiting, (time + late, row, decision.id, reward))
        return True

    def _learn_until(self, time: int) -> None:
        while self.waiting and self.waiting[0][0] <= time:
            self.now, _, id, reward = heapq.heappop(self.waiting)
            self.bandit.learn(id, reward)
        self.now = time


def dealt(n: int, rng: np.random.Generator) -> Integers:
    """Returns the places 0 to n - 1 in another order, each about as far along as before.

    >>> np.abs(dealt(1_000, np.random.default_rng(1)) - np.arange(1_000)).max() <= 100
    np.True_
    """
    return np.argsort(np.arange(n) + rng.uniform(-NEAR * n, NEAR * n, n), kind="stable")


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
