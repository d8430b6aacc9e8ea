"""An agent of bayesianbandits as a lane."""

from typing import Any

import numpy as np

from belated.core.arguments import wrong_type
from belated.core.types import Matrix
from belated.peers.adapter import Adapter, described, library


class BayesianBandits(Adapter):
    """A ``LipschitzContextualAgent`` of bayesianbandits: one model for all actions.

    This is the library's agent for actions with features: its design matrix is the decision set. An
    arm is the position of an action. Rewards that have returned are learnt before the next
    decision, in one ``partial_fit``.

    Parameters
    ----------
    learner : object
        An estimator of bayesianbandits, not fitted yet, such as ``BayesianGLM()`` for rewards of 0
        and 1. With ``sparse=True`` it gets sparse matrices. Every run plays a clone with random
        numbers of its own.
    policy : object, optional
        A policy of bayesianbandits; by default ``ThompsonSampling()``.
    name : str, optional
        Its label in results.
    """

    def __init__(self, learner: Any, policy: Any = None, name: str | None = None) -> None:
        bandits = library("bayesianbandits")
        if type(learner).__name__ not in bandits.__all__ or not hasattr(learner, "partial_fit"):
            raise wrong_type("learner", learner, "an estimator of bayesianbandits")
        self.rule = bandits.ThompsonSampling() if policy is None else policy
        super().__init__(learner, name or f"bayesianbandits.{type(learner).__name__}")

    def begin(self, seed: int) -> None:
        """Makes a clone of the learner, and an agent that has one arm and learns with it."""
        bandits, base = library("bayesianbandits"), library("sklearn.base")
        self.live = bandits.LipschitzContextualAgent(
            arms=[bandits.Arm(0)],
            policy=self.rule,
            arm_featurizer=_DecisionSet(),
            learner=base.clone(self.policy),
            random_seed=seed,
        )
        self.news: list[tuple[Any, float]] = []

    def pick(self, actions: Matrix, t: int) -> tuple[int, Any]:
        """Learns the rewards that have returned, and pulls an arm."""
        self._learn_the_news()
        for token in range(len(self.live.arms), len(actions)):
            self.live.add_arm(library("bayesianbandits").Arm(token))
        for token in range(len(actions), len(self.live.arms)):
            self.live.remove_arm(token)
        row = int(self.live.pull([self._design(actions)])[0])
        return row, actions[row].copy()  # a view would keep all of them

    def learn(self, row: int, kept: Any, y: float) -> None:
        """Keeps the reward for the batch that is learnt before the next decision."""
        self.news.append((kept, y))

    def _learn_the_news(self) -> None:
        if self.news:
            rows, rewards = zip(*self.news, strict=True)
            self.live.update([self._design(np.array(rows))], np.array(rewards))
            self.news = []

    def _design(self, rows: Matrix) -> Any:
        return library("scipy.sparse").csc_array(rows) if self.policy.sparse else rows

    def _asdict(self) -> dict[str, Any]:
        return super()._asdict() | {"rule": described(self.rule)}


class _DecisionSet:
    """An arm featurizer: the only context of a pull is the decision set itself."""

    def transform(self, X: Any, *, action_tokens: Any) -> Any:
        """Returns the rows, whichever arms are asked for: all of a pull, or those of an update."""
        return X[0]
