"""A family of your own: conversions so rare that the intercept is known better than the rest.

A family is a NamedTuple with the constants the theory asks for, and five kernels. This one is
success or failure with mean sigma(z + offset): with offset = -4 an unremarkable action converts in
about 2 per cent of cases, and theta need not be long to say so.
"""

import math
from typing import NamedTuple

from belated.extend import (
    Support,
    check_family,
    cumulant,
    derivatives,
    least_slope,
    parameters,
    reward_quantile,
    self_concordance,
    sigmoid,
)


@parameters
class RareConversions(NamedTuple):
    """Success or failure, logistic mean around a known offset."""

    offset: float = -4.0

    @property
    def support(self) -> Support:
        """0 or 1."""
        return Support(0.0, 1.0, integer=True)

    @property
    def a_phi(self) -> float:
        """a(phi) = 1."""
        return 1.0

    @property
    def R(self) -> float:
        """Half the range."""
        return 0.5

    def kappa(self, bound: float) -> float:
        """Slope at the far end."""
        return least_slope(self, bound)

    def lipschitz(self, bound: float) -> float:
        """Slope at the point nearest to the middle of the sigmoid."""
        return derivatives(self, max(-bound, min(bound, -self.offset)))[1]

    def curvature(self, bound: float) -> float:
        """|sigma''| is greatest at +-log(2 + sqrt 3), or at an end where those are out of reach."""
        peak = math.log(2.0 + math.sqrt(3.0))
        places = [max(-bound, min(bound, p - self.offset)) for p in (-peak, peak)]
        return max(abs(derivatives(self, z)[2]) for z in [*places, -bound, bound])


@derivatives.case(RareConversions)
def _derivatives(family: RareConversions, z: float) -> tuple[float, float, float]:
    p = sigmoid(z + family.offset)
    slope = p * sigmoid(-z - family.offset)
    return p, slope, slope * (1.0 - 2.0 * p)


@cumulant.case(RareConversions)
def _cumulant(family: RareConversions, z: float) -> float:
    return math.log1p(math.exp(z + family.offset))


@least_slope.case(RareConversions)
def _least_slope(family: RareConversions, bound: float) -> float:
    return derivatives(family, -bound if family.offset < 0.0 else bound)[1]


@self_concordance.case(RareConversions)
def _self_concordance(family: RareConversions, bound: float) -> float:
    return 1.0


@reward_quantile.case(RareConversions)
def _reward_quantile(family: RareConversions, z: float, u: float) -> float:
    return 1.0 if u > sigmoid(-z - family.offset) else 0.0


if __name__ == "__main__":
    check_family(RareConversions())
    print("RareConversions satisfies everything a family must")
