"""Families with a logistic mean: successes, fractions, and counts of successes."""

import math
from typing import NamedTuple

from belated.core.arguments import parameters, whole
from belated.core.jit import kernel
from belated.model.protocols import (
    Support,
    concordance,
    cumulant,
    derivatives,
    least_slope,
    luck,
    reward_of_luck,
    reward_quantile,
    self_concordance,
    silence_derivatives,
)
from belated.numerics.special import logit, sigmoid


@parameters
class Bernoulli(NamedTuple):
    """Success or failure, logistic mean. R = 1/2 by Hoeffding's lemma.

    >>> from belated.model.protocols import mean
    >>> mean(Bernoulli(), 0.0), round(Bernoulli().kappa(1.0), 8)
    (0.5, 0.19661193)
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
        """sigma'(bound)."""
        return least_slope(self, bound)

    def lipschitz(self, bound: float) -> float:
        """Slope at zero."""
        return 0.25

    def curvature(self, bound: float) -> float:
        """Max ``|sigma''|`` = 1 / (6 sqrt 3), where ``|z|`` may reach its place log(2 + sqrt 3)."""
        return _curvature(bound)


class Bounded(Bernoulli):
    """Rewards anywhere in [0, 1], logistic mean, fitted by the Bernoulli quasi-likelihood.

    The confidence set needs the mean and the bounded range only, never the law. Simulated rewards
    are u^((1-p)/p) of a uniform u, that is Beta(p/(1-p), 1), whose mean is p.
    """

    __slots__ = ()

    @property
    def support(self) -> Support:
        """The interval from 0 to 1."""
        return Support(0.0, 1.0)


@parameters
class Binomial(NamedTuple):
    """Successes in ``trials`` independent tries, mean ``trials * sigma(z)``.

    R = sqrt(trials) / 2: a sum of independent 1/2-sub-Gaussian variables.
    """

    trials: int = 1

    def checked(self) -> "Binomial":
        """Raises where a parameter does not fit."""
        return self._replace(trials=whole("trials", self.trials))

    @property
    def support(self) -> Support:
        """0, 1, ..., trials."""
        return Support(0.0, float(self.trials), integer=True)

    @property
    def a_phi(self) -> float:
        """a(phi) = 1."""
        return 1.0

    @property
    def R(self) -> float:
        """Sub-Gaussian scale of the noise."""
        return math.sqrt(self.trials) / 2.0

    def kappa(self, bound: float) -> float:
        """Trials sigma'(bound)."""
        return least_slope(self, bound)

    def lipschitz(self, bound: float) -> float:
        """Slope at zero."""
        return self.trials / 4.0

    def curvature(self, bound: float) -> float:
        """``trials`` times the curvature of the Bernoulli family."""
        return self.trials * _curvature(bound)


def _curvature(bound: float) -> float:
    z = min(bound, math.log(2.0 + math.sqrt(3.0)))
    return -_logistic(z)[2]


@kernel
def _logistic(z: float) -> tuple[float, float, float]:
    """Sigma and its first two derivatives; the slope keeps its digits in the tails."""
    e = math.exp(-abs(z))
    near, far = 1.0 / (1.0 + e), e / (1.0 + e)
    p, slope = near if z >= 0.0 else far, near * far
    return p, slope, slope * (1.0 - 2.0 * p)


@kernel
def _log1p_exp(z: float) -> float:
    """log(1 + e^z) without overflow."""
    return max(z, 0.0) + math.log1p(math.exp(-abs(z)))


@derivatives.case(Bernoulli, Bounded)
def _derivatives(family: Bernoulli, z: float) -> tuple[float, float, float]:
    return _logistic(z)


@derivatives.case(Binomial)
def _binomial_derivatives(family: Binomial, z: float) -> tuple[float, float, float]:
    p, slope, bend = _logistic(z)
    return family.trials * p, family.trials * slope, family.trials * bend


@cumulant.case(Bernoulli, Bounded)
def _cumulant(family: Bernoulli, z: float) -> float:
    return _log1p_exp(z)


@cumulant.case(Binomial)
def _binomial_cumulant(family: Binomial, z: float) -> float:
    return family.trials * _log1p_exp(z)


@least_slope.case(Bernoulli, Bounded)
def _least_slope(family: Bernoulli, bound: float) -> float:
    return _logistic(bound)[1]


@least_slope.case(Binomial)
def _binomial_least_slope(family: Binomial, bound: float) -> float:
    return family.trials * _logistic(bound)[1]


@self_concordance.case(Bernoulli, Bounded, Binomial)
def _self_concordance(family: Bernoulli, bound: float) -> float:
    return 1.0


@concordance.case(Bernoulli, Bounded, Binomial)
def _concordance(family: Bernoulli, bound: float) -> tuple[float, float]:
    # mu'' = -tanh(z / 2) mu'; mu''' = (1 - 6 sigma') mu', from -1/2 at zero to 1 far away
    return math.tanh(0.5 * bound), max(0.5, 1.0 - 6.0 * _logistic(bound)[1])


@silence_derivatives.case(Bernoulli)
def _silence_derivatives(family: Bernoulli, z: float, F: float) -> tuple[float, float]:
    """Of -log(1 - p F), with ``later`` and ``never`` what silence makes of p and 1 - p.

    The third derivative is the second times 1 - t - (p (1 - p) + later (1 - later)) / (1 - t) with
    t = p + later: below 1, and above -1 where 2 - 4 t + 3 t^2 / 2 >= 0, that is t <= 2 / 3.
    """
    p, fails = _logistic(z)[0], _logistic(-z)[0]
    silent = fails + p * (1.0 - F)
    never = fails / silent if silent > 0.0 else 1.0  # fails may be zero, to rounding
    later = p * (1.0 - F) / silent if silent > 0.0 else 0.0
    first = F * p * never
    return first, first * (fails - later)


@luck.case(Bernoulli)
def _luck(family: Bernoulli, u: float) -> float:
    return logit(u)


@reward_of_luck.case(Bernoulli)
def _reward_of_luck(family: Bernoulli, z: float, luck: float) -> float:
    return 1.0 if luck > -z else 0.0  # u > sigma(-z)


@reward_quantile.case(Bernoulli)
def _reward_quantile(family: Bernoulli, z: float, u: float) -> float:
    return _reward_of_luck(family, z, _luck(family, u))


@reward_quantile.case(Bounded)
def _bounded_quantile(family: Bounded, z: float, u: float) -> float:
    return u ** math.exp(min(-z, 700.0))  # (1 - p) / p = e^-z


@reward_quantile.case(Binomial)
def _binomial_quantile(family: Binomial, z: float, u: float) -> float:
    n, p = float(family.trials), sigmoid(z)
    # sum from 12 standard deviations below the mean (less than 1e-30 lies beyond) to where it ends
    k = max(0.0, math.floor(n * p - 12.0 * math.sqrt(n * p * sigmoid(-z)) - 12.0))
    choices = math.lgamma(n + 1.0) - math.lgamma(k + 1.0) - math.lgamma(n - k + 1.0)
    pmf = math.exp(choices - k * _log1p_exp(-z) - (n - k) * _log1p_exp(z))
    cdf = pmf
    while cdf < u and k < n and (k < n * p or pmf > 1e-18):
        pmf *= (n - k) / (k + 1.0) * math.exp(min(z, 700.0))
        k += 1.0
        cdf += pmf
    return k
