"""The delayed feedback model of conversions."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

import naive.conversions
from belated import Bandit, Bernoulli, registry
from belated.engine.reference import draw_world, play
from belated.policies import OTFLinUCB, UniformPlay
from belated.worlds.delays import Hazard
from belated.worlds.dfm import dfm_loss, draw_dfm_log, fit_dfm
from belated.worlds.environments import UnitBall
from belated.worlds.feedback import Conversions

W_C, W_D = np.array([-0.5, 1.0, -0.7]), np.array([-0.5, 0.8, 0.3])
RNG = np.random.default_rng(0)
X = np.column_stack([np.ones(300), RNG.uniform(-1, 1, (300, 2))])
LOG = draw_dfm_log(X, W_C, W_D, RNG.uniform(0, 5, 300), seed=3)


def test_loss_is_the_formula():
    value, _, _ = dfm_loss(*LOG, W_C, W_D)
    assert value == pytest.approx(naive.conversions.dfm_loss(*LOG, W_C, W_D), rel=1e-12)
    penalised, _, _ = dfm_loss(*LOG, W_C, W_D, conversion_penalty=2.0, delay_penalty=3.0)
    assert penalised == pytest.approx(value + W_C @ W_C + 1.5 * W_D @ W_D)


def test_gradients_are_finite_differences():
    for w_c, w_d in [(W_C, W_D), (np.zeros(3), np.ones(3)), (3 * W_D, -W_C)]:
        _, for_conversion, for_delay = dfm_loss(
            *LOG, w_c, w_d, conversion_penalty=0.5, delay_penalty=2.0
        )

        def loss(w, w_c=w_c, w_d=w_d):
            penalty = 0.25 * w[:3] @ w[:3] + w[3:] @ w[3:]
            return naive.conversions.dfm_loss(*LOG, w[:3], w[3:]) + penalty

        w, h = np.concatenate([w_c, w_d]), 1e-5
        differences = [(loss(w + h * e) - loss(w - h * e)) / (2 * h) for e in np.eye(6)]
        assert np.concatenate([for_conversion, for_delay]) == pytest.approx(
            differences, rel=1e-6, abs=1e-5
        )


def logistic_loss(w_c):
    z = LOG.x @ w_c
    return (np.logaddexp(0.0, z) - LOG.converted * z).sum()


@pytest.mark.parametrize("elapsed", [1e6, math.inf])
def test_old_decisions_give_the_logistic_loss(elapsed):
    """E -> infinity: what has not converted never will. Fitting is logistic regression then."""
    from sklearn.linear_model import LogisticRegression

    delays = np.where(LOG.converted, LOG.time, elapsed)
    value, for_conversion, for_delay = dfm_loss(LOG.x, LOG.converted, delays, W_C, W_D)
    waited, seen = np.exp(LOG.x @ W_D) * LOG.time, LOG.converted
    assert value == pytest.approx(logistic_loss(W_C) - (LOG.x @ W_D - waited)[seen].sum())
    assert for_delay == pytest.approx(LOG.x[seen].T @ (waited[seen] - 1.0))
    p = 1 / (1 + np.exp(-LOG.x @ W_C))
    assert for_conversion == pytest.approx(LOG.x.T @ (p - LOG.converted))
    model = fit_dfm(LOG.x, LOG.converted, delays, conversion_penalty=2.0)
    reference = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-10, max_iter=1000)
    reference.fit(LOG.x, LOG.converted)
    assert model.conversion_weights == pytest.approx(reference.coef_[0], abs=1e-5)
    assert model.converged


def test_great_hazards_give_immediate_feedback():
    """Hazard -> infinity: whoever converts has converted; the loss is the logistic one again."""
    at_once = np.where(LOG.converted, 0.0, LOG.time + 0.01)
    value, for_conversion, _ = dfm_loss(LOG.x, LOG.converted, at_once, W_C, [30.0, 0.0, 0.0])
    assert value + 30.0 * LOG.converted.sum() == pytest.approx(logistic_loss(W_C))
    p = 1 / (1 + np.exp(-LOG.x @ W_C))
    assert for_conversion == pytest.approx(LOG.x.T @ (p - LOG.converted))


def test_delays_of_conversions_are_an_exponential_regression():
    """All converted: counts of one with exposure D, the Poisson regression of statsmodels."""
    import statsmodels.api as sm

    n = 200
    delays = np.random.default_rng(2).standard_exponential(n) * np.exp(-X[:n] @ W_D)
    model = fit_dfm(X[:n], np.ones(n), delays, delay_penalty=1e-9)
    poisson = sm.GLM(np.ones(n), X[:n], family=sm.families.Poisson(), exposure=delays).fit(
        tol=1e-12
    )
    assert model.delay_weights == pytest.approx(poisson.params, abs=1e-6)
    assert np.sqrt(np.diag(model.covariance))[3:] == pytest.approx(poisson.bse, rel=1e-5)


def test_em_finds_what_a_general_optimiser_finds():
    penalties = {"conversion_penalty": 0.5, "delay_penalty": 0.2}
    model = fit_dfm(*LOG, **penalties)

    def loss(w):
        return (
            naive.conversions.dfm_loss(*LOG, w[:3], w[3:])
            + 0.25 * w[:3] @ w[:3]
            + 0.1 * w[3:] @ w[3:]
        )

    best = minimize(loss, np.zeros(6), method="BFGS", options={"gtol": 1e-4})
    assert np.concatenate([model.conversion_weights, model.delay_weights]) == pytest.approx(
        best.x, abs=1e-4
    )
    assert model.converged
    assert -model.objective[-1] == pytest.approx(best.fun, rel=1e-9)
    unpenalised = naive.conversions.dfm_loss(*LOG, model.conversion_weights, model.delay_weights)
    assert model.log_likelihood == pytest.approx(-unpenalised)
    _, for_conversion, for_delay = dfm_loss(
        *LOG, model.conversion_weights, model.delay_weights, **penalties
    )
    assert np.abs([for_conversion, for_delay]).max() <= 1e-8 * 300


@pytest.mark.parametrize("seed", range(5))
def test_em_never_goes_down(seed):
    rng = np.random.default_rng(seed)
    n, d = 60, 4
    x = rng.standard_normal((n, d)) * rng.choice([0.1, 1.0, 5.0])
    log = draw_dfm_log(
        x, rng.standard_normal(d), rng.standard_normal(d), rng.choice([0.3, 3.0]), seed=seed
    )
    model = fit_dfm(*log, conversion_penalty=0.1, delay_penalty=0.1, max_iterations=60)
    assert model.iterations == len(model.objective) - 1 > 3
    assert (np.diff(model.objective) >= -1e-10 * np.abs(model.objective[1:])).all()


def test_information_is_the_slope_of_the_gradient():
    model = fit_dfm(*LOG, conversion_penalty=0.5, delay_penalty=0.2)
    w, h, columns = np.concatenate([model.conversion_weights, model.delay_weights]), 1e-6, []
    for e in np.eye(6):
        up, down = (
            np.concatenate(
                dfm_loss(*LOG, v[:3], v[3:], conversion_penalty=0.5, delay_penalty=0.2)[1:]
            )
            for v in (w + h * e, w - h * e)
        )
        columns.append((up - down) / (2 * h))
    assert model.covariance @ np.array(columns) == pytest.approx(np.eye(6), abs=1e-5)


def test_weights_are_recovered():
    """Within four of its own standard errors; the naive rate is far outside."""
    rng = np.random.default_rng(5)
    n = 8000
    x = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))])
    log = draw_dfm_log(x, W_C, W_D, rng.uniform(0, 5, n), seed=6)
    model = fit_dfm(*log, conversion_penalty=1e-3, delay_penalty=1e-3)
    errors = np.sqrt(np.diag(model.covariance))
    estimates = np.concatenate([model.conversion_weights, model.delay_weights])
    assert (np.abs(estimates - np.concatenate([W_C, W_D])) < 4 * errors).all()
    assert (errors < 0.2).all()
    p = 1 / (1 + np.exp(-x @ W_C))
    assert abs(model.predict(x).mean() - p.mean()) < 0.03 < p.mean() - log.converted.mean()


def test_predictions():
    model = fit_dfm(*LOG)
    p = 1 / (1 + np.exp(-X @ model.conversion_weights))
    hazard = np.exp(X @ model.delay_weights)
    assert model.predict(X) == pytest.approx(p)
    assert model.predict_within(X, 2.0) == pytest.approx(p * (1 - np.exp(-2.0 * hazard)))
    assert model.predict_within(X, math.inf) == pytest.approx(p)
    assert model.mean_delay(X) == pytest.approx(1 / hazard)
    early = fit_dfm(*LOG, max_iterations=1)
    assert early.iterations == 1
    assert not early.converged


def test_a_drawn_log_has_the_laws_of_the_model():
    n = 20_000
    x = np.tile([1.0, 0.5], (n, 1))
    log = draw_dfm_log(x, [0.2, 0.4], [-0.3, 0.2], 1.5, seed=1)
    p, hazard = 1 / (1 + math.exp(-0.4)), math.exp(-0.2)
    seen = p * (1 - math.exp(-hazard * 1.5))
    assert abs(log.converted.mean() - seen) < 5 * math.sqrt(seen / n)
    assert (log.time[~log.converted] == 1.5).all()
    assert (log.time[log.converted] < 1.5).all()
    median = -math.log(1 - (1 - math.exp(-hazard * 1.5)) / 2) / hazard
    assert abs(np.mean(log.time[log.converted] < median) - 0.5) < 5 / math.sqrt(4 * seen * n)


def test_a_simulated_bandit_makes_a_log_of_the_model():
    """Bernoulli rewards with Hazard delays are the model: its weights come back from a run."""
    n, theta_star, weights = 1500, np.array([0.9, -0.4]), np.array([-1.0, 0.8])
    bandit, run, world = played_uniform(n, theta_star, Hazard(weights))
    delay = -np.log1p(-world.lateness) / np.exp(bandit._history.x[:n] @ weights)
    age = n - np.arange(n)
    seen = (run.reward == 1.0) & (delay <= age)
    model = fit_dfm(bandit._history.x[:n], seen, np.where(seen, delay, age), conversion_penalty=0.1)
    errors = np.sqrt(np.diag(model.covariance))
    estimates = np.concatenate([model.conversion_weights, model.delay_weights])
    assert (np.abs(estimates - np.concatenate([theta_star, weights])) < 4 * errors).all()
    assert (errors < 0.5).all()


def played_uniform(n, theta_star, delay):
    world = draw_world(UnitBall(4), 2, n, 8, theta_star)
    bandit = Bandit(2, family=Bernoulli(), policy=UniformPlay(), seed=1)
    return bandit, play(bandit, world, delay, feedback=Conversions()), world


def test_dfm_bad_input():
    good = (X[:4], [1, 0, 0, 1], [1.0, 2.0, math.inf, 0.0])
    fit_dfm(*good)
    for change, message in [
        ({0: X[0]}, r"x has shape \(3,\): expected \(n, d\)"),
        ({0: X[:0]}, r"x has shape \(0, 3\)"),
        ({0: X[:4] * math.nan}, r"x = .*nan.*: expected finite numbers"),
        ({1: [1, 0, 0]}, r"converted has shape \(3,\): expected \(4,\)"),
        ({1: [1, 0, 0, 2]}, r"converted = .*2.*: expected True or False"),
        ({2: [1.0, 2.0]}, r"time has shape \(2,\): expected \(4,\)"),
        ({2: [1.0, -2.0, 0.0, 0.0]}, r"time = .*-2.*: expected numbers, 0 or more"),
        ({2: [1.0, math.nan, 0.0, 0.0]}, r"time = .*nan.*: expected numbers, 0 or more"),
        ({2: [math.inf, 2.0, 0.0, 0.0]}, r"time = inf: expected a finite delay where converted"),
    ]:
        arguments = [change.get(i, value) for i, value in enumerate(good)]
        with pytest.raises(ValueError, match=message):
            fit_dfm(*arguments)
    for name, value in [
        ("conversion_penalty", 0.0),
        ("delay_penalty", -1.0),
        ("tol", math.nan),
        ("max_iterations", 0),
    ]:
        with pytest.raises(ValueError, match=f"{name} = {value}: expected"):
            fit_dfm(*good, **{name: value})
    with pytest.raises(ValueError, match=r"delay_weights = .*expected 3 finite numbers"):
        dfm_loss(*good, W_C, W_D[:2])
    with pytest.raises(ValueError, match=r"elapsed = .*-1.*expected numbers, 0 or more"):
        draw_dfm_log(X, W_C, W_D, -1.0, seed=1)
    with pytest.raises(ValueError, match=r"x has shape \(4, 2\): expected \(n, 3\)"):
        fit_dfm(*good).predict(X[:4, :2])


def test_extremes_do_not_overflow():
    """Hazards beyond the range of numbers, and a log in which nothing has converted."""
    value, for_conversion, for_delay = dfm_loss(*LOG, 1e3 * W_C, [-1e3, 0.0, 0.0])
    assert math.isfinite(value)
    assert np.isfinite([for_conversion, for_delay]).all()
    nothing = fit_dfm(X, np.zeros(300), np.full(300, 1e8))
    assert (nothing.predict(X) < 0.2).all()
    assert nothing.converged


def test_names_in_the_registry():
    assert registry.parse(registry.POLICIES, "otf-lin-ucb:window=30") == OTFLinUCB(window=30)
    assert registry.parse(registry.POLICIES, "otf-lin-ts:window=30,scale=0.5").scale == 0.5
