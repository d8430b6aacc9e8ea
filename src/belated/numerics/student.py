"""Student's t and the beta law, whose distribution function it needs: no other library has to."""

import math
from functools import cache


def beta_cdf(x: float, a: float, b: float) -> float:
    """Regularised incomplete beta function, by Lentz's method for its continued fraction."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    if x > (a + 1.0) / (a + b + 2.0):  # the fraction converges fast on the other side only
        return 1.0 - beta_cdf(1.0 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    log_front += a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    fraction = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = fraction
        for step in (even, odd):
            d, c = 1.0 / (1.0 + step * d), 1.0 + step / c
            fraction *= c * d
        if abs(fraction - before) <= 1e-15 * fraction:
            break
    return math.exp(log_front) * fraction / a


def beta_quantile(p: float, a: float, b: float) -> float:
    """Inverse of ``beta_cdf`` in its first argument, by bisection."""
    low, high = 0.0, 1.0
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (middle, high) if beta_cdf(middle, a, b) < p else (low, middle)
    return high


@cache
def student_quantile(p: float, df: int) -> float:
    """Quantile of Student's t at ``p`` > 1/2, from that of df / (df + t^2), which is a beta."""
    x = beta_quantile(2.0 * (1.0 - p), 0.5 * df, 0.5)
    return math.sqrt(df * (1.0 - x) / x)


def student_tail(t: float, df: int) -> float:
    """Probability that Student's t is above ``t``."""
    half = 0.5 * beta_cdf(df / (df + t * t), 0.5 * df, 0.5)
    return half if t >= 0.0 else 1.0 - half
