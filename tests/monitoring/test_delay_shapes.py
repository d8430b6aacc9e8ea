"""Shapes of delays against scipy, in the tails too."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaincc, log_ndtr

from belated.monitoring.delay_shapes import GAMMA, LOGLOGISTIC, LOGNORMAL, LOMAX, WEIBULL
from belated.monitoring.incomplete_gamma import log_upper_gamma

X = np.array([-14.0, -3.0, -0.5, 0.0, 0.7, 2.0, 4.0])  # log delays


@pytest.mark.parametrize("sigma", [0.05, 0.4, 1.0, 2.5])
@pytest.mark.parametrize(
    ("law", "theirs"),
    [
        (WEIBULL, lambda s, scale: stats.weibull_min(1 / s, scale=scale)),
        (LOGNORMAL, lambda s, scale: stats.lognorm(s, scale=scale)),
        (LOGLOGISTIC, lambda s, scale: stats.fisk(1 / s, scale=scale)),
        (LOMAX, lambda s, scale: stats.lomax(1 / s, scale=scale / s)),
        (GAMMA, lambda s, scale: stats.gamma(1 / s, scale=scale * s)),
    ],
    ids=["weibull", "lognormal", "loglogistic", "lomax", "gamma"],
)
def test_as_scipy_has_them(law, theirs, sigma):
    mu = 0.3
    known, delays = theirs(sigma, math.exp(mu)), np.exp(X)
    inside = known.logsf(delays) > -700.0  # scipy's own tails end there
    # the density is that of the log of the delay
    log_density = known.logpdf(delays) + X
    assert law.density(X, mu, sigma)[inside] == pytest.approx(log_density[inside], rel=1e-9)
    assert law.beyond(X, mu, sigma)[inside] == pytest.approx(
        known.logsf(delays)[inside], rel=1e-9, abs=1e-14
    )
    mean = known.mean()
    if math.isfinite(mean):
        assert math.exp(law.log_mean(mu, sigma)) == pytest.approx(mean, rel=1e-9)
    else:
        assert law.log_mean(mu, sigma) == math.inf


def test_the_normal_tail_far_out():
    z = np.array([-40.0, -3.0, 0.0, 2.0, 4.999, 5.001, 12.0, 40.0, 1e4])
    found = LOGNORMAL.beyond(z, 0.0, 1.0)
    assert found == pytest.approx(log_ndtr(-z), rel=1e-12, abs=1e-300)


def test_lomax_becomes_exponential():
    assert LOMAX.beyond(X, 0.0, 1e-9) == pytest.approx(-np.exp(X), rel=1e-6)


@pytest.mark.parametrize("a", [0.01, 0.5, 1.0, 3.7, 50.0, 2000.0])
def test_incomplete_gamma(a):
    v = a * np.array([1e-6, 0.1, 0.7, 0.99, 1.01, 1.3, 2.0])
    log_share = log_upper_gamma(a, v)
    known = gammaincc(a, v)
    inside = known > 1e-290
    assert np.exp(log_share)[inside] == pytest.approx(known[inside], rel=1e-11)
    assert (np.diff(log_share) <= 0.0).all()
