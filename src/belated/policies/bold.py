"""BOLD of Joulani, Gyorgy and Szepesvari (2013): as many copies of an algorithm as are waiting."""

from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import parameters
from belated.core.own import chosen_row, observer, started
from belated.core.protocols import Family, refusal
from belated.core.types import Matrix, Vector
from belated.policies.arms import base_policy


@parameters
class BOLD(NamedTuple):
    """BOLD: a copy of an algorithm for every reward that is waited for.

    Each decision is made by a copy of the base that waits for no reward, a new one where there is
    none. The reward goes to the copy that made the decision. So each copy sees a game without
    delay. Without delay this is the base. It plays in simulations only.

    Parameters
    ----------
    base
        ``"ucb1"``, ``"kl-ucb"``, ``"beta-thompson"``, these with parameters (``"kl-ucb:c=3"``), or
        any policy in plain Python that learns from single rewards. Bases for adversarial rewards
        are what BOLD is for; decision sets are handed to the base as they are.

    Assumptions
    -----------
    Those of the base, on the rounds of each copy, which delays must not choose by their rewards.
    The regret is the sum of those of the copies; there is one more than the most rewards that are
    missing at once.

    Cost
    ----
    That of the base. Memory: one base for each reward missing at once.

    Deviations
    ----------
    The loop is from memory of the paper, whose text was not checked. Of several idle copies the
    one that became idle last decides. Copies share one random stream.

    References
    ----------
    P. Joulani, A. Gyorgy, C. Szepesvari: Online Learning under Delayed Feedback, ICML 2013.
    """

    base: Any = "ucb1"

    def checked(self) -> "BOLD":
        """Raise where a parameter does not fit."""
        base_policy("base", self.base)
        return self

    def refuses(self, family: Family) -> str:
        """What the base refuses."""
        return refusal(base_policy("base", self.base), family)

    def start(self, dim: int, rng: np.random.Generator) -> "BOLDPlayer":
        """A player that knows nothing yet."""
        return BOLDPlayer(self.checked(), dim, rng)


class Copy:
    """One base and its own count of rounds."""

    def __init__(self, base: Any) -> None:
        self.base, self.tell, self.rounds = base, observer(base), 0

    def choose(self, actions: Matrix) -> int:
        """What the base plays in its next round."""
        self.rounds += 1
        return chosen_row(self.base, actions, self.rounds)


class BOLDPlayer:
    """One run of ``BOLD``."""

    def __init__(self, policy: BOLD, dim: int, rng: np.random.Generator) -> None:
        self.base, self.dim, self.rng = base_policy("base", policy.base), dim, rng
        self.copies: list[Copy] = []
        self.idle: list[Copy] = []
        self.waiting: dict[int, Copy] = {}  # by round

    def choose(self, actions: Matrix, t: int) -> int:
        """The row to play in round ``t``."""
        if not self.idle:
            self.copies.append(Copy(started(self.base, self.dim, self.rng)))
            self.idle.append(self.copies[-1])
        copy = self.waiting[t] = self.idle.pop()
        return copy.choose(actions)

    def observe(self, x: Vector, y: float, t: int) -> None:
        """The reward of round ``t`` returned."""
        copy = self.waiting.pop(t)
        copy.tell(x, y, copy.rounds)
        self.idle.append(copy)
