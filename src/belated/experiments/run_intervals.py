"""Confidence intervals over runs: Student's, the jackknife's, and the exact one of a share."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from belated.numerics.student import beta_quantile, student_quantile


class Estimate(NamedTuple):
    """A number and its 95% confidence interval; NaN if it cannot be computed."""

    value: float
    low: float
    high: float

    def columns(self, name: str, prefix: str = "") -> dict[str, Any]:
        """Returns the columns of a table that show it; ``prefix`` is that of the limits' names."""
        return {name: self.value, f"{prefix}low": self.low, f"{prefix}high": self.high}

    @classmethod
    def of(cls, row: Mapping[str, Any], name: str, prefix: str = "") -> Self:
        """Returns the estimate that gave a row these columns."""
        return cls(row[name], row[f"{prefix}low"], row[f"{prefix}high"])


UNKNOWN = Estimate(math.nan, math.nan, math.nan)


def stratified_mean(strata: Sequence[ArrayLike]) -> tuple[Estimate, int]:
    """Returns the mean of the means of independent strata, and its degrees of freedom.

    Every stratum counts alike. The interval is unknown if a stratum has a single run.
    """
    runs = [np.asarray(stratum, float) for stratum in strata]
    mean = float(np.mean([stratum.mean() for stratum in runs]))
    if min(len(stratum) for stratum in runs) < 2:
        return Estimate(mean, math.nan, math.nan), 0
    variance = sum(float(stratum.var(ddof=1)) / len(stratum) for stratum in runs)
    df = sum(len(stratum) - 1 for stratum in runs)
    reach = student_quantile(0.975, df) * math.sqrt(variance) / len(runs)
    return Estimate(mean, mean - reach, mean + reach), df


def clopper_pearson(hits: int, trials: int) -> Estimate:
    """Share of hits with its exact 95% interval."""
    low = beta_quantile(0.025, hits, trials - hits + 1) if hits > 0 else 0.0
    high = beta_quantile(0.975, hits + 1, trials - hits) if hits < trials else 1.0
    return Estimate(hits / trials, low, high)


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Mean over runs with Student's interval."""
    runs = np.asarray(values, float)
    if runs.size < 2:
        return Estimate(float(runs.mean()), math.nan, math.nan) if runs.size else UNKNOWN
    error = float(runs.std(ddof=1)) / math.sqrt(runs.size)
    reach = student_quantile(0.5 + 0.5 * confidence, runs.size - 1) * error
    mean = float(runs.mean())
    return Estimate(mean, mean - reach, mean + reach)


def jackknife(
    runs: NDArray[np.float64], statistic: Callable[[NDArray[np.float64]], float]
) -> Estimate:
    """Interval of a statistic of the mean over ``runs`` (runs, columns), leaving out one at a time.

    The interval is unknown if the statistic is not defined (NaN) on one of the means.
    """
    n = len(runs)
    if n < 2:
        return Estimate(statistic(runs.mean(0)), math.nan, math.nan) if n else UNKNOWN
    value = statistic(runs.mean(0))
    others = np.array([statistic(mean) for mean in (runs.sum(0) - runs) / (n - 1)])
    error = math.sqrt((n - 1) * others.var())
    reach = student_quantile(0.975, n - 1) * error
    return Estimate(value, value - reach, value + reach)
