"""Mean, slope and cumulant of every family, by name."""

import math

import numpy as np
from scipy.special import expit, ndtr

FAMILIES = {  # mean, slope, cumulant
    "gaussian": (lambda z: z, lambda z: np.ones_like(z), lambda z: z**2 / 2),
    "bernoulli": (expit, lambda z: expit(z) * expit(-z), lambda z: np.logaddexp(0.0, z)),
    "tanh": (np.tanh, lambda z: np.cosh(z) ** -2.0, lambda z: np.logaddexp(z, -z) - math.log(2)),
    "probit": (
        ndtr,
        lambda z: np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi),
        lambda z: z * ndtr(z) + np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi),
    ),
    "poisson": (np.exp, np.exp, np.exp),
}
TRIALS = 4  # of the binomial family in the tests
FAMILIES["bounded"] = FAMILIES["bernoulli"]
FAMILIES["binomial"] = tuple(lambda z, f=f: TRIALS * f(z) for f in FAMILIES["bernoulli"])
CONCORDANCE = {"gaussian": 0.0, "tanh": 2.0, "probit": 6.0}  # others 1; probit for |z| <= 6


def concordance(family, bound):
    """Largest |mu''| / mu' and |mu'''| / mu' over |z| <= bound, by differences of log mu'."""
    z, h = np.linspace(-bound, bound, 2001), 1e-4
    below, here, above = (np.log(FAMILIES[family][1](z + s)) for s in (-h, 0.0, h))
    first, second = (above - below) / (2 * h), (above - 2 * here + below) / h**2
    return np.abs(first).max(), np.abs(second + first**2).max()
