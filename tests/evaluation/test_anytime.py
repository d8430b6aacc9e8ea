"""Anytime-valid intervals: wrong at some time in no more runs than they say, where others fail."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from belated.evaluation.anytime import (
    TIGHTEST_AT,
    Known,
    anytime_errors,
    anytime_interval,
    difference,
)

ALPHA = 0.05


def test_it_is_the_mixture_of_robbins():
    """The reach at time n solves: mixture likelihood ratio = 1 / alpha."""
    n, level = 5_000, 1.0 - ALPHA
    twice = -2.0 * math.log(ALPHA)
    rho2 = (twice + math.log(twice + 1.0)) / TIGHTEST_AT
    total = anytime_errors(n, level) * math.sqrt(n)  # of n standard normal numbers
    ratio = math.exp(rho2 * total**2 / (2 * (n * rho2 + 1))) / math.sqrt(n * rho2 + 1)
    assert ratio == pytest.approx(1.0 / ALPHA, rel=1e-9)


def test_it_is_tightest_near_the_number_it_is_made_for():
    reach = {n: anytime_errors(n) for n in (100, 1_000, 10_000, 100_000, 10_000_000)}
    assert min(reach, key=reach.get) == 10_000
    assert reach[10_000] < 3.1


def test_a_difference_of_two_groups():
    both = difference(Known(0.5, 0.03, 100), Known(0.2, 0.04, 300))
    assert both == pytest.approx((0.3, 0.05, 400))
    low, high = anytime_interval(both)
    assert high - low == pytest.approx(2 * 0.05 * anytime_errors(400))


def wrong_runs(rng, runs, rate, share, looks):
    """Runs without an effect in which an interval excludes 0 at a look: ours, and the usual one."""
    ours = usual = 0
    for _ in range(runs):
        n = np.diff(np.append(0, looks))
        held, treated = rng.binomial(n, share), None
        treated = n - held
        first = np.cumsum(rng.binomial(held, rate)), np.cumsum(held)
        second = np.cumsum(rng.binomial(treated, rate)), np.cumsum(treated)
        outside, outside_usual = False, False
        for k in range(len(looks)):
            groups = [
                Known(s[k] / m[k], math.sqrt(s[k] / m[k] * (1 - s[k] / m[k]) / m[k]), int(m[k]))
                for s, m in (first, second)
            ]
            gap = difference(*groups)
            low, high = anytime_interval(gap)
            outside |= not low <= 0.0 <= high
            outside_usual |= abs(gap.value) > 1.96 * gap.error
        ours, usual = ours + outside, usual + outside_usual
    return ours, usual


@pytest.mark.parametrize(("rate", "share"), [(0.3, 0.5), (0.02, 0.1)])
def test_runs_that_are_looked_at_all_the_time(rate, share):
    """A holdout without effect, looked at 60 times: wrong in 5 per cent of 1,000 runs at most."""
    looks = np.unique(np.geomspace(300, 30_000, 60).astype(int))
    ours, usual = wrong_runs(np.random.default_rng(1), 1_000, rate, share, looks)
    assert binom.sf(ours - 1, 1_000, ALPHA) > 1e-3
    assert binom.sf(usual - 1, 1_000, ALPHA) < 1e-9  # who looks with the usual interval is wrong
