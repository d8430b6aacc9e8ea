"""Policies and models of conversions within a window."""

import math

import numpy as np


class OTFLin:
    """Algorithms 1 and 2 of Vernade et al. (2020), everything recomputed every round.

    With ``stale`` the norms of actions are those at the last renewal, or when they were played.
    """

    def __init__(self, d, *, window, delta=0.05, lam=1.0, stale=False):
        self.d, self.m, self.delta, self.lam, self.stale = d, window, delta, lam, stale
        self.x, self.converted = [], set()
        self.norms, self.renew_at = {}, 1  # by round

    @property
    def V(self):
        V = self.lam * np.eye(self.d)
        for x in self.x:
            V += np.outer(x, x)
        return V

    @property
    def theta(self):
        b = np.zeros(self.d)
        for s in self.converted:
            b += self.x[s]
        return np.linalg.solve(self.V, b)

    def f(self):
        t = len(self.x) + 1
        growth = self.d * math.log((self.d * self.lam + t) / (self.d * self.lam))
        return math.sqrt(self.lam) + math.sqrt(2 * math.log(1 / self.delta) + growth)

    def play(self, x):
        self.x.append(x)
        t = len(self.x)
        V_inv = np.linalg.inv(self.V)
        if not self.stale or t >= self.renew_at:
            self.norms = {s: math.sqrt(x @ V_inv @ x) for s, x in enumerate(self.x)}
            self.renew_at = t + 1 + max(t // 16, min(t, self.m) // 4)
        self.norms[t - 1] = math.sqrt(x @ V_inv @ x)

    def bias(self):
        t = len(self.x)
        return sum(self.norms[s] for s in range(max(0, t - self.m), t))

    def scores(self, actions):
        V_inv, theta, width = np.linalg.inv(self.V), self.theta, 2 * self.f() + self.bias()
        return np.array([x @ theta + width * math.sqrt(x @ V_inv @ x) for x in actions])

    def draw(self, normals, scale=1.0):
        """A parameter from N(theta, scale^2 beta V^-1): V = U'U, theta + w U^-1 z."""
        U, beta = np.linalg.cholesky(self.V).T, 1 + self.bias() / self.f()
        return self.theta + scale * math.sqrt(beta) * np.linalg.solve(U, normals)


def dfm_loss(x, converted, time, w_c, w_d):
    """Negative log-likelihood of the delayed feedback model of Chapelle (2014), row by row."""
    total = 0.0
    for row, seen, t in zip(x, converted, time, strict=True):
        p, hazard = 1 / (1 + math.exp(-(row @ w_c))), math.exp(row @ w_d)
        if seen:
            total -= math.log(p) + math.log(hazard) - hazard * t
        else:
            total -= math.log(1 - p + p * math.exp(-hazard * t))
    return total
