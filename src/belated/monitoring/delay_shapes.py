"""Two shapes of delay as location-scale laws: log(delay) = mu + sigma z, with z as given here.

A law gives, for an array of z: the log density with its first two derivatives, and the log of the
share beyond z with the hazard and the slope of the hazard. With these, one Newton step fits all.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from belated.core.types import Vector

Three = tuple[Vector, Vector, Vector]

_TAIL = 5.0  # beyond, erfc loses its digits relative to the hazard and later underflows
_HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)
_erfc = np.frompyfunc(math.erfc, 1, 1)


class Law(NamedTuple):
    """The functions of a law that a fit needs."""

    density: Callable[[Vector], Three]  # log f(z), (log f)'(z), (log f)''(z)
    beyond: Callable[[Vector], Three]  # log S(z), hazard h(z) = f / S, h'(z)


def _extreme_density(z: Vector) -> Three:
    e = np.exp(np.minimum(z, 300.0))
    return z - e, 1.0 - e, -e


def _extreme_beyond(z: Vector) -> Three:
    e = np.exp(np.minimum(z, 300.0))
    return -e, e, e


def _normal_density(z: Vector) -> Three:
    return -0.5 * z * z - _HALF_LOG_2_PI, -z, np.full_like(z, -1.0)


def _normal_beyond(z: Vector) -> Three:
    near = np.minimum(z, _TAIL)
    log_share = np.log(0.5 * np.asarray(_erfc(near / math.sqrt(2.0)), np.float64))
    hazard = np.exp(-0.5 * near * near - _HALF_LOG_2_PI - log_share)
    far = z > _TAIL
    if far.any():
        hazard[far] = 1.0 / _mills_ratio(z[far])
        log_share[far] = -0.5 * z[far] ** 2 - _HALF_LOG_2_PI - np.log(hazard[far])
    return log_share, hazard, hazard * (hazard - z)


def _mills_ratio(z: Vector) -> Vector:
    """Share beyond over density, far out, by Laplace's continued fraction."""
    bottom = z
    for k in range(40, 0, -1):
        bottom = z + k / bottom
    return 1.0 / bottom


WEIBULL = Law(_extreme_density, _extreme_beyond)
LOGNORMAL = Law(_normal_density, _normal_beyond)
