"""Shapes of delays against scipy, in the tails too."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaincc, log_ndtr

from belated.monitoring.delay_shapes import GAMMA, LOGLOGISTIC, LOGNORMAL, LOMAX, WEIBULL
from belated.monitoring.incomplete_gamma import log_upper_gamma

X = np.array([-14.0, -3.0, -0.5, 0.0, 0.7, 2.0, 4.0])  # log delays


MU = 0.3
SCALE = math.exp(MU)
# of each law: as scipy has it for the log of the delay, if it does, and for the delay
THEIRS = {
    "weibull": (WEIBULL, stats.gumbel_l, lambda s: stats.weibull_min(1 / s, scale=SCALE)),
    "lognormal": (LOGNORMAL, stats.norm, lambda s: stats.lognorm(s, scale=SCALE)),
    "loglogistic": (LOGLOGISTIC, stats.logistic, lambda s: stats.fisk(1 / s, scale=SCALE)),
    "lomax": (LOMAX, None, lambda s: stats.lomax(1 / s, scale=SCALE / s)),
    "gamma": (GAMMA, None, lambda s: stats.gamma(1 / s, scale=SCALE * s)),
}


@pytest.mark.parametrize("sigma", [0.05, 0.4, 1.0, 2.5])
@pytest.mark.parametrize("name", THEIRS)
def test_as_scipy_has_them(name, sigma):
    law, of_log, of_delay = THEIRS[name]
    if of_log is None:
        known = of_delay(sigma)
        log_density, log_share = known.logpdf(np.exp(X)) + X, known.logsf(np.exp(X))
    else:
        known = of_log(MU, sigma)
        log_density, log_share = known.logpdf(X), known.logsf(X)
    inside = log_share > -700.0  # scipy's own tails end there
    assert law.density(X, MU, sigma)[inside] == pytest.approx(log_density[inside], rel=1e-9)
    found = law.beyond(X, MU, sigma)[inside]
    assert found == pytest.approx(log_share[inside], rel=1e-9, abs=1e-14)
    heavy = name in ("loglogistic", "lomax") and sigma >= 1.0
    mean = math.inf if heavy else of_delay(sigma).mean()  # scipy has NaN for some of these
    assert math.exp(law.log_mean(MU, sigma)) == pytest.approx(mean, rel=1e-9)


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
