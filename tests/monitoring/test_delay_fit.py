"""Fitted delays against closed forms, scipy and the laws they were drawn from."""

import math

import numpy as np
import pytest
from scipy import optimize, stats
from scipy.special import log_ndtr

from belated.monitoring.delay_fit import LAWS, best_fit, fit_delay
from belated.monitoring.delay_shapes import LOGNORMAL, WEIBULL

DRAWS = {
    "exponential": stats.expon(scale=600.0),
    "weibull": stats.weibull_min(0.7, scale=600.0),
    "lognormal": stats.lognorm(1.2, scale=600.0),
}
THEIRS = {"exponential": stats.expon, "weibull": stats.weibull_min, "lognormal": stats.lognorm}


def drawn(law, n, seed, never=0.0):
    rng = np.random.default_rng(seed)
    delays = DRAWS[law].rvs(n, random_state=rng)
    delays[rng.random(n) < never] = math.inf
    ages = rng.uniform(0.0, 5000.0, n)
    return np.minimum(delays, ages), delays <= ages


def test_exponential_by_hand():
    fit = fit_delay("exponential", [1.0, 2.0, 3.0, 4.0], [True, True, False, False])
    assert (fit.scale, fit.sigma, fit.returning) == (pytest.approx(5.0), 1.0, 1.0)
    assert fit.log_likelihood == pytest.approx(-2 * math.log(5.0) - 10.0 / 5.0)
    assert fit.aic == pytest.approx(2.0 - 2.0 * fit.log_likelihood)
    assert fit.waiting_at([5.0, 0.0]) == pytest.approx([math.exp(-1.0), 1.0], abs=1e-6)


def test_lognormal_without_censoring_by_hand():
    delays = np.array([1.0, 2.0, 8.0, 3.0])
    fit = fit_delay("lognormal", delays, np.full(4, True))
    assert fit.mu == pytest.approx(np.log(delays).mean())
    assert fit.sigma == pytest.approx(np.log(delays).std())


@pytest.mark.parametrize("n", [30, 5000])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("drawn_from", LAWS)
def test_as_scipy(law, drawn_from, n):
    delays, returned = drawn(drawn_from, n, seed=n)
    ours = fit_delay(law, delays, returned)
    data = stats.CensoredData(uncensored=delays[returned], right=delays[~returned])
    *shape, _, scale = THEIRS[law].fit(data, floc=0.0)
    assert ours.scale == pytest.approx(scale, rel=2e-3)
    if shape:
        theirs = shape[0] if law == "lognormal" else 1.0 / shape[0]
        assert ours.sigma == pytest.approx(theirs, rel=2e-3)
    frozen = THEIRS[law](*shape, 0.0, scale)
    likelihood = frozen.logpdf(delays[returned]).sum() + frozen.logsf(delays[~returned]).sum()
    assert ours.log_likelihood >= likelihood - 1e-6  # theirs stops at a tolerance
    assert ours.log_likelihood == pytest.approx(likelihood, rel=1e-6)


@pytest.mark.parametrize("law", LAWS)
def test_share_that_never_returns(law):
    delays, returned = drawn(law, 3000, seed=7, never=0.3)
    fit = fit_delay(law, delays, returned, some_never_return=True)
    assert fit.returning == pytest.approx(0.7, abs=0.05)
    assert fit.waiting_at([DRAWS[law].ppf(0.5)]) == pytest.approx([0.65], abs=0.05)
    assert fit.waiting_at([1e12]) == pytest.approx([1.0 - fit.returning])

    def minus_likelihood(point):
        mu, log_sigma, logit = point
        sigma, share = math.exp(log_sigma), 1.0 / (1.0 + math.exp(-logit))
        with_shape = {
            "exponential": stats.expon(scale=math.exp(mu)),
            "weibull": stats.weibull_min(1.0 / sigma, scale=math.exp(mu)),
            "lognormal": stats.lognorm(sigma, scale=math.exp(mu)),
        }[law]
        came = math.log(share) + with_shape.logpdf(delays[returned])
        waits = np.log(1.0 - share + share * with_shape.sf(delays[~returned]))
        return -(came.sum() + waits.sum())

    start = [fit.mu + 0.1, math.log(fit.sigma) - 0.1, 1.0]
    options = {"xatol": 1e-6, "fatol": 1e-7, "maxiter": 2000}
    theirs = optimize.minimize(minus_likelihood, start, method="Nelder-Mead", options=options)
    assert fit.log_likelihood == pytest.approx(-theirs.fun, abs=1e-4)


@pytest.mark.parametrize("never", [0.0, 0.3])
@pytest.mark.parametrize("law", LAWS)
def test_best_fit_finds_the_law(law, never):
    fit = best_fit(*drawn(law, 5000, seed=11, never=never))
    # AIC takes a superfluous parameter one time in six
    nested = law == "exponential" and fit.law == "weibull" and abs(fit.sigma - 1.0) < 0.05
    assert fit.law == law or nested
    assert (fit.returning < 0.9) == (never > 0.0)


def test_no_share_is_invented_where_all_return():
    delays, _ = drawn("lognormal", 2000, seed=3)
    fit = fit_delay("lognormal", delays, np.full(2000, True), some_never_return=True)
    assert fit.returning > 1.0 - 1e-5


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e6])
def test_the_unit_of_time_does_not_matter(unit):
    delays, returned = drawn("weibull", 400, seed=6, never=0.2)
    plain = fit_delay("weibull", delays, returned, True)
    fit = fit_delay("weibull", delays * unit, returned, True)
    assert fit.scale == pytest.approx(plain.scale * unit, rel=1e-6)
    assert fit.sigma == pytest.approx(plain.sigma, rel=1e-6)
    assert fit.returning == pytest.approx(plain.returning, rel=1e-6)


def test_edges():
    assert best_fit([], []) is None
    assert best_fit([1.0, 2.0], [False, False]) is None
    assert fit_delay("weibull", [2.0, 2.0, 3.0], [True, True, False]) is None
    assert fit_delay("exponential", [0.0], [True]).scale == pytest.approx(1e-6)
    assert best_fit([3.0], [True]).law == "exponential"
    for law in LAWS:  # two points, far apart
        fit = fit_delay(law, [1e-3, 1e6], [True, True], some_never_return=True)
        assert math.isfinite(fit.log_likelihood)
    with pytest.raises(ValueError, match="law = 'gamma': expected one of exponential, weibull"):
        fit_delay("gamma", [1.0], [True])
    with pytest.raises(ValueError, match=r"delays\[0\] = -1.0"):
        best_fit([-1.0], [True])


def test_laws_far_out():
    z = np.array([-40.0, -3.0, 0.0, 2.0, 4.999, 5.001, 12.0, 40.0, 1e4])
    log_share, hazard, _ = LOGNORMAL.beyond(z)
    assert log_share == pytest.approx(log_ndtr(-z), rel=1e-12, abs=1e-300)
    assert hazard == pytest.approx(np.exp(stats.norm.logpdf(z) - log_ndtr(-z)), rel=1e-7)
    step = 1e-5
    for law in (LOGNORMAL, WEIBULL):
        at = np.array([-2.0, -0.3, 0.5, 1.7])
        for triple in (law.density, law.beyond):
            _, first, second = triple(at)
            up, down = triple(at + step), triple(at - step)
            sign = 1.0 if triple is law.density else -1.0
            assert sign * first == pytest.approx((up[0] - down[0]) / (2 * step), rel=1e-6)
            assert second == pytest.approx((up[1] - down[1]) / (2 * step), rel=1e-6)
