"""Confidence sets from the ratio of likelihoods."""

import math

import numpy as np
from scipy.optimize import minimize_scalar

from naive.estimators import mle, objective
from naive.families import FAMILIES


def log_ratio_bound(family, y, d, *, m1, max_norm, a_phi, delta):
    """beta_n^2 of Lee, Yun and Jun (2024).

    log(1 / delta) + inf over c in (0, 1] of d log(1 / c) + 2 S Lip c.
    """
    mu = FAMILIES[family][0]
    z = np.linspace(-m1 * max_norm, m1 * max_norm, 101)
    lip = max_norm * sum(np.abs(mu(z) - v).max() for v in y) / a_phi
    inner = minimize_scalar(
        lambda log_c: -d * log_c + 2 * m1 * lip * math.exp(log_c),
        bounds=(-50.0, 0.0),
        method="bounded",
        options={"xatol": 1e-12},
    )
    at_one = 2 * m1 * lip
    return math.log(1 / delta) + min(inner.fun, at_one)


def abeille_gamma(d, n, *, lam, m1, delta):
    """gamma of Faury et al. (2020) and Abeille et al. (2021), for actions of norm 1 at most."""
    inside = math.log(1 / delta) + d / 2 * math.log(1 + n / (4 * d * lam)) + d * math.log(2)
    return math.sqrt(lam) * (m1 + 0.5) + 2 / math.sqrt(lam) * inside


class LikelihoodSet:
    """Estimate, Hessian and width of OFUGLB, everything recomputed from the stored data."""

    def __init__(self, family, d, *, lam, m1, max_norm, a_phi, delta, concordance):
        self.family, self.d, self.lam, self.m1 = family, d, lam, m1
        self.max_norm, self.a_phi, self.delta = max_norm, a_phi, delta
        self.factor = 2 * (1 + concordance * m1 * max_norm)
        self.X, self.y = np.zeros((0, d)), np.zeros(0)
        self.theta = np.zeros(d)

    def learn(self, X, y):
        self.X, self.y = np.vstack([self.X, X]), np.append(self.y, y)
        self.theta = mle(self.family, self.X, self.y, self.lam, self.m1)

    @property
    def beta2(self):
        return log_ratio_bound(
            self.family,
            self.y,
            self.d,
            m1=self.m1,
            max_norm=self.max_norm,
            a_phi=self.a_phi,
            delta=self.delta,
        )

    def ellipsoid_scores(self, actions):
        """OFUGLB-e: x'theta + radius ||x||_{H^-1}."""
        H = objective(self.family, self.X, self.y, self.lam, self.theta)[2]
        radius = math.sqrt(self.factor * (self.a_phi * self.beta2 + self.lam * self.m1**2 / 2))
        return np.array(
            [x @ self.theta + radius * math.sqrt(x @ np.linalg.solve(H, x)) for x in actions]
        )

    def level_scores(self, actions):
        """OFUGLB, two dimensions only."""
        height = self.a_phi * self.beta2
        args = (self.family, self.X, self.y, 0.0, self.theta, height, self.m1)
        return np.array([farthest(*args, x) for x in actions])


def farthest(family, X, y, ridge, centre, height, m1, x):
    """Largest x'theta with F(theta) <= F(centre) + height and ||theta|| <= m1, in the plane.

    Along every direction from the centre, which is in that convex set, bisect for its boundary;
    then look closer around the best direction.
    """
    cumulant = FAMILIES[family][2]

    def F(theta):
        z = theta @ X.T
        return (cumulant(z) - y * z).sum(-1) + ridge / 2 * (theta**2).sum(-1)

    level = F(centre) + height
    middle, spread, best = 0.0, math.pi, -math.inf
    for _ in range(5):
        angles = middle + np.linspace(-spread, spread, 401)
        directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        low, high = np.zeros(len(angles)), np.full(len(angles), 2 * m1)
        for _ in range(50):
            t = (low + high) / 2
            theta = centre + t[:, None] * directions
            inside = ((theta**2).sum(-1) <= m1**2) & (F(theta) <= level)
            low, high = np.where(inside, t, low), np.where(inside, high, t)
        values = (centre + low[:, None] * directions) @ x
        best = max(best, values.max())
        middle, spread = angles[values.argmax()], spread / 50
    return best
