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


# ---------------------------------------------------------------------------------------- karmed
# K-armed algorithms without delay, from the formulas: select(t) and update(arm, y), round by round.


class Arms:
    def __init__(self, K):
        self.rewards = [[] for _ in range(K)]

    def update(self, arm, y):
        self.rewards[arm].append(y)

    def select(self, t):
        """Every arm once, then the first of the largest indices."""
        for arm, seen in enumerate(self.rewards):
            if not seen:
                return arm
        indices = [self.index(sum(seen) / len(seen), len(seen), t) for seen in self.rewards]
        return indices.index(max(indices))


class UCB1(Arms):
    def index(self, mean, n, t):
        return mean + math.sqrt(2 * math.log(t) / n)


def bernoulli_kl(p, q):
    first = p * math.log(p / q) if p > 0 else 0.0
    return first + ((1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0)


class KLUCB(Arms):
    def __init__(self, K, c):
        super().__init__(K)
        self.c = c

    def index(self, mean, n, t):
        level = math.log(t) + self.c * max(0.0, math.log(math.log(t)) if t > 1 else 0.0)
        if mean == 1:
            return 1.0
        top = 1 - 1e-16
        if n * bernoulli_kl(mean, top) <= level:
            return top
        return brentq(
            lambda q: n * bernoulli_kl(mean, q) - level, max(mean, 1e-300), top, xtol=1e-15
        )


class PoissonKLUCB(Arms):
    """The index of delayed conversions where nothing is late."""

    def __init__(self, K, eps):
        super().__init__(K)
        self.eps = eps

    def index(self, mean, n, t):
        level = (1 + self.eps) * math.log(t) / n
        if mean == 0:
            return level  # d(0, q) = q
        return brentq(
            lambda q: mean * math.log(mean / q) + q - mean - level, mean, mean + 4 * level + 4
        )


class BetaThompson(Arms):
    """Beta(1, 1) prior, rewards 0 or 1."""

    def __init__(self, K, rng):
        super().__init__(K)
        self.rng = rng

    def select(self, t):
        draws = [self.rng.beta(1 + sum(seen), 1 + len(seen) - sum(seen)) for seen in self.rewards]
        return draws.index(max(draws))


class SuccessiveElimination(Arms):
    def __init__(self, K, T):
        super().__init__(K)
        self.T, self.active, self.turn = T, list(range(K)), 0

    def select(self, t):
        if self.turn == len(self.active):
            mean = {i: sum(self.rewards[i]) / len(self.rewards[i]) for i in self.active}
            w = {i: math.sqrt(2 * math.log(self.T) / len(self.rewards[i])) for i in self.active}
            self.active = [
                i
                for i in self.active
                if not any(mean[i] + w[i] < mean[j] - w[j] for j in self.active)
            ]
            self.turn = 0
        self.turn += 1
        return self.active[self.turn - 1]


def odaaf_rounds(m, T, E, max_delay=None, variance=None):
    """n_m of ODAAF: ALGORITHMS D.5."""
    tol = 2**-m
    l = math.log(T * tol**2)  # noqa: E741

    def n(late):
        return math.ceil(
            (math.sqrt(2 * l) + math.sqrt(2 * l + 8 / 3 * tol * l + late)) ** 2 / tol**2
        )

    if variance is not None:
        return n(4 * tol * (E + 2 * variance))
    if max_delay is not None:
        first = n(6 * tol * m * E)
        return max(math.ceil(m * min(max_delay, first / m)), n(4 * tol * E))
    return n(6 * tol * m * E)


def odaaf(K, T, E, totals, **known):
    """Arms of ODAAF, and the active sets after each phase; ``totals(arm, t)`` is what is seen."""
    played, sets, active = [], [], list(range(K))
    total, previous, m = [0.0] * K, 0, 1
    while len(active) > 1 and T * 4**-m > math.e:
        n = odaaf_rounds(m, T, E, **known)
        for arm in active:
            for _ in range(n - previous):
                played.append(arm)
                total[arm] += totals(arm, len(played))
        best = max(total[arm] / n for arm in active)
        active = [arm for arm in active if total[arm] / n + 2**-m >= best]
        sets.append(active)
        first = max(active, key=lambda arm: total[arm])
        if len(active) > 1 and T * 4 ** -(m + 1) > math.e:
            for _ in range(n - previous):
                played.append(first)
                totals(first, len(played))
        previous, m = n, m + 1
    last = max(active, key=lambda arm: total[arm])
    while len(played) < T:
        played.append(last)
        totals(last, len(played))
    return played[:T], sets


def weighted_pulls(arms, K, t, shown):
    """Pulls of each arm before round t, each counted ``shown(rounds since)``: D.6, our timing."""
    return np.array(
        [
            sum(shown(t - 1 - s) for s, played in enumerate(arms[: t - 1], 1) if played == k)
            for k in range(K)
        ]
    )


def policy_elimination_load(policies, weights, P, mu, K):
    """E_x[1 / ((1 - K mu) W_P(x, pi(x)) + mu)] of each policy, and the smoothed chances."""
    chances = np.zeros((len(weights), K))
    for x in range(len(weights)):
        for policy, share in zip(policies, P, strict=True):
            chances[x, policy[x]] += share
    chances = (1 - K * mu) * chances + mu
    loads = [sum(w / chances[x, policy[x]] for x, w in enumerate(weights)) for policy in policies]
    return np.array(loads), chances
