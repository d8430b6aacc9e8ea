"""Randomised policies watched beside their slow twins, and tests of their draws."""

import math

import numpy as np

from belated import Bandit, Bernoulli, Gaussian
from belated.engine.reference import draw_world, play
from belated.model.protocols import choose
from belated.numerics.pruning import decision_set
from belated.policies.shared.sampling import SAMPLE
from belated.worlds.delays import Constant, Exponential
from belated.worlds.environments import UnitBall

LATE = Exponential(6.0)
DELAYS = [Constant(0.0), LATE]
KAPPA = Bernoulli().kappa(1.0)


def stream(seed):
    """The random numbers of a bandit with this seed."""
    return np.random.Generator(np.random.PCG64(seed))


class Watched:
    """A bandit and its slow twin, side by side: the twin is told what the bandit played."""

    def __init__(self, policy, family, twin, d):
        self.bandit = Bandit(d, family=family, policy=policy, seed=3)
        self.dim, self.family, self.twin = d, family, twin
        self.agreed, self.behind = [], []

    def decide(self, actions):
        scores = self.twin.scores(actions)
        decision = self.bandit.decide(actions, probabilities=False)
        self.agreed.append(decision.index == np.argmax(scores))
        self.behind.append(scores.max() - scores[decision.index])
        self.twin.x.append(actions[decision.index])
        return decision

    def learn(self, rewards):
        self.twin.learn(rewards)
        return self.bandit.learn(rewards)


def watched(policy, family, make_twin, delay, rounds=120, d=3):
    pair = Watched(policy, family, make_twin(d, stream(3)), d)
    run = play(pair, draw_world(UnitBall(9), d, rounds, 2), delay)
    assert len(set(run.index)) > 3
    return pair


def given_data(policy, family, n=30, d=2, pending=4, seed=0):
    """A bandit that was handed some actions; the rewards of all but the last few returned."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, d)) / math.sqrt(d)
    y = rng.standard_normal(n) if isinstance(family, Gaussian) else (rng.random(n) < 0.6) * 1.0
    bandit = Bandit(d, family=family, policy=policy, seed=1)
    for x in X:
        bandit.decide([x], probabilities=False)
    bandit.learn(list(enumerate(y, 1))[: n - pending])
    return bandit, X[: n - pending], y[: n - pending]


def samples(bandit, n, rng=None):
    """Parameters that ``choose`` draws."""
    rng, state = rng or np.random.default_rng(5), bandit._state
    actions, out = decision_set(np.eye(bandit.dim)), np.empty((n, bandit.dim))
    for draw in out:
        choose(bandit.policy, state, actions, rng)
        draw[:] = state.work[SAMPLE]
    return out


def assert_normal(draws, mean, covariance):
    """Mean and covariance within five standard deviations of what n draws give."""
    n, d = draws.shape
    white = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    assert (abs(white.mean(1)) < 5 / math.sqrt(n)).all()
    sd = np.where(np.eye(d) > 0, math.sqrt(2 / n), math.sqrt(1 / n))
    assert (abs(white @ white.T / n - np.eye(d)) < 5 * sd).all()


MANY = 20_000
