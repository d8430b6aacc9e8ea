"""Special functions that Numba does not provide."""

import math

from belated.core.jit import inlined_kernel, kernel


@kernel
def normal_cdf(z: float) -> float:
    """Phi(z), accurate in both tails."""
    return 0.5 * math.erfc(-z * 0.7071067811865476)


@kernel
def normal_pdf(z: float) -> float:
    """phi(z)."""
    return 0.3989422804014327 * math.exp(-0.5 * z * z)


@kernel
def sigmoid(z: float) -> float:
    """1 / (1 + exp(-z)) without overflow."""
    if z >= 0.0:
        return 1.0 / (1.0 + math.exp(-z))
    e = math.exp(z)
    return e / (1.0 + e)


@kernel
def logit(u: float) -> float:
    """Inverse of ``sigmoid``; infinite at 0 and 1."""
    if u <= 0.0 or u >= 1.0:
        return -math.inf if u <= 0.0 else math.inf
    return math.log(u / (1.0 - u))  # 1 - u is exact where it matters, from 1/2 on


@inlined_kernel
def log_of_one_plus(q: float) -> float:
    """log(1 + q) to the last digit or two, without a call where ``q`` is small."""
    if 0.0 <= q < 1.0 / 64.0:
        # log(1 + q) = 2 artanh s, whose series is left after s^7
        s = q / (2.0 + q)
        t = s * s
        return 2.0 * s * (1.0 + t * (1.0 / 3.0 + t * (1.0 / 5.0 + t * (1.0 / 7.0))))
    return math.log1p(q)


@kernel
def normal_quantile(u: float) -> float:
    """Inverse of ``normal_cdf`` on (0, 1).

    A rational start (Hastings 1955, error below 5e-4) and three Halley steps, each of which
    triples the number of correct digits. The smaller tail is solved and mirrored.
    """
    tail = min(u, 1.0 - u)
    if tail <= 0.0:
        return -math.inf if u <= 0.0 else math.inf
    s = math.sqrt(-2.0 * math.log(tail))
    top = 2.515517 + s * (0.802853 + s * 0.010328)
    bottom = 1.0 + s * (1.432788 + s * (0.189269 + s * 0.001308))
    z = top / bottom - s
    for _ in range(3):
        f = (normal_cdf(z) - tail) / normal_pdf(z)
        z -= f / (1.0 + 0.5 * z * f)
    return z if u <= 0.5 else -z
