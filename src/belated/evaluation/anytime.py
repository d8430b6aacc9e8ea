"""Intervals that are valid at every time at which one looks, and stops when one likes.

The usual interval of 95 per cent is wrong in 5 per cent of the cases at one time that was fixed
beforehand; who looks every day and stops at the first effect is wrong far more often. Robbins'
normal mixture pays for looking at all times at once. For an estimate with standard error s from n
rows it reaches

    s sqrt(2 (1 + 1 / (n rho^2)) log(sqrt(n rho^2 + 1) / alpha))

to both sides: about 3 standard errors in place of 2. For sums of normal rewards of known variance
the share of sequences that are ever outside is at most alpha. For every estimate that is, but for
what vanishes, a mean of influences of independent rows, with an estimated standard error, that
holds in the limit of late first looks (an asymptotic confidence sequence). At small n the interval
is wide, which makes early looks harmless. While rewards are pending, an influence changes from one
look to the next, because the reward comes and the law of the delay is estimated anew. That is no
running mean, and nothing is proved: simulated runs are wrong no more often (the tests, and
``benchmarks/holdout.py``). rho says at which n it is tightest relative to the usual
one; it must not be chosen by the data, so it is a constant here.

Rows that are all alike have no standard error, and yet the next one may differ. Let q be the share
of rows that have the value x, and p = 1 - q. That the first n independent rows are all x has
probability q^n. So at the first n at which q^(n - 1) < alpha, all of them are x with probability
q alpha at most, and summed over all x that is alpha at most: at all n at once p is no more than

    1 - alpha^(1 / (n - 1))

or about log(1 / alpha) / n. The mean of rows that differ by at most the range c is then within c
times that of x (``least_reach``). No interval of a difference is shorter than that of
two such groups.

References
----------
H. Robbins: Statistical methods related to the law of the iterated logarithm. Annals of Mathematical
Statistics 1970.
I. Waudby-Smith, D. Arbour, R. Sinha, E. Kennedy, A. Ramdas: Time-uniform central limit theory and
asymptotic confidence sequences. Annals of Statistics 2024, Theorem 2.2 and equation (10).
"""

import math
from typing import NamedTuple

from belated.core.arguments import positive, probability

TIGHTEST_AT = 10_000  # rows
ROUNDING = 1e-12  # of a standard error, in parts of the estimates


class Known(NamedTuple):
    """An estimate, its standard error, and the rows that it was made of."""

    value: float
    error: float
    n: int
    range: float | None = None  # by how much two rows can differ; None: nobody knows
    n_alike: float = 0.0  # rows of equal weight that would say as much; where ``range`` is known


def anytime_errors(n: int, level: float = 0.95, tightest_at: float = TIGHTEST_AT) -> float:
    """Returns how many standard errors the interval reaches to both sides.

    >>> [round(anytime_errors(n), 2) for n in (100, 1_000, 10_000, 1_000_000)]
    [9.08, 3.86, 3.04, 3.56]
    """
    alpha = 1.0 - probability("level", level)
    twice = -2.0 * math.log(alpha)
    x = positive("n", n) * (twice + math.log(twice + 1.0)) / positive("tightest_at", tightest_at)
    return math.sqrt(2.0 * (1.0 + 1.0 / x) * math.log(math.sqrt(x + 1.0) / alpha))


def anytime_interval(known: Known, level: float = 0.95) -> tuple[float, float]:
    """Returns both ends of the interval."""
    reach = known.error * anytime_errors(known.n, level)
    return known.value - reach, known.value + reach


def least_reach(n: float, range: float, level: float) -> float:
    """Returns how far the mean may be from n rows that are all alike.

    >>> [round(least_reach(n, 1.0, 0.95), 4) for n in (50, 100, 1_000, 10_000)]
    [0.0593, 0.0298, 0.003, 0.0003]
    """
    alpha = 1.0 - probability("level", level)
    return range if n <= 1.0 else -range * math.expm1(math.log(alpha) / (n - 1.0))


def difference_interval(
    first: Known, second: Known, level: float = 0.95
) -> tuple[float, float] | None:
    """Returns both ends of the interval of a difference between two groups that share no rows.

    None where all rows of both groups are alike and nobody knows by how much others may differ.
    """
    both = difference(first, second)
    low, high = anytime_interval(both, level)
    all_alike = both.error <= ROUNDING * max(abs(first.value), abs(second.value))
    least = 0.0
    for known in (first, second):
        if known.range is not None:
            least += least_reach(known.n_alike, known.range, 0.5 + 0.5 * level)
        elif all_alike:
            return None
    return min(low, both.value - least), max(high, both.value + least)


def difference(first: Known, second: Known) -> Known:
    """Returns the difference of two groups that share no rows, such as a bandit and its holdout.

    A small group in which nothing has come yet looks as if it did not vary, and at an early look
    the difference would seem certain. So the variance of a group's rows counts as no less than that
    of all rows together.
    """
    n = first.n + second.n
    together = sum(known.n * known.n * known.error**2 for known in (first, second)) / n
    squares = (max(known.error**2, together / known.n) for known in (first, second))
    return Known(first.value - second.value, math.sqrt(sum(squares)), n)
