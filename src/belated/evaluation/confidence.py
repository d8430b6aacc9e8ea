"""Confidence intervals of an estimate: normal, bootstrap, and empirical Bernstein.

The slope of a row is the derivative of the estimate by the count of that row, the dependence of the
estimated delays included. The sum of squared slopes is the variance of the estimate (infinitesimal
jackknife).

References
----------
B. Efron: Nonparametric estimates of standard error: the jackknife, the bootstrap and other methods.
Biometrika 1981.
A. Maurer, M. Pontil: Empirical Bernstein bounds and sample variance penalization. COLT 2009,
Theorem 4.
"""

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from belated.core.types import Integers, Vector
from belated.evaluation.off_policy import Estimate
from belated.evaluation.shares_seen import SharesSeen

REPLICATES = 400


def slopes(estimate: Estimate, law: SharesSeen, used: Integers) -> Vector:
    """Returns the slope of every row of the log.

    ``used`` are the rows that the estimate is made of, in its order; the others have a part in the
    estimated delays.
    """
    result = -law.slope(estimate.pull)
    result[used] += estimate.direct
    return result


def standard_error(slopes: Vector) -> float:
    """Returns the standard error of an estimate with these slopes."""
    return math.sqrt(float(slopes @ slopes))


def normal_interval(value: float, error: float, level: float = 0.95) -> tuple[float, float]:
    """Returns the interval that a normal law gives.

    >>> low, high = normal_interval(1.0, 0.1)
    >>> round(low, 3), round(high, 3)
    (0.804, 1.196)
    """
    reach = error * NormalDist().inv_cdf(0.5 + 0.5 * level)
    return value - reach, value + reach


def bootstrap_values(
    values: Callable[[Vector], Vector], n: int, seed: int, replicates: int = REPLICATES
) -> Vector:
    """Returns ``values`` of replicates, one row each, in which row i is counted Poisson(1) times.

    Poisson counts are independent and add up to n on average: the estimates do not depend on the
    sum of counts, so it need not be n.
    """
    rng = np.random.default_rng(seed)
    return np.array([values(rng.poisson(1.0, n).astype(np.float64)) for _ in range(replicates)])


def percentiles(replicates: Vector, level: float = 0.95) -> tuple[float, float]:
    """Returns the interval between the percentiles of a bootstrap."""
    low, high = np.quantile(replicates, [0.5 - 0.5 * level, 0.5 + 0.5 * level])
    return float(low), float(high)


def bernstein_interval(
    value: float, slopes: Vector, width: float, level: float = 0.95
) -> tuple[float, float]:
    """Returns an interval for the mean of bounded terms that needs no large sample.

    The estimate is taken as the mean of ``value + n slopes``. If these are independent and within
    an interval of the given width, as those of IPS and clipped IPS are where nothing is pending,
    the level holds for every n. The width must be known beforehand: one that is taken from the
    sample lacks what is rare. Estimated delays are in the slopes to first order.
    """
    n = len(slopes)
    log_term = math.log(4.0 / (1.0 - level))  # half of what may go wrong at either end
    spread = math.sqrt(2.0 * float(np.var(n * slopes, ddof=1)) * log_term / n)
    reach = spread + 7.0 * width * log_term / (3.0 * (n - 1))
    return value - reach, value + reach
