"""SBD in the style of Mandel et al. (2015): QPM-D that does not waste the rounds it waits."""

from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import Count, checked, parameters
from belated.core.types import Matrix, Vector
from belated.model.protocols import Family, refusal
from belated.policies.shared.arms import (
    Base,
    as_success,
    base_policy,
    draw_best,
    outside_unit_interval,
)
from belated.policies.shared.queues import QueuePlayer


@parameters
class SBD(NamedTuple):
    """SBD-style: QPM-D that plays a heuristic while the base waits; arms are rows.

    As ``QPMD`` until the base waits for an arm whose queue is empty. If no pull of that arm is
    missing its reward, the arm is played. Otherwise Thompson sampling (uniform Beta prior, all
    rewards that have returned, queued or used) draws an arm. An arm with ``cap`` or more unused
    samples, missing or queued, hands its chance to the arm that the base waits for. With a cap of 0
    this is ``QPMD``, without delay it is the base. It plays in simulations only.

    Parameters
    ----------
    base
        As in ``QPMD``.
    cap
        Most unused samples of an arm that the heuristic may collect. Default: the longest delay
        seen so far.

    Assumptions
    -----------
    None: no guarantee is claimed. The paper has one in the manner of QPM-D's for its algorithm.

    Cost
    ----
    A decision: that of the base plus O(K); a returned reward O(1).

    Deviations
    ----------
    The idea is from memory of Mandel et al. (2015), which could not be read; the rules are our
    reading of it: take this as an algorithm in the style of SBD. Its heuristic is fixed.

    References
    ----------
    T. Mandel, Y.-E. Liu, E. Brunskill, Z. Popovic: The Queue Method: Handling Delay, Heuristics,
    Prior Data, and Evaluation in Bandits, AAAI 2015.
    """

    base: Base = "ucb1"
    cap: Count | None = None

    def refuses(self, family: Family) -> str:
        """Returns why it refuses this family: rewards outside [0, 1], or a reason of the base."""
        return outside_unit_interval(family) or refusal(base_policy("base", self.base), family)

    def start(self, dim: int, rng: np.random.Generator) -> "SBDPlayer":
        """Returns a player that knows nothing yet."""
        return SBDPlayer(checked(self), dim, rng)


class SBDPlayer(QueuePlayer):
    """One run of ``SBD``."""

    def __init__(self, policy: SBD, dim: int, rng: np.random.Generator) -> None:
        super().__init__(policy, dim, rng)
        bits: Any = rng.bit_generator  # the base's stream stays as it would be without a heuristic
        self.draws = np.random.Generator(bits.jumped())
        self.now = 0
        self.longest = 0  # delay seen, in rounds

    def pick(self, actions: Matrix, t: int) -> int:
        """Returns the arm the base waits for, or one that the heuristic draws meanwhile."""
        self.now = t
        wanted = super().pick(actions, t)
        missing = self.pulls - self.observed
        if missing[wanted] == 0:
            return wanted
        arm = draw_best(self.draws, 1.0 + self.total, 1.0 + self.observed - self.total)
        cap = self.longest if self.policy.cap is None else self.policy.cap
        return wanted if missing[arm] + len(self.queues[arm]) >= cap else arm

    def observe(self, x: Vector, y: float, t: int) -> None:
        """Takes in the reward of round ``t``."""
        self.longest = max(self.longest, self.now - t)
        super().observe(x, y, t)

    def count(self, arm: int, y: float) -> None:
        """Counts a returned reward of ``arm``."""
        super().count(arm, as_success(self.draws, y))
