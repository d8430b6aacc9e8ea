"""Policies to compare with."""

import math

import numpy as np
import pytest

import naive.estimators
import naive.optimistic
from belated import Bandit, Bernoulli, Gaussian, Poisson
from belated.engine.reference import draw_world, play
from belated.numerics.linalg import exceeds
from belated.policies import (
    DelayedOFUGLM,
    DUCBLiteral,
    DUCBRidge,
    Greedy,
    Thompson,
    UniformPlay,
)
from belated.worlds.delays import Constant, Exponential
from belated.worlds.environments import UnitBall


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
    for ask in (lambda: bandit.radius, lambda: bandit.sqrt_beta):
        with pytest.raises(
            TypeError,
            match=f"policy = {type(policy).__name__}.* has no confidence set: expected one",
        ):
            ask()
    assert bandit.interval_kind == "posterior"
    assert not play(bandit, draw_world(UnitBall(3), 2, 5, 1), Exponential(5.0)).covered.any()


# ------------------------------------------------------------------------------------------ DUCB


LATE = Exponential(6.0)


def played(policy, family, delay=LATE, rounds=150, d=3, seed=2):
    world = draw_world(UnitBall(9), d, rounds, seed)
    bandit = Bandit(d, family=family, policy=policy, seed=4)
    return bandit, play(bandit, world, delay), world


@pytest.mark.parametrize("family", [Gaussian(), Bernoulli()], ids=repr)
def test_ducb_ridge_without_delay_is_delayed_ofu_glm(family):
    runs = [played(p, family, Constant(0.0))[1] for p in (DUCBRidge(), DelayedOFUGLM())]
    assert np.array_equal(runs[0].index, runs[1].index)
    late = [played(p, family)[1] for p in (DUCBRidge(), DelayedOFUGLM())]
    assert not np.array_equal(late[0].index, late[1].index)


@pytest.mark.parametrize("guaranteed", [False, True])
def test_ducb_ridge_plays_its_formula(guaranteed):
    """Index x'theta + (sqrt_beta + c sqrt(G)) ||x||_{V^-1}, recomputed from the definitions."""
    family, m1, lam, delta, c = Gaussian(0.5), 0.8, 2.0, 0.1, 0.7
    policy = DUCBRidge(m1=m1, lam=lam, delta=delta, c=c, guaranteed=guaranteed)
    bandit, _, _ = played(policy, family)
    G = bandit.n_missing
    assert G > 2
    beta = naive.optimistic.sqrt_beta(bandit.W, lam, m1, 0.5, 1.0, delta)
    width = math.sqrt(beta**2 + 4 * G * m1**2) if guaranteed else beta + c * math.sqrt(G)
    assert bandit.sqrt_beta == pytest.approx(width)
    V_inv = np.linalg.inv(bandit.V)
    actions = draw_world(UnitBall(50), 3, 1, 9).actions[0]
    bonus = width * np.sqrt(((actions @ V_inv) * actions).sum(1))
    decision = bandit.decide(actions)
    scores = actions @ bandit.theta + bonus
    assert decision.index == np.argmax(scores)
    assert decision.score == pytest.approx(scores.max())
    assert pytest.approx(bandit.V) == bandit._state.memory.V
    low, high = bandit.interval(actions[0])
    assert bandit.interval_kind == ("confidence" if guaranteed else "posterior")
    if not guaranteed:
        return
    wider = naive.optimistic.sqrt_beta(bandit.W, lam, m1, 0.5, 1.0, delta)
    wider = math.sqrt(wider**2 + 4 * (G + 1) * m1**2)
    V_inv = np.linalg.inv(bandit.V)
    assert (high - low) / 2 == pytest.approx(wider * math.sqrt(actions[0] @ V_inv @ actions[0]))


def test_ducb_ridge_covers_when_guaranteed():
    """||theta - theta_star||_V <= sqrt(beta + 4 G m1^2): in all of 40 short runs at delta 0.1."""
    policy = DUCBRidge(delta=0.1, guaranteed=True)
    for seed in range(40):
        _, run, _ = played(policy, Gaussian(), rounds=60, seed=seed)
        assert run.covered.all()


@pytest.mark.filterwarnings("ignore::belated.AssumptionWarning")
def test_ducb_literal_explores_until_it_sees_every_direction():
    policy = DUCBLiteral(delta=0.1, explore_until=1.5)
    family, d = Gaussian(0.3), 3
    world = draw_world(UnitBall(9), d, 200, 1)
    bandit = Bandit(d, family=family, policy=policy, seed=4)
    pending, explored = [], []
    for t, actions in enumerate(world.actions):
        W = bandit.W - policy.lam * np.eye(d)
        known = bool(np.linalg.eigvalsh(W)[0] >= 1.5)
        explored.append(known)
        decision = bandit.decide(actions)
        if known:
            n, G = bandit.n_observed + 1, bandit.n_missing - 1  # that decision is missing, too
            spread = math.sqrt(d / 2 * math.log(1 + 2 * n / d) + math.log(1 / 0.1))
            beta = 0.3 * spread + math.sqrt(G)
            V = bandit.V - np.outer(actions[decision.index], actions[decision.index])
            norms = np.sqrt(((actions @ np.linalg.inv(V)) * actions).sum(1))
            scores = actions @ bandit.theta + beta * norms
            assert decision.index == np.argmax(scores)
            assert decision.width == pytest.approx(beta * norms[decision.index])
        else:
            assert decision.width == math.inf
        pending.append((decision.id, float(actions[decision.index].sum())))
        if t % 4 == 3:
            bandit.learn(pending[:-2])
            del pending[:-2]
    assert explored == sorted(explored)
    assert 10 < explored.count(False) < 60


def test_eigenvalues_exceed():
    rng = np.random.default_rng(0)
    for d in (1, 4, 9):
        X = rng.standard_normal((3 * d, d))
        A = X.T @ X
        least = np.linalg.eigvalsh(A)[0]
        U = np.empty((d, d))
        assert exceeds(A, least * (1 - 1e-9), U)
        assert not exceeds(A, least * (1 + 1e-9), U)


# -------------------------------------------------------------------------------------- Thompson


def draws(bandit, n):
    """Parameters drawn, read off decisions between basis vectors and their negatives."""
    d = bandit.dim
    out = np.empty((n, d))
    for i in range(d):
        arms = np.zeros((1, d))
        arms[0, i] = 1.0
        out[:, i] = [bandit.decide(arms).score for _ in range(n)]
    return out


def test_thompson_posterior_is_bayesian_linear_regression():
    """Prior N(0, v0^2 I), noise sd s: N(S b / s^2, S), S = (X'X / s^2 + I / v0^2)^-1."""
    s, v0, n = 0.6, 0.8, 4000
    bandit = Bandit(2, family=Gaussian(s), policy=Thompson(prior_sd=v0), seed=1)
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-0.7, 0.7, (12, 2)), rng.standard_normal(12)
    for x in X:
        bandit.decide([x])
    bandit.learn(list(enumerate(y, 1)))
    S = np.linalg.inv(X.T @ X / s**2 + np.eye(2) / v0**2)
    mean = S @ X.T @ y / s**2
    assert bandit.theta == pytest.approx(mean)
    samples = draws(bandit, n)
    sd = np.sqrt(np.diag(S))
    assert (abs(samples.mean(0) - mean) < 5 * sd / math.sqrt(n)).all()
    assert (abs(samples.std(0) / sd - 1) < 5 / math.sqrt(2 * n)).all()


def test_thompson_draws_have_the_right_correlation():
    """Two directions at once: the variance of x'theta~ is s^2 x'W^-1 x for every x."""
    n = 4000
    bandit = Bandit(2, family=Gaussian(), policy=Thompson(), seed=1)
    for x in [[0.9, 0.3]] * 30:
        bandit.decide([x])
    bandit.learn([(i + 1, 0.2) for i in range(30)])
    for x in ([0.6, 0.2], [0.6, -0.2]):
        scores = [bandit.decide([x]).score for _ in range(n)]
        sd = math.sqrt(x @ np.linalg.inv(bandit.W) @ x)
        assert abs(np.std(scores) / sd - 1) < 5 / math.sqrt(2 * n)


def test_laplace_covariance_is_that_at_the_mode():
    """Within the factors e^-drift and e^drift of the Hessian at the estimate."""
    policy = Thompson(prior_sd=2.0, drift=0.02)
    bandit, _, _ = played(policy, Bernoulli(), rounds=200)
    returned = ~np.isnan(bandit._history.y[:200])
    X, y = bandit._history.x[:200][returned], bandit._history.y[:200][returned]
    mode = naive.estimators.mle("bernoulli", X, y, 0.25)
    assert np.abs(bandit.theta - mode).max() < 0.01
    H = naive.estimators.objective("bernoulli", X, y, 0.25, bandit.theta)[2]
    ratio = np.linalg.eigvals(np.linalg.solve(H, bandit._state.fit.H)).real
    assert (np.abs(np.log(ratio)) <= 0.02).all()


def test_thompson_limits():
    greedy = [played(p, Gaussian())[1] for p in (Thompson(scale=0.0), Greedy(lam=1.0))]
    assert np.array_equal(greedy[0].index, greedy[1].index)
    prior = Bandit(3, family=Bernoulli(), policy=Thompson(prior_sd=3.0), seed=2)
    samples = draws(prior, 2000)
    assert (abs(samples.std(0) / 3.0 - 1) < 5 / math.sqrt(4000)).all()
    played(Thompson(), Poisson())  # needs no R


def test_poisson_needs_an_R():
    for kind in (DUCBRidge, DUCBLiteral):
        with pytest.raises(ValueError, match=f"{kind.__name__} has no width for them"):
            Bandit(2, family=Poisson(), policy=kind())


def test_bad_parameters():
    for make, message in [
        (lambda: DUCBRidge(c=-1.0), r"c = -1\.0: expected"),
        (lambda: DUCBRidge(guaranteed="yes"), r"guaranteed = 'yes': expected True or False"),
        (lambda: DUCBLiteral(explore_until=0.0), r"explore_until = 0\.0: expected"),
        (lambda: Thompson(prior_sd=0.0), r"prior_sd = 0\.0: expected"),
        (lambda: Thompson(scale=math.nan), r"scale = nan: expected"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            make()
    for kind in (Greedy, UniformPlay):
        with pytest.raises(ValueError, match=r"lam = -1\.0: expected a finite number above 0"):
            kind(lam=-1.0)
