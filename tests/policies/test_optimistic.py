"""Optimistic policies made for rewards without delay, and the arg max that some of them need."""

import math

import numpy as np
import pytest

import naive.optimistic
from belated import Bandit, Bernoulli, Binomial, Gaussian, Poisson, Probit, Tanh
from belated.engine.reference import draw_world
from belated.model.protocols import reward_quantile
from belated.policies import GLMUCB, OFUL, UCBGLM, GLMUCBPractical, LinUCB, LogUCB1, OFULRarely
from belated.worlds.delays import Constant
from belated.worlds.environments import UnitBall
from support.optimistic import DELTA, KAPPA, LATE, T, played

EXPLORING = {"ridge": 1e-6, "kappa": KAPPA, "ball": 1.0}
LOGISTIC = {"R": 0.5, "T": T, "delta": DELTA, "L_mu": 0.25, "explore_until": 0.01}
TWINS = [
    (LinUCB(delta=DELTA, horizon=T), Gaussian(0.5), naive.optimistic.LinUCB(3, T=T, delta=DELTA)),
    (LinUCB(delta=DELTA, horizon=T), Bernoulli(), naive.optimistic.LinUCB(3, T=T, delta=DELTA)),
    *[
        (
            OFUL(m1=0.8, delta=DELTA, lam=2.0, determinant=determinant),
            Gaussian(0.5),
            naive.optimistic.OFUL(3, S=0.8, R=0.5, lam=2.0, delta=DELTA, determinant=determinant),
        )
        for determinant in (True, False)
    ],
    *[
        (
            OFULRarely(m1=0.8, delta=DELTA, lam=2.0, determinant=determinant, C=0.7),
            Gaussian(0.5),
            naive.optimistic.OFUL(
                3, S=0.8, R=0.5, lam=2.0, delta=DELTA, determinant=determinant, C=0.7
            ),
        )
        for determinant in (True, False)
    ],
    (
        GLMUCB(delta=DELTA, horizon=T, tol=1e-10),
        Bernoulli(),
        naive.optimistic.GLMUCB("bernoulli", 3, **LOGISTIC, **EXPLORING),
    ),
    (
        GLMUCBPractical(tol=1e-10),
        Bernoulli(),
        naive.optimistic.GLMUCB("bernoulli", 3, **LOGISTIC, **EXPLORING, practical=True),
    ),
    (
        UCBGLM(delta=DELTA, horizon=T, tol=1e-10, guaranteed=False),  # as printed
        Bernoulli(),
        naive.optimistic.UCBGLM(
            "bernoulli", 3, sigma=0.5, T=T, delta=DELTA, **EXPLORING | {"ball": math.inf}
        ),
    ),
    (
        LogUCB1(delta=DELTA, tol=1e-10),
        Bernoulli(),
        naive.optimistic.LogUCB1(3, S=1.0, lam=3.0, delta=DELTA),
    ),
]


@pytest.mark.parametrize(
    ("policy", "family", "twin"), TWINS, ids=lambda v: type(v).__name__ if v else None
)
def test_without_delay_it_is_the_undelayed_algorithm(policy, family, twin):
    """Action by action, the score too, against everything recomputed from the formulas."""
    world = draw_world(UnitBall(12), 3, T, 11)
    bandit, compared = Bandit(3, family=family, policy=policy, seed=3), 0
    for t, actions in enumerate(world.actions):
        decision = bandit.decide(actions)
        if twin.explored:
            scores, compared = twin.scores(actions), compared + 1
            assert decision.index == np.argmax(scores)
            assert decision.score == pytest.approx(scores.max(), rel=1e-5)
        else:
            assert decision.width == math.inf
        x = actions[decision.index]
        y = reward_quantile(family, x @ world.theta_star, world.luck[t])
        bandit.learn(decision.id, y)
        twin.learn(x, y)
    assert compared > T / 2


# ------------------------------------------------------------------------------------- whole runs


@pytest.mark.parametrize("policy", [GLMUCBPractical(), LogUCB1(), GLMUCB(horizon=200)], ids=repr)
def test_pruned_bandits_play_what_brute_force_plays(policy):
    """Round by round over a whole run, many actions, some of them twice, rewards late."""
    bandit = Bandit(4, family=Bernoulli(), policy=policy, seed=1)
    world = draw_world(UnitBall(40), 4, 200, 6)
    pending, compared = [], 0
    for t, actions in enumerate(world.actions):
        actions = np.vstack([actions, actions])
        if type(policy) is GLMUCBPractical:
            bonus = math.sqrt(math.log(bandit.n_observed + 1))
        else:
            bonus = bandit.radius / 4
        W_inv, theta = bandit._state.W_inv.copy(), bandit.theta
        decision = bandit.decide(actions)
        if decision.width < math.inf:
            compared += 1
            scores = naive.optimistic.most_optimistic_mean(
                "bernoulli", theta, W_inv, bonus, actions
            )
            assert decision.index < 40
            assert scores[decision.index] >= scores.max() - 1e-12 * bonus
        z = actions[decision.index] @ world.theta_star
        pending.append((decision.id, float(world.luck[t] < 1 / (1 + math.exp(-z)))))
        if t % 5 == 4:
            bandit.learn(pending[:-3])
            del pending[:-3]
    assert compared > 150


# --------------------------------------------------------------------- refusals and bad parameters


def test_linear_policies_refuse_other_means():
    for kind in (OFUL, OFULRarely):
        for family in (Bernoulli(), Binomial(4), Tanh(), Probit(), Poisson()):
            with pytest.raises(
                ValueError, match=rf"family = .*: {kind.__name__} needs a mean reward of x'theta"
            ):
                Bandit(2, family=family, policy=kind(R=1.0))


def test_logistic_policy_refuses_other_means():
    for family in (Gaussian(), Binomial(4), Tanh(), Probit(), Poisson()):
        with pytest.raises(
            ValueError, match=r"family = .*: LogUCB1 needs rewards in \[0, 1\] with a logistic mean"
        ):
            Bandit(2, family=family, policy=LogUCB1())


@pytest.mark.parametrize("kind", [LinUCB, GLMUCB, UCBGLM])
def test_the_horizon_is_needed(kind):
    with pytest.raises(ValueError, match=f"horizon = None: .* which {kind.__name__} needs"):
        Bandit(2, family=Bernoulli(), policy=kind())


def test_poisson_needs_an_R():
    for kind in (GLMUCB, UCBGLM):
        with pytest.raises(ValueError, match=f"{kind.__name__} has no width for them"):
            Bandit(2, family=Poisson(), policy=kind(horizon=10))
    Bandit(2, family=Poisson(), policy=GLMUCBPractical())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinUCB(alpha=-1.0), r"alpha = -1\.0: expected"),
        (lambda: LinUCB(delta=1.0), r"delta = 1\.0: expected"),
        (lambda: LinUCB(horizon=0), r"horizon = 0: expected"),
        (lambda: LinUCB(horizon=2.5), r"horizon = 2\.5: expected"),
        (lambda: LinUCB(lam=0.0), r"lam = 0\.0: expected"),
        (lambda: LinUCB(counts_actions="no"), r"counts_actions = 'no': expected"),
        (lambda: OFUL(determinant="free"), r"determinant = 'free': expected True or False"),
        (lambda: OFUL(m1=-1.0), r"m1 = -1\.0: expected"),
        (lambda: OFUL(R=0.0), r"R = 0\.0: expected"),
        (lambda: OFULRarely(C=-0.1), r"C = -0\.1: expected"),
        (lambda: OFULRarely(delta=0.0), r"delta = 0\.0: expected"),
        (lambda: GLMUCB(explore_until=0.0), r"explore_until = 0\.0: expected"),
        (lambda: GLMUCB(tol=1e-13), r"tol = 1e-13: expected 1e-12 or more"),
        (lambda: GLMUCB(horizon=-1), r"horizon = -1: expected"),
        (lambda: GLMUCBPractical(m1=math.inf), r"m1 = inf: expected"),
        (lambda: GLMUCBPractical(tol=0.0), r"tol = 0\.0: expected"),
        (lambda: UCBGLM(guaranteed=1), r"guaranteed = 1: expected True or False"),
        (lambda: UCBGLM(kappa=-1.0), r"kappa = -1\.0: expected"),
        (lambda: UCBGLM(tol=math.nan), r"tol = nan: expected"),
        (lambda: LogUCB1(alpha=0.0), r"alpha = 0\.0: expected"),
        (lambda: LogUCB1(lam=-3.0), r"lam = -3\.0: expected"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (LinUCB(alpha=1.0, lam=1e-12), r"lam = 1e-12: expected a number from 1e-09"),
        (OFUL(lam=1e101), r"lam = 1e\+101: expected a number from 1e-12 to 1e\+12"),
        (OFULRarely(lam=1e-10), r"lam = 1e-10: expected"),
    ],
)
def test_ridges_that_leave_nothing(policy, message):
    with pytest.raises(ValueError, match=message):
        Bandit(2, family=Gaussian(), policy=policy)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (GLMUCB(kappa=0.3, horizon=9), r"kappa = 0\.3: expected at most 0\.1966"),
        (UCBGLM(kappa=0.3, horizon=9), r"kappa = 0\.3: expected at most 0\.1966"),
        (LogUCB1(m1=1e4), r"m1 = 10000\.0: expected a bound at which the slope"),
    ],
)
def test_constants_that_do_not_fit_the_family(policy, message):
    with pytest.raises(ValueError, match=message):
        Bandit(2, family=Bernoulli(), policy=policy)


def test_zero_delay_and_delay_differ():
    """Delay is seen at all: the runs above are not all the same."""
    for policy in (OFUL(), OFULRarely(), LinUCB(alpha=1.0), UCBGLM(horizon=150)):
        now, late = (played(policy, Gaussian(), d)[1] for d in (Constant(0.0), LATE))
        assert not np.array_equal(now.index, late.index)
