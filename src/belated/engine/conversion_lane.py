"""A policy for identified rewards where only conversions return: it plays as a ``Bandit`` does.

A ``Bandit(window=..., default_reward=0.0)`` keeps a log, closes its windows itself and, where its
policy can, learns from silence before they close. ``Served`` is that bandit as a plain policy, over
the same log and fold; time is the number of the round.
"""

from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import wrong
from belated.core.times import SECOND
from belated.core.types import Matrix, Vector
from belated.families import Bernoulli
from belated.learner.learner import learns_early
from belated.ledger.proposing import Ask
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.stores.memory import MemoryLedger
from belated.model.plain_policy import is_own
from belated.model.protocols import Family, Policy, feedback_of
from belated.worlds.feedback import Conversions, Feedback

NAME = "lane"


class Served(NamedTuple):
    """A policy that is told of conversions and closes windows itself.

    Parameters
    ----------
    policy
        A compiled policy that learns from identified rewards.
    open
        What a decision says while its window is open: "silence" or "hold", as in ``Bandit``.
    family, max_norm
        As in ``Bandit``; a simulation fills them in.
    window
        Rounds for which a conversion is waited for; a simulation fills in that of its feedback.
    """

    policy: Policy
    open: str = "silence"
    family: Family = Bernoulli()
    max_norm: float = 1.0
    window: float | None = None

    @property
    def feedback(self) -> str:
        """The feedback: only successes, within a window."""
        return "conversions"

    def start(self, dim: int, rng: np.random.Generator) -> "ServedPlayer":
        """Returns the player before the first round."""
        return ServedPlayer(self, dim, rng)


class ServedPlayer:
    """A bandit over a log in memory whose clock tells the round, as seconds."""

    def __init__(self, served: Served, dim: int, rng: np.random.Generator) -> None:
        if served.window is None:
            raise wrong("window", None, "rounds for which a conversion is waited for")
        spec = Spec.of(
            dim,
            served.family,
            served.policy,
            max_norm=served.max_norm,
            loop="conversion",
            window=float(served.window),
            open=served.open,
        )
        self.round, self.ids = 0, list[bytes]()
        self.replica = Replica(MemoryLedger(), clock=lambda: self.round * SECOND)
        self.replica.rng = rng
        self.replica.configure(NAME, spec)

    def choose(self, actions: Matrix, t: int) -> int:
        """Close the windows that are over, and decide."""
        self.round = t
        self.replica.expire()
        draft, body = self.replica.propose(NAME, Ask(matrix=actions))
        self.replica.commit([draft])
        self.ids.append(draft.id)
        return body.index

    def observe(self, x: Vector, y: float, t: int) -> None:
        """Hand in the conversion of round ``t``."""
        self.replica.reward([(self.ids[t - 1], y)])


def as_served(policy: Any, family: Family, dim: int, max_norm: float, feedback: Feedback) -> Any:
    """Returns the policy as it plays: ``Served`` where only conversions return and it can hear.

    A policy that is made for the feedback, or that cannot learn from silence, is returned as it is.
    """
    if isinstance(policy, Served):
        if feedback_of(policy.policy) != "identified":
            raise wrong("policy", policy.policy, "one that learns from identified rewards, to hold")
        return policy._replace(family=family, max_norm=max_norm)
    made_for_others = not is_own(policy) and feedback_of(policy) == "identified"
    if not made_for_others or not isinstance(feedback, Conversions):
        return policy
    early = learns_early(dim, family, policy, max_norm)
    return Served(policy, "silence", family, max_norm) if early else policy
