"""Open decisions, in 60 digits, in closed form and by EM."""

import math
from decimal import Decimal, localcontext

import numpy as np


def silence_loss(family, z, F):
    """-log P(silence), in as many digits as the context has."""
    z, F = Decimal(z), Decimal(F)
    if family == "bernoulli":
        return -(1 - F / (1 + (-z).exp())).ln()
    return -(1 - F + F * (-z.exp()).exp()).ln()


def silence_slopes(family, z, F):
    """The first three derivatives of ``silence_loss`` by central differences, in 60 digits."""
    with localcontext() as context:
        context.prec = 60
        h, z = Decimal("1e-12"), Decimal(z)
        far_below, below, here, above, far_above = (
            silence_loss(family, z + k * h, F) for k in (-2, -1, 0, 1, 2)
        )
        first = (above - below) / (2 * h)
        second = (above - 2 * here + below) / h**2
        third = (far_above - 2 * above + 2 * below - far_below) / (2 * h**3)
        return float(first), float(second), float(third)


def pull(family, z, F):
    """The derivative of ``silence_loss`` by z."""
    if family == "bernoulli":
        p = 1.0 / (1.0 + math.exp(-z))
        return F * p * (1.0 - p) / (1.0 - F * p)
    none = math.exp(-math.exp(z))
    return F * math.exp(z) * none / (1.0 - F + F * none)


def mode_by_em(x, y, F, precision, start, rounds=20_000):
    """The mode with conversions where y is known, silence with F where not, by EM.

    A silent decision counts as a success with the probability that it still converts.
    """
    theta, known = start.copy(), ~np.isnan(y)
    for _ in range(rounds):
        z = x @ theta
        p = 1.0 / (1.0 + np.exp(-z))
        label = np.where(known, np.nan_to_num(y), p * (1.0 - F) / (1.0 - p * F))
        gradient = x.T @ (p - label) + precision * theta
        H = (x.T * np.maximum(p * (1.0 - p), 1e-3)) @ x + np.diag(precision)
        step = np.linalg.solve(H, gradient)
        theta -= step / max(1.0, float(np.abs(x @ step).max()))
        if math.sqrt(gradient @ step) < 1e-12:
            break
    return theta
