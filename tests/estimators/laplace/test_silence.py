"""Open decisions in Laplace's posterior: derivatives, mode, covariance, certificate and end."""

import math

import numpy as np
import pytest

from belated.core.sparse import dense
from belated.estimators.laplace.fit import HEARD, HIGHEST, SILENT, VARIANCE, take_terms
from belated.families import Bernoulli, Gaussian, Poisson
from belated.learner.learner import Learner
from belated.learner.rows import arrays_of, history_of, rows_between
from belated.model.protocols import RARE, derivatives, silence_derivatives
from belated.model.state import ERROR
from belated.policies import AdaptiveThompson, Thompson
from naive.silence import mode_by_em, silence_slopes

FIXED = AdaptiveThompson(prior_sd=0.7, strength=1e12)
GROUPS = {"ad": 3, "place": 2, "intercept": 1}
FAMILIES = {"bernoulli": Bernoulli(), "poisson": Poisson()}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("F", [1e-9, 1e-3, 0.5, 0.99, 1.0 - 1e-12])
@pytest.mark.parametrize("z", [-30.0, -4.0, -0.7, 0.0, 0.3, 2.5])
def test_derivatives_are_those_of_60_digits(family, z, F):
    first, second = silence_derivatives(FAMILIES[family], z, F)
    exact = silence_slopes(family, z, F)
    assert first == pytest.approx(exact[0], rel=1e-12)
    # where the second derivative changes its sign, digits of its two parts cancel
    assert second == pytest.approx(exact[1], rel=1e-10, abs=1e-14 * first)


@pytest.mark.parametrize("family", [Bernoulli(), Poisson()], ids=str)
@pytest.mark.parametrize("z", [-800.0, -3.0, 0.0, 3.0, 6.0])
def test_limits(family, z):
    """No share of rewards has come: nothing is said. All have: it is an ordinary zero."""
    mu, slope, _ = derivatives(family, z)
    assert silence_derivatives(family, z, 0.0) == (0.0, 0.0)
    assert silence_derivatives(family, z, 1.0) == pytest.approx((mu, slope), rel=1e-12)
    assert silence_derivatives(Gaussian(sd=1.0), z, 0.5) == (0.0, 0.0)


def test_far_out_there_are_still_numbers():
    for z in (-1e6, 800.0, 1e6):
        for F in (1e-300, 0.5, 1.0 - 1e-16, 1.0):
            assert np.isfinite(silence_derivatives(Bernoulli(), z, F)).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_up_to_rare_the_second_derivative_bounds_the_third(family):
    for z in np.linspace(-6.0, RARE, 12):
        for F in (1e-6, 0.1, 0.4, 0.6, 0.9, 0.999, 1.0):
            _, second, third = silence_slopes(family, z, F)
            assert abs(third) <= second * (1.0 + 1e-9)
    _, second, third = silence_slopes(family, 0.0, 0.1)  # and not far beyond
    assert abs(third) > abs(second)


def silent_learner(family, n, seed, base=-2.0, policy=FIXED, share=0.7):
    """A learner with n decisions, of which some are closed and others silent; rows, y and F."""
    rng = np.random.default_rng(seed)
    learner = Learner(6, family, policy, 1.0, GROUPS)
    truth = np.append(rng.normal(size=5) * 0.5, base)
    y, F = np.full(n, np.nan), np.zeros(n)
    for t in range(n):
        X = np.zeros((4, 6))
        X[np.arange(4), rng.integers(3, size=4)] = 1.0
        X[:, 3 + rng.integers(2)] = rng.normal()
        X[:, -1] = 1.0
        index = learner.decide(X, rng).index
        mean = derivatives(family, float(X[index] @ truth))[0]
        reward = rng.poisson(mean) if family == Poisson() else float(rng.random() < mean)
        if rng.random() > share or (reward > 0 and rng.random() < 0.4):
            y[t] = reward
        else:
            F[t] = rng.random()
    x = dense(rows_between(learner.history, 0, n), 6)
    learner.learn({t: float(y[t]) for t in np.flatnonzero(~np.isnan(y))})
    silent = np.flatnonzero(F > 0.0)
    learner.hear(silent, F[silent])
    return learner, x, y, F


def gradient_and_hessian(learner, x, y, F, theta):
    """At theta, concave terms of silent rows as zeros in the Hessian."""
    fit, pulls, weights = learner.state.fit, [], []
    for z, reward, quiet in zip(x @ theta, y, F, strict=True):
        mu, slope, _ = derivatives(learner.family, z)
        first, second = silence_derivatives(learner.family, z, quiet)
        pulls.append(first if np.isnan(reward) else mu - reward)
        weights.append(max(0.0, second) if np.isnan(reward) else slope)
    precision = fit.precision[fit.group]
    return x.T @ pulls + precision * theta, (x.T * weights) @ x + np.diag(precision)


def test_mode_is_that_of_em():
    learner, x, y, F = silent_learner(Bernoulli(), 120, seed=0)
    fit = learner.state.fit
    precision = fit.precision[fit.group]
    mode = mode_by_em(x, y, F, precision, np.zeros(6))
    np.testing.assert_allclose(learner.exact_theta(), mode, atol=1e-8)
    known = ~np.isnan(y)
    closed = mode_by_em(x[known], y[known], F[known], precision, np.zeros(6))
    assert np.abs(closed - mode).max() > 0.05  # silence does say something


@pytest.mark.parametrize("family", [Bernoulli(), Poisson()], ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_estimate_is_the_mode_within_its_certificate(family, seed):
    learner, x, y, F = silent_learner(family, 150, seed, base=-5.0)
    mode = learner.exact_theta()
    gradient, H = gradient_and_hessian(learner, x, y, F, mode)
    assert np.abs(gradient).max() < 1e-9
    error = learner.state.theta - mode
    off = math.sqrt(error @ gradient_and_hessian(learner, x, y, F, learner.state.theta)[1] @ error)
    assert off <= learner.state.scalars[ERROR] + 1e-9
    assert learner.state.scalars[ERROR] < 1.0
    take_terms(learner.state.fit)
    S = np.triu(learner.state.fit.S) + np.triu(learner.state.fit.S, 1).T
    center = learner.state.fit.center
    _, H = gradient_and_hessian(learner, x, y, F, center)
    np.testing.assert_allclose(S @ H, np.eye(6), atol=1e-9)


@pytest.mark.parametrize("base", [0.0, 2.0, 5.0])
def test_frequent_conversions_have_a_stationary_point_and_no_certificate(base):
    learner, x, y, F = silent_learner(Bernoulli(), 150, seed=1, base=base)
    assert learner.state.scalars[ERROR] == math.inf
    gradient, H = gradient_and_hessian(learner, x, y, F, learner.exact_theta())
    assert np.abs(gradient).max() < 1e-8
    assert np.linalg.eigvalsh(H).min() > 0.0


@pytest.mark.parametrize("family", [Bernoulli(), Poisson()], ids=str)
def test_a_reward_takes_the_place_of_the_silence(family):
    """Reward by reward the posterior is that of a learner that hears the rest in one go."""
    learner, x, y, F = silent_learner(family, 90, seed=2)
    silent = np.flatnonzero(F > 0.0)
    for k, row in enumerate(silent[: len(silent) // 2]):
        y[row], F[row] = float(k % 5 == 0), 0.0
        learner.learn({int(row): y[row]})
    assert learner.state.fit.scalars[SILENT] == (F > 0.0).sum()
    np.testing.assert_array_equal(learner.history.silence[:90], F)
    gradient, _ = gradient_and_hessian(learner, x, y, F, learner.exact_theta())
    assert np.abs(gradient).max() < 1e-9
    fit = learner.state.fit
    take_terms(fit)
    S = np.triu(fit.S) + np.triu(fit.S, 1).T
    _, H = gradient_and_hessian(learner, x, y, F, fit.center)
    np.testing.assert_allclose(S @ H, np.eye(6), atol=1e-9)
    np.testing.assert_allclose(
        fit.gradient, gradient_and_hessian(learner, x, y, F, fit.ref)[0], atol=1e-9
    )
    np.testing.assert_allclose(fit.step, -S @ fit.gradient, atol=1e-9)


@pytest.mark.parametrize("base", [-2.0, 2.0])
def test_once_all_windows_are_closed_the_estimate_is_the_ordinary_one(base):
    learner, x, y, F = silent_learner(Bernoulli(), 120, seed=3, base=base)
    ordinary = Learner(6, Bernoulli(), FIXED, 1.0, GROUPS)
    for row in x:
        ordinary.decide(row[np.newaxis], np.random.default_rng(0))
    silent = np.flatnonzero(F > 0.0)
    rewards = {int(row): float(row % 7 == 0) for row in silent}
    for row, reward in rewards.items():
        learner.learn({row: reward})
    y[silent] = list(rewards.values())
    ordinary.learn(dict(enumerate(y.tolist())))
    np.testing.assert_allclose(learner.exact_theta(), ordinary.exact_theta(), atol=1e-9)
    error = learner.state.theta - ordinary.exact_theta()
    _, H = gradient_and_hessian(learner, x, y, np.zeros(120), learner.state.theta)
    assert math.sqrt(error @ H @ error) <= learner.state.scalars[ERROR] + 1e-9
    assert learner.state.scalars[ERROR] <= FIXED.tol


@pytest.mark.parametrize("family", [Bernoulli(), Poisson()], ids=str)
@pytest.mark.parametrize("changed", [5, 90], ids=["row by row", "by an inverse"])
@pytest.mark.parametrize("factor", [0.0, 0.3, 0.97, 1.2])
def test_silence_that_changes_exchanges_terms(family, changed, factor):
    """Gradient, covariance and the bound on x'S x are those of the history as it then is."""
    learner, x, y, F = silent_learner(family, 150, seed=6, base=-4.0)
    heard = learner.state.fit.scalars[HEARD]
    silent = np.flatnonzero(F > 0.0)
    before = F.copy()
    F[silent[:changed]] = np.minimum(factor * F[silent[:changed]], 1.0)
    F[silent[-2:]] = 0.0  # two say nothing any more
    for _ in range(2):  # the second time, nothing changes
        learner.hear(np.flatnonzero(F > 0.0), F[F > 0.0])
    fit = learner.state.fit
    take_terms(fit)
    S = np.triu(fit.S) + np.triu(fit.S, 1).T
    gradient, _ = gradient_and_hessian(learner, x, y, F, fit.ref)
    _, H = gradient_and_hessian(learner, x, y, F, fit.center)
    np.testing.assert_allclose(S @ H, np.eye(6), atol=1e-9)
    np.testing.assert_allclose(fit.gradient, gradient, atol=1e-9)
    np.testing.assert_allclose(fit.step, -S @ gradient, atol=1e-9)
    count = (F > 0.0) | ~np.isnan(y)
    assert fit.scalars[VARIANCE] >= ((x @ S) * x).sum(axis=1)[count].max() * (1.0 - 1e-12)
    assert fit.scalars[HIGHEST] >= (x @ fit.center)[F > 0.0].max(initial=-math.inf)
    assert fit.scalars[SILENT] == (F > 0.0).sum()
    assert fit.scalars[HEARD] - heard == pytest.approx(np.abs(F - before).sum())


def test_silence_of_full_age_is_a_failure():
    learner, x, y, F = silent_learner(Bernoulli(), 80, seed=4)
    learner.hear(np.flatnonzero(F > 0.0), np.ones((F > 0.0).sum()))
    exact = learner.exact_theta()
    ordinary = Learner(6, Bernoulli(), FIXED, 1.0, GROUPS)
    for row in x:
        ordinary.decide(row[np.newaxis], np.random.default_rng(0))
    known = np.where(F > 0.0, 0.0, y)
    ordinary.learn({int(t): float(known[t]) for t in np.flatnonzero(~np.isnan(known))})
    np.testing.assert_allclose(exact, ordinary.exact_theta(), atol=1e-9)


def test_gaussian_rewards_say_nothing_by_silence():
    with pytest.raises(ValueError, match="open = 'silence': expected 'hold': AdaptiveThompson"):
        Learner(2, Gaussian(sd=1.0), FIXED, 1.0, hears=True)
    with pytest.raises(ValueError, match="Thompson of Bernoulli rewards learns nothing from"):
        Learner(2, Bernoulli(), Thompson(), 1.0, hears=True)
    assert Learner(2, Poisson(), FIXED, 1.0, hears=True).hears


def test_silence_is_kept_in_files_and_longer_histories():
    learner, _, _, F = silent_learner(Bernoulli(), 50, seed=5)
    again = history_of(arrays_of(learner.history, 50), 6)
    np.testing.assert_array_equal(again.silence, F)
    learner.make_room(1000, 10)
    assert len(learner.history.silence) == len(learner.history.y)
    np.testing.assert_array_equal(learner.history.silence[:50], F)
    assert (learner.history.silence[50:] == 0.0).all()


@pytest.mark.compiled
def test_compiled():
    """The prior is learnt, too; the gradient at the mode is zero by the plain formulas."""
    learner, x, y, F = silent_learner(Bernoulli(), 150, 6, base=-5.0, policy=AdaptiveThompson())
    assert learner.state.scalars[ERROR] < 1.0
    gradient, _ = gradient_and_hessian(learner, x, y, F, learner.exact_theta())
    assert np.abs(gradient).max() < 1e-8
