"""mabwiser's MAB as a lane."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from belated.core.arguments import wrong_type
from belated.core.types import Matrix
from belated.peers.adapter import Adapter, as_many_arms, described, library, zero_or_one


class MABWiser(Adapter):
    """A ``MAB`` of mabwiser.

    Its number of arms, and whether its policy is contextual, decide how actions are read:

    - As many arms as actions, no context: an arm is the position of an action in the decision set.
      This makes sense where positions mean something (``FixedArms``); where the actions of each
      round are drawn anew, it cannot do better than chance.
    - As many arms as actions, contextual: the same, and the context of a round is its whole
      decision set, K x d numbers in a row. Every arm learns a model of its own of all of them.
    - One arm, contextual: one model for all actions, and an action is a context. The one with the
      largest expectation is played. This is the reading that fits a linear bandit best. (LinGreedy
      then draws its epsilon for every action instead of every round, LinTS its parameter.)

    mabwiser learns first from a batch in which every arm should appear: UCB1 expects nothing of an
    arm without data and would not try it. Until each arm has a reward back, arms are played in
    turn; with one arm, actions at random until the first reward.

    ``ThompsonSampling`` without a binarizer takes rewards of 0 and 1 only. Every run plays a new
    ``MAB`` with the same settings and a seed of the run's: what this one has learnt is not used.

    Parameters
    ----------
    mab : mabwiser.mab.MAB
        The settings to play with.
    name : str, optional
        Its label in results.
    shared : sequence of int, optional
        The columns in which all actions of a round are equal, such as features of a visitor: they
        are the context then, in place of the whole decision set.

    Examples
    --------
    >>> from mabwiser.mab import MAB, LearningPolicy
    >>> MABWiser(MAB(["any"], LearningPolicy.LinUCB(alpha=0.5))).name
    'mabwiser.LinUCB'
    """

    def __init__(
        self, mab: Any, name: str | None = None, shared: Sequence[int] | None = None
    ) -> None:
        if not isinstance(mab, library("mabwiser.mab").MAB):
            raise wrong_type("mab", mab, "a MAB of mabwiser")
        learning, neighbours = mab.learning_policy, mab.neighborhood_policy
        super().__init__(mab, name or f"mabwiser.{type(learning).__name__}", shared)
        # Only ThompsonSampling has a binarizer, or can do without.
        self.binary = getattr(learning, "binarizer", self) is None
        self.one_model = mab.is_contextual and len(mab.arms) == 1
        # Fewer rewards than neighbours or clusters asked for would be an error of mabwiser's.
        self.first_batch = max(getattr(neighbours, "k", 1), getattr(neighbours, "n_clusters", 1))

    def begin(self, seed: int) -> None:
        """Makes a new MAB with the same settings."""
        mab = self.policy
        self.live = type(mab)(
            mab.arms,
            mab.learning_policy,
            mab.neighborhood_policy,
            seed=seed,
            n_jobs=mab.n_jobs,
            backend=mab.backend,
        )
        self.untried = set(range(len(mab.arms)))
        self.fitted = False
        self.news: list[tuple[Any, float, Any]] = []

    def pick(self, actions: Matrix, t: int) -> tuple[int, Any]:
        """Learns the rewards that have returned, and asks for an arm."""
        self._learn_the_news()
        if self.one_model:
            row = self._best_row(actions)
            return row, actions[row].copy()  # a view would keep all of them
        arms = self.live.arms
        as_many_arms("mab.arms", len(arms), actions)
        context = self.context_of(actions) if self.live.is_contextual else None
        if not self.fitted:
            return (t - 1) % len(arms), context
        return arms.index(self.live.predict(None if context is None else [context])), context

    def learn(self, row: int, kept: Any, y: float) -> None:
        """Keeps the reward for the batch that is learnt before the next decision."""
        if self.binary:
            zero_or_one(y, "mabwiser's ThompsonSampling without a binarizer")
        arm = 0 if self.one_model else row
        self.untried.discard(arm)
        self.news.append((self.live.arms[arm], y, kept))

    def _best_row(self, actions: Matrix) -> int:
        if not self.fitted:
            return int(self.rng.integers(len(actions)))
        answer = self.live.predict_expectations(actions)
        answers = [answer] if isinstance(answer, dict) else answer
        scores = np.array([expected[self.live.arms[0]] for expected in answers])
        return int(np.argmax(np.where(np.isnan(scores), np.inf, scores)))  # no neighbours: try it

    def _learn_the_news(self) -> None:
        enough = not self.untried and len(self.news) >= self.first_batch
        if not self.news or not (self.fitted or enough):
            return
        arms, rewards, contexts = zip(*self.news, strict=True)
        self.live.partial_fit(
            list(arms), list(rewards), np.array(contexts) if self.live.is_contextual else None
        )
        self.fitted, self.news = True, []

    def _asdict(self) -> dict[str, Any]:
        mab = self.policy
        parts = [mab.learning_policy, mab.neighborhood_policy]
        policy = ", ".join(described(part) for part in parts if part is not None)
        return super()._asdict() | {"policy": policy, "arms": len(mab.arms)}
