"""Intervals of estimates: by hand, in their limits, and their levels on bounded terms."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from belated.evaluation.confidence import (
    bernstein_interval,
    bootstrap_values,
    normal_interval,
    percentiles,
    slopes,
    standard_error,
)
from belated.evaluation.off_policy import estimate, explicit_rewards, inverse_propensity
from belated.evaluation.shares_seen import AllSeen, returned_shares
from naive.off_policy_values import value


def test_the_error_of_a_mean_is_the_usual_one():
    rng = np.random.default_rng(1)
    reward = rng.normal(size=100)
    rewards = explicit_rewards(reward, np.ones(100))
    found = estimate(inverse_propensity(np.ones(100)), rewards)
    error = standard_error(slopes(found, AllSeen(100, 100), np.arange(100)))
    assert error == pytest.approx(reward.std() / 10.0, rel=1e-12)
    low, high = normal_interval(found.value, error, 0.9)
    assert (high - low) / (2 * error) == pytest.approx(1.6448536, rel=1e-6)


def test_slopes_are_those_of_estimate_and_delays_together():
    """By differences, with F estimated anew; rows that are not used have a part in F."""
    rng = np.random.default_rng(2)
    n = 40
    delay, age = rng.exponential(2.0, n), rng.uniform(1.0, 4.0, n)
    came, one = delay <= age, np.zeros(n, int)
    used = np.flatnonzero(age > 1.5)
    law = returned_shares(np.minimum(delay, age), came, one, age[used], one[used])
    reward = np.where(came, rng.normal(1.0, 1.0, n), np.nan)[used]
    terms = inverse_propensity(rng.exponential(1.0, len(used)))

    def total(counts):
        return value(terms, explicit_rewards(reward, law.shares(counts)), counts[used])

    ones, step = np.ones(n), 1e-6
    found = estimate(terms, explicit_rewards(reward, law.shares(ones)))
    both = [total(ones + step * e) - total(ones - step * e) for e in np.eye(n)]
    ours = slopes(found, law, used)
    assert ours == pytest.approx(np.array(both) / (2 * step), abs=1e-8)
    young = np.setdiff1d(np.arange(n), used)
    assert abs(ours[young]).max() > 1e-4


def test_a_bootstrap_of_a_mean_has_its_error():
    rng = np.random.default_rng(3)
    sample = rng.normal(size=400)
    drawn = bootstrap_values(
        lambda counts: np.array([counts @ sample / counts.sum()]), 400, seed=1, replicates=2000
    )
    assert drawn.shape == (2000, 1)
    assert drawn.std() == pytest.approx(sample.std() / 20.0, rel=0.07)
    low, high = percentiles(drawn[:, 0], 0.95)
    assert ((drawn > low) & (drawn < high)).mean() == pytest.approx(0.95, abs=1e-3)


def test_bernstein_by_hand():
    slope = np.array([0.5, -0.5, 0.0, 0.0]) / 4.0  # of the mean of 1.5, 0.5, 1, 1
    low, high = bernstein_interval(1.0, slope, width=2.0, level=0.95)
    log_term = math.log(4.0 / 0.05)
    variance = (0.25 + 0.25) / 3
    reach = math.sqrt(2 * variance * log_term / 4) + 7 * 2.0 * log_term / (3 * 3)
    assert (low, high) == pytest.approx((1.0 - reach, 1.0 + reach))


@pytest.mark.parametrize("rate", [0.01, 0.5])
def test_bernstein_holds_for_few_bounded_terms(rate):
    """For rates at which a normal interval is far off, too."""
    rng, n, runs, level = np.random.default_rng(4), 50, 500, 0.8
    wrong = 0
    for _ in range(runs):
        sample = (rng.random(n) < rate).astype(float)
        low, high = bernstein_interval(sample.mean(), (sample - sample.mean()) / n, 1.0, level)
        wrong += not low <= rate <= high
    assert binom.sf(wrong - 1, runs, 1.0 - level) > 1e-3
