"""Rewards in [-1, 1] with a hyperbolic tangent mean."""

import math
from typing import NamedTuple

from belated.core.arguments import parameters
from belated.model.protocols import (
    Support,
    concordance,
    cumulant,
    derivatives,
    least_slope,
    reward_quantile,
    self_concordance,
)


@parameters
class Tanh(NamedTuple):
    """Like or dislike, win or loss: mean tanh(z). Simulated rewards are -1 or 1.

    >>> Tanh().kappa(0.0), Tanh().R
    (1.0, 1.0)
    """

    @property
    def support(self) -> Support:
        """The interval from -1 to 1."""
        return Support(-1.0, 1.0)

    @property
    def a_phi(self) -> float:
        """a(phi) = 1."""
        return 1.0

    @property
    def R(self) -> float:
        """Half the range."""
        return 1.0

    def kappa(self, bound: float) -> float:
        """1 - tanh(bound)^2."""
        return least_slope(self, bound)

    def lipschitz(self, bound: float) -> float:
        """Slope at zero."""
        return 1.0

    def curvature(self, bound: float) -> float:
        """Max ``2 |tanh| (1 - tanh^2)`` = 4 / (3 sqrt 3), if tanh(z) = 1 / sqrt 3 is in reach."""
        return -derivatives(self, min(bound, math.atanh(1.0 / math.sqrt(3.0))))[2]


@derivatives.case(Tanh)
def _derivatives(family: Tanh, z: float) -> tuple[float, float, float]:
    t = math.tanh(z)
    e = math.exp(-2.0 * abs(z))
    slope = 4.0 * e / ((1.0 + e) * (1.0 + e))  # 1 - t^2, with its digits in the tails
    return t, slope, -2.0 * t * slope


@cumulant.case(Tanh)
def _cumulant(family: Tanh, z: float) -> float:
    return abs(z) + math.log1p(math.exp(-2.0 * abs(z))) - math.log(2.0)  # log cosh z


@least_slope.case(Tanh)
def _least_slope(family: Tanh, bound: float) -> float:
    return derivatives(family, bound)[1]


@self_concordance.case(Tanh)
def _self_concordance(family: Tanh, bound: float) -> float:
    return 2.0  # mu'' = -2 mu mu'; mu''' = mu' (4 - 6 mu')


@concordance.case(Tanh)
def _concordance(family: Tanh, bound: float) -> tuple[float, float]:
    # the latter from -2 mu' at zero to 4 mu' far away
    return 2.0 * math.tanh(bound), max(2.0, 4.0 - 6.0 * derivatives(family, bound)[1])


@reward_quantile.case(Tanh)
def _reward_quantile(family: Tanh, z: float, u: float) -> float:
    return 1.0 if 2.0 * u > 1.0 - math.tanh(z) else -1.0
