"""Streams of rewards and bandits that learnt them, for the tests of estimates."""

import math
from itertools import pairwise

import numpy as np

import naive.estimators
import naive.families
from belated import Bandit, registry
from belated.estimators.newton.fit import LazyNewton
from belated.model.protocols import reward_quantile
from belated.model.state import WORK
from belated.numerics.lowered.third_derivative import BATCH, add_thirds, multiply_all_pairs

FAMILIES = sorted(registry.FAMILIES)


def make_family(name):
    kind = registry.load(registry.FAMILIES, name)
    return kind(trials=naive.families.TRIALS) if name == "binomial" else kind()


def stream(family, n, d, norm, seed, longest=1.0):
    """Vectors uniform in a ball and rewards at a theta_star of the given norm."""
    rng = np.random.default_rng(seed)
    g = rng.standard_normal((n, d))
    X = longest * g / np.sqrt((g**2).sum(1) + 2 * rng.exponential(size=n))[:, None]
    theta_star = rng.standard_normal(d)
    theta_star *= norm / np.linalg.norm(theta_star)
    u = rng.random(n)
    y = np.array([reward_quantile(family, z, v) for z, v in zip(X @ theta_star, u, strict=True)])
    return X, y


def fed(family, policy, X, y, batches=None):
    """A bandit that was handed all of X, then y in batches."""
    bandit = Bandit(X.shape[1], family=family, policy=policy)
    for x in X:
        bandit.decide(x[np.newaxis], probabilities=False)
    cuts = [0, *(batches or []), len(y)]
    for a, b in pairwise(cuts):
        if b > a:
            bandit.learn([(s + 1, y[s]) for s in range(a, b)])
    return bandit


def exact(name, bandit, X, y):
    policy = bandit.policy
    radius = policy.m1 if policy.constrained and name != "gaussian" else math.inf
    return naive.estimators.mle(name, X, y, policy.lam * policy.kappa, radius)


LMIN = 0.45


def taylor(radius=math.inf, longest=0.4, nu=0.0, shift=0.0, order=3, tol=1e-2, **changes):
    """An estimator, coefficients made by hand, scratch: rho = 0.02, H = diag(3, 0.5)."""
    estimator = LazyNewton(lam=0.1, kappa=0.2, radius=radius, tol=tol, order=order)
    fit = estimator.new_fit(2)._replace(
        ref=np.array([0.3, -0.2]),
        gradient=np.array([0.1, -0.3]),
        H=np.diag([3.0, 0.5]),
        H_inv=np.diag([1 / (3.0 + shift), 1 / (0.5 + shift)]),
        scalars=np.array([nu, longest, 0.1, LMIN, 1.0, shift, -1.0, 0.0, 0.0, 0.0]),
    )
    return estimator, fit._replace(**changes), scratch(2)


def scratch(d):
    return np.full((WORK + d, d), np.nan)  # whatever is read must have been written


def add_third(T3, weight, x):
    """One reward's share of the packed third derivative: of a batch, the others count nothing."""
    rows = np.tile(x, (BATCH, 1))
    multiply_all_pairs(rows, T3)
    add_thirds(rows, weight * np.eye(BATCH)[0], T3)
