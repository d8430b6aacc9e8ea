"""Optimistic algorithms, everything recomputed from the stored data at every step.

All but ``DelayedOFUGLM`` are undelayed and get one reward at a time; ``explored`` says whether the
phase of random play is over.
"""

import math

import numpy as np
from scipy.special import expit

from naive.estimators import mle
from naive.families import FAMILIES


def most_optimistic(theta, A_inv, radius, actions):
    """Scores of all rows of ``actions``; the first of the largest is to be played."""
    return np.array([x @ theta + radius * math.sqrt(max(0.0, x @ A_inv @ x)) for x in actions])


def sqrt_beta(W, lam, m1, R, kappa, delta):
    """Equation (confidence width) of the paper."""
    d = len(W)
    log_det = np.linalg.slogdet(W)[1] - d * math.log(lam)
    return math.sqrt(lam) * m1 + R / kappa * math.sqrt(log_det - 2 * math.log(delta))


class DelayedOFUGLM:
    """Algorithm 1 of the paper, everything recomputed from the stored data at every step."""

    def __init__(self, family, d, *, lam, m1, R, kappa, delta, radius):
        self.family, self.d, self.radius = family, d, radius
        self.lam, self.m1, self.R, self.kappa, self.delta = lam, m1, R, kappa, delta
        self.x, self.y = [], {}
        self.theta = np.zeros(d)

    @property
    def W(self):
        W = self.lam * np.eye(self.d)
        for s in self.y:
            W += np.outer(self.x[s], self.x[s])
        return W

    def scores(self, actions):
        W_inv = np.linalg.inv(self.W)
        width = sqrt_beta(self.W, self.lam, self.m1, self.R, self.kappa, self.delta)
        return np.array([x @ self.theta + width * math.sqrt(x @ W_inv @ x) for x in actions])

    def learn(self, rewards):
        for id, y in rewards:
            self.y[id - 1] = y
        X, y = np.array([self.x[s] for s in self.y]), np.array(list(self.y.values()))
        self.theta = mle(self.family, X, y, self.lam * self.kappa, self.radius)


# --------------------------------------------------------------------------- branch: optimistic
# Undelayed algorithms, one reward at a time, everything recomputed from the stored data.
# ``explored`` says whether the phase of random play is over.
def most_optimistic_mean(family, theta, A_inv, bonus, actions):
    """mu(x'theta) + bonus ||x||_{A^-1} of all rows of ``actions``."""
    mu = FAMILIES[family][0]
    return np.array(
        [float(mu(x @ theta)) + bonus * math.sqrt(max(0.0, x @ A_inv @ x)) for x in actions]
    )


class _Undelayed:
    """What all of them store: actions played and their rewards."""

    def __init__(self, d):
        self.d, self.X, self.y = d, np.zeros((0, d)), np.zeros(0)

    def learn(self, x, y):
        self.X, self.y = np.vstack([self.X, x]), np.append(self.y, y)

    def design(self, lam):
        return lam * np.eye(self.d) + self.X.T @ self.X

    def ridge(self, lam):
        return np.linalg.solve(self.design(lam), self.X.T @ self.y)

    @property
    def explored(self):
        return True


class LinUCB(_Undelayed):
    """Chu et al. (2011): ridge regression and a width that grows with log(2 T K / delta)."""

    def __init__(self, d, *, T, delta):
        super().__init__(d)
        self.T, self.delta = T, delta

    def scores(self, actions):
        alpha = math.sqrt(0.5 * math.log(2 * self.T * len(actions) / self.delta))
        return most_optimistic(self.ridge(1.0), np.linalg.inv(self.design(1.0)), alpha, actions)


class OFUL(_Undelayed):
    """Abbasi-Yadkori et al. (2011); looks up when det W has grown by 1 + C, or always (None)."""

    def __init__(self, d, *, S, R, lam, delta, determinant=True, C=None):
        super().__init__(d)
        self.S, self.R, self.lam, self.delta = S, R, lam, delta
        self.determinant, self.C, self.switches = determinant, C, 0
        self.look_up()

    def width(self):
        n, L, W = len(self.y), 1.0, self.design(self.lam)
        square = self.d * math.log((1 + n * L**2 / self.lam) / self.delta)
        if self.determinant:
            square = math.log(np.linalg.det(W) / self.lam**self.d) + 2 * math.log(1 / self.delta)
        return math.sqrt(self.lam) * self.S + self.R * math.sqrt(square)

    def look_up(self):
        W = self.design(self.lam)
        self.last = self.ridge(self.lam), np.linalg.inv(W), self.width(), np.linalg.det(W)

    def scores(self, actions):
        if self.C is None or np.linalg.det(self.design(self.lam)) > (1 + self.C) * self.last[3]:
            self.look_up()
            self.switches += 1
        theta, W_inv, width, _ = self.last
        return most_optimistic(theta, W_inv, width, actions)


class _Exploring(_Undelayed):
    def __init__(self, family, d, *, explore_until, ridge, ball, kappa):
        super().__init__(d)
        self.family, self.explore_until, self.kappa = family, explore_until, kappa
        self.small, self.ball = ridge, ball

    @property
    def explored(self):
        return bool(np.linalg.eigvalsh(self.X.T @ self.X)[0] >= self.explore_until)

    def theta(self):
        """The maximum likelihood estimate; the ridge is too small to matter."""
        return mle(self.family, self.X, self.y, self.small * self.kappa, self.ball)


class GLMUCB(_Exploring):
    """Filippi et al. (2010) with the estimate over the ball for the projection."""

    def __init__(self, family, d, *, L_mu, R, T, delta, practical=False, **constants):
        super().__init__(family, d, **constants)
        self.L_mu, self.R, self.T, self.delta, self.practical = L_mu, R, T, delta, practical

    def rho(self):
        t = len(self.y) + 1
        if self.practical:
            return math.sqrt(math.log(t))
        kap = math.sqrt(3 + 2 * math.log(1 + 2 / self.explore_until))
        logs = math.log(t) * math.log(2 * self.d * self.T / self.delta)
        return 2 * self.L_mu * kap * self.R / self.kappa * math.sqrt(2 * self.d * logs)

    def scores(self, actions):
        M_inv = np.linalg.inv(self.design(self.small))
        return most_optimistic_mean(self.family, self.theta(), M_inv, self.rho(), actions)


class UCBGLM(_Exploring):
    """Li et al. (2017): random play until lmin(V) >= 1, then the maximum likelihood estimate."""

    def __init__(self, family, d, *, sigma, T, delta, **constants):
        super().__init__(family, d, explore_until=1.0, **constants)
        self.sigma, self.T, self.delta = sigma, T, delta

    def width(self):
        square = self.d / 2 * math.log(1 + 2 * self.T / self.d) + math.log(1 / self.delta)
        return self.sigma / self.kappa * math.sqrt(square)

    def scores(self, actions):
        V_inv = np.linalg.inv(self.design(self.small))
        return most_optimistic(self.theta(), V_inv, self.width(), actions)


class LogUCB1(_Undelayed):
    """Logistic-UCB-1 of Faury et al. (2020): the estimate over the ball, hence no factor of 2."""

    def __init__(self, d, *, S, lam, delta):
        super().__init__(d)
        self.S, self.lam, self.delta = S, lam, delta
        self.kap = 1 / (expit(S) * expit(-S))

    def gamma(self):
        n, d, lam = len(self.y), self.d, self.lam
        logs = math.log(1 / self.delta) + d / 2 * math.log(1 + n / (4 * d * lam)) + d * math.log(2)
        return math.sqrt(lam) * (self.S + 1 / 2) + 2 / math.sqrt(lam) * logs

    def scores(self, actions):
        theta = mle("bernoulli", self.X, self.y, self.lam, self.S)
        V_inv = np.linalg.inv(self.design(self.kap * self.lam))
        bonus = 0.25 * math.sqrt(self.kap * (1 + 2 * self.S)) * self.gamma()
        return most_optimistic_mean("bernoulli", theta, V_inv, bonus, actions)
