"""Polya-Gamma numbers, and Gibbs sweeps with them."""

import math

import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid, quad
from scipy.stats import invgauss

import naive.estimators
import naive.randomised
from belated import Bandit, Bernoulli
from belated.engine.reference import draw_world
from belated.model.protocols import draw_parameter
from belated.policies import PolyaGamma
from belated.policies import polya_gamma as pg
from belated.worlds.environments import UnitBall
from support.randomised import DELAYS, assert_normal, watched


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
        lambda d, rng: naive.randomised.PolyaGamma(
            d, 1 / 2.25, rng, sweeps=2, omega=pg.polya_gamma
        ),
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
        bandit.decide([[x]], probabilities=False)
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
    laplace = naive.estimators.unconstrained_mle("bernoulli", X[:, None], y, 1 / prior_sd**2)[0]
    assert abs(draws.mean() - laplace) > 10 * sd / math.sqrt(effective)  # the mode is elsewhere


def test_polya_gamma_before_any_reward_is_the_prior():
    bandit = Bandit(2, family=Bernoulli(), policy=PolyaGamma(prior_sd=3.0, sweeps=1), seed=2)
    bandit.decide([[0.1, 0.1]], probabilities=False)
    assert_normal(gibbs(bandit, 4000), 0.0, 9.0 * np.eye(2))


def test_polya_gamma_plays_its_draw():
    bandit = Bandit(2, family=Bernoulli(), policy=PolyaGamma(), seed=2)
    for actions in draw_world(UnitBall(9), 2, 20, 9).actions:
        decision = bandit.decide(actions, probabilities=False)
        scores = actions @ bandit._state.memory.sample
        assert decision.index == np.argmax(scores)
        assert decision.score == pytest.approx(scores.max())
