"""GLM-UCB, its practical form and UCB-GLM."""

import math
from itertools import product

import numpy as np
import pytest

from belated import Bandit, Bernoulli, Binomial, Gaussian, Probit, Tanh
from belated.engine.reference import draw_world, play
from belated.model.protocols import claims_set, mean
from belated.model.state import OBSERVED
from belated.policies import GLMUCB, UCBGLM, GLMUCBPractical
from belated.worlds.environments import UnitBall
from support.optimistic import LATE, fresh_actions, norms, played


def test_glm_ucb_width_by_hand():
    """d = 2, T = 100, delta = 0.05, lambda_0 = 0.5, after 7 rewards: 2 R / kappa k sqrt(...)."""
    policy = GLMUCB(m1=1.0, delta=0.05, horizon=100, explore_until=0.5)
    bandit = Bandit(2, family=Bernoulli(), policy=policy)
    assert bandit.radius == math.inf
    for k in range(7):
        bandit.decide([np.eye(2)[k % 2]])
    bandit.learn([(k + 1, float(k % 3 == 0)) for k in range(7)])
    # k = sqrt(3 + 2 log 5) = 2.4935; sqrt(4 log 8 log 8000) = 8.6472; 2 R / kappa = 5.08616
    assert bandit.sqrt_beta == pytest.approx(109.666, abs=0.01)
    assert bandit.radius == bandit.sqrt_beta + bandit.certificate.slack


@pytest.mark.parametrize(
    "family", [Gaussian(0.5), Bernoulli(), Tanh(), Probit(), Binomial(4)], ids=repr
)
@pytest.mark.parametrize("max_norm", [1.0, 2.0])
def test_glm_ucb_plays_its_formula_under_delay(family, max_norm):
    m1, delta, T, start = 0.7, 0.1, 400, 0.2
    policy = GLMUCB(m1=m1, delta=delta, horizon=T, explore_until=start)
    bandit = Bandit(3, family=family, policy=policy, seed=4, max_norm=max_norm)
    play(bandit, draw_world(UnitBall(9), 3, 150, 2), LATE)
    n, bound = bandit.n_observed, max_norm * m1
    assert bandit.n_missing > 2
    k = math.sqrt(3 + 2 * math.log(1 + 2 * max_norm**2 / start))
    spread = math.sqrt(2 * 3 * math.log(n + 1) * math.log(2 * 3 * T / delta))
    L_mu = family.lipschitz(bound)
    rho = 2 * L_mu * k * family.R / family.kappa(bound) * spread
    assert L_mu * bandit.sqrt_beta == pytest.approx(rho)
    bonus = rho + L_mu * bandit.certificate.slack
    actions = max_norm * fresh_actions(3)
    means = np.array([mean(family, z) for z in actions @ bandit.theta])
    scores = means + bonus * norms(bandit.W, actions)
    decision = bandit.decide(actions)
    assert decision.index == np.argmax(scores)
    assert decision.score == pytest.approx(scores.max())
    assert decision.estimate == pytest.approx(actions[decision.index] @ bandit.theta)
    assert decision.width == pytest.approx(bandit.radius * norms(bandit.W, actions)[decision.index])
    low, high = bandit.interval(actions[0])
    z, half = actions[0] @ bandit.theta, bandit.radius * norms(bandit.W, actions)[0]
    assert (low, high) == pytest.approx((mean(family, z - half), mean(family, z + half)))


def test_glm_ucb_practical_plays_its_formula_under_delay():
    """The scale of the index matters: on that of x'theta other actions are played."""
    different = 0
    for seed in range(20):
        bandit, _ = played(GLMUCBPractical(m1=3.0), Bernoulli(), rounds=60, seed=seed)
        rho = math.sqrt(math.log(bandit.n_observed + 1))
        actions = fresh_actions(3, 200, seed)
        z, bonus = actions @ bandit.theta, rho * norms(bandit.W, actions)
        scores = 1 / (1 + np.exp(-z)) + bonus
        decision = bandit.decide(actions)
        assert decision.index == np.argmax(scores)
        assert decision.score == pytest.approx(scores.max())
        assert decision.width == pytest.approx(4 * bonus[decision.index])
        different += decision.index != np.argmax(z + 4 * bonus)
    assert different > 3


@pytest.mark.parametrize("kind", [GLMUCB, GLMUCBPractical, UCBGLM])
def test_exploration_ends_when_the_returned_design_has_full_rank(kind):
    """Neither missing rewards count nor a plane; before, every action has the same chance."""
    d, until = 3, 0.3
    policy = kind(explore_until=until, **({} if kind is GLMUCBPractical else {"horizon": 500}))
    bandit, seen, rows = Bandit(d, family=Bernoulli(), policy=policy, seed=1), [], []
    pending = []
    for t, actions in enumerate(draw_world(UnitBall(5), d, 120, 1).actions):
        if t < 40:
            actions[:, 2] = 0.0
        known = np.linalg.eigvalsh(bandit.W)[0] - policy.lam >= until
        decision = bandit.decide(actions)
        assert (decision.width < math.inf) == known
        seen.append(bool(known))
        rows.append(decision.index)
        pending.append((decision.id, float(t % 2)))
        if t % 20 == 19:
            bandit.learn(pending)
            pending = []
    assert seen == sorted(seen)
    assert seen.count(False) == 60
    assert len(set(rows[:20])) == 5


# ----------------------------------------------------------------------------------------- UCB-GLM


def test_ucb_glm_golden_value():
    """Li et al. (2017): d = 5, T = 100,000, sigma = 1/2, kappa = sigma'(1), delta = 0.05 / 3."""
    policy = UCBGLM(m1=1.0, delta=0.05 / 3, horizon=100_000, guaranteed=False)  # as printed
    bandit = Bandit(5, family=Bernoulli(), policy=policy)
    assert bandit.sqrt_beta == pytest.approx(14.0644, abs=5e-5)
    assert bandit.radius == math.inf
    proved = Bandit(5, family=Bernoulli(), policy=UCBGLM(delta=0.05 / 3, horizon=100_000))
    assert proved.sqrt_beta == pytest.approx(math.sqrt(3.0) * 14.0644 + 1e-3, abs=1e-4)


@pytest.mark.parametrize("guaranteed", [False, True])
@pytest.mark.parametrize(("until", "max_norm"), [(1.0, 1.0), (0.4, 2.0)])
def test_ucb_glm_plays_its_formula_under_delay(guaranteed, until, max_norm):
    d, T, delta, R, lam = 3, 700, 0.1, 0.3, 1e-6
    policy = UCBGLM(delta=delta, horizon=T, explore_until=until, guaranteed=guaranteed)
    bandit = Bandit(d, family=Gaussian(R), policy=policy, seed=4, max_norm=max_norm)
    play(bandit, draw_world(UnitBall(9), d, 150, 2), LATE)
    assert bandit.n_missing > 2
    growth = 2 * T / d if until == 1.0 else 2 * T * 4.0 / (d * 0.4)
    a = R * math.sqrt(d / 2 * math.log(1 + growth) + math.log(1 / delta))
    width = math.sqrt(3) * a + math.sqrt(lam) if guaranteed else a
    assert bandit.radius == pytest.approx(width)
    actions = max_norm * fresh_actions(d)
    scores = actions @ bandit.theta + width * norms(bandit.W, actions)
    decision = bandit.decide(actions)
    assert decision.index == np.argmax(scores)
    assert decision.score == pytest.approx(scores.max())
    returned = ~np.isnan(bandit._history.y[:150])
    X, y = bandit._history.x[:150][returned], bandit._history.y[:150][returned]
    assert bandit.theta == pytest.approx(np.linalg.lstsq(X, y)[0], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("kind", [GLMUCB, UCBGLM])
def test_unit_vectors_played_once_each_are_enough(kind):
    """lambda_min is explore_until exactly: the exploration is over, whatever rounding says."""
    bandit = Bandit(3, family=Bernoulli(), policy=kind(horizon=100, explore_until=1.0))
    for k in range(3):
        assert bandit.radius == math.inf
        bandit.learn(bandit.decide([np.eye(3)[k]]).id, 1.0)
    assert bandit.radius < math.inf


def test_ucb_glm_estimates_in_the_ball_only_when_guaranteed():
    outside = []
    for guaranteed in (False, True):
        policy = UCBGLM(horizon=100, guaranteed=guaranteed, m1=0.5)
        bandit = Bandit(2, family=Bernoulli(), policy=policy)
        for k in range(12):
            bandit.decide([np.eye(2)[k % 2]])
        bandit.learn([(k + 1, float(k < 10)) for k in range(12)])
        outside.append(bool(np.linalg.norm(bandit.theta) > 0.5))
    assert outside == [True, False]


def test_ucb_glm_width_is_too_small_unless_guaranteed():
    """One reward of N(theta_star, 1) with x = 1: theta - theta_star is standard normal."""
    delta, fails = 0.001, {}
    for guaranteed in (False, True):
        policy = UCBGLM(delta=delta, horizon=2, guaranteed=guaranteed)
        assert claims_set(policy) == guaranteed
        bandit = Bandit(1, family=Gaussian(), policy=policy)
        bandit.learn(bandit.decide([[1.0]]).id, 0.3)
        bandit.decide([[1.0]])
        assert bandit.theta[0] == pytest.approx(0.3, rel=1e-5)
        fails[guaranteed] = math.erfc(bandit.radius / math.sqrt(2))
    assert fails[False] == pytest.approx(0.0055, abs=1e-4)
    assert fails[True] < delta


@pytest.mark.parametrize(
    "policy",
    [UCBGLM(delta=0.1, horizon=80, guaranteed=True), GLMUCB(delta=0.1, horizon=80)],
    ids=repr,
)
@pytest.mark.parametrize("family", [Gaussian(), Bernoulli()], ids=repr)
def test_exploring_policies_cover(policy, family):
    for seed in range(10):
        _, run = played(policy, family, rounds=80, seed=seed)
        assert run.covered.all()


@pytest.mark.parametrize("family", [Gaussian(0.1), Bernoulli(), Tanh()], ids=repr)
@pytest.mark.parametrize("d", [1, 2, 10])
def test_glm_ucb_is_wider_than_the_proved_width(d, family):
    """Half of it, even: against UCB-GLM's after as many rewards, for the same estimate."""
    for T, delta, until in product((10, 10_000), (1e-3, 0.5), (1e-4, 0.01, 1.0)):
        bandit = Bandit(
            d, family=family, policy=GLMUCB(horizon=T, delta=delta, explore_until=until)
        )
        for n in (2, 5, 100, 10_000):
            bandit._state.counts[OBSERVED] = n
            policy = UCBGLM(horizon=n, delta=delta, explore_until=until, guaranteed=True)
            assert bandit.sqrt_beta / 2 > Bandit(d, family=family, policy=policy).sqrt_beta
