"""Policies to compare with."""

import numpy as np
import pytest

from belated import Bandit, Bernoulli
from belated.delays import Exponential
from belated.engine import draw_world, play
from belated.environments import UnitBall
from belated.policies import DelayedOFUGLM, Greedy, UniformPlay


def test_greedy_follows_its_estimate():
    world = draw_world(UnitBall(6), 3, 120, seed=1)
    bandit = Bandit(3, family=Bernoulli(), policy=Greedy())
    for t, actions in enumerate(world.actions):
        values = actions @ bandit.theta
        decision = bandit.decide(actions)
        assert values[decision.index] >= values.max() - 1e-12
        assert decision.score == decision.estimate
        assert decision.width == 0.0
        bandit.learn(decision.id, float(world.luck[t] < 0.5))


def test_greedy_is_delayed_ofu_glm_without_width():
    """The same data give the same estimate: only the choice differs."""
    bandits = [Bandit(3, family=Bernoulli(), policy=p) for p in (Greedy(), DelayedOFUGLM())]
    for bandit in bandits:
        for k in range(60):
            bandit.decide([np.eye(3)[k % 3] * 0.9])
        bandit.learn([(k + 1, float(k % 5 > 1)) for k in range(60)])
    assert np.array_equal(bandits[0].theta, bandits[1].theta)


def test_uniform_plays_everything_alike():
    n, K = 4000, 5
    bandit = Bandit(2, family=Bernoulli(), policy=UniformPlay(), seed=3)
    actions = np.random.default_rng(0).uniform(-0.5, 0.5, (K, 2))
    counts = np.bincount([bandit.decide(actions).index for _ in range(n)], minlength=K)
    assert (abs(counts - n / K) < 5 * np.sqrt(n / K)).all()  # five standard deviations
    again = Bandit(2, family=Bernoulli(), policy=UniformPlay(), seed=3)
    other = Bandit(2, family=Bernoulli(), policy=UniformPlay(), seed=4)
    first, second, third = (
        [b.decide(actions).index for _ in range(50)]
        for b in (Bandit(2, family=Bernoulli(), policy=UniformPlay(), seed=3), again, other)
    )
    assert first == second != third


def test_uniform_learns_all_the_same():
    world = draw_world(UnitBall(6), 2, 400, seed=1, theta_star=np.array([0.8, 0.0]))
    bandit = Bandit(2, family=Bernoulli(), policy=UniformPlay(), seed=1)
    play(bandit, world, Exponential(5.0))
    assert bandit.theta[0] > 0.3


@pytest.mark.parametrize("policy", [Greedy(), UniformPlay()], ids=repr)
def test_no_set_no_width(policy):
    bandit = Bandit(2, family=Bernoulli(), policy=policy)
    for ask in (lambda: bandit.interval([0.1, 0.1]), lambda: bandit.sqrt_beta):
        with pytest.raises(
            TypeError,
            match=f"policy = {type(policy).__name__}.* has no confidence set: expected one",
        ):
            ask()
    assert not play(bandit, draw_world(UnitBall(3), 2, 5, 1), Exponential(5.0)).covered.any()


def test_bad_parameters():
    for kind in (Greedy, UniformPlay):
        with pytest.raises(ValueError, match=r"lam = -1\.0: expected a finite number above 0"):
            kind(lam=-1.0)
