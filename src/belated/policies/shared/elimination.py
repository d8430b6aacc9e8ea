"""Sweeps over the arms that are left, shared by policies that drop arms for good."""

import math
from typing import Any

import numpy as np

from belated.core.types import Matrix, Vector
from belated.policies.shared.arms import ArmPlayer
from belated.policies.shared.constants import known_horizon


class EliminationPlayer(ArmPlayer):
    """Plays the arms that are left in turn, and drops some after each sweep."""

    def __init__(self, policy: Any, rng: np.random.Generator) -> None:
        super().__init__(policy, rng)
        self.log_T = math.log(known_horizon(policy))
        self.sweep: list[int] = []  # arms still to play in this sweep, last first

    def meet(self, K: int) -> None:
        """Prepares for ``K`` arms, the rows of the first decision set."""
        super().meet(K)
        self.active = np.arange(K)
        self.sweep = list(range(K))[::-1]

    def pick(self, actions: Matrix, t: int) -> int:
        """Returns the next arm of the sweep."""
        if not self.sweep:
            low, high = self.bounds()
            self.active = self.active[high[self.active] >= low[self.active].max()]
            self.sweep = self.active[::-1].tolist()
        return self.sweep.pop()

    def bounds(self) -> tuple[Vector, Vector]:
        """Returns lower and upper confidence bounds of all arms."""
        seen = np.maximum(1, self.observed)
        width = np.sqrt(2.0 * self.log_T / seen)
        return self.total / seen - width, self.total / seen + width
