"""Policies that see every reward once: GLOC, ada-OFU-ECOLog and GLB-OMD."""

import math

import numpy as np

from naive.estimators import minimiser_on_ball, proximal_point
from naive.families import FAMILIES


def rounds_until_batch_end(arrives, every):
    """Rounds that a reward of the end of round ``arrives`` waits, ``every`` an exact number."""
    waited = 0
    while (arrives + waited) // every == (arrives + waited - 1) // every:  # no batch ends here
        waited += 1
    return waited


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
    """Jun et al. (2017): online Newton steps, and least squares on the predictions z they made."""

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
    """ada-OFU-ECOLog of Faury et al. (2022): the iterate minimises its distance plus the new loss.

    ``literal`` takes steps of eta = 1, otherwise eta = 1 + S; ``trials`` is the largest reward.
    """

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
    """Zhang et al. (2025): quadratic surrogates; the radius from the data unless ``literal``."""

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
