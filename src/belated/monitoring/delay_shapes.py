"""Shapes of delay: what a fit needs of a law, with x = log(delay), a place mu and a spread sigma.

    law            share that waits longer than t, s = exp(mu)        mean
    Weibull        exp(-(t / s)^(1 / sigma))                          s Gamma(1 + sigma)
    log-normal     1 - Phi((log t - mu) / sigma)                      s exp(sigma^2 / 2)
    log-logistic   1 / (1 + (t / s)^(1 / sigma))                      s pi sigma / sin(pi sigma)
    Lomax          (1 + sigma t / s)^(-1 / sigma), a Pareto law       s / (1 - sigma)
    gamma          Q(1 / sigma, t / (s sigma)), shape 1 / sigma       s

The means of log-logistic and Lomax are infinite for sigma of 1 or more. Weibull and gamma with
sigma = 1 are exponential, and Lomax is so in the limit of sigma = 0.

References
----------
J. Kalbfleisch, R. Prentice: The Statistical Analysis of Failure Time Data. Wiley 2002, chapter 2.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from belated.core.types import Vector
from belated.monitoring.incomplete_gamma import log_upper_gamma

_TAIL = 5.0  # beyond, erfc loses its digits relative to the hazard and later underflows
_HIGHEST = 300.0  # exponents above are cut: such points have no likelihood either way
_HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)
_erfc = np.frompyfunc(math.erfc, 1, 1)

OfPoints = Callable[[Vector, float, float], Vector]  # of x, mu and sigma


class Law(NamedTuple):
    """The functions of a law that a fit needs."""

    density: OfPoints  # log density of x
    beyond: OfPoints  # log of the share beyond x
    log_mean: Callable[[float, float], float]  # of mu and sigma; infinite where the mean is


def _located(
    density: Callable[[Vector], Vector],
    beyond: Callable[[Vector], Vector],
    log_mean: Callable[[float, float], float],
) -> Law:
    """Returns the law of x = mu + sigma z, from log density and log share of z."""
    return Law(
        lambda x, mu, sigma: density((x - mu) / sigma) - math.log(sigma),
        lambda x, mu, sigma: beyond((x - mu) / sigma),
        log_mean,
    )


def _exp(z: Vector) -> Vector:
    return np.exp(np.minimum(z, _HIGHEST))


def _normal_beyond(z: Vector) -> Vector:
    near = np.minimum(z, _TAIL)
    log_share = np.log(0.5 * np.asarray(_erfc(near / math.sqrt(2.0)), np.float64))
    far = z > _TAIL
    if far.any():
        log_share[far] = -0.5 * z[far] ** 2 - _HALF_LOG_2_PI + np.log(_mills_ratio(z[far]))
    return log_share


def _mills_ratio(z: Vector) -> Vector:
    """Share beyond over density, far out, by Laplace's continued fraction."""
    bottom = z
    for k in range(40, 0, -1):
        bottom = z + k / bottom
    return 1.0 / bottom


def _logistic_beyond(z: Vector) -> Vector:
    return -np.logaddexp(0.0, z)


def _log_mean_of_logistic(mu: float, sigma: float) -> float:
    if sigma >= 1.0:
        return math.inf
    return mu + math.log(math.pi * sigma / math.sin(math.pi * sigma))


def _lomax_density(x: Vector, mu: float, sigma: float) -> Vector:
    return x - mu - (1.0 / sigma + 1.0) * np.log1p(sigma * _exp(x - mu))


def _lomax_beyond(x: Vector, mu: float, sigma: float) -> Vector:
    return -np.log1p(sigma * _exp(x - mu)) / sigma


def _gamma_density(x: Vector, mu: float, sigma: float) -> Vector:
    shape = 1.0 / sigma
    v = shape * _exp(x - mu)
    return shape * (x - mu - math.log(sigma)) - v - math.lgamma(shape)


def _gamma_beyond(x: Vector, mu: float, sigma: float) -> Vector:
    return log_upper_gamma(1.0 / sigma, _exp(x - mu) / sigma)


WEIBULL = _located(
    lambda z: z - _exp(z),
    lambda z: -_exp(z),
    lambda mu, sigma: mu + math.lgamma(1.0 + sigma),
)
LOGNORMAL = _located(
    lambda z: -0.5 * z * z - _HALF_LOG_2_PI,
    _normal_beyond,
    lambda mu, sigma: mu + 0.5 * sigma * sigma,
)
LOGLOGISTIC = _located(
    lambda z: z + 2.0 * _logistic_beyond(z), _logistic_beyond, _log_mean_of_logistic
)
LOMAX = Law(
    _lomax_density,
    _lomax_beyond,
    lambda mu, sigma: mu - math.log1p(-sigma) if sigma < 1.0 else math.inf,
)
GAMMA = Law(_gamma_density, _gamma_beyond, lambda mu, sigma: mu)
