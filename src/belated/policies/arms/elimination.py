"""Successive elimination of Lancewicki et al. (2021), for delays without bound."""

from typing import NamedTuple

import numpy as np

from belated.core.arguments import Whole, checked, parameters
from belated.model.protocols import Family
from belated.policies.shared.arms import outside_unit_interval
from belated.policies.shared.elimination import EliminationPlayer


@parameters
class DelayedElimination(NamedTuple):
    """Successive elimination on the rewards that have returned; arms are rows.

    Plays the arms that are left in turn. After each sweep it drops arm i if ``m_i + w_i < m_j -
    w_j`` for some arm j that is left: m_i is the mean of the S_i rewards of arm i that have
    returned, ``w_i = sqrt(2 log(T) / max(1, S_i))``. It plays in simulations only.

    Parameters
    ----------
    horizon
        Number of rounds T; a simulation fills it in.

    Assumptions
    -----------
    Rewards in [0, 1], independent over rounds, with a mean of their own for each arm. Delays do not
    depend on the rewards; they may be infinite. The bound on the regret is in quantiles of the
    delay.

    Cost
    ----
    A decision O(1), at the end of a sweep O(K); a returned reward O(1).

    Deviations
    ----------
    The rule is from memory of Lancewicki et al. (2021, PMLR 139), whose abstract alone was read.

    References
    ----------
    T. Lancewicki, S. Segal, T. Koren, Y. Mansour: Stochastic Multi-Armed Bandits with Unrestricted
    Delay Distributions, ICML 2021.
    """

    horizon: Whole | None = None

    def refuses(self, family: Family) -> str:
        """Returns why it refuses this family: rewards must be in [0, 1]."""
        return outside_unit_interval(family)

    def start(self, dim: int, rng: np.random.Generator) -> "EliminationPlayer":
        """Returns a player that knows nothing yet."""
        return EliminationPlayer(checked(self), rng)
