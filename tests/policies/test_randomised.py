"""Policies that explore by drawing: each against its slow twin, its law, its limits."""

import math

import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid, quad
from scipy.stats import invgauss

import naive
from belated import Bandit, Bernoulli, Bounded, Gaussian, Poisson, Probit
from belated.engine import draw_world, play
from belated.estimators.newton.fit import WAITING, LazyNewton
from belated.estimators.perturbed import shift_error, shift_estimate, third_gradient
from belated.model.protocols import choose, draw_parameter
from belated.model.state import WORK
from belated.numerics.lowered.third_derivative import BATCH, add_thirds, multiply_all_pairs
from belated.numerics.pruning import decision_set
from belated.policies import (
    EVILL,
    GLMFPL,
    Greedy,
    InflatedTS,
    LinTS,
    PolyaGamma,
    Thompson,
)
from belated.policies import polya_gamma as pg
from belated.policies.evill import perturb
from belated.policies.glm_fpl import add_noise
from belated.policies.shared.sampling import DRAW, SAMPLE
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
        decision = self.bandit.decide(actions)
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
        bandit.decide([x])
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

# ----------------------------------------------------------------------------------------- LinTS


@pytest.mark.parametrize("inflated", [True, False])
@pytest.mark.parametrize("delay", DELAYS, ids=repr)
def test_lin_ts_is_its_slow_twin(delay, inflated):
    policy = LinTS(delta=0.1, lam=0.7, inflated=inflated)
    pair = watched(
        policy,
        Gaussian(0.4),
        lambda d, rng: naive.LinTS(d, 0.7, rng, R=0.4, delta=0.1, inflated=inflated),
        delay,
    )
    assert all(pair.agreed)


def test_lin_ts_draws():
    """N(theta, v^2 W^-1), W over returned rewards, in the round of 31 decisions made."""
    bandit, X, y = given_data(LinTS(delta=0.1, lam=0.5), Gaussian(0.6))
    W = 0.5 * np.eye(2) + X.T @ X
    v = 0.6 * math.sqrt(9 * 2 * math.log(31 / 0.1))
    assert_normal(samples(bandit, MANY), np.linalg.solve(W, X.T @ y), v**2 * np.linalg.inv(W))


def test_lin_ts_golden_width():
    """In round 1, d = 2, delta = 0.05, R = lam = 1: v = sqrt(18 log 20) = 7.343244..."""
    bandit = Bandit(2, family=Gaussian(), policy=LinTS(delta=0.05))
    assert samples(bandit, 1, stream(8))[0] == pytest.approx(
        7.343244 * stream(8).standard_normal(2), rel=1e-6
    )


def test_lin_ts_in_practice_is_the_posterior():
    """Without inflation, and the ridge of the prior: Bayesian linear regression, draw by draw."""
    s, v0 = 0.6, 0.8
    lin, X, y = given_data(LinTS(lam=s**2 / v0**2, inflated=False), Gaussian(s))
    bayes, _, _ = given_data(Thompson(prior_sd=v0), Gaussian(s))
    assert np.allclose(samples(lin, 20), samples(bayes, 20), rtol=1e-12)
    S = np.linalg.inv(X.T @ X / s**2 + np.eye(2) / v0**2)
    assert_normal(samples(lin, 4000), S @ X.T @ y / s**2, S)


# ------------------------------------------------------------------------------------ inflated TS


@pytest.mark.parametrize("delay", DELAYS, ids=repr)
def test_inflated_ts_is_its_slow_twin(delay):
    policy = InflatedTS(m1=0.8, delta=0.1, lam=1.3, horizon=120)
    pair = watched(
        policy,
        Gaussian(0.4),
        lambda d, rng: naive.InflatedTS(
            "gaussian", d, 1.3, rng, m1=0.8, R=0.4, kappa=1.0, delta=0.1, horizon=120
        ),
        delay,
    )
    assert all(pair.agreed)


@pytest.mark.parametrize("delay", DELAYS, ids=repr)
def test_inflated_ts_for_logistic_rewards_is_its_slow_twin(delay):
    """Up to the certified error of the estimate, a hundredth in the norm of the Hessian."""
    pair = watched(
        InflatedTS(delta=0.1, horizon=80),
        Bernoulli(),
        lambda d, rng: naive.InflatedTS(
            "bernoulli", d, 1.0, rng, m1=1.0, R=0.5, kappa=KAPPA, delta=0.1, horizon=80
        ),
        delay,
        rounds=80,
    )
    assert np.mean(pair.agreed) > 0.95
    assert max(pair.behind) < 0.05  # of draws about ten wide


def test_inflated_ts_width():
    """sqrt_beta at delta / (4 horizon), the draw as wide, and what a decision reports."""
    family, lam, delta, T = Bernoulli(), 1.5, 0.2, 400
    policy = InflatedTS(m1=1.0, lam=lam, delta=delta, horizon=T, scale=0.5)
    bandit, _, _ = given_data(policy, family)
    assert bandit.n_missing == 4
    width = naive.sqrt_beta(bandit.W, lam, 1.0, 0.5, KAPPA, delta / (4 * T))
    assert bandit.sqrt_beta == pytest.approx(width)
    radius = width + bandit.certificate.slack
    assert bandit.radius == pytest.approx(radius)
    W_inv = np.linalg.inv(bandit.W)
    assert_normal(samples(bandit, MANY), bandit.theta, (0.5 * radius) ** 2 * W_inv)
    for actions in draw_world(UnitBall(9), 2, 20, 9).actions:
        decision = bandit.decide(actions)
        estimates, reach = (
            actions @ bandit.theta,
            radius * np.sqrt(((actions @ W_inv) * actions).sum(1)),
        )
        k = decision.index
        assert decision.estimate == pytest.approx(estimates[k])
        gap = (estimates + reach).max() - (estimates - reach)[k]
        assert decision.width == pytest.approx(gap / 2)
    low, high = bandit.interval(actions[0])
    z = [math.log(p / (1 - p)) for p in (low, high)]
    assert (z[1] - z[0]) / 2 == pytest.approx(reach[0])


def test_inflated_ts_covers_and_certifies_its_regret():
    """The set holds, and then 2 L_mu width bounds the regret of every round."""
    for seed in range(10):
        world = draw_world(UnitBall(9), 3, 60, seed)
        bandit = Bandit(3, family=Gaussian(), policy=InflatedTS(delta=0.2, horizon=60), seed=seed)
        widths, decide = [], bandit.decide

        def noting(actions, decide=decide, widths=widths):
            decision = decide(actions)
            widths.append(decision.width)
            return decision

        bandit.decide = noting
        run = play(bandit, world, LATE)
        assert run.covered.all()
        assert (np.diff(run.regret, prepend=0.0) <= 2 * np.array(widths)).all()


# --------------------------------------------------------------------------------------- Thompson


@pytest.mark.parametrize("delay", DELAYS, ids=repr)
@pytest.mark.parametrize("family", [Gaussian(0.4), Bernoulli()], ids=repr)
def test_thompson_is_its_slow_twin(family, delay):
    name = "gaussian" if isinstance(family, Gaussian) else "bernoulli"
    pair = watched(
        Thompson(prior_sd=0.9, drift=1e-4),
        family,
        lambda d, rng: naive.Laplace(name, d, family.a_phi / 0.81, rng, a_phi=family.a_phi),
        delay,
        rounds=80,
    )
    assert all(pair.agreed) if name == "gaussian" else np.mean(pair.agreed) > 0.97


# ------------------------------------------------------------------------------------------ EVILL


@pytest.mark.parametrize("delay", DELAYS, ids=repr)
def test_evill_is_its_slow_twin(delay):
    pair = watched(
        EVILL(scale=0.7, lam=0.6),
        Gaussian(0.4),
        lambda d, rng: naive.EVILL("gaussian", d, 0.6, rng, a=0.7, a_phi=0.16),
        delay,
    )
    assert all(pair.agreed)


@pytest.mark.parametrize("delay", DELAYS, ids=repr)
@pytest.mark.parametrize("scale", [0.2, 1.0])
def test_evill_for_logistic_rewards_is_its_slow_twin(scale, delay):
    """Up to what the Taylor model leaves, which falls with the cube of the scale."""
    pair = watched(
        EVILL(scale=scale, drift=1e-3),
        Bernoulli(),
        lambda d, rng: naive.EVILL("bernoulli", d, 1.0, rng, a=scale, a_phi=1.0),
        delay,
        rounds=60,
    )
    assert np.mean(pair.agreed) > 0.93
    assert max(pair.behind) < 0.05 * scale


def test_evill_is_lin_ts_in_law():
    """theta -+ a s U^-1 z with the same z: mirror images, and the normal law is symmetric."""
    evill, _, _ = given_data(EVILL(scale=1.7, lam=0.5), Gaussian(0.6))
    lin, _, _ = given_data(LinTS(scale=1.7, lam=0.5, inflated=False), Gaussian(0.6))
    one, other = samples(evill, 50) - evill.theta, samples(lin, 50) - lin.theta
    assert np.allclose(one, -other, rtol=1e-10)
    assert np.ptp(one) > 0.1


@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_evill_perturbation_has_the_law_of_the_papers_sum(family):
    """Both are N(0, a^2 a(phi) H); for standard noise the paper's sum is spelled out."""
    a, lam = 1.3, 0.4
    kind = Gaussian() if family == "gaussian" else Bernoulli()
    bandit, X, y = given_data(EVILL(scale=a, lam=lam, drift=1e-6), kind)
    theta = naive.unconstrained_mle(family, X, y, lam)
    covariance = a**2 * naive.objective(family, X, y, lam, theta)[2]
    rng, w, ours = np.random.default_rng(1), bandit._state.work[DRAW], np.empty((MANY, 2))
    for draw in ours:
        perturb(bandit.policy, bandit._state, w, rng)
        draw[:] = w
    papers = [naive.evill_perturbation(family, X, theta, lam, a, rng) for _ in range(MANY)]
    for draws in (ours, np.array(papers)):
        assert_normal(draws, 0.0, covariance)


def test_third_gradient():
    rng = np.random.default_rng(0)
    for d in (1, 2, 5, 9):
        X, weights = rng.standard_normal((BATCH + 3, d)), rng.standard_normal(BATCH + 3)
        s = rng.standard_normal(d)
        fit, out = LazyNewton(1.0, 1.0, math.inf, 1e-2, 3).new_fit(d), np.empty(d)
        multiply_all_pairs(X[:BATCH], fit.T3)
        add_thirds(X[:BATCH], weights[:BATCH], fit.T3)
        fit.waiting[:3], fit.bends[:3], fit.scalars[WAITING] = X[BATCH:], weights[BATCH:], 3
        third_gradient(fit, s, out)
        full = naive.third_derivative(X, weights)
        assert out == pytest.approx(np.einsum("ijk,i,j->k", full, s, s) / 2)


@pytest.mark.parametrize("family", [Bernoulli(), Poisson(), Probit()], ids=repr)
def test_shifted_estimate_is_certified(family):
    """Never farther from the exact minimiser than the certificate says; of third order in w."""
    name, d = type(family).__name__.lower(), 3
    bandit, X, y = given_data(EVILL(drift=1e-6), family, n=300, d=d)
    H = naive.objective(name, X, y, 1.0, naive.unconstrained_mle(name, X, y, 1.0))[2]
    rng, state = np.random.default_rng(2), bandit._state
    errors, shifts, bounds = [], [], []
    for scale in (0.05, 0.2, 0.8, 3.0, 30.0):
        z = rng.standard_normal((20, d))
        for w in scale * z @ naive.upper_factor(H):
            out = np.empty(d)
            shift_estimate(state.fit, state, w, out)
            exact = naive.perturbed_mle(name, X, y, 1.0, w)
            off = out - exact
            errors.append(math.sqrt(off @ state.fit.H @ off))
            shifts.append(math.sqrt((exact - bandit.theta) @ H @ (exact - bandit.theta)))
            bounds.append(shift_error(bandit.estimator, family, state, w, out))
    errors, shifts, bounds = (np.reshape(v, (5, 20)) for v in (errors, shifts, bounds))
    assert (errors <= bounds * (1 + 1e-6) + 1e-7).all()
    assert np.isfinite(bounds[:2]).all()
    assert bounds[0].max() < 0.05
    assert errors[0].max() < 2e-3
    assert (errors[2] < 0.05 * shifts[2]).all()


@pytest.mark.parametrize("family", [Bernoulli(), Poisson()], ids=repr)
def test_the_third_order_pays(family):
    """The Taylor model of order 3 is nearer to the exact minimiser than that of order 2."""
    name, rng, n = type(family).__name__.lower(), np.random.default_rng(0), 200
    X = rng.uniform(-1.0, 1.0, (n, 3)) / math.sqrt(3)
    mean = naive.FAMILIES[name][0](2.0 * X[:, 0])
    y = rng.poisson(mean) * 1.0 if name == "poisson" else (rng.random(n) < mean) * 1.0
    bandit = Bandit(3, family=family, policy=EVILL(drift=1e-6))
    for x in X:
        bandit.decide([x])
    bandit.learn(list(enumerate(y, 1)))
    fit, ratios = bandit._state.fit, []
    for z in rng.standard_normal((40, 3)):
        w, cubic = naive.upper_factor(fit.H).T @ z, np.empty(3)
        shift_estimate(fit, bandit._state, w, cubic)
        quadratic = bandit.theta - np.linalg.solve(fit.H, w)
        exact = naive.perturbed_mle(name, X, y, 1.0, w)
        ratios.append(np.linalg.norm(cubic - exact) / np.linalg.norm(quadratic - exact))
    assert np.median(ratios) < 0.3


def test_where_the_series_diverges_the_draw_stays_finite():
    """Nothing is proved then, and nothing breaks: at worst it is a draw of Laplace's posterior."""
    bandit, _, _ = given_data(EVILL(scale=1e6), Bernoulli())
    state = bandit._state
    w, out = 1e6 * np.ones(2), np.empty(2)
    shift_estimate(state.fit, state, w, out)
    assert out == pytest.approx(bandit.theta - np.linalg.solve(state.fit.H, w))
    assert shift_error(bandit.estimator, bandit.family, state, w, out) == math.inf


def test_without_a_third_derivative_it_is_laplace():
    bandit, _, _ = given_data(EVILL(), Bernoulli(), d=31)
    state, w, out = bandit._state, np.ones(31), np.empty(31)
    shift_estimate(state.fit, state, w, out)
    assert out == pytest.approx(bandit.theta - np.linalg.solve(state.fit.H, w))


# ---------------------------------------------------------------------------------------- GLM-FPL


@pytest.mark.parametrize("delay", DELAYS, ids=repr)
@pytest.mark.parametrize("family", [Gaussian(0.4), Bernoulli()], ids=repr)
def test_glm_fpl_is_its_slow_twin(family, delay):
    name = "gaussian" if isinstance(family, Gaussian) else "bernoulli"
    pair = watched(
        GLMFPL(scale=1.2, lam=0.7, explore_until=1.5, drift=1e-3),
        family,
        lambda d, rng: naive.GLMFPL(name, d, 0.7, rng, a=1.2 * family.R, explore_until=1.5),
        delay,
        rounds=100,
    )
    assert all(pair.agreed) if name == "gaussian" else np.mean(pair.agreed) > 0.95


def test_glm_fpl_noise_has_the_law_of_noise_on_rewards():
    """-sum of z_i x_i is N(0, (scale R)^2 X'X); theta_z N(theta, (scale R)^2 W^-1 X'X W^-1)."""
    lam, s = 0.8, 0.6
    bandit, X, y = given_data(GLMFPL(scale=1.5, lam=lam), Gaussian(s))
    state, rng, drawn = bandit._state, np.random.default_rng(1), np.empty((MANY, 2))
    for draw in drawn:
        add_noise(bandit.policy, state, state.work[DRAW], rng)
        draw[:] = state.work[DRAW]
    assert_normal(drawn, 0.0, (1.5 * s) ** 2 * X.T @ X)
    W_inv = np.linalg.inv(lam * np.eye(2) + X.T @ X)
    law = W_inv @ X.T @ y, (1.5 * s) ** 2 * W_inv @ X.T @ X @ W_inv
    assert_normal(samples(bandit, MANY), *law)
    noisy = y + 1.5 * s * rng.standard_normal((MANY, len(y)))
    assert_normal(noisy @ X @ W_inv, *law)


def test_glm_fpl_explores_on_what_has_returned():
    bandit = Bandit(2, family=Gaussian(), policy=GLMFPL(explore_until=0.5), seed=1)
    for x in np.eye(2)[[0, 1] * 10]:
        bandit.decide([0.9 * x])
    arms = np.array([[1.0, 0.0], [0.1, 0.0], [-1.0, 0.0]])
    assert len({bandit.decide(arms).index for _ in range(30)}) == 3
    bandit.learn([(1, 1.0), (2, 1.0)])
    assert {bandit.decide(arms).index for _ in range(30)} == {0, 2}  # 1 is never best


# ------------------------------------------------------------------------------------- no noise


@pytest.mark.parametrize("family", [Gaussian(), Bernoulli()], ids=repr)
@pytest.mark.parametrize(
    "policy",
    [
        LinTS(scale=0.0),
        InflatedTS(scale=0.0, horizon=80),
        EVILL(scale=0.0),
        GLMFPL(scale=0.0, explore_until=0.1),
    ],
    ids=lambda p: type(p).__name__,
)
def test_no_noise_is_greedy(policy, family):
    if isinstance(policy, LinTS) and not isinstance(family, Gaussian):
        pytest.skip("linear")
    world = draw_world(UnitBall(9), 3, 80, 2)
    bandit = Bandit(3, family=family, policy=policy, seed=4)
    decide, greedy = bandit.decide, []

    def noting(actions):
        best = int(np.argmax(actions @ bandit.theta))
        explored = np.linalg.eigvalsh(bandit.W)[0] >= bandit.policy.lam + 0.1
        decision = decide(actions)
        if bandit.n_observed and (explored or not isinstance(policy, GLMFPL)):
            greedy.append(decision.index == best)
        return decision

    bandit.decide = noting
    run = play(bandit, world, LATE)
    assert len(greedy) > 50
    assert all(greedy)
    if isinstance(policy, LinTS | InflatedTS):
        other = Bandit(3, family=family, policy=Greedy(lam=1.0))
        assert np.array_equal(run.index, play(other, world, LATE).index)


# ------------------------------------------------------------------------------------ Polya-Gamma


@pytest.mark.parametrize("z", [0.0, 0.3, -2.0, 3.2, 12.0, 400.0])
def test_polya_gamma_numbers(z):
    """Mean, variance and Laplace transform, cosh(z/2) / cosh(sqrt(z^2/4 + s/2))."""
    n, rng = 20_000, np.random.default_rng(6)
    draws = np.array([pg.polya_gamma(z, rng) for _ in range(n)])
    assert (draws > 0.0).all()
    if z == 0.0:
        mean, variance = 0.25, 1 / 24
    elif abs(z) < 100.0:
        mean = math.tanh(z / 2) / (2 * z)
        variance = (math.sinh(z) - z) / (4 * z**3 * math.cosh(z / 2) ** 2)
    else:
        mean, variance = 1 / (2 * z), 1 / (2 * z**3)
    sd = math.sqrt(variance)
    assert abs(draws.mean() - mean) < 5 * sd / math.sqrt(n)
    fourth = ((draws - mean) ** 4).mean() / variance**2
    assert abs(draws.var() / variance - 1) < 5 * math.sqrt((fourth - 1) / n)
    for s in (0.5 / mean, 2.0 / mean, 10.0 / mean):
        c, r = abs(z) / 2, math.sqrt(z**2 / 4 + s / 2)
        transform = math.exp(c - r) * (1 + math.exp(-2 * c)) / (1 + math.exp(-2 * r))
        values = np.exp(-s * draws)
        assert abs(values.mean() - transform) < 5 * values.std() / math.sqrt(n)


def test_polya_gamma_series():
    """Both forms are the same density, which integrates to one; candidates have its first term."""
    a, cut = pg._coefficient, pg.CUT
    for x in (0.2, 0.5, 0.64, 0.65, 1.0, 2.0):
        n = np.arange(40) + 0.5
        signs = np.cos(np.pi * (n - 0.5))
        left = (signs * np.pi * n * (2 / (np.pi * x)) ** 1.5 * np.exp(-2 * n**2 / x)).sum()
        right = (signs * np.pi * n * np.exp(-(n**2) * np.pi**2 * x / 2)).sum()
        series = sum((-1) ** k * a(k, x) for k in range(40))
        assert left == pytest.approx(right, rel=1e-9) == pytest.approx(series, rel=1e-9)
        assert all(a(k + 1, x) < a(k, x) for k in range(3))
        for u in (0.0, series * (1 - 1e-9), series * (1 + 1e-9), a(0, x)):
            assert pg._lies_below_series(u, x) == (u < series)
    for c in (0.0, 0.7, 3.0):

        def first(x, c=c):
            return a(0, x) * math.exp(c - c * c * x / 2)

        beyond, below = pg._areas(c)
        assert beyond == pytest.approx(quad(first, cut, 40.0)[0], rel=1e-7)
        assert below == pytest.approx(quad(first, 1e-9, cut)[0], rel=1e-7)


@pytest.mark.parametrize("c", [0.01, 0.8, 1.5, 1.6, 6.0])
def test_inverse_gaussian_below_the_cut(c):
    """Kolmogorov-Smirnov against the law of mean 1 / c and shape 1, given at most the cut."""
    n, rng = 20_000, np.random.default_rng(2)
    draws = np.sort([pg._inverse_gaussian_below_cut(c, rng) for _ in range(n)])
    law = invgauss(1 / c)
    distance = abs(law.cdf(draws) / law.cdf(pg.CUT) - (np.arange(n) + 0.5) / n).max()
    assert distance < math.sqrt(math.log(2e6) / (2 * n))  # exceeded once in a million


def test_polya_gamma_numbers_far_out():
    rng = np.random.default_rng(0)
    for z in (1e-300, 99.9, 1e3, 1e5, 1e8):
        draws = [pg.polya_gamma(z, rng) for _ in range(200)]
        assert all(0.0 < v < math.inf for v in draws)
        if z > 1e3:
            assert np.mean(draws) == pytest.approx(1 / (2 * z), rel=0.05)


@pytest.mark.parametrize("delay", DELAYS, ids=repr)
def test_polya_gamma_sweeps_are_those_of_the_slow_twin(delay):
    pair = watched(
        PolyaGamma(prior_sd=1.5, sweeps=2),
        Bernoulli(),
        lambda d, rng: naive.PolyaGamma(d, 1 / 2.25, rng, sweeps=2, omega=pg.polya_gamma),
        delay,
        rounds=60,
    )
    assert all(pair.agreed)
    assert max(pair.behind) < 1e-9


def gibbs(bandit, n):
    """Parameters drawn before a decision; none is made, so that the history stays short."""
    out, rng = np.empty((n, bandit.dim)), np.random.default_rng(3)
    for draw in out:
        draw_parameter(bandit.policy, bandit._state, bandit._history, rng)
        draw[:] = bandit._state.memory.sample
    return out


def test_polya_gamma_posterior_is_that_of_a_grid():
    """d = 1, a skew posterior: mean, standard deviation and distribution function."""
    X, y, prior_sd, n = np.array([1.0, 0.8, -0.5, 1.0]), np.array([1.0, 1.0, 0.0, 1.0]), 2.0, 6000
    bandit = Bandit(1, family=Bernoulli(), policy=PolyaGamma(prior_sd=prior_sd, sweeps=4), seed=1)
    for x in [*X, 0.3]:
        bandit.decide([[x]])
    bandit.learn(list(enumerate(y, 1)))  # the fifth never returns
    grid = np.linspace(-12, 16, 20_001)
    z = np.outer(grid, X)
    log_density = (y * z - np.logaddexp(0.0, z)).sum(1) - grid**2 / (2 * prior_sd**2)
    cdf = cumulative_trapezoid(np.exp(log_density), grid, initial=0.0)
    cdf /= cdf[-1]
    mean = (grid[1:] * np.diff(cdf)).sum()
    sd = math.sqrt(((grid[1:] - mean) ** 2 * np.diff(cdf)).sum())
    draws = gibbs(bandit, n)[:, 0]
    lag = np.corrcoef(draws[1:], draws[:-1])[0, 1]
    effective = n * (1 - lag) / (1 + lag)  # of a chain whose correlation falls geometrically
    assert effective > n / 3
    assert abs(draws.mean() - mean) < 5 * sd / math.sqrt(effective)
    assert abs(draws.std() / sd - 1) < 5 / math.sqrt(effective)
    for level in (0.05, 0.25, 0.5, 0.75, 0.95):
        share = (draws <= np.interp(level, cdf, grid)).mean()
        assert abs(share - level) < 5 * math.sqrt(level * (1 - level) / effective)
    laplace = naive.unconstrained_mle("bernoulli", X[:, None], y, 1 / prior_sd**2)[0]
    assert abs(draws.mean() - laplace) > 10 * sd / math.sqrt(effective)  # the mode is elsewhere


def test_polya_gamma_before_any_reward_is_the_prior():
    bandit = Bandit(2, family=Bernoulli(), policy=PolyaGamma(prior_sd=3.0, sweeps=1), seed=2)
    bandit.decide([[0.1, 0.1]])
    assert_normal(gibbs(bandit, 4000), 0.0, 9.0 * np.eye(2))


def test_polya_gamma_plays_its_draw():
    bandit = Bandit(2, family=Bernoulli(), policy=PolyaGamma(), seed=2)
    for actions in draw_world(UnitBall(9), 2, 20, 9).actions:
        decision = bandit.decide(actions)
        scores = actions @ bandit._state.memory.sample
        assert decision.index == np.argmax(scores)
        assert decision.score == pytest.approx(scores.max())


# --------------------------------------------------------------------------- what is not accepted


def test_bad_parameters():
    for make, message in [
        (lambda: LinTS(delta=1.0), r"delta = 1\.0: expected"),
        (lambda: LinTS(lam=0.0), r"lam = 0\.0: expected"),
        (lambda: LinTS(scale=-1.0), r"scale = -1\.0: expected"),
        (lambda: LinTS(inflated=1), r"inflated = 1: expected True or False"),
        (lambda: LinTS(R=0.0), r"R = 0\.0: expected"),
        (lambda: InflatedTS(m1=-1.0), r"m1 = -1\.0: expected"),
        (lambda: InflatedTS(horizon=0), r"horizon = 0: expected"),
        (lambda: InflatedTS(horizon=1.5), r"horizon = 1\.5: expected"),
        (lambda: InflatedTS(scale=math.nan), r"scale = nan: expected"),
        (lambda: EVILL(scale=-0.1), r"scale = -0\.1: expected"),
        (lambda: EVILL(lam=math.inf), r"lam = inf: expected"),
        (lambda: EVILL(drift=0.0), r"drift = 0\.0: expected"),
        (lambda: GLMFPL(explore_until=0.0), r"explore_until = 0\.0: expected"),
        (lambda: GLMFPL(R=-1.0), r"R = -1\.0: expected"),
        (lambda: PolyaGamma(prior_sd=0.0), r"prior_sd = 0\.0: expected"),
        (lambda: PolyaGamma(sweeps=0), r"sweeps = 0: expected"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            make()


def test_refusals():
    def refused(policy, family, message):
        with pytest.raises(ValueError, match=message):
            Bandit(2, family=family, policy=policy)

    for family in (Bernoulli(), Poisson(), Probit()):
        refused(LinTS(), family, "LinTS is for rewards with mean x'theta only")
    for family in (Gaussian(), Probit(), Bounded(), Poisson()):
        refused(PolyaGamma(), family, "PolyaGamma has the posterior of rewards 0 or 1 with a log")
    refused(InflatedTS(), Gaussian(), "horizon = None: expected the number of rounds")
    refused(InflatedTS(horizon=9), Poisson(), "InflatedTS has no width for them")
    refused(GLMFPL(), Poisson(), r"R = None: Poisson rewards are not sub-Gaussian")
    Bandit(2, family=Poisson(), policy=GLMFPL(R=1.0))
    assert LinTS(R=2.0).resolve(Gaussian(), 2, 1.0).R == 2.0


def test_scratch_is_apart():
    """Rows of the scratch that are in use at the same time differ, and come before the matrix."""
    from belated.estimators import perturbed

    rows = {0, DRAW, SAMPLE}
    for name in ("MOVED", "BENT", "RIGHT", "CHANGE", "BEST", "START"):
        assert getattr(perturbed, name) not in rows
        rows.add(getattr(perturbed, name))
    assert max(rows) < WORK
