"""Small runs with late rewards, on which the checks of policies rest."""

import math
from typing import Any

import numpy as np

from belated.bandit import Bandit
from belated.bandit.reading import played_rows
from belated.core.types import Vector
from belated.engine.plain_lane import OwnPlayer
from belated.engine.reference import Player, Run, World, draw_world, play
from belated.model.plain_policy import is_own
from belated.model.protocols import Delay, Family, Policy, with_horizon
from belated.worlds.delays import Exponential
from belated.worlds.environments import UnitBall
from belated.worlds.feedback import feedback_for

ROUNDS, ACTIONS, DIM = 80, 6, 3
THETA_STAR = np.linspace(-0.5, 0.5, DIM)
LATE = Exponential(8.0)


def trial_world(seed: int = 7, rounds: int = ROUNDS) -> World:
    """Returns a world in which ``THETA_STAR`` is true."""
    return draw_world(UnitBall(ACTIONS), DIM, rounds, seed, THETA_STAR)


def trial_bandit(policy: Policy, family: Family, seed: int = 1) -> Bandit:
    """Returns a bandit of this policy that has decided nothing."""
    return Bandit(DIM, family=family, policy=policy, seed=seed)


def trial_player(policy: Any, family: Family, seed: np.random.SeedSequence) -> Player:
    """Returns whatever plays this policy: a bandit, or the player of one in plain Python."""
    if is_own(policy):
        return OwnPlayer(with_horizon(policy, ROUNDS), family, DIM, seed)
    return Bandit(DIM, family=family, policy=policy, seed=seed)


def trial(
    policy: Policy, family: Family, delay: Delay = LATE, world: World | None = None
) -> tuple[Bandit, Run]:
    """Returns a bandit after a run, and the run."""
    bandit = trial_bandit(policy, family)
    return bandit, play(bandit, world or trial_world(), delay, feedback=feedback_for(policy))


def fed(policy: Policy, family: Family, bandit: Bandit, y: Vector) -> Bandit:
    """Returns a new bandit with all decisions of another, and the rewards ``y`` that are not NaN.

    Where only conversions are ever seen, these are conversions. An estimator that depends on the
    order of rewards is given one after the other.
    """
    fresh = trial_bandit(policy, family)
    for x in played_rows(bandit._learner):
        fresh.decide(x[np.newaxis], probabilities=False)
    pairs = [(s + 1, y[s]) for s in np.flatnonzero(~np.isnan(y)).tolist()]
    alone = getattr(fresh.estimator, "order_matters", False)
    for part in [[pair] for pair in pairs] if alone else [pairs]:
        fresh.learn(part)
    return fresh


def distance(one: Bandit, other: Bandit) -> tuple[float, float]:
    """Returns how far two estimates of the same rewards are apart, and how far they may be.

    Both are in the norm of W. Each estimate may be off by what its certificate allows.
    """
    gap = one.theta - other.theta
    slacks = (one.certificate.slack, other.certificate.slack)
    allowed = sum(slack for slack in slacks if math.isfinite(slack)) + 1e-9
    return math.sqrt(gap @ one.W @ gap), allowed
