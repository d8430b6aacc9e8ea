"""Delayed OFU-GLM: against its slow twin, and against the paper's own statements."""

import math

import numpy as np
import pytest

import naive.optimistic
from belated import Bandit, Bernoulli, DelayedOFUGLM, Gaussian, Poisson, Probit, Tanh
from belated.engine.reference import draw_world, play
from belated.worlds.delays import Constant, Empirical, Exponential, Informative, Lomax, PacketLoss
from belated.worlds.environments import FixedArms, Sphere, UnitBall

NAMED = {"gaussian": Gaussian(), "bernoulli": Bernoulli(), "tanh": Tanh(), "probit": Probit()}


def twin_of(name, bandit):
    p = bandit.policy
    bounded = p.constrained and name != "gaussian"
    return naive.optimistic.DelayedOFUGLM(
        name,
        bandit.dim,
        lam=p.lam,
        m1=p.m1,
        R=p.R,
        kappa=p.kappa,
        delta=p.delta,
        radius=p.m1 if bounded else math.inf,
    )


@pytest.mark.parametrize("constrained", [True, False], ids=["ball", "paper"])
@pytest.mark.parametrize(
    "environment", [UnitBall(7), Sphere(4), FixedArms(np.eye(3))], ids=["ball", "sphere", "fixed"]
)
@pytest.mark.parametrize("name", NAMED)
def test_whole_run_equals_the_slow_twin(name, environment, constrained):
    """In every round the arm that Algorithm 1, recomputed from scratch, would play.

    Where two arms have the same score but for rounding, either may be played.
    """
    world = draw_world(environment, 3, 120, seed=11)
    policy = DelayedOFUGLM(delta=0.1, constrained=constrained, tol=1e-12)
    bandit = Bandit(3, family=NAMED[name], policy=policy)
    run = play(bandit, world, Exponential(10.0))
    twin = twin_of(name, bandit)
    for t in range(120):
        scores = twin.scores(world.actions[t])
        assert scores[run.index[t]] >= scores.max() - 1e-9
        twin.x.append(world.actions[t, run.index[t]])
        due = np.flatnonzero(run.arrives == t + 1)
        if due.size:
            twin.learn([(int(s) + 1, run.reward[s]) for s in due])
    assert np.abs(bandit.theta - twin.theta).max() < 1e-9
    assert np.allclose(bandit.W, twin.W)


def test_zero_delay_is_oful():
    """T1: Gaussian rewards at once give OFUL, theta = W^-1 sum y x."""
    world = draw_world(UnitBall(10), 3, 150, seed=2)
    bandit = Bandit(3, family=Gaussian(), policy=DelayedOFUGLM(lam=2.0, m1=1.5, delta=0.01))
    run = play(bandit, world, Constant(0.0))
    V, b = 2.0 * np.eye(3), np.zeros(3)
    for t in range(150):
        log_det = np.linalg.slogdet(V / 2.0)[1]
        width = math.sqrt(log_det + 2 * math.log(100)) + math.sqrt(2.0) * 1.5
        theta = np.linalg.solve(V, b)
        scores = [
            x @ theta + width * math.sqrt(x @ np.linalg.solve(V, x)) for x in world.actions[t]
        ]
        assert run.index[t] == int(np.argmax(scores))
        x = world.actions[t, run.index[t]]
        V += np.outer(x, x)
        b += run.reward[t] * x
    assert np.abs(bandit.theta - np.linalg.solve(V, b)).max() < 1e-10


def test_ties_go_to_the_lowest_row():
    """Equal rows have equal scores to the last bit, wherever they stand in the set."""
    world = draw_world(UnitBall(3), 4, 100, seed=3)
    doubled = world._replace(actions=np.concatenate([world.actions] * 13, axis=1))
    one, other = (Bandit(4, family=Gaussian(), policy=DelayedOFUGLM()) for _ in range(2))
    index = play(one, world, Exponential(5.0)).index
    assert np.array_equal(index, play(other, doubled, Exponential(5.0)).index)


def test_no_reward_means_the_longest_action():
    """T2: before any reward all directions are alike, so the largest norm wins; ties go first."""
    bandit = Bandit(2, family=Bernoulli(), policy=DelayedOFUGLM())
    assert bandit.decide([[0.1, 0.0], [0.0, 0.9], [0.5, 0.5]]).index == 1
    assert bandit.decide([[0.0, 0.5], [0.5, 0.0], [-0.5, 0.0]]).index == 0


def test_scaling():
    """T10: x -> c x, theta_star -> theta_star / c, lam -> c^2 lam, m1 -> m1 / c: same arms."""
    world, c = draw_world(UnitBall(8), 3, 150, seed=5), 0.25
    small = world._replace(actions=c * world.actions, theta_star=world.theta_star / c)
    one = Bandit(3, family=Gaussian(), policy=DelayedOFUGLM())
    other = Bandit(3, family=Gaussian(), policy=DelayedOFUGLM(lam=c**2, m1=1 / c), max_norm=c)
    delay = Exponential(10.0)
    assert np.array_equal(play(one, world, delay).index, play(other, small, delay).index)


def test_decision_reports_its_score():
    world = draw_world(UnitBall(8), 3, 60, seed=1)
    bandit = Bandit(3, family=Bernoulli(), policy=DelayedOFUGLM())
    play(bandit, world, Exponential(5.0))
    theta, W_inv, radius = bandit.theta, np.linalg.inv(bandit.W), bandit.radius
    x = draw_world(UnitBall(8), 3, 1, seed=2).actions[0]
    decision = bandit.decide(x)
    chosen = x[decision.index]
    assert decision.estimate == pytest.approx(chosen @ theta)
    assert decision.width == pytest.approx(radius * math.sqrt(chosen @ W_inv @ chosen))
    assert decision.score == decision.estimate + decision.width
    assert decision.id == 61
    low, high = bandit.interval(chosen)
    sigma = [1 / (1 + math.exp(-decision.estimate + s * decision.width)) for s in (1, -1)]
    assert (low, high) == pytest.approx(tuple(sigma))


def test_radius_is_the_width_plus_what_the_estimate_may_be_off():
    world = draw_world(UnitBall(8), 3, 60, seed=1)
    bandit = Bandit(3, family=Bernoulli(), policy=DelayedOFUGLM(width_scale=0.5, tol=0.5))
    play(bandit, world, Exponential(5.0))
    assert bandit.certificate.slack > 0.0
    assert bandit.radius == pytest.approx(0.5 * (bandit.sqrt_beta + bandit.certificate.slack))
    p = bandit.policy
    width = naive.optimistic.sqrt_beta(bandit.W, p.lam, p.m1, p.R, p.kappa, p.delta)
    assert bandit.sqrt_beta == pytest.approx(width, rel=1e-12)


# ------------------------------------------------------------------------------------- parameters


def test_derived_parameters():
    p = DelayedOFUGLM(m1=2.0).resolve(Bernoulli(), dim=5, max_norm=1.0)
    assert p.kappa == pytest.approx(0.10499359, abs=1e-8)
    assert (p.R, p.lam, p.order) == (0.5, 1.0, 3)
    assert p.alpha == p.kappa  # a(phi) = 1, lam = 1
    assert DelayedOFUGLM().resolve(Bernoulli(), dim=31, max_norm=1.0).order == 2
    far = DelayedOFUGLM(m1=1.0).resolve(Bernoulli(), dim=5, max_norm=2.0)
    assert far.kappa == pytest.approx(0.10499359, abs=1e-8)
    by_alpha = DelayedOFUGLM(alpha=1.0).resolve(Bernoulli(), dim=5, max_norm=1.0)
    assert by_alpha.lam == pytest.approx(5.086, abs=1e-3)
    noisy = DelayedOFUGLM(alpha=1.0).resolve(Gaussian(sd=2.0), dim=5, max_norm=1.0)
    assert noisy.lam == 4.0
    assert DelayedOFUGLM(lam=3.0).resolve(Gaussian(sd=2.0), dim=5, max_norm=1.0).alpha == 0.75


@pytest.mark.parametrize(
    ("argument", "value", "expected"),
    [
        ("delta", -0.1, "strictly between 0 and 1"),
        ("delta", 1.0, "strictly between 0 and 1"),
        ("delta", math.nan, "strictly between 0 and 1"),
        ("lam", -1.0, "above 0"),
        ("lam", 0.0, "above 0"),
        ("alpha", -1.0, "above 0"),
        ("kappa", -0.1, "above 0"),
        ("R", 0.0, "above 0"),
        ("m1", math.inf, "above 0"),
        ("m1", "one", "a number above 0"),
        ("width_scale", 0.0, "above 0"),
        ("tol", 1e-13, "1e-12 or more"),
        ("order", 4, "2, 3 or None"),
        ("constrained", "yes", "True or False"),
    ],
)
def test_bad_parameters(argument, value, expected):
    with pytest.raises((ValueError, TypeError)) as error:
        DelayedOFUGLM(**{argument: value})
    assert f"{argument} = {value!r}" in str(error.value)
    assert expected in str(error.value)


def test_parameters_that_do_not_fit_each_other():
    with pytest.raises(ValueError, match=r"kappa = 0\.3: expected at most 0\.196"):
        Bandit(2, family=Bernoulli(), policy=DelayedOFUGLM(kappa=0.3))
    with pytest.raises(ValueError, match=r"lam = 1\.0, alpha = 1\.0: expected one of them"):
        Bandit(2, family=Bernoulli(), policy=DelayedOFUGLM(lam=1.0, alpha=1.0))
    with pytest.raises(ValueError, match=r"m1 = 2000\.0: expected a bound at which the slope"):
        Bandit(2, family=Bernoulli(), policy=DelayedOFUGLM(m1=2000.0))
    for options in ({"m1": 40.0}, {"lam": 1e-10}, {"kappa": 1e-300}):
        with pytest.raises(ValueError, match="expected lam from 1e-09 and lam kappa from 1e-13"):
            Bandit(2, family=Bernoulli(), policy=DelayedOFUGLM(**options))


def test_poisson_is_refused_without_R():
    with pytest.raises(ValueError, match=r"Poisson rewards are not sub-Gaussian.*Pass R=.*OFUGLB"):
        Bandit(2, family=Poisson(), policy=DelayedOFUGLM())
    assert Bandit(2, family=Poisson(), policy=DelayedOFUGLM(R=2.0)).policy.R == 2.0


def test_gaussian_with_a_smaller_kappa_keeps_its_ridge():
    """kappa below the true slope is allowed; the penalty is then lam kappa."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-0.5, 0.5, (30, 3)), rng.standard_normal(30)
    policy = DelayedOFUGLM(kappa=0.5, lam=2.0, constrained=False)
    bandit = Bandit(3, family=Gaussian(), policy=policy)
    for x in X:
        bandit.decide([x])
    bandit.learn(list(enumerate(y, start=1)))
    assert np.allclose(bandit.theta, np.linalg.solve(X.T @ X + np.eye(3), X.T @ y), atol=1e-10)
    assert bandit.certificate.error < 1e-12


# --------------------------------------------------------------------- the paper's own statements


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize(
    "delay", [Constant(0.0), Exponential(20.0), Lomax(20.0), PacketLoss(0.5)], ids=repr
)
@pytest.mark.parametrize("family", [Gaussian(), Bernoulli(), Tanh(), Probit()], ids=repr)
def test_coverage(family, delay):
    """T7: theta_star leaves the set in well under a delta share of the runs."""
    runs, delta = 60, 0.2
    failed = 0
    for seed in range(runs):
        world = draw_world(UnitBall(5), 2, 300, seed)
        bandit = Bandit(2, family=family, policy=DelayedOFUGLM(delta=delta))
        failed += not play(bandit, world, delay).covered.all()
    assert failed <= delta * runs


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize(
    ("family", "delay"),
    [
        (Gaussian(), Informative(threshold=0.0)),
        (Gaussian(), Informative(below=Exponential(5000.0), threshold=0.0)),
        (Tanh(), Informative(threshold=0.0)),
    ],
    ids=repr,
)
def test_informative_delays_break_coverage(family, delay):
    """T8: when good news travels fast and bad news late, the set loses theta_star."""
    failed = 0
    for seed in range(20):
        world = draw_world(FixedArms(np.eye(2)), 2, 600, seed, np.array([-0.3, -0.5]))
        bandit = Bandit(2, family=family, policy=DelayedOFUGLM(delta=0.2))
        failed += not play(bandit, world, delay).covered.all()
    assert failed == 20


@pytest.mark.parametrize("lam", [1.0, 0.5, 3.0])
@pytest.mark.parametrize(
    "delay", [Exponential(8.0), Empirical([0, 0, 40]), PacketLoss(0.7)], ids=repr
)
def test_lemmas_hold_in_every_round(delay, lam):
    """R2 to R9: the lemmas behind the regret bound as inequalities on a run."""
    T, d = 150, 3
    world = draw_world(UnitBall(6), d, T, seed=4)
    policy = DelayedOFUGLM(delta=0.1, lam=lam)
    bandit = Bandit(d, family=Gaussian(), policy=policy)
    run = play(bandit, world, delay)
    assert run.covered.all()
    X = world.actions[np.arange(T), run.index]
    gaps = np.diff(run.regret, prepend=0.0)
    V, W = lam * np.eye(d), lam * np.eye(d)
    G_star = run.missing.max()
    sum_M = sum_W = sum_V2 = weighted = certificate = 0.0
    for t in range(T):
        x = X[t]
        V_inv, W_inv = np.linalg.inv(V), np.linalg.inv(W)
        Z, M = V - W, W_inv - V_inv
        G = run.missing[t - 1] if t else 0
        norm_W, norm_V2 = math.sqrt(x @ W_inv @ x), x @ V_inv @ x
        width = naive.optimistic.sqrt_beta(W, lam, 1.0, 1.0, 1.0, 0.1)
        assert gaps[t] <= 2 * width * norm_W + 1e-12  # R2, L_mu = 1
        assert np.allclose(M, V_inv @ Z @ W_inv, atol=1e-10)  # R3
        assert np.linalg.eigvalsh(G * np.eye(d) - Z).min() >= -1e-10  # R4
        assert np.linalg.eigvalsh((1 + G / lam) * W - V).min() >= -1e-10
        assert np.linalg.eigvalsh(G / lam * V_inv - M).min() >= -1e-10
        assert x @ M @ x <= norm_W**2 * np.trace(V_inv @ Z) + 1e-12  # R5
        tau = min(run.arrives[t] - (t + 1), T - (t + 1))
        sum_M += math.sqrt(max(0.0, x @ M @ x))
        weighted += 0.5 * (1 + G_star / lam + tau) * norm_V2
        sum_W += norm_W
        sum_V2 += norm_V2
        certificate += min(2.0, 2 * width * norm_W)
        V += np.outer(x, x)
        for s in np.flatnonzero(run.arrives == t + 1):
            W += np.outer(X[s], X[s])
    log_det = np.linalg.slogdet(V / lam)[1]
    assert sum_M <= weighted  # R6
    assert sum_V2 <= 2 * log_det <= 2 * d * math.log(1 + T / (d * lam))  # R7
    assert sum_W <= math.sqrt(T * sum_V2) + weighted  # R8
    assert run.regret[-1] <= certificate  # R9
    assert np.allclose(V, bandit.V)
    assert np.allclose(W, bandit.W)
