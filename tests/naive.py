"""Slow and obvious twins of everything the package does quickly. Written from the formulas alone.

Nothing here imports the package; families are given by name.
"""

import math

import numpy as np
from scipy.optimize import brentq
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


def objective(family, X, y, ridge, theta):
    """F(theta), its gradient and its Hessian: ALGORITHMS A.2."""
    mu, slope, cumulant = FAMILIES[family]
    z = X @ theta
    F = (cumulant(z) - y * z).sum() + ridge / 2 * theta @ theta
    gradient = X.T @ (mu(z) - y) + ridge * theta
    hessian = (X * slope(z)[:, None]).T @ X + ridge * np.eye(len(theta))
    return F, gradient, hessian


def unconstrained_mle(family, X, y, ridge):
    """Newton's method from zero, damped by backtracking, to a decrement of 1e-12."""
    theta = np.zeros(X.shape[1])
    for _ in range(500):
        F, gradient, hessian = objective(family, X, y, ridge, theta)
        step = -np.linalg.solve(hessian, gradient)
        decrement = math.sqrt(max(0.0, -gradient @ step))
        if decrement < 1e-12:
            break
        t = 1.0
        while (
            t > 1e-12
            and decrement > 1e-6
            and not (
                objective(family, X, y, ridge, theta + t * step)[0] <= F - 0.25 * t * decrement**2
            )
        ):
            t /= 2
        theta = theta + t * step
    return theta


def mle(family, X, y, ridge, radius=math.inf):
    """argmin of F over the ball: a larger ridge, found by root finding, where the ball binds."""
    theta = unconstrained_mle(family, X, y, ridge)
    if np.linalg.norm(theta) <= radius:
        return theta

    def excess(nu):
        return np.linalg.norm(unconstrained_mle(family, X, y, ridge + nu)) - radius

    upper = ridge
    while excess(upper) > 0:
        upper *= 4
    nu = brentq(excess, 0.0, upper, xtol=1e-15, rtol=8.9e-16)
    return unconstrained_mle(family, X, y, ridge + nu)


def minimiser_on_ball(H, right, radius):
    """argmin of theta'H theta / 2 - right'theta over the ball, and the multiplier of the ball."""
    theta = np.linalg.solve(H, right)
    if np.linalg.norm(theta) <= radius:
        return theta, 0.0
    eigenvalues, Q = np.linalg.eigh(H)
    c = Q.T @ right
    upper = np.linalg.norm(right) / radius  # there the norm is below the radius
    nu = brentq(
        lambda nu: np.linalg.norm(c / (eigenvalues + nu)) - radius,
        *(0.0, upper),
        xtol=1e-300,
        rtol=8.9e-16,
    )
    return Q @ (c / (eigenvalues + nu)), nu


def third_derivative(X, weights):
    """Sum of w x (x) x (x) x, all d^3 numbers of it."""
    return np.einsum("n,ni,nj,nk->ijk", weights, X, X, X)


def gap(M, X, H, step, anchor):
    """Bound on ||T3[step, step] - T3[anchor, anchor]||_{H^-1} / 2, where |mu''| <= M mu'."""
    both = step + anchor
    return M * X * np.linalg.norm(step - anchor) * math.sqrt(both @ H @ both) / 2


def certificate(M, X, order, residual, step_H, step_2, lmin, gap=0.0):
    """ALGORITHMS G.2 and G.3: bound on the distance of the model's minimiser from the true one."""
    u = M * X * step_2
    psi = (math.exp(u) - 1 - u) / u
    chi = psi - u / 2
    eps = math.exp(u) * (residual + (psi if order == 2 else chi) * step_H + gap)
    k = M * X / math.sqrt(lmin)
    return -math.log(1 - k * eps) / k if k * eps < 1 else math.inf


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
    """ALGORITHMS C.1."""

    def __init__(self, d, *, T, delta):
        super().__init__(d)
        self.T, self.delta = T, delta

    def scores(self, actions):
        alpha = math.sqrt(0.5 * math.log(2 * self.T * len(actions) / self.delta))
        return most_optimistic(self.ridge(1.0), np.linalg.inv(self.design(1.0)), alpha, actions)


class OFUL(_Undelayed):
    """ALGORITHMS C.2; ``C`` is None for the algorithm that always looks up."""

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
    """ALGORITHMS C.3 with the estimate over the ball for the projection."""

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
    """ALGORITHMS C.4."""

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
    """ALGORITHMS C.6, the estimate over the ball, no factor of 2."""

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
        bonus = 0.25 * math.sqrt(self.kap) * (1 + 2 * self.S) * self.gamma()
        return most_optimistic_mean("bernoulli", theta, V_inv, bonus, actions)
