"""A policy of contextualbandits as a lane."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from belated.core.arguments import wrong_type
from belated.core.types import Matrix
from belated.peers.adapter import Adapter, as_many_arms, library, zero_or_one


class ContextualBandits(Adapter):
    """A policy from ``contextualbandits.online``.

    An arm is the position of an action in the decision set, and the context of a round is its whole
    decision set, K x d numbers in a row: the library has a model for each arm and shows all of them
    the same features. (It asks for two arms at least, so one model for all actions cannot be had.)

    Rewards must be 0 or 1. A policy with ``batch_train=True``, and LinUCB and LinTS, learns from
    new rewards alone; any other is fitted to all of them again whenever some have returned, which
    takes time that grows with the square of the horizon.

    The library has no wheels: ``pip install contextualbandits`` compiles it, and it is not part of
    the extra ``belated[peers]``.

    Parameters
    ----------
    policy : object
        Not fitted yet, with as many arms (``nchoices``) as a round has actions. Every run plays a
        copy with random numbers of its own. A base algorithm that draws some needs a
        ``random_state``, or the run cannot be repeated.
    name : str, optional
        Its label in results.
    shared : sequence of int, optional
        The columns in which all actions of a round are equal, such as features of a visitor: they
        are the context then, in place of the whole decision set.
    """

    def __init__(
        self, policy: Any, name: str | None = None, shared: Sequence[int] | None = None
    ) -> None:
        online = library("contextualbandits.online", "contextualbandits")
        if type(policy).__name__ not in online.__all__:
            raise wrong_type("policy", policy, "a policy of contextualbandits.online")
        super().__init__(policy, name or f"contextualbandits.{type(policy).__name__}", shared)

    def begin(self, seed: int) -> None:
        """Makes a copy with its own random numbers."""
        self.live = deepcopy(self.policy)
        self.live.random_state = np.random.default_rng(seed)
        names = self.live.choice_names
        self.arms: list[Any] = list(range(self.live.nchoices) if names is None else names)
        self.seen: list[tuple[Any, Any, float]] = []
        self.news = 0

    def pick(self, actions: Matrix, t: int) -> tuple[int, Any]:
        """Learns the rewards that have returned, and asks for an arm."""
        as_many_arms("nchoices", len(self.arms), actions)
        self._learn_the_news()
        context = self.context_of(actions)
        return self.arms.index(self.live.predict(context[np.newaxis])[0]), context

    def learn(self, row: int, kept: Any, y: float) -> None:
        """Keeps the reward until the next decision."""
        self.seen.append((kept, self.arms[row], zero_or_one(y, "contextualbandits")))
        self.news += 1

    def _learn_the_news(self) -> None:
        if not self.news:
            return
        contexts, arms, rewards = map(np.array, zip(*self.seen, strict=True))
        if self.live.batch_train:
            self.live.partial_fit(contexts, arms, rewards)
            self.seen = []
        else:
            self.live.fit(contexts, arms, rewards)
        self.news = 0
