"""A policy of river's bandit module as a lane."""

from collections.abc import Sequence
from inspect import signature
from typing import Any

from belated.core.arguments import wrong_type
from belated.core.types import Matrix
from belated.peers.adapter import Adapter, library, zero_or_one


class River(Adapter):
    """A policy of ``river.bandit``.

    An arm is the position of an action in the decision set. This makes sense where positions mean
    something (``FixedArms``); where the actions of each round are drawn anew, a policy without
    contexts cannot do better than chance. A ``ContextualPolicy``, such as ``LinUCBDisjoint``, gets
    the whole decision set as its context, K x d numbers, and has a model for each arm; one model
    for all actions cannot be had.

    The behaviour of river under delay is left as it is, to be seen: burn-in counts rewards
    and not pulls, so the first arm is played until its rewards are back; ``Exp3`` weighs a late
    reward by the chances of its latest decision.

    ``BayesUCB`` and whatever counts with ``proba.Beta`` take rewards of 0 and 1 only.

    Parameters
    ----------
    policy : river.bandit.base.Policy
        Every run plays a ``clone`` of it, with a seed of the run's: what it has learnt is not used.
    name : str, optional
        Its label in results.
    shared : sequence of int, optional
        The columns in which all actions of a round are equal, such as features of a visitor: they
        are the context then, in place of the whole decision set.

    Examples
    --------
    >>> from river import bandit
    >>> River(bandit.UCB(delta=1.0)).name
    'river.UCB'
    """

    def __init__(
        self, policy: Any, name: str | None = None, shared: Sequence[int] | None = None
    ) -> None:
        bandit, metrics, proba = (
            library(f"river.{part}") for part in ("bandit", "metrics", "proba")
        )
        if not isinstance(policy, bandit.base.Policy):
            raise wrong_type("policy", policy, "a policy of river.bandit")
        if isinstance(policy.reward_obj, metrics.base.Metric):
            expected = "a statistic or a distribution, because a reward is one number"
            raise wrong_type("policy.reward_obj", policy.reward_obj, expected)
        super().__init__(policy, name or f"river.{type(policy).__name__}", shared)
        self.contextual = isinstance(policy, bandit.base.ContextualPolicy)
        counts = isinstance(policy.reward_obj, proba.Beta)
        self.binary = counts or isinstance(policy, bandit.BayesUCB)

    def begin(self, seed: int) -> None:
        """Makes a clone, seeded where the policy takes a seed."""
        seeded = "seed" in signature(type(self.policy)).parameters
        self.live = self.policy.clone({"seed": seed} if seeded else None)

    def pick(self, actions: Matrix, t: int) -> tuple[int, Any]:
        """Pulls an arm."""
        arms = list(range(len(actions)))
        context = (dict(enumerate(self.context_of(actions).tolist())),) if self.contextual else ()
        return self.live.pull(arms, *context), context

    def learn(self, row: int, kept: Any, y: float) -> None:
        """Updates the policy with a reward."""
        if self.binary:
            zero_or_one(y, self.name)
        self.live.update(row, *kept, y)
