"""BOLD of Joulani, Gyorgy and Szepesvari (2013): as many copies of an algorithm as are waiting."""

from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import checked, parameters
from belated.core.types import Matrix, Vector
from belated.model.plain_policy import chosen_row, observer, started
from belated.model.protocols import Family, refusal
from belated.policies.shared.arms import Base, base_policy


@parameters
class BOLD(NamedTuple):
    """BOLD: a copy of an algorithm for every reward that is waited for.

    Each decision is made by a copy of the base that waits for no reward: the oldest of them, a new
    one where there is none. The reward goes to the copy that made the decision. So each copy sees a
    game without delay. Without delay this is the base. It plays in simulations only.

    Parameters
    ----------
    base
        ``"ucb1"``, ``"kl-ucb"``, ``"beta-thompson"``, these with parameters (``"kl-ucb:c=3"``), or
        any policy in plain Python that learns from single rewards. Bases for adversarial rewards
        are what BOLD is for; decision sets are handed to the base as they are.

    Assumptions
    -----------
    Those of the base, on the rounds of each copy, and delays that do not depend on the decisions:
    then the rounds that a copy plays do not, either (Joulani et al., Theorem 1 and its footnote).
    The regret is at most the sum of those of the copies, M f(n / M) for M copies and a base with
    the concave bound f; there is one copy more than the most rewards that are missing at once.

    Cost
    ----
    That of the base. Memory: one base for each reward missing at once.

    Deviations
    ----------
    This is Algorithm 1. It asks for an idle copy that is picked "independently of past
    predictions" and leaves open which; here it is the one that was made first. Copies share one
    random stream.

    References
    ----------
    P. Joulani, A. Gyorgy, C. Szepesvari: Online Learning under Delayed Feedback, ICML 2013.
    """

    base: Base = "ucb1"

    def refuses(self, family: Family) -> str:
        """Returns why the base refuses this family; empty where it does not."""
        return refusal(base_policy("base", self.base), family)

    def start(self, dim: int, rng: np.random.Generator) -> "BOLDPlayer":
        """Returns a player that knows nothing yet."""
        return BOLDPlayer(checked(self), dim, rng)


class Copy:
    """One base and its own count of rounds."""

    def __init__(self, base: Any) -> None:
        self.base, self.tell, self.rounds = base, observer(base), 0

    def choose(self, actions: Matrix) -> int:
        """Returns the row that the base plays in its next round."""
        self.rounds += 1
        return chosen_row(self.base, actions, self.rounds)


class BOLDPlayer:
    """One run of ``BOLD``."""

    def __init__(self, policy: BOLD, dim: int, rng: np.random.Generator) -> None:
        self.base, self.dim, self.rng = base_policy("base", policy.base), dim, rng
        self.copies: list[Copy] = []
        self.idle: list[int] = []  # a heap of indices: the order of returns must not matter
        self.waiting: dict[int, int] = {}  # copies by round

    def choose(self, actions: Matrix, t: int) -> int:
        """Returns the row to play in round ``t``."""
        if not self.idle:
            self.copies.append(Copy(started(self.base, self.dim, self.rng)))
            self.idle.append(len(self.copies) - 1)
        index = self.waiting[t] = heappop(self.idle)
        return self.copies[index].choose(actions)

    def observe(self, x: Vector, y: float, t: int) -> None:
        """Takes in the reward of round ``t``."""
        index = self.waiting.pop(t)
        copy = self.copies[index]
        copy.tell(x, y, copy.rounds)
        heappush(self.idle, index)
