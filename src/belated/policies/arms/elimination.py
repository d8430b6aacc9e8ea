"""Successive elimination of Lancewicki et al. (2021), for delays without bound, even by reward."""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import parameters
from belated.core.types import Matrix, Vector
from belated.model.protocols import Family
from belated.policies.shared.arms import ArmPlayer, optional_horizon, outside_unit_interval
from belated.policies.shared.constants import known_horizon


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

    horizon: int | None = None

    def checked(self) -> "DelayedElimination":
        """Raise where a parameter does not fit."""
        return self._replace(horizon=optional_horizon(self.horizon))

    def refuses(self, family: Family) -> str:
        """Rewards outside [0, 1]."""
        return outside_unit_interval(family)

    def start(self, dim: int, rng: np.random.Generator) -> "EliminationPlayer":
        """A player that knows nothing yet."""
        return EliminationPlayer(self.checked(), rng)


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

    horizon: int | None = None

    def checked(self) -> "OPSE":
        """Raise where a parameter does not fit."""
        return self._replace(horizon=optional_horizon(self.horizon))

    def refuses(self, family: Family) -> str:
        """Rewards outside [0, 1]."""
        return outside_unit_interval(family)

    def start(self, dim: int, rng: np.random.Generator) -> "OPSEPlayer":
        """A player that knows nothing yet."""
        return OPSEPlayer(self.checked(), rng)


class EliminationPlayer(ArmPlayer):
    """One run of ``DelayedElimination``."""

    def __init__(self, policy: Any, rng: np.random.Generator) -> None:
        super().__init__(policy, rng)
        self.log_T = math.log(known_horizon(policy))
        self.sweep: list[int] = []  # arms still to play in this sweep, last first

    def meet(self, K: int) -> None:
        """The first decision set has ``K`` rows."""
        super().meet(K)
        self.active = np.arange(K)
        self.sweep = list(range(K))[::-1]

    def pick(self, actions: Matrix, t: int) -> int:
        """The next arm of the sweep."""
        if not self.sweep:
            low, high = self.bounds()
            self.active = self.active[high[self.active] >= low[self.active].max()]
            self.sweep = self.active[::-1].tolist()
        return self.sweep.pop()

    def bounds(self) -> tuple[Vector, Vector]:
        """Lower and upper confidence bounds of all arms."""
        seen = np.maximum(1, self.observed)
        width = np.sqrt(2.0 * self.log_T / seen)
        return self.total / seen - width, self.total / seen + width


class OPSEPlayer(EliminationPlayer):
    """One run of ``OPSE``."""

    def bounds(self) -> tuple[Vector, Vector]:
        """Lower bounds with missing rewards 0, upper ones with missing rewards 1."""
        width = np.sqrt(2.0 * self.log_T / self.pulls)
        missing = self.pulls - self.observed
        return self.total / self.pulls - width, (self.total + missing) / self.pulls + width
