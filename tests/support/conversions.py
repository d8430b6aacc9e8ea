"""Runs of policies for conversions, for their tests."""

from belated import Bandit, Bernoulli
from belated.engine.lanes import RECORD
from belated.engine.reference import draw_world, play
from belated.worlds.delays import Exponential
from belated.worlds.environments import UnitBall
from belated.worlds.feedback import feedback_for

COLUMN = {name: i for i, name in enumerate(RECORD)}
T, D, K = 150, 3, 9
LATE = Exponential(4.0)


def bandit_of(policy, dim=D, seed=4):
    return Bandit(dim, family=Bernoulli(), policy=policy, seed=seed)


def played(policy, delay=LATE, rounds=T, seed=2, environment=None, theta_star=None):
    dim = D if theta_star is None else len(theta_star)
    world = draw_world(environment or UnitBall(K), dim, rounds, seed, theta_star)
    bandit = bandit_of(policy, dim)
    return bandit, play(bandit, world, delay, feedback=feedback_for(policy)), world
