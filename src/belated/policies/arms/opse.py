"""OPSE: elimination where delays may depend on the reward, after Lancewicki et al. (2021)."""

from typing import NamedTuple

import numpy as np

from belated.core.arguments import Whole, checked, parameters
from belated.core.types import Vector
from belated.model.protocols import Family
from belated.policies.shared.arms import outside_unit_interval
from belated.policies.shared.elimination import EliminationPlayer


@parameters
class OPSE(NamedTuple):
    """Optimistic-pessimistic elimination, for delays that may depend on the reward; arms are rows.

    Plays the arms that are left in turn. After each sweep it drops arm i if its mean with all
    missing rewards taken for 1, plus w_i, is below that of some arm j that is left with all missing
    rewards taken for 0, minus w_j: ``w_i = sqrt(2 log(T) / m_i)`` with m_i pulls of arm i. It plays
    in simulations only.

    Parameters
    ----------
    horizon
        Number of rounds T; a simulation fills it in.

    Assumptions
    -----------
    Rewards in [0, 1], independent over rounds, with a mean of their own for each arm. Nothing about
    the delays: they may depend on the rewards, and be infinite.

    Cost
    ----
    A decision O(1), at the end of a sweep O(K); a returned reward O(1).

    Deviations
    ----------
    The rule is derived here, from rewards in [0, 1]; of Lancewicki et al. (2021, PMLR 139) the
    abstract alone was read.

    References
    ----------
    T. Lancewicki, S. Segal, T. Koren, Y. Mansour: Stochastic Multi-Armed Bandits with Unrestricted
    Delay Distributions, ICML 2021.
    """

    horizon: Whole | None = None

    def refuses(self, family: Family) -> str:
        """Returns why it refuses this family: rewards must be in [0, 1]."""
        return outside_unit_interval(family)

    def start(self, dim: int, rng: np.random.Generator) -> "OPSEPlayer":
        """Returns a player that knows nothing yet."""
        return OPSEPlayer(checked(self), rng)


class OPSEPlayer(EliminationPlayer):
    """One run of ``OPSE``."""

    def bounds(self) -> tuple[Vector, Vector]:
        """Returns lower bounds with missing rewards 0 and upper bounds with missing rewards 1."""
        width = np.sqrt(2.0 * self.log_T / self.pulls)
        missing = self.pulls - self.observed
        return self.total / self.pulls - width, (self.total + missing) / self.pulls + width
