"""A bandit algorithm behind queues of returned rewards: all of QPM-D, and a part of SBD."""

from collections import deque
from typing import Any

import numpy as np

from belated.core.types import Matrix, Vector
from belated.model.plain_policy import chosen_row, observer, started
from belated.policies.shared.arms import ArmPlayer, base_policy


class QueuePlayer(ArmPlayer):
    """Plays the arm that the base waits for, and feeds the base from the queues."""

    def __init__(self, policy: Any, dim: int, rng: np.random.Generator) -> None:
        super().__init__(policy, rng)
        self.base = started(base_policy("base", policy.base), dim, rng)
        self.tell = observer(self.base)
        self.asked = 0  # rounds of the base
        self.wanted = -1  # the arm it waits for

    def meet(self, K: int) -> None:
        """Prepares for ``K`` arms, the rows of the first decision set."""
        super().meet(K)
        self.queues: list[deque[tuple[Vector, float]]] = [deque() for _ in range(K)]

    def pick(self, actions: Matrix, t: int) -> int:
        """Returns the arm whose reward the base waits for."""
        if self.asked == 0:
            self._ask(actions)
        while self.queues[self.wanted]:
            x, y = self.queues[self.wanted].popleft()
            self.tell(x, y, self.asked)
            self._ask(actions)
        return self.wanted

    def _ask(self, actions: Matrix) -> None:
        self.asked += 1
        self.wanted = chosen_row(self.base, actions, self.asked)

    def observe(self, x: Vector, y: float, t: int) -> None:
        """Takes in the reward of round ``t``."""
        arm = self.played.pop(t)
        self.count(arm, y)
        self.queues[arm].append((x, y))
