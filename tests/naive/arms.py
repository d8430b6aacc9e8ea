"""K-armed algorithms from the formulas: ``select(t)`` and ``update(arm, y)``, round by round."""

import math

import numpy as np
from scipy.optimize import brentq


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
    """Rounds of each arm until the end of phase m of ODAAF: n_m of Pike-Burke et al. (2018)."""
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
    """Pulls of each arm before round t, each counted ``shown(rounds since)``."""
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
