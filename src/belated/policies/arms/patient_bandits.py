"""PatientBandits of Gael, Vernade, Carpentier and Valko (2020): each arm with delays of its own.

Only successes return, and a delay may be so heavy-tailed that it has no mean. Nothing is known of
its law but a bound on the tail, common to all arms. Numbers of equations and theorems are those of
the paper (PMLR 119, gael20a).
"""

import math
from typing import NamedTuple

import numpy as np

from belated.core.arguments import Positive, Whole, checked, parameters
from belated.core.types import Matrix, Vector
from belated.model.protocols import Family
from belated.policies.shared.arms import ArmPlayer, least_known, outside_unit_interval
from belated.policies.shared.constants import known_horizon


@parameters
class PatientBandits(NamedTuple):
    """UCB where only successes return, after delays that differ by arm; arms are rows.

    Plays ``argmax S_i / N_i + sqrt(2 log(2 K T^3) / N_i) + 2 N_i^-min(alpha, 1/2)``: N_i pulls of
    arm i, S_i the sum of its rewards that have returned, K arms, T rounds. What has not returned
    counts as 0, and the last term makes up for it. Every arm is played once first. It plays in
    simulations only, with ``feedback="conversions"``.

    Parameters
    ----------
    alpha
        Bound on the tails of all delays: a delay exceeds m rounds with probability ``m^-alpha`` at
        most, for every m from 1 on. The smaller, the heavier the tails that are allowed, and the
        more is explored. All values from 1/2 on play alike.
    horizon
        Number of rounds T; a simulation fills it in.

    Assumptions
    -----------
    Rewards in [0, 1], independent over rounds, with a mean of their own for each arm; delays
    independent of the rewards, with a law of their own for each arm and the tails that ``alpha``
    says (Assumption 1). No window: rewards that never come are a delay without end, whose tail no
    alpha bounds. Then the regret is at most the sum over arms of ``max(64 log(2 T) / gap,
    (8 / gap)^max(1 / alpha - 1, 1)) + 2`` (Theorem 2).

    Cost
    ----
    A decision O(K), a returned reward O(1).

    Deviations
    ----------
    This is Algorithm 1 with the bound of Theorem 1. What returns in a round is used from the next
    one on: a delay of u rounds shows after u + 1 of them, in print after u. The last term has room
    for that: with a = min(alpha, 1/2), the N missing shares add up to at most ``1 + sum over m < N
    of m^-a <= 2 N^(1 - a)``. Figure 5 of the paper comes out as printed in order and shape; its
    Figure 4, with equal delays, shows a third or a quarter of what the printed width loses.
    Adapt-PatientBandits, the paper's Algorithm 2, which estimates alpha, is not here.

    References
    ----------
    M. A. Gael, C. Vernade, A. Carpentier, M. Valko: Stochastic Bandits with Arm-dependent Delays.
    ICML 2020.
    """

    alpha: Positive = 0.5
    horizon: Whole | None = None

    @property
    def feedback(self) -> str:
        """The feedback: successes only."""
        return "conversions"

    def refuses(self, family: Family) -> str:
        """Returns why it refuses this family: rewards must be in [0, 1]."""
        return outside_unit_interval(family)

    def start(self, dim: int, rng: np.random.Generator) -> "PatientPlayer":
        """Returns a player that knows nothing yet."""
        self = checked(self)
        known_horizon(self)
        return PatientPlayer(self, rng)


class PatientPlayer(ArmPlayer):
    """One run of ``PatientBandits``."""

    def pick(self, actions: Matrix, t: int) -> int:
        """Returns the arm with the largest index."""
        arm = least_known(self.pulls, self.pulls)
        return arm if arm >= 0 else int(np.argmax(self.indices()))

    def indices(self) -> Vector:
        """Returns upper confidence bounds of all arms; each must have been pulled."""
        T, exponent = self.policy.horizon, min(self.policy.alpha, 0.5)
        noise = np.sqrt(2.0 * math.log(2.0 * self.K * T**3) / self.pulls)
        return np.asarray(self.total / self.pulls + noise + 2.0 * self.pulls**-exponent)
