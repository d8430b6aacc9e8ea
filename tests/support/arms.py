"""Runs of K-armed policies, for their tests."""

import numpy as np

from belated import Bernoulli, registry
from belated.engine.plain_lane import OwnPlayer
from belated.engine.reference import draw_world, play
from belated.model.plain_policy import is_own
from belated.worlds.delays import Exponential
from belated.worlds.environments import FixedArms
from belated.worlds.feedback import feedback_for

K, T = 4, 400
THETA_STAR = np.array([0.2, -1.5, 1.2, 0.0])
LATE, BERNOULLI = Exponential(12.0), Bernoulli()
SEED = np.random.SeedSequence(5)


OURS = [
    name
    for name, where in registry.POLICIES.items()
    if is_own(registry.load(registry.POLICIES, name))
]


def played(policy, delay=LATE, rounds=T, seed=3, family=BERNOULLI, theta_star=THETA_STAR):
    """A run on K arms, and the object that played."""
    arms = FixedArms(np.eye(len(theta_star)))
    world = draw_world(arms, len(theta_star), rounds, seed, theta_star)
    player = OwnPlayer(policy, family, len(theta_star), SEED)
    return play(player, world, delay, feedback=feedback_for(policy)), player.policy


def returned(run, t):
    """Rounds, counted from 0, whose reward the decision of round t may use."""
    return np.flatnonzero(run.arrives[: t - 1] <= t - 1)


# ------------------------------------------------------------------------------------ with delay


def untried(seen, run, t):
    """Of the arms with nothing seen, the first with the fewest pulls."""
    pulls = np.bincount(run.index[: t - 1], minlength=K)
    return min((k for k in range(K) if seen[k] == 0), key=lambda k: pulls[k], default=None)
