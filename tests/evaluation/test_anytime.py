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
    difference_interval,
    least_reach,
)
from belated.evaluation.confidence import slopes, standard_error
from belated.evaluation.off_policy import estimate, explicit_rewards, self_normalised
from belated.evaluation.shares_seen import returned_shares

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
    first, second = Known(0.5, 0.04, 100), Known(0.2, 0.03, 300)  # variances 0.16 and 0.27 of a row
    both = difference(first, second)
    together = (100 * 0.16 + 300 * 0.27) / 400
    assert both.value == pytest.approx(0.3)
    assert both.error == pytest.approx(math.sqrt(together / 100 + 0.27 / 300))
    assert both.n == 400
    low, high = anytime_interval(both)
    assert high - low == pytest.approx(2 * both.error * anytime_errors(400))


def test_a_group_in_which_nothing_has_come_is_as_uncertain_as_the_other():
    both = difference(Known(0.0, 0.0, 30), Known(0.02, math.sqrt(0.02 * 0.98 / 270), 270))
    assert both.error == pytest.approx(math.sqrt(0.02 * 0.98 * (0.9 / 30 + 1 / 270)))


def test_rows_that_are_all_alike_are_no_proof():
    """The next may differ: the interval has a length, by the range of rows and their number."""
    first, second = Known(1.0, 0.0, 100, 1.0, 100), Known(0.0, 0.0, 50, 1.0, 50)
    low, high = difference_interval(first, second)
    reach = least_reach(100, 1.0, 0.975) + least_reach(50, 1.0, 0.975)
    assert (low, high) == pytest.approx((1.0 - reach, 1.0 + reach))
    assert 0.1 < reach < 0.12
    wide = difference_interval(first._replace(range=10.0), second._replace(range=10.0))
    assert wide == pytest.approx((1.0 - 10.0 * reach, 1.0 + 10.0 * reach))
    unknown = [known._replace(range=None) for known in (first, second)]
    assert difference_interval(*unknown) is None
    assert difference_interval(unknown[0], Known(0.5, 0.01, 50)) is not None


def test_a_longer_interval_is_left_as_it_is():
    first, second = Known(0.5, 0.05, 100, 1.0, 100), Known(0.4, 0.05, 100, 1.0, 100)
    assert difference_interval(first, second) == anytime_interval(difference(first, second))


@pytest.mark.parametrize("rate", [0.002, 0.02, 0.5])
def test_rows_that_are_alike_at_all_times_together(rate):
    """Rows are looked at one by one while they are alike: the mean is ever out of reach in 5 per
    cent of 20,000 runs at most. With two thirds of the reach it would be in more."""
    rng, runs = np.random.default_rng(1), 20_000
    ones = rng.random(runs) < rate  # what the first row is
    alike = rng.geometric(np.where(ones, 1.0 - rate, rate))  # rows until one differs, without it
    off = np.where(ones, 1.0 - rate, rate)
    reach = np.array([least_reach(n, 1.0, 1.0 - ALPHA) for n in range(1, alike.max() + 1)])
    wrong, hasty = (((part * reach[alike - 1]) < off).sum() for part in (1.0, 2.0 / 3.0))
    assert binom.sf(wrong - 1, runs, ALPHA) > 1e-3
    assert binom.sf(hasty - 1, runs, ALPHA) < 1e-9 or rate == 0.5  # a coin shows both sides at once


def known(successes, n):
    rate = successes / n
    return Known(rate, math.sqrt(rate * (1.0 - rate) / n), int(n))


def wrong_runs(rng, runs, rate, share, looks):
    """Runs without an effect in which an interval excludes 0 at a look: ours, and the usual one."""
    held = rng.binomial(np.diff(looks, prepend=0), share, (runs, len(looks)))
    treated = np.diff(looks, prepend=0) - held
    successes = [np.cumsum(rng.binomial(n, rate), axis=1) for n in (held, treated)]
    rows = [np.cumsum(n, axis=1) for n in (held, treated)]
    ours, usual = np.zeros(runs, bool), np.zeros(runs, bool)
    for run in range(runs):
        for k in range(len(looks)):
            gap = difference(
                *(known(s[run, k], n[run, k]) for s, n in zip(successes, rows, strict=True))
            )
            low, high = anytime_interval(gap)
            ours[run] |= not low <= 0.0 <= high
            usual[run] |= abs(gap.value) > 1.96 * gap.error
    return int(ours.sum()), int(usual.sum())


@pytest.mark.parametrize(("rate", "share"), [(0.3, 0.5), (0.02, 0.1)])
def test_runs_that_are_looked_at_all_the_time(rate, share):
    """A holdout without effect, looked at 60 times: wrong in 5 per cent of 1,000 runs at most."""
    looks = np.geomspace(300, 30_000, 60).astype(int)
    ours, usual = wrong_runs(np.random.default_rng(1), 1_000, rate, share, looks)
    assert binom.sf(ours - 1, 1_000, ALPHA) > 1e-3
    assert binom.sf(usual - 1, 1_000, ALPHA) < 1e-9  # who looks with the usual interval is wrong


def seen_mean(rng, n, mean_delay, looks):
    """The mean reward of a group at each look, 0.5 in truth, while rewards are pending."""
    decided, delay = np.sort(rng.uniform(0.0, 20.0, n)), rng.exponential(mean_delay, n)
    reward = (rng.random(n) < 0.5).astype(float)
    for now in looks:
        known = decided < now
        age, late = now - decided[known], delay[known]
        came, one = late <= age, np.zeros(len(age), int)
        old = np.flatnonzero(age > 0.2 * mean_delay)
        law = returned_shares(np.minimum(late, age), came, one, age[old], one[old])
        shares = law.shares(np.ones(len(age)))
        rewards = explicit_rewards(np.where(came, reward[known], np.nan)[old], shares)
        found = estimate(self_normalised(np.ones(len(old))), rewards)
        yield Known(found.value, standard_error(slopes(found, law, old)), len(age))


def test_two_groups_with_pending_rewards_looked_at_all_the_time():
    """No effect, but one group hears of its rewards four times as late; looked at 20 times."""
    rng, looks, runs = np.random.default_rng(2), np.linspace(1.0, 20.0, 20), 120
    wrong = 0
    for _ in range(runs):
        groups = zip(
            seen_mean(rng, 1_500, 0.5, looks), seen_mean(rng, 1_500, 2.0, looks), strict=True
        )
        gaps = [anytime_interval(difference(*pair)) for pair in groups]
        wrong += any(not low <= 0.0 <= high for low, high in gaps)
    assert binom.sf(wrong - 1, runs, ALPHA) > 1e-3
