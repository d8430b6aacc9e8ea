"""The yardstick of the benchmarks: a bandit in plain NumPy."""

import math

import numpy as np

from naive.estimators import objective
from naive.optimistic import sqrt_beta


class PlainBandit:
    """A competent plain NumPy bandit: the yardstick of the benchmarks.

    Keeps W and its inverse by rank-one updates, scores with matrix products, and refits by Newton's
    method from the previous estimate: what one writes without laziness or compilation.
    """

    def __init__(self, family, d, *, lam, m1, R, kappa, delta):
        self.family, self.lam, self.m1, self.R = family, lam, m1, R
        self.kappa, self.delta = kappa, delta
        self.theta, self.W, self.W_inv = np.zeros(d), lam * np.eye(d), np.eye(d) / lam
        self.X, self.Y, self.pending = np.zeros((16, d)), np.zeros(16), {}
        self.n = self.decided = 0

    def decide(self, actions):
        width = sqrt_beta(self.W, self.lam, self.m1, self.R, self.kappa, self.delta)
        norms = np.sqrt(((actions @ self.W_inv) * actions).sum(axis=1))
        index = int(np.argmax(actions @ self.theta + width * norms))
        self.decided += 1
        self.pending[self.decided] = actions[index].copy()
        return self.decided, index

    def learn(self, id, y):
        x = self.pending.pop(id)
        if self.n == len(self.Y):
            self.X, self.Y = np.resize(self.X, (2 * self.n, len(x))), np.resize(self.Y, 2 * self.n)
        self.X[self.n], self.Y[self.n] = x, y
        self.n += 1
        self.W += np.outer(x, x)
        u = self.W_inv @ x
        self.W_inv -= np.outer(u, u) / (1 + x @ u)
        for _ in range(20):
            _, gradient, hessian = objective(
                self.family, self.X[: self.n], self.Y[: self.n], self.lam * self.kappa, self.theta
            )
            step = np.linalg.solve(hessian, gradient)
            self.theta = self.theta - step
            if math.sqrt(gradient @ step) < 1e-2:
                break
