"""Counts with a log-linear mean."""

import math
from typing import NamedTuple

from belated.core.arguments import LARGEST_WHOLE, parameters, positive, wrong
from belated.model.protocols import (
    LARGEST_REWARD,
    RaisableSupport,
    Support,
    cumulant,
    derivatives,
    least_slope,
    reward_quantile,
    self_concordance,
    silence_derivatives,
)


@parameters
class Poisson(NamedTuple):
    """Counts with mean e^z.

    The paper lists it among its examples, yet Poisson noise is not sub-Gaussian: no R exists, and
    a policy that needs one refuses unless the user passes ``R=``. Rewards are never clipped; that
    would bias the estimate, but one beyond ``max_reward`` is refused: it would drown all others.
    """

    max_reward: float = LARGEST_REWARD

    def checked(self) -> "Poisson":
        """Raises where a parameter does not fit."""
        if not positive("max_reward", self.max_reward) <= LARGEST_WHOLE:
            raise wrong("max_reward", self.max_reward, f"a number up to {LARGEST_WHOLE}")
        return self._replace(max_reward=float(self.max_reward))

    @property
    def support(self) -> Support:
        """0, 1, 2, ..., up to ``max_reward``."""
        return RaisableSupport(0.0, self.max_reward, integer=True)

    @property
    def a_phi(self) -> float:
        """a(phi) = 1."""
        return 1.0

    @property
    def R(self) -> None:
        """None: the noise is not sub-Gaussian."""
        return None

    def kappa(self, bound: float) -> float:
        """e^-bound."""
        return least_slope(self, bound)

    def lipschitz(self, bound: float) -> float:
        """e^bound; no global constant exists."""
        return math.exp(bound)

    def curvature(self, bound: float) -> float:
        """e^bound."""
        return math.exp(bound)


@derivatives.case(Poisson)
def _derivatives(family: Poisson, z: float) -> tuple[float, float, float]:
    e = math.exp(min(z, 700.0))  # beyond this the estimator only has to see that it is too far
    return e, e, e


@cumulant.case(Poisson)
def _cumulant(family: Poisson, z: float) -> float:
    return math.exp(min(z, 700.0))


@least_slope.case(Poisson)
def _least_slope(family: Poisson, bound: float) -> float:
    return math.exp(-bound)


@self_concordance.case(Poisson)
def _self_concordance(family: Poisson, bound: float) -> float:
    return 1.0


@silence_derivatives.case(Poisson)
def _silence_derivatives(family: Poisson, z: float, F: float) -> tuple[float, float]:
    """Of -log(1 - F + F e^-m), m = e^z: a count above zero comes at once, after its delay.

    The third derivative is the second times 1 - u + first - m / (1 - u) with u = m - first: below
    1, and above -1 where 2 (1 - u)^2 >= m u, which holds for m <= 0.58.
    """
    m = math.exp(min(z, 700.0))
    first = m * F / (F + (1.0 - F) * math.exp(min(m, 700.0)))
    return first, first * (1.0 - m + first)


@reward_quantile.case(Poisson)
def _reward_quantile(family: Poisson, z: float, u: float) -> float:
    m = math.exp(min(z, 700.0))
    if m > 1e9:
        raise ValueError("a Poisson reward with mean above 1e9 cannot be simulated")
    # sum from 12 standard deviations below the mean (less than 1e-30 lies beyond) to where it ends
    k = max(0.0, math.floor(m - 12.0 * math.sqrt(m) - 12.0))
    pmf = math.exp(k * z - m - math.lgamma(k + 1.0))
    cdf = pmf
    while cdf < u and (k < m or pmf > 1e-18):
        k += 1.0
        pmf *= m / k
        cdf += pmf
    return k
