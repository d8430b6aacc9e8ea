"""Optimistic policies made for rewards without delay, and the arg max that some of them need."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import config

import naive
from belated import Bandit, Bernoulli, Binomial, Bounded, Gaussian, Poisson, Probit, Tanh
from belated.engine import Lane, WorldSettings, draw_world, play, play_world
from belated.model import pruning_mean
from belated.model.protocols import claims_set, mean, reward_quantile
from belated.model.pruning_mean import most_optimistic_mean
from belated.model.state import OBSERVED
from belated.numerics import pruning
from belated.numerics.linalg import grow
from belated.numerics.lowered.products import dot
from belated.numerics.pruning import decision_set, new_cap, renew
from belated.policies import (
    GLMUCB,
    OFUL,
    UCBGLM,
    DelayedOFUGLM,
    GLMUCBPractical,
    Greedy,
    LinUCB,
    LogUCB1,
    OFULRarely,
)
from belated.worlds.delays import Constant, Exponential
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


# ----------------------------------------------------------------- arg max on the scale of the mean


class Design:
    """A = lam I plus the terms added so far, its inverse, its cap."""

    def __init__(self, d, lam):
        self.A, self.A_inv, self.cap = lam * np.eye(d), np.eye(d) / lam, new_cap(d, lam)
        self.count, self.work = 0, np.full((2, d), np.nan)

    def add(self, x, renewing=True):
        self.count += 1
        grow(self.A, self.A_inv, 0.0, 1.0, x, self.count % 50 == 0, self.work[0])
        if renewing:
            renew(self.cap, self.A, self.A_inv, self.count, self.work[0])


def exact_scores(family, theta, design, bonus, actions):
    """The very scores that pruning compares, to the last bit."""
    return np.array(
        [
            mean(family, dot(x, theta)) + pruning._width(design.A_inv, bonus, x, design.work[0])
            for x in actions.astype(float)
        ]
    )


def check(name, design, theta, bonus, actions, garbage=np.nan):
    """The first of the highest scores, to the last bit, and what was said about it."""
    options = decision_set(actions)
    options.work[:] = garbage
    row, score, estimate, width = most_optimistic_mean(
        NAMES[name], theta, design.A_inv, design.cap, bonus, options, design.work
    )
    exact = exact_scores(NAMES[name], theta, design, bonus, actions)
    assert row == int(np.argmax(exact)), "ties go to the lowest row"
    assert score == exact[row]
    assert estimate == dot(actions[row].astype(float), theta)
    assert width == pruning._width(design.A_inv, bonus, actions[row].astype(float), design.work[0])
    with np.errstate(over="ignore"):
        scores = naive.most_optimistic_mean(name, theta, design.A_inv, bonus, actions)
    if np.abs(scores).max() < 1e300:  # Poisson: exp is cut off at 700 in the package
        assert score == pytest.approx(scores.max(), rel=1e-9)
    return row


@pytest.mark.parametrize("K", [1, 2, 15, 16, 17, 64, 500])
@pytest.mark.parametrize("d", [1, 2, 5, 6, 11])
@pytest.mark.parametrize("name", NAMES)
def test_same_as_scoring_all(name, d, K):
    """While A grows from nothing, in all directions or mostly in one, for any bonus."""
    rng = np.random.default_rng(100 * d + K)
    for lam in (1e-4, 1.0, 1e4):
        design, favourite = Design(d, lam), rng.standard_normal(d)
        for bonus in (0.0, 1e-6, 0.1, 1.0, 1e3):
            for _ in range(5):
                x = rng.standard_normal(d) * rng.choice([1.0, 1e-2]) + favourite
                design.add(x / np.linalg.norm(x))
            actions = rng.standard_normal((K, d))
            actions /= np.linalg.norm(actions, axis=1, keepdims=True)
            theta = rng.standard_normal(d) * 10 ** rng.uniform(-2, 1)
            check(name, design, theta, bonus, actions, garbage=rng.choice([np.nan, np.inf, 1e30]))


eighths = st.integers(-8, 8).map(lambda k: k / 8)


@st.composite
def problems(draw):
    """Small numbers in eighths, so that equal scores are equal to the last bit."""
    d = draw(st.integers(1, 6))
    vector = st.lists(eighths, min_size=d, max_size=d).map(np.array)
    rows = draw(st.lists(vector, min_size=1, max_size=8))
    picks = draw(st.lists(st.integers(-1, len(rows) - 1), min_size=1, max_size=40))
    actions = np.array([rows[k] if k >= 0 else np.zeros(d) for k in picks])
    past = draw(st.lists(vector, max_size=12))
    lam = draw(st.sampled_from([2.0**-20, 0.25, 1.0, 2.0**20]))
    bonus = draw(st.sampled_from([0.0, 2.0**-30, 0.5, 1.0, 64.0]))
    scale = draw(st.sampled_from([2.0**-40, 1.0, 64.0]))
    name = draw(st.sampled_from(sorted(NAMES)))
    return name, actions, scale * draw(vector), past, lam, bonus, draw(st.booleans())


@given(problems())
def test_ties_duplicates_and_zeros(problem):
    name, actions, theta, past, lam, bonus, renewing = problem
    design = Design(actions.shape[1], lam)
    for x in past:
        design.add(x, renewing=renewing)
    check(name, design, theta, bonus, actions)


@pytest.mark.parametrize("name", ["bernoulli", "tanh", "probit"])
def test_means_that_saturate(name):
    """Where mu is flat all means are equal to the last bit, and the bonus decides, or the row."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        d = int(rng.integers(1, 8))
        design, theta = Design(d, 1.0), 1e4 * rng.standard_normal(d)
        actions = rng.standard_normal((30, d))
        for bonus in (0.0, 1e-12, 1e-3, 10.0):
            check(name, design, theta, bonus, np.vstack([actions, actions]))


@pytest.mark.parametrize("size", [1e-90, 1e-30, 1e-12, 1e12, 1e30, 1e70])
@pytest.mark.parametrize("name", NAMES)
def test_sizes_that_single_precision_cannot_hold(name, size):
    """Actions, estimates and bonuses of any size, together and one by one."""
    rng = np.random.default_rng(3)
    for d in (1, 3, 7):
        for of_action, of_theta, of_bonus in product((1.0, size), repeat=3):
            design = Design(d, 1.0)
            for x in rng.standard_normal((10, d)):
                design.add(x)
            actions = of_action * rng.standard_normal((40, d))
            check(name, design, of_theta * rng.standard_normal(d), of_bonus, actions)
        shrunk = Design(d, size)
        check(name, shrunk, np.ones(d) / math.sqrt(size), 1.0, rng.standard_normal((40, d)))


@pytest.mark.parametrize("name", NAMES)
def test_scores_that_single_precision_cannot_tell_apart(name):
    """Actions that differ in the tenth digit only: all bounds are equal, the scores are not."""
    rng = np.random.default_rng(4)
    for _ in range(60):
        d = int(rng.integers(1, 12))
        design, x = Design(d, 1.0), rng.standard_normal(d)
        for past in rng.standard_normal((20, d)):
            design.add(past)
        actions = x + 1e-10 * rng.standard_normal((50, d))
        check(name, design, rng.standard_normal(d), 0.5, actions)


@pytest.mark.skipif(not config.DISABLE_JIT, reason="counts calls inside a kernel")
def test_few_are_scored(monkeypatch):
    rng, calls, width = np.random.default_rng(2), [], pruning._width
    design = Design(5, 1.0)
    for x in rng.standard_normal((300, 5)):
        design.add(x / np.linalg.norm(x))
    counted = lambda *args: calls.append(1) or width(*args)  # noqa: E731
    monkeypatch.setattr(pruning_mean, "_width", counted)
    for _ in range(50):
        actions = rng.standard_normal((200, 5))
        actions /= np.linalg.norm(actions, axis=1, keepdims=True)
        check("bernoulli", design, rng.standard_normal(5), 0.5, actions)
    assert len(calls) < 50 * 12


# --------------------------------------------------------------------- zero delay: the slow twins

T, DELTA = 70, 0.1
KAPPA = 0.25 / math.cosh(0.5) ** 2  # of the logistic function at 1
EXPLORING = {"ridge": 1e-6, "kappa": KAPPA, "ball": 1.0}
LOGISTIC = {"R": 0.5, "T": T, "delta": DELTA, "L_mu": 0.25, "explore_until": 0.01}
TWINS = [
    (LinUCB(delta=DELTA, horizon=T), Gaussian(0.5), naive.LinUCB(3, T=T, delta=DELTA)),
    (LinUCB(delta=DELTA, horizon=T), Bernoulli(), naive.LinUCB(3, T=T, delta=DELTA)),
    *[
        (
            OFUL(m1=0.8, delta=DELTA, lam=2.0, determinant=determinant),
            Gaussian(0.5),
            naive.OFUL(3, S=0.8, R=0.5, lam=2.0, delta=DELTA, determinant=determinant),
        )
        for determinant in (True, False)
    ],
    *[
        (
            OFULRarely(m1=0.8, delta=DELTA, lam=2.0, determinant=determinant, C=0.7),
            Gaussian(0.5),
            naive.OFUL(3, S=0.8, R=0.5, lam=2.0, delta=DELTA, determinant=determinant, C=0.7),
        )
        for determinant in (True, False)
    ],
    (
        GLMUCB(delta=DELTA, horizon=T, tol=1e-10),
        Bernoulli(),
        naive.GLMUCB("bernoulli", 3, **LOGISTIC, **EXPLORING),
    ),
    (
        GLMUCBPractical(tol=1e-10),
        Bernoulli(),
        naive.GLMUCB("bernoulli", 3, **LOGISTIC, **EXPLORING, practical=True),
    ),
    (
        UCBGLM(delta=DELTA, horizon=T, tol=1e-10, guaranteed=False),  # as printed
        Bernoulli(),
        naive.UCBGLM("bernoulli", 3, sigma=0.5, T=T, delta=DELTA, **EXPLORING | {"ball": math.inf}),
    ),
    (
        LogUCB1(delta=DELTA, tol=1e-10),
        Bernoulli(),
        naive.LogUCB1(3, S=1.0, lam=3.0, delta=DELTA),
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


# ------------------------------------------------------------------------------------------ LinUCB


def test_linucb_plays_its_formula_under_delay():
    bandit, _ = played(LinUCB(delta=0.1, horizon=500, lam=2.0), Gaussian())
    assert bandit.n_missing > 2
    for K in (5, 50):  # the number of actions counts in the round at hand
        actions = fresh_actions(3, K)
        alpha = math.sqrt(0.5 * math.log(2 * 500 * K / 0.1))
        scores = actions @ bandit.theta + alpha * norms(bandit.W, actions)
        decision = bandit.decide(actions)
        assert decision.index == np.argmax(scores)
        assert decision.score == pytest.approx(scores.max())
    returned = ~np.isnan(bandit._history.y[:150])
    X, y = bandit._history.x[:150][returned], bandit._history.y[:150][returned]
    assert bandit.theta == pytest.approx(np.linalg.solve(2 * np.eye(3) + X.T @ X, X.T @ y))


def test_linucb_with_a_fixed_multiplier():
    bandit, _ = played(LinUCB(alpha=0.7), Gaussian())  # needs no horizon
    actions = fresh_actions(3)
    scores = actions @ bandit.theta + 0.7 * norms(bandit.W, actions)
    assert bandit.decide(actions).score == pytest.approx(scores.max())
    greedy = [played(p, Gaussian())[1] for p in (LinUCB(alpha=0.0), Greedy(lam=1.0))]
    assert np.array_equal(greedy[0].index, greedy[1].index)


def test_linucb_has_no_set():
    bandit = Bandit(2, family=Bernoulli(), policy=LinUCB(alpha=1.0))
    with pytest.raises(TypeError, match="has no confidence set"):
        bandit.radius  # noqa: B018
    practical = Bandit(2, family=Bernoulli(), policy=GLMUCBPractical())
    with pytest.raises(TypeError, match="has no confidence set"):
        practical.sqrt_beta  # noqa: B018


# -------------------------------------------------------------------------------------------- OFUL


def test_oful_is_delayed_ofu_glm_for_gaussian_rewards():
    runs = [played(p, Gaussian(0.4)) for p in (OFUL(), DelayedOFUGLM())]
    assert np.array_equal(runs[0][1].index, runs[1][1].index)
    assert runs[0][0].sqrt_beta == pytest.approx(runs[1][0].sqrt_beta, rel=1e-14)
    assert runs[0][0].interval([0.3, 0.2, 0.1]) == runs[1][0].interval([0.3, 0.2, 0.1])


@pytest.mark.parametrize("d", [1, 2, 5])
def test_width_without_determinant(d):
    """The formula; wider than the other; in one dimension 2 log(1 / delta) is needed."""
    lam, m1, R, delta = 0.5, 0.8, 0.3, 0.1
    bandits = [
        played(OFUL(m1=m1, delta=delta, lam=lam, determinant=determinant), Gaussian(R), d=d)[0]
        for determinant in (False, True)
    ]
    n = bandits[0].n_observed
    assert 100 < n < 150
    square = d * math.log(1 + n / lam) + max(d, 2) * math.log(1 / delta)
    assert bandits[0].sqrt_beta == pytest.approx(math.sqrt(lam) * m1 + R * math.sqrt(square))
    if d > 1:
        printed = d * math.log((1 + n / lam) / delta)
        assert square == pytest.approx(printed)
    assert bandits[0].sqrt_beta > bandits[1].sqrt_beta
    start = [
        Bandit(d, family=Gaussian(), policy=OFUL(determinant=determinant)).sqrt_beta
        for determinant in (False, True)
    ]
    assert start[0] >= start[1]


def test_one_dimension_needs_more_than_the_printed_width():
    """There log((1 + n) / delta) < log det(W) + 2 log(1 / delta), which it should be above."""
    widths = {}
    for determinant in (False, True):
        policy = OFUL(delta=0.01, determinant=determinant)
        bandit = Bandit(1, family=Gaussian(), policy=policy)
        for _ in range(3):
            bandit.learn(bandit.decide([[1.0]]).id, 0.5)
        widths[determinant] = bandit.sqrt_beta
    assert 1.0 + math.sqrt(math.log((1 + 3) / 0.01)) < widths[True]
    assert widths[False] == pytest.approx(widths[True])


def test_rarely_with_no_patience_is_oful():
    runs = [played(p, Gaussian())[1] for p in (OFULRarely(C=0.0), OFUL())]
    assert np.array_equal(runs[0].index, runs[1].index)
    patient = played(OFULRarely(C=3.0), Gaussian())[1]
    assert not np.array_equal(patient.index, runs[1].index)


def test_rarely_looks_up_when_the_determinant_has_grown():
    """Between switches the very same scores, from what was known then; and few switches."""
    C, d, rounds = 0.5, 3, 120
    bandit = Bandit(d, family=Gaussian(0.2), policy=OFULRarely(C=C))
    world = draw_world(UnitBall(8), d, rounds, 3)
    theta, W, width, switches, stale, pending = np.zeros(d), np.eye(d), bandit.radius, 0, 0, []
    cap = bandit._state.cap.copy()
    for t, actions in enumerate(world.actions):
        if np.linalg.det(bandit.W) > (1 + C) * np.linalg.det(W):
            theta, W, width, switches = bandit.theta, bandit.W, bandit.radius, switches + 1
            cap = bandit._state.cap.copy()
        stale += not np.array_equal(W, bandit.W)
        scores = actions @ theta + width * norms(W, actions)
        decision = bandit.decide(actions)
        assert decision.index == np.argmax(scores)
        assert decision.score == pytest.approx(scores.max())
        assert decision.width == pytest.approx((width * norms(W, actions))[decision.index])
        assert np.array_equal(bandit._state.memory.cap, cap)  # an old one would only be slower
        pending.append((decision.id, float(actions[decision.index] @ world.theta_star)))
        if t % 3 == 2:
            bandit.learn(pending[:-2])
            del pending[:-2]
    most = d * math.log(1 + bandit.n_observed / d) / math.log(1 + C)
    assert 5 < switches <= most
    assert stale > rounds / 3


@pytest.mark.parametrize("policy", [OFUL(delta=0.1), OFULRarely(delta=0.1)], ids=repr)
def test_oful_covers(policy):
    for seed in range(15):
        _, run = played(policy, Gaussian(), rounds=60, seed=seed)
        assert run.covered.all()


def test_rarely_certifies_its_regret():
    """The widths are those of the last switch: wider than now, so their sum bounds the regret."""
    lanes = tuple(Lane(p, Gaussian(0.1), LATE) for p in (OFUL(), OFULRarely(C=0.1)))
    world = WorldSettings(UnitBall(8), 3, 300, 0, 5, np.arange(1, 301), lanes)
    record = play_world(world)
    assert (record[:, :, 1] >= record[:, :, 0]).all()
    assert (record[:, -1, 1] < 2.0 * 300).all()


# ----------------------------------------------------------------------------------------- GLM-UCB


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
    """ALGORITHMS C.4: d = 5, T = 100,000, sigma = 1/2, kappa = sigma'(1), delta = 0.05 / 3."""
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


# --------------------------------------------------------------------------------- Logistic-UCB-1


def test_log_ucb_width_by_hand():
    """d = 2, alpha = 2, m1 = 1, delta = 0.05, after 8 rewards."""
    bandit = Bandit(2, family=Bernoulli(), policy=LogUCB1(m1=1.0, delta=0.05))
    assert bandit.policy.alpha == 2.0
    assert pytest.approx(2.0 / 0.19661193 * np.eye(2), rel=1e-7) == bandit.W
    for k in range(8):
        bandit.decide([np.eye(2)[k % 2]])
    bandit.learn([(k + 1, float(k % 3 == 0)) for k in range(8)])
    # gamma = sqrt(2) 3/2 + sqrt(2) (log 20 + log 1.5 + 2 log 2)
    gamma = 1.5 * math.sqrt(2) + math.sqrt(2) * (2.9957323 + 0.4054651 + 1.3862944)
    assert bandit.sqrt_beta == pytest.approx(math.sqrt(3 / 0.19661193) * gamma, rel=1e-6)
    assert bandit.sqrt_beta == pytest.approx(34.736, abs=0.01)


@pytest.mark.parametrize("family", [Bernoulli(), Bounded(), Binomial(1)], ids=repr)
@pytest.mark.parametrize("m1", [0.5, 2.0])
def test_log_ucb_plays_its_formula_under_delay(family, m1):
    alpha, delta, d = 1.5, 0.1, 3
    bandit, _ = played(LogUCB1(m1=m1, alpha=alpha, delta=delta), family)
    assert bandit.n_missing > 2
    n, kappa = bandit.n_observed, 0.25 / math.cosh(m1 / 2) ** 2
    logs = math.log(1 / delta) + d / 2 * math.log(1 + n / (4 * d * alpha)) + d * math.log(2)
    gamma = math.sqrt(alpha) * (m1 + 0.5) + 2 / math.sqrt(alpha) * logs
    width = math.sqrt((1 + 2 * m1) / kappa) * gamma
    assert bandit.sqrt_beta == pytest.approx(width)
    assert bandit.radius == bandit.sqrt_beta + bandit.certificate.slack
    returned = ~np.isnan(bandit._history.y[:150])
    X, y = bandit._history.x[:150][returned], bandit._history.y[:150][returned]
    V = alpha / kappa * np.eye(d) + X.T @ X
    assert pytest.approx(bandit.W) == V
    exact = naive.mle("bernoulli", X, y, alpha, m1)
    gap = bandit.theta - exact
    assert math.sqrt(gap @ V @ gap) <= bandit.certificate.slack + 1e-9
    actions = fresh_actions(d)
    scores = 1 / (1 + np.exp(-actions @ bandit.theta)) + bandit.radius / 4 * norms(V, actions)
    decision = bandit.decide(actions)
    assert decision.index == np.argmax(scores)
    assert decision.score == pytest.approx(scores.max())
    assert decision.width == pytest.approx(bandit.radius * norms(V, actions)[decision.index])


def test_log_ucb_does_not_depend_on_the_unit_of_length():
    """Actions times c, m1 / c, max_norm times c: the same problem, the same rows."""
    c, runs = 4.0, []
    world = draw_world(UnitBall(9), 3, 100, 2)
    for scale in (1.0, c):
        bandit = Bandit(
            3, family=Bernoulli(), policy=LogUCB1(m1=1.0 / scale, tol=1e-9), max_norm=scale
        )
        scaled = world._replace(actions=scale * world.actions, theta_star=world.theta_star / scale)
        runs.append((bandit, play(bandit, scaled, LATE)))
    assert np.array_equal(runs[0][1].index, runs[1][1].index)
    assert runs[1][0].sqrt_beta == pytest.approx(runs[0][0].sqrt_beta, rel=1e-9)
    assert runs[1][0].theta == pytest.approx(runs[0][0].theta / c, rel=1e-6)


def test_log_ucb_covers():
    for seed in range(10):
        _, run = played(LogUCB1(delta=0.1), Bernoulli(), rounds=80, seed=seed)
        assert run.covered.all()


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
            scores = naive.most_optimistic_mean("bernoulli", theta, W_inv, bonus, actions)
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
