"""The regularised upper incomplete gamma function, for gamma laws of the delay.

Reference: W. Press and others: Numerical Recipes. Cambridge 2007, section 6.2.
"""

import math

import numpy as np

from belated.core.types import Vector

_MOST_TERMS = 20_000  # about 8 sqrt(a) are needed for a shape of a
_PRECISION = 1e-15
_LEAST = 1e-300


def log_upper_gamma(a: float, v: Vector) -> Vector:
    """Returns log Q(a, v) for a > 0: the log share of a gamma law of shape a beyond each v.

    >>> log_upper_gamma(1.0, np.array([0.5, 7.0]))    # of shape 1 it is exponential
    array([-0.5, -7. ])
    """
    v = np.maximum(v, _LEAST)
    factor = a * np.log(v) - v - math.lgamma(a)
    low = v < a + 1.0
    result = np.empty_like(v)
    below = np.exp(factor[low]) * _series(a, v[low])
    result[low] = np.log1p(-np.minimum(below, 1.0 - 1e-16))
    result[~low] = factor[~low] + np.log(_fraction(a, v[~low]))
    return result


def _series(a: float, v: Vector) -> Vector:
    """Returns the sum of v^n / (a (a + 1) ... (a + n)) over n."""
    term = np.full_like(v, 1.0 / a)
    total = term.copy()
    for n in range(1, _MOST_TERMS):
        term = term * v / (a + n)
        total += term
        if np.all(term <= _PRECISION * total):
            break
    return total


def _fraction(a: float, v: Vector) -> Vector:
    """Returns the continued fraction of Q, by Lentz's method."""
    b = v + 1.0 - a
    c, d = np.full_like(v, 1.0 / _LEAST), 1.0 / b
    result = d.copy()
    for i in range(1, _MOST_TERMS):
        top = -i * (i - a)
        b = b + 2.0
        d = 1.0 / (top * d + b)
        c = b + top / c
        result *= c * d
        if np.all(np.abs(c * d - 1.0) <= _PRECISION):
            break
    return result
