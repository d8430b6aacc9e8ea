"""Slow and obvious twins of everything the package does quickly. Written from the formulas alone.

Nothing here imports the package; families are given by name.
"""

import math

import numpy as np
from scipy.optimize import brentq, minimize_scalar
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


# ------------------------------------------------------------------------------------- likelihood


def log_ratio_bound(family, y, d, *, m1, max_norm, a_phi, delta):
    """beta_n^2 of C.7: log(1 / delta) + inf over c in (0, 1] of d log(1 / c) + 2 S Lip c."""
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
    """gamma of C.6, for actions of norm 1 at most."""
    inside = math.log(1 / delta) + d / 2 * math.log(1 + n / (4 * d * lam)) + d * math.log(2)
    return math.sqrt(lam) * (m1 + 0.5) + 2 / math.sqrt(lam) * inside


class LikelihoodSet:
    """Estimate, Hessian and width of C.7, everything recomputed from the stored data."""

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
