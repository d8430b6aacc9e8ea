"""Slow and obvious twins of everything the package does quickly. Written from the formulas alone.

Nothing here imports the package; families are given by name.
"""

import math

import numpy as np
from scipy.optimize import brentq, minimize, minimize_scalar
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


def concordance(family, bound):
    """Largest |mu''| / mu' and |mu'''| / mu' over |z| <= bound, by differences of log mu'."""
    z, h = np.linspace(-bound, bound, 2001), 1e-4
    below, here, above = (np.log(FAMILIES[family][1](z + s)) for s in (-h, 0.0, h))
    first, second = (above - below) / (2 * h), (above - 2 * here + below) / h**2
    return np.abs(first).max(), np.abs(second + first**2).max()


def certificate(M, X, order, residual, step_H, step_2, lmin, gap=0.0, N=None):
    """ALGORITHMS G.2 and G.3: bound on the distance of the model's minimiser from the true one.

    There N, the bound on |mu'''| / mu', is M^2.
    """
    u = M * X * step_2
    psi = (math.exp(u) - 1 - u) / u
    chi = (psi - u / 2) * (1.0 if N is None else N / M**2)
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


# ------------------------------------------------------------------------------ audit: A.6


def audit(X, late, theta_star, centres, radii, regrets, widths, slope, gap, lam):
    """Ratios of left to right side of R1 to R9, (T, 9), for a run whose rows are X.

    ``centres`` and ``radii`` are the confidence sets when deciding; ``late`` whole rounds.
    """
    T, d = X.shape
    ratios = np.zeros((T, 9))
    M_sum = W_sum = potential = lateness = most = regret = certificate = 0.0
    for t in range(T):
        returned = np.arange(t) + late[:t] <= t - 1
        V = lam * np.eye(d) + X[:t].T @ X[:t]
        W = lam * np.eye(d) + X[:t][returned].T @ X[:t][returned]
        V_inv, W_inv, Z = np.linalg.inv(V), np.linalg.inv(W), V - W
        M, x, G = W_inv - V_inv, X[t], t - returned.sum()
        error = centres[t] - theta_star
        allowed = min(gap, 2 * slope * widths[t])
        ratios[t, 0] = math.sqrt(error @ W @ error) / radii[t]
        ratios[t, 1] = regrets[t] / allowed
        ratios[t, 2] = np.abs(W_inv - V_inv - V_inv @ Z @ W_inv).max() / 1e-8
        if G > 0:
            ratios[t, 3] = x @ Z @ x / (G * x @ x)
            ratios[t, 4] = x @ M @ x / (x @ W_inv @ x * np.trace(V_inv @ Z))
            assert np.linalg.eigvalsh(G * np.eye(d) - Z)[0] > -1e-9
            assert np.linalg.eigvalsh((1 + G / lam) * W - V)[0] > -1e-9 * (1 + G / lam)
        a, most = x @ V_inv @ x, max(most, G)
        M_sum, W_sum = M_sum + math.sqrt(max(0.0, x @ M @ x)), W_sum + math.sqrt(x @ W_inv @ x)
        potential, lateness = potential + a, lateness + min(late[t], T - t - 1) * a
        right = 0.5 * ((1 + most / lam) * potential + lateness)
        log_det = np.linalg.slogdet((V + np.outer(x, x)) / lam)[1]
        regret, certificate = regret + regrets[t], certificate + allowed
        ratios[t, 5] = M_sum / right
        ratios[t, 6] = potential / (2 * log_det)
        ratios[t, 7] = W_sum / (math.sqrt((t + 1) * potential) + right)
        ratios[t, 8] = regret / certificate
    return ratios


# ------------------------------------------------------------------------------------------ online


def rounds_until_batch_end(arrives, every):
    """Rounds that a reward of the end of round ``arrives`` waits, ``every`` an exact number."""
    waited = 0
    while (arrives + waited) // every == (arrives + waited - 1) // every:  # no batch ends here
        waited += 1
    return waited


def proximal_point(A, start, x, pull, radius):
    """argmin over the ball of ||theta - start||_A^2 / 2 + phi(x'theta), phi' = ``pull``.

    Two nested roots: the number z = x'theta for a given multiplier nu of the ball, and nu.
    """

    def theta(nu):
        shifted = A + nu * np.eye(len(A))
        base, along = np.linalg.solve(shifted, A @ start), np.linalg.solve(shifted, x)
        a, q = x @ base, x @ along
        ends = sorted([a, a - q * pull(a)])
        z = a if ends[0] == ends[1] else brentq(lambda z: z - a + q * pull(z), *ends, xtol=1e-15)
        return base - pull(z) * along

    if np.linalg.norm(theta(0.0)) <= radius:
        return theta(0.0)
    upper = 1.0
    while np.linalg.norm(theta(upper)) > radius:
        upper *= 2
    nu = brentq(lambda nu: np.linalg.norm(theta(nu)) - radius, 0.0, upper, xtol=1e-15, rtol=1e-14)
    return theta(nu)


class OnePass:
    """What the three have in common: rewards one by one, then x'centre + radius ||x||_{A^-1}."""

    def __init__(self, family, d, *, m1, lam, delta, X=1.0):
        self.mu, self.slope, self.b = FAMILIES[family]
        self.d, self.m1, self.lam, self.delta, self.X = d, m1, lam, delta, X
        self.iterate, self.A, self.n = np.zeros(d), lam * np.eye(d), 0
        self.iterates = [self.iterate]

    def scores(self, actions):
        A_inv = np.linalg.inv(self.A)
        return np.array([x @ self.centre + self.radius * math.sqrt(x @ A_inv @ x) for x in actions])

    @property
    def centre(self):
        return self.iterate

    def learn(self, x, y):
        self.n += 1
        self.step(x, y)
        self.iterates.append(self.iterate)


class GLOC(OnePass):
    """ALGORITHMS C.5."""

    def __init__(self, *args, R, kappa, **values):
        super().__init__(*args, **values)
        self.R, self.kappa = R, kappa
        self.x, self.z, self.pulls = [], [], 0.0

    def step(self, x, y):
        z = x @ self.iterate
        g = self.mu(z) - y
        self.A = self.A + np.outer(x, x)
        towards = np.linalg.solve(self.A, x)
        self.pulls += g**2 * x @ towards
        self.x.append(x)
        self.z.append(z)
        target = self.iterate - g / self.kappa * towards
        self.iterate, _ = minimiser_on_ball(self.A, self.A @ target, self.m1)

    @property
    def weighted(self):
        return sum((z * x for z, x in zip(self.z, self.x, strict=True)), np.zeros(self.d))

    @property
    def centre(self):
        return np.linalg.solve(self.A, self.weighted)

    @property
    def unexplained(self):
        return sum(z**2 for z in self.z) - self.centre @ self.weighted

    @property
    def radius(self):
        R, kappa = self.R, self.kappa
        B = 2 * kappa * self.m1**2 * self.lam + self.pulls / (2 * kappa)
        within = 1 + 2 / kappa * B + 4 * R**4 / (kappa**4 * self.delta**2)
        alpha = 1 + 4 / kappa * B + 8 * R**2 / kappa**2 * math.log(2 / self.delta * within**0.5)
        return math.sqrt(alpha + self.lam * self.m1**2 - self.unexplained)


class ECOLog(OnePass):
    """ALGORITHMS C.8 with a step size eta, 1 there; ``trials`` is the largest reward."""

    def __init__(self, *args, literal=False, subtract=False, trials=1, **values):
        super().__init__(*args, **values)
        self.literal, self.subtract, self.trials = literal, subtract, trials
        self.eta = 1 if literal else 1 + self.m1 * self.X
        self.losses = self.moves = 0.0

    def loss(self, z, y):
        return self.b(z) - y * z

    def step(self, x, y):
        def minimiser(gradient):
            return proximal_point(self.A / self.eta, self.iterate, x, gradient, self.m1)

        bar = minimiser(lambda z: 2 * self.mu(z) - self.trials)
        new = minimiser(lambda z: self.mu(z) - y)
        self.losses += self.loss(x @ bar, y) - self.loss(x @ new, y)
        self.moves += (new - self.iterate) @ self.A @ (new - self.iterate)
        self.iterate = new
        self.A = self.A + self.slope(x @ new) * np.outer(x, x)

    @property
    def radius(self):
        S, lam = self.m1 * self.X, self.lam
        if self.literal:
            many = math.sqrt(1 + self.n * self.X**2 / (4 * lam))
            gamma = math.sqrt(lam) / 2 + 2 / math.sqrt(lam) * math.log(2 * many / self.delta)
            first = 2 * lam * self.m1**2 + (1 + S) ** 2 * gamma
            return math.sqrt(first + 2 * (1 + S) * self.losses)
        square = lam * self.m1**2 + 2 * (1 + S) * (self.losses + math.log(1 / self.delta))
        return math.sqrt(square - (self.moves if self.subtract else 0.0))


class GLBOMD(OnePass):
    """ALGORITHMS C.9; the radius from the data unless ``literal``."""

    def __init__(self, *args, M, a_phi=1.0, slope=None, literal=False, **values):
        super().__init__(*args, **values)
        self.eta, self.a_phi, self.lipschitz = 1 + M * self.m1 * self.X, a_phi, slope
        self.literal, self.gained = literal, 0.0

    def step(self, x, y):
        old = self.iterate
        z, a, eta = x @ old, self.a_phi, self.eta
        gradient, hessian = (self.mu(z) - y) / a * x, self.slope(z) / a * np.outer(x, x)
        precision = self.A / eta + hessian
        new, _ = minimiser_on_ball(precision, precision @ old - gradient, self.m1)
        after, gap = x @ new, new - old
        losses = (self.b(z) - y * z - self.b(after) + y * after) / a
        r = (self.mu(after) - self.mu(z) - self.slope(z) * (after - z)) / a
        reach = self.m1 * np.linalg.norm(x) + abs(after)
        self.gained += 2 * eta * losses - gap @ self.A @ gap + 2 * eta * abs(r) * reach
        self.iterate = new
        self.A = self.A + self.slope(after) / a * np.outer(x, x)

    @property
    def radius(self):
        d, lam, eta = self.d, self.lam, self.eta
        first = 2 * eta * math.log(1 / self.delta)
        if self.literal:
            rows = self.n * self.X**2
            volume = math.log(1 + 2 * self.lipschitz * rows / (d * lam * self.a_phi))
            return math.sqrt(first + 4 * lam * self.m1**2 + d * eta * volume)
        return math.sqrt(first + lam * self.m1**2 + self.gained)


# ------------------------------------------------------------------------------------ randomised


def upper_factor(A):
    """U with U'U = A."""
    return np.linalg.cholesky(A).T


def perturbed_mle(family, X, y, ridge, w):
    """argmin of F(theta) + w'theta."""

    def part(which):
        linear = (lambda t: w @ t, lambda t: w, lambda t: 0.0)[which]
        return lambda t: objective(family, X, y, ridge, t)[which] + linear(t)

    start = unconstrained_mle(family, X, y, ridge)
    found = minimize(part(0), start, jac=part(1), hess=part(2), method="trust-exact", tol=1e-10)
    return found.x


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
    """N(B^-1 sum Y x, v^2 B^-1), v = R sqrt(9 d log(t / delta)): ALGORITHMS C.11."""

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
    """theta + sqrt(beta(delta / 4T)) W^-1/2 xi, theta the estimate in the ball: ALGORITHMS C.11."""

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
    """N(mode, a(phi) H(mode)^-1): ALGORITHMS B.4."""

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
    """argmin of F(theta) + w'theta, w from N(0, a^2 a(phi) H), solved to rounding: C.10."""

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
    """Gibbs sweeps of ALGORITHMS B.4; ``omega(z, rng)`` draws a Polya-Gamma number."""

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


# ------------------------------------------------------------------------------------- conversions


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
    """Negative log-likelihood of the delayed feedback model, ALGORITHMS F.1, row by row."""
    total = 0.0
    for row, seen, t in zip(x, converted, time, strict=True):
        p, hazard = 1 / (1 + math.exp(-(row @ w_c))), math.exp(row @ w_d)
        if seen:
            total -= math.log(p) + math.log(hazard) - hazard * t
        else:
            total -= math.log(1 - p + p * math.exp(-hazard * t))
    return total


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
        bonus = 0.25 * math.sqrt(self.kap * (1 + 2 * self.S)) * self.gamma()
        return most_optimistic_mean("bernoulli", theta, V_inv, bonus, actions)
