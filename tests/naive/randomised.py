"""Policies that draw a parameter, or perturb their estimate, in every round."""

import math

import numpy as np

from naive.estimators import mle, objective, perturbed_mle, unconstrained_mle
from naive.families import FAMILIES
from naive.optimistic import sqrt_beta


def upper_factor(A):
    """U with U'U = A."""
    return np.linalg.cholesky(A).T


class Randomised:
    """Stores what was played and what returned; ``sample`` of a subclass draws a parameter."""

    def __init__(self, d, lam, rng):
        self.d, self.lam, self.rng = d, lam, rng
        self.x, self.y = [], {}

    def data(self):
        rounds = sorted(self.y)
        X = np.array([self.x[s] for s in rounds]).reshape(-1, self.d)
        return X, np.array([self.y[s] for s in rounds])

    def learn(self, rewards):
        self.y.update((id - 1, y) for id, y in rewards)

    @property
    def W(self):
        X, _ = self.data()
        return self.lam * np.eye(self.d) + X.T @ X

    def scores(self, actions):
        return actions @ self.sample()


class LinTS(Randomised):
    """N(B^-1 sum Y x, v^2 B^-1), v = R sqrt(9 d log(t / delta)): Agrawal and Goyal (2013)."""

    def __init__(self, d, lam, rng, *, R, delta, inflated):
        super().__init__(d, lam, rng)
        self.R, self.delta, self.inflated = R, delta, inflated

    def sample(self):
        X, y = self.data()
        t = len(self.x) + 1
        v = self.R * math.sqrt(9 * self.d * math.log(t / self.delta)) if self.inflated else self.R
        z = self.rng.standard_normal(self.d)
        return np.linalg.solve(self.W, X.T @ y) + v * np.linalg.solve(upper_factor(self.W), z)


class InflatedTS(Randomised):
    """theta + sqrt(beta(delta / 4T)) W^-1/2 xi, theta the estimate in the ball."""

    def __init__(self, family, d, lam, rng, *, m1, R, kappa, delta, horizon):
        super().__init__(d, lam, rng)
        self.family, self.m1, self.R, self.kappa = family, m1, R, kappa
        self.delta = delta / (4 * horizon)

    def sample(self):
        X, y = self.data()
        ball = math.inf if self.family == "gaussian" else self.m1
        theta = mle(self.family, X, y, self.lam * self.kappa, ball)
        width = sqrt_beta(self.W, self.lam, self.m1, self.R, self.kappa, self.delta)
        xi = self.rng.standard_normal(self.d)
        return theta + width * np.linalg.solve(upper_factor(self.W), xi)


class Laplace(Randomised):
    """N(mode, a(phi) H(mode)^-1), the Laplace approximation of the posterior."""

    def __init__(self, family, d, lam, rng, *, a_phi):
        super().__init__(d, lam, rng)
        self.family, self.a_phi = family, a_phi

    def sample(self):
        X, y = self.data()
        mode = unconstrained_mle(self.family, X, y, self.lam)
        H = objective(self.family, X, y, self.lam, mode)[2]
        z = self.rng.standard_normal(self.d)
        return mode + math.sqrt(self.a_phi) * np.linalg.solve(upper_factor(H), z)


class EVILL(Randomised):
    """argmin of F(theta) + w'theta, w from N(0, a^2 a(phi) H), solved to rounding."""

    def __init__(self, family, d, lam, rng, *, a, a_phi):
        super().__init__(d, lam, rng)
        self.family, self.a, self.a_phi = family, a, a_phi

    def sample(self):
        X, y = self.data()
        theta = unconstrained_mle(self.family, X, y, self.lam)
        H = objective(self.family, X, y, self.lam, theta)[2]
        z = self.rng.standard_normal(self.d)
        w = self.a * math.sqrt(self.a_phi) * upper_factor(H).T @ z
        return perturbed_mle(self.family, X, y, self.lam, w)


def evill_perturbation(family, X, theta, lam, a, rng):
    """w as the paper writes it: one normal number a reward, d for the penalty."""
    slopes = FAMILIES[family][1](X @ theta)
    z = rng.standard_normal(len(X))
    return a * (math.sqrt(lam) * rng.standard_normal(X.shape[1]) + X.T @ (np.sqrt(slopes) * z))


class GLMFPL(Randomised):
    """The estimate of y + z, z normal with standard deviation a; at random until explored."""

    def __init__(self, family, d, lam, rng, *, a, explore_until):
        super().__init__(d, lam, rng)
        self.family, self.a, self.explore_until = family, a, explore_until

    def scores(self, actions):
        X, y = self.data()
        if np.linalg.eigvalsh(X.T @ X)[0] < self.explore_until:
            return np.eye(len(actions))[int(self.rng.random() * len(actions))]
        # noise with the same X'z as the package draws: any root of X'X will do for the law
        Xz = self.a * upper_factor(X.T @ X).T @ self.rng.standard_normal(self.d)
        z = X @ np.linalg.solve(X.T @ X, Xz)
        return actions @ unconstrained_mle(self.family, X, y + z, self.lam)


class PolyaGamma(Randomised):
    """Gibbs sweeps: omega_i from PG(1, x_i'theta), then theta from N(m, V) given all omega.

    V^-1 = X'Omega X + lam I, m = V X'(y - 1/2); ``omega(z, rng)`` draws a Polya-Gamma number.
    """

    def __init__(self, d, lam, rng, *, sweeps, omega):
        super().__init__(d, lam, rng)
        self.sweeps, self.omega, self.theta = sweeps, omega, np.zeros(d)

    def sample(self):
        X, y = self.data()
        for _ in range(self.sweeps):
            Omega = np.diag([self.omega(z, self.rng) for z in X @ self.theta])
            P = X.T @ Omega @ X + self.lam * np.eye(self.d)
            m = np.linalg.solve(P, X.T @ (y - 0.5))
            z = self.rng.standard_normal(self.d)
            self.theta = m + np.linalg.solve(upper_factor(P), z)
        return self.theta
