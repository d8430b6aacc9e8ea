"""Runs of optimistic policies, for their tests."""

import math

import numpy as np

from belated import Bandit, Bernoulli, Gaussian, Poisson, Probit, Tanh
from belated.engine.reference import draw_world, play
from belated.worlds.delays import Exponential
from belated.worlds.environments import UnitBall

LATE = Exponential(6.0)
NAMES = {
    "gaussian": Gaussian(),
    "bernoulli": Bernoulli(),
    "tanh": Tanh(),
    "probit": Probit(),
    "poisson": Poisson(),
}


def played(policy, family, delay=LATE, rounds=150, d=3, seed=2, K=9):
    world = draw_world(UnitBall(K), d, rounds, seed)
    bandit = Bandit(d, family=family, policy=policy, seed=4)
    return bandit, play(bandit, world, delay)


def fresh_actions(d, K=50, seed=9):
    return draw_world(UnitBall(K), d, 1, seed).actions[0]


def norms(A, actions):
    return np.sqrt(((actions @ np.linalg.inv(A)) * actions).sum(1))


# --------------------------------------------------------------------- zero delay: the slow twins

T, DELTA = 70, 0.1
KAPPA = 0.25 / math.cosh(0.5) ** 2  # of the logistic function at 1
