"""Fitted delays against closed forms, scipy, statsmodels and the laws they were drawn from."""

import math

import numpy as np
import pytest
from scipy import optimize, stats
from statsmodels.tools.numdiff import approx_hess

from belated.monitoring import delay_fit
from belated.monitoring.delay_fit import LAWS, USUAL, all_fits, best_fit

DRAWS = {
    "exponential": stats.expon(scale=600.0),
    "weibull": stats.weibull_min(0.7, scale=600.0),
    "lognormal": stats.lognorm(1.2, scale=600.0),
    "loglogistic": stats.fisk(1.8, scale=600.0),
    "lomax": stats.lomax(2.5, scale=900.0),
    "gamma": stats.gamma(2.5, scale=300.0),
}
THEIRS = {
    "exponential": stats.expon,
    "weibull": stats.weibull_min,
    "lognormal": stats.lognorm,
    "loglogistic": stats.fisk,
    "lomax": stats.lomax,
    "gamma": stats.gamma,
}


def in_scipy(law, mu, sigma):
    """The law with our parameters, as scipy has it."""
    scale = math.exp(mu)
    return {
        "exponential": lambda: stats.expon(scale=scale),
        "weibull": lambda: stats.weibull_min(1.0 / sigma, scale=scale),
        "lognormal": lambda: stats.lognorm(sigma, scale=scale),
        "loglogistic": lambda: stats.fisk(1.0 / sigma, scale=scale),
        "lomax": lambda: stats.lomax(1.0 / sigma, scale=scale / sigma),
        "gamma": lambda: stats.gamma(1.0 / sigma, scale=scale * sigma),
    }[law]()


def log_likelihood(law, point, delays, returned):
    """Of (mu, log sigma, logit of the share that returns), by scipy."""
    mu, log_sigma, logit = point
    known, share = in_scipy(law, mu, math.exp(log_sigma)), 1.0 / (1.0 + math.exp(-logit))
    came = math.log(share) + known.logpdf(delays[returned])
    return came.sum() + np.log(1.0 - share + share * known.sf(delays[~returned])).sum()


def fit_delay(law, delays, returned, some_never_return=False):
    return next(iter(all_fits(delays, returned, [law], [some_never_return])), None)


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
    # the information on the log of the mean is the number of rewards
    assert fit.mean_error == pytest.approx(5.0 / math.sqrt(2.0), rel=1e-5)
    reach = math.exp(1.959964 / math.sqrt(2.0))
    assert fit.mean_interval() == pytest.approx((5.0 / reach, 5.0 * reach), rel=1e-5)
    assert (fit.never, fit.never_error, fit.never_interval()) == (0.0, 0.0, (0.0, 0.0))


def test_lognormal_without_censoring_by_hand():
    delays = np.array([1.0, 2.0, 8.0, 3.0])
    fit = fit_delay("lognormal", delays, np.full(4, True))
    assert fit.mu == pytest.approx(np.log(delays).mean())
    assert fit.sigma == pytest.approx(np.log(delays).std())


@pytest.fixture
def exact(monkeypatch):
    """Fits of the delays themselves, for comparisons digit by digit, not of counts in cells."""
    monkeypatch.setattr(delay_fit, "MOST_POINTS", 10**9)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("n", [30, 5000])
@pytest.mark.parametrize("drawn_from", USUAL)
@pytest.mark.parametrize("law", LAWS)
def test_as_scipy(law, drawn_from, n):
    delays, returned = drawn(drawn_from, n, seed=n)
    ours = fit_delay(law, delays, returned)
    mine = in_scipy(law, ours.mu, ours.sigma)
    own = mine.logpdf(delays[returned]).sum() + mine.logsf(delays[~returned]).sum()
    assert ours.log_likelihood == pytest.approx(own, rel=1e-9)
    assert ours.waiting_at(delays) == pytest.approx(mine.sf(delays), rel=1e-9)
    data = stats.CensoredData(uncensored=delays[returned], right=delays[~returned])
    shape_and_scale = THEIRS[law].fit(data, floc=0.0)
    theirs = THEIRS[law](*shape_and_scale)
    likelihood = theirs.logpdf(delays[returned]).sum() + theirs.logsf(delays[~returned]).sum()
    assert ours.log_likelihood >= likelihood - 1e-5  # theirs stops at a tolerance


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("law", LAWS)
def test_share_that_never_returns(law):
    delays, returned = drawn(law, 3000, seed=7, never=0.3)
    fit = fit_delay(law, delays, returned, some_never_return=True)
    assert fit.returning == pytest.approx(0.7, abs=0.05)
    assert fit.waiting_at([DRAWS[law].ppf(0.5)]) == pytest.approx([0.65], abs=0.05)
    point = [fit.mu, math.log(fit.sigma), math.log(fit.returning / fit.never)]
    assert fit.log_likelihood == pytest.approx(log_likelihood(law, point, delays, returned))

    def minus(free):
        return -log_likelihood(law, [*free[:2], free[-1]], delays, returned)

    start, options = np.array(point) + 0.1, {"xatol": 1e-6, "fatol": 1e-7, "maxiter": 2000}
    if law == "exponential":  # which has no shape
        start[1] = 0.0
        theirs = optimize.minimize(
            lambda free: minus([free[0], 0.0, free[1]]), start[[0, 2]], method="Nelder-Mead"
        )
    else:
        theirs = optimize.minimize(minus, start, method="Nelder-Mead", options=options)
    assert fit.log_likelihood == pytest.approx(-theirs.fun, abs=1e-3)
    assert fit.log_likelihood >= -theirs.fun - 1e-6


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("law", [law for law in LAWS if law != "exponential"])
def test_standard_errors_as_from_statsmodels(law):
    """The delta method, with the Hessian of scipy's likelihood by statsmodels' differences."""
    delays, returned = drawn(law, 2000, seed=3, never=0.3)
    fit = fit_delay(law, delays, returned, some_never_return=True)
    point = np.array([fit.mu, math.log(fit.sigma), math.log(fit.returning / fit.never)])
    hessian = approx_hess(point, lambda at: log_likelihood(law, at, delays, returned))
    covariance = np.linalg.inv(-hessian)
    assert fit.covariance == pytest.approx(covariance, rel=2e-3)
    assert fit.mean == pytest.approx(in_scipy(law, fit.mu, fit.sigma).mean(), rel=1e-9)
    step = 1e-5
    means = [in_scipy(law, fit.mu, fit.sigma * math.exp(s)).mean() for s in (step, -step)]
    slopes = np.array([fit.mean, (means[0] - means[1]) / (2.0 * step)])
    error = math.sqrt(slopes @ covariance[:2, :2] @ slopes)
    assert fit.mean_error == pytest.approx(error, rel=2e-3)
    low, high = fit.mean_interval()
    assert math.log(high / fit.mean) == pytest.approx(1.959964 * error / fit.mean, rel=2e-3)
    assert low * high == pytest.approx(fit.mean**2)
    never_error = fit.never * fit.returning * math.sqrt(covariance[2, 2])
    assert fit.never_error == pytest.approx(never_error, rel=2e-3)
    least, most = fit.never_interval()
    assert 0.0 < least < fit.never < most < 1.0
    logits = [math.log(share / (1.0 - share)) for share in (least, most)]
    assert (logits[1] - logits[0]) / 2 == pytest.approx(
        1.959964 * math.sqrt(covariance[2, 2]), rel=2e-3
    )


@pytest.mark.parametrize("law", ["loglogistic", "lomax"])
def test_a_mean_may_be_infinite(law):
    rng = np.random.default_rng(4)
    heavy = stats.lomax(0.8) if law == "lomax" else stats.fisk(0.8)
    delays = heavy.rvs(3000, random_state=rng)
    fit = fit_delay(law, delays, np.full(3000, True))
    assert fit.mean == math.inf
    assert math.isnan(fit.mean_error)
    assert fit.mean_interval()[1] == math.inf


@pytest.mark.parametrize("law", LAWS)
def test_many_delays_are_counted_in_cells(law, monkeypatch):
    delays, returned = drawn(law, 40_000, seed=5, never=0.2)
    fit = fit_delay(law, delays, returned, some_never_return=True)
    monkeypatch.setattr(delay_fit, "MOST_POINTS", 10**9)
    exact = fit_delay(law, delays, returned, some_never_return=True)
    assert abs(fit.mean - exact.mean) < 0.002 * exact.mean_error
    assert abs(fit.never - exact.never) < 0.002 * exact.never_error
    assert fit.aic == pytest.approx(exact.aic, abs=1.0)
    assert fit.covariance == pytest.approx(exact.covariance, rel=1e-3)


@pytest.mark.parametrize("never", [0.0, 0.3])
@pytest.mark.parametrize("law", LAWS)
def test_the_best_fit_is_the_law(law, never):
    delays, returned = drawn(law, 20_000, seed=11, never=never)
    fits = all_fits(delays, returned)
    assert [fit.aic for fit in fits] == sorted(fit.aic for fit in fits)
    assert len(fits) == 2 * len(LAWS)
    fit = fits[0]
    # AIC takes a superfluous parameter one time in six
    nested = law == "exponential" and fit.law in ("weibull", "gamma", "lomax")
    assert fit.law == law or nested
    assert (fit.returning < 0.9) == (never > 0.0)


@pytest.mark.parametrize("law", USUAL)
def test_best_fit_of_the_usual_laws(law):
    fit = best_fit(*drawn(law, 5000, seed=11, never=0.3))
    # AIC takes a superfluous parameter one time in six
    nested = law == "exponential" and fit.law == "weibull" and abs(fit.sigma - 1.0) < 0.05
    assert fit.law == law or nested
    assert fit.returning < 0.9


@pytest.mark.parametrize("law", LAWS)
def test_quantiles_are_where_shares_come(law):
    fit = fit_delay(law, *drawn(law, 500, seed=2))
    shares = np.array([0.01, 0.5, 0.99])
    assert fit.within_at(fit.quantile(shares)) == pytest.approx(shares, rel=1e-9)
    assert fit.quantile([1.0])[0] == math.inf


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
    with pytest.raises(ValueError, match=r"delays\[0\] = -1.0"):
        best_fit([-1.0], [True])


@pytest.mark.parametrize("law", LAWS)
def test_where_all_have_come_the_share_of_never_has_an_upper_end(law):
    """n rewards and nothing that waits: with a share s of never they have likelihood (1 - s)^n."""
    delays = np.random.default_rng(11).gamma(2.0, 3600.0, 500)
    fit = fit_delay(law, delays, np.ones(500, bool), some_never_return=True)
    low, high = fit.never_interval()
    assert (fit.never, low) == (pytest.approx(0.0, abs=1e-6), 0.0)
    assert high == pytest.approx(-math.expm1(-0.5 * 1.959964**2 / 500), rel=1e-2)


def test_an_upper_end_where_some_still_wait():
    """One in twenty never comes, and three have waited for a mean delay: nobody can tell."""
    fit = fit_delay("exponential", [1.0] * 57 + [2.0] * 3, [True] * 57 + [False] * 3, True)
    low, high = fit.never_interval()
    assert low == 0.0
    assert 0.02 < high < 0.2
    far = fit_delay("exponential", [1.0] * 57 + [50.0] * 3, [True] * 57 + [False] * 3, True)
    low, high = far.never_interval()
    assert 0.0 < low < 0.05 < high < 0.2  # none of them will come


def test_intervals_of_a_small_share_hold():
    """One reward in a hundred never comes: 40 logs, of which two may be outside."""
    outside, at_zero = 0, 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        age, delay = rng.uniform(0.0, 10.0, 300), rng.exponential(1.0, 300)
        came = (rng.random(300) < 0.99) & (delay <= age)
        fit = fit_delay("exponential", np.where(came, delay, age), came, True)
        low, high = fit.never_interval()
        outside += not low <= 0.01 <= high
        at_zero += low == 0.0
    assert stats.binom.sf(outside - 1, 40, 0.05) > 1e-2, outside
    assert 3 < at_zero < 37  # both kinds of interval are met
