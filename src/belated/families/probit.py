"""Success or failure with a probit mean."""

import math
from typing import NamedTuple

from belated.core.arguments import parameters
from belated.model.protocols import (
    Support,
    cumulant,
    derivatives,
    least_slope,
    reward_quantile,
    self_concordance,
)
from belated.numerics.special import normal_cdf, normal_pdf


@parameters
class Probit(NamedTuple):
    """Success or failure with mean Phi(z), fitted by quasi-likelihood.

    The estimate solves ``sum (y - Phi(x'theta)) x = rho theta``, which is what the confidence set
    is proved for. It is *not* the probit maximum likelihood estimate, whose score carries weights
    phi / (Phi (1 - Phi)).
    """

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
        """phi(bound)."""
        return least_slope(self, bound)

    def lipschitz(self, bound: float) -> float:
        """phi(0)."""
        return 1.0 / math.sqrt(2.0 * math.pi)

    def curvature(self, bound: float) -> float:
        """Max ``|z| phi(z)``, at z = 1 where that is in reach."""
        return -derivatives(self, min(bound, 1.0))[2]


@derivatives.case(Probit)
def _derivatives(family: Probit, z: float) -> tuple[float, float, float]:
    slope = normal_pdf(z)
    return normal_cdf(z), slope, -z * slope


@cumulant.case(Probit)
def _cumulant(family: Probit, z: float) -> float:
    return z * normal_cdf(z) + normal_pdf(z)


@least_slope.case(Probit)
def _least_slope(family: Probit, bound: float) -> float:
    return normal_pdf(bound)


@self_concordance.case(Probit)
def _self_concordance(family: Probit, bound: float) -> float:
    return max(1.0, bound)  # |mu''| = |z| mu', |mu'''| = |z^2 - 1| mu'


@reward_quantile.case(Probit)
def _reward_quantile(family: Probit, z: float, u: float) -> float:
    return 1.0 if u > normal_cdf(-z) else 0.0
