"""The product limit in reversed time: by hand, by EM, in its limits, and its band."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from belated.monitoring.log_rank import log_rank
from belated.monitoring.truncated_delays import truncated_curve, truncated_log_rank
from naive.truncated import truncated_npmle

Z = 1.959963984540054


def seen_early(rng, n, now, mean=1.0):
    """Delays and ages of the conversions seen by ``now`` of n that were to come, evenly made."""
    delays, ages = rng.exponential(mean, n), rng.uniform(0.0, now, n)
    early = delays <= ages
    return delays[early], ages[early]


def test_by_hand():
    curve = truncated_curve([1.0, 2.0, 2.0, 4.0, 5.0], [3.0, 2.0, 6.0, 7.0, 5.0])
    assert curve.times.tolist() == [1.0, 2.0, 4.0, 5.0]
    # at 5: ages 6, 7, 5; at 4: delays 2 and 4 with ages 6 and 7; at 2: delays 1, 2, 2; at 1: one
    assert curve.at_risk.tolist() == [1.0, 3.0, 2.0, 3.0]
    # F(4) = 1 - 1/3, F(2) = 2/3 (1 - 1/2), F(1) = 1/3 (1 - 2/3)
    assert curve.within == pytest.approx([1 / 9, 1 / 3, 2 / 3, 1.0])
    assert curve.within_at([0.5, 1.0, 3.9, 9.0]) == pytest.approx([0.0, 1 / 9, 1 / 3, 1.0])
    # Greenwood's sums: 1 / (3 * 2) for F(4), 1 / (2 * 1) more for F(2)
    for place, share, variance in ((2, 2 / 3, 1 / 6), (1, 1 / 3, 1 / 6 + 1 / 2)):
        spread = math.exp(Z * math.sqrt(variance) / -math.log(share))
        assert curve.lower[place] == pytest.approx(share**spread)
        assert curve.upper[place] == pytest.approx(share ** (1 / spread))
    assert (curve.longest_age, curve.n) == (7.0, 5)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12))
def test_is_the_likeliest_law(pairs):
    delays = np.array([float(delay) for delay, _ in pairs])
    ages = delays + np.array([float(more) for _, more in pairs])
    curve = truncated_curve(delays, ages)
    assume((curve.within > 0.0).all())  # else shorter delays are not identified
    f = np.diff(curve.within, prepend=0.0)
    times, improved = truncated_npmle(delays, ages, f, iterations=1)
    assert np.array_equal(times, curve.times)
    assert improved == pytest.approx(f, abs=1e-12)  # EM stays where it is likeliest


def test_em_arrives_there():
    delays, ages = seen_early(np.random.default_rng(6), 60, 3.0)
    delays, ages = np.ceil(5.0 * delays), np.ceil(5.0 * ages)
    _, f = truncated_npmle(delays, ages)
    assert np.cumsum(f) == pytest.approx(truncated_curve(delays, ages).within, abs=1e-8)


def test_without_truncation_it_is_the_empirical_distribution():
    delays = np.random.default_rng(0).exponential(5.0, 301)
    curve = truncated_curve(delays, np.full(301, 100.0))
    shares = [(delays <= x).mean() for x in (1.0, 4.0)]
    assert curve.within_at([1.0, 4.0]) == pytest.approx(shares)
    # and Greenwood's formula is the binomial variance: var log F = (1 - F) / (n F)
    F = shares[1]
    spread = math.exp(Z * math.sqrt((1 - F) / (301 * F)) / -math.log(F))
    low, high = curve.band_at([4.0])
    assert (low[0], high[0]) == pytest.approx((F**spread, F ** (1 / spread)))


def test_truncation_is_not_ignored():
    delays, ages = seen_early(np.random.default_rng(1), 20_000, now=2.0)
    truth = -math.expm1(-0.5) / -math.expm1(-2.0)
    assert truncated_curve(delays, ages).within_at([0.5])[0] == pytest.approx(truth, rel=0.03)
    assert (delays <= 0.5).mean() > truth + 0.1  # what the delays at hand would say


@pytest.mark.parametrize("now", [2.0, 6.0])
def test_band_holds_the_truth_in_95_of_100_draws(now):
    ages, draws = np.array([0.2, 0.5, 1.0, 1.5]), 400
    truth = -np.expm1(-ages) / -math.expm1(-now)
    rng, inside = np.random.default_rng(2), np.zeros(4)
    for _ in range(draws):
        low, high = truncated_curve(*seen_early(rng, 300, now)).band_at(ages)
        inside += (low <= truth) & (truth <= high)
    assert (inside / draws >= 0.90).all()
    assert (inside / draws <= 0.98).all()


def test_where_all_at_risk_have_one_delay_nothing_is_known_of_shorter_ones():
    curve = truncated_curve([1.0, 2.0, 5.0], [1.5, 2.5, 6.0])
    assert curve.within.tolist() == [0.0, 0.0, 1.0]
    assert curve.upper.tolist() == [1.0, 1.0, 1.0]
    assert curve.lower.tolist() == [0.0, 0.0, 1.0]


def test_edges():
    nothing = truncated_curve([], [])
    assert (nothing.n, nothing.within_at([3.0]).tolist()) == (0, [0.0])
    one = truncated_curve([4.0], [4.0])
    assert one.within_at([3.9, 4.0]).tolist() == [0.0, 1.0]
    assert truncated_log_rank([], [], np.zeros((2, 0), bool)).z.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("delays", "ages", "message"),
    [
        ([1.0, -2.0], [3.0, 3.0], r"delays\[1\] = -2.0: expected a finite number, 0 or more"),
        ([1.0], [math.inf], r"ages\[0\] = inf"),
        ([1.0], [1.0, 2.0], r"ages has shape \(2,\): expected \(1,\), as delays"),
        ([[1.0]], [[1.0]], r"delays has shape \(1, 1\): expected one dimension"),
        ([1.0, 3.0], [1.0, 2.0], r"delays\[1\] = 3.0: expected at most the age of its decision, 2"),
    ],
)
def test_bad_input(delays, ages, message):
    with pytest.raises(ValueError, match=message):
        truncated_curve(delays, ages)


def test_log_rank_without_truncation_is_the_ordinary_one_in_reversed_time():
    rng = np.random.default_rng(3)
    delays, group = rng.integers(1, 9, 200).astype(float), rng.random(200) < 0.4
    ours = truncated_log_rank(delays, np.full(200, 9.0), np.array([group, ~group]))
    theirs = log_rank(9.0 - delays, np.full(200, True), group)
    assert ours.z[0] == pytest.approx(theirs.z)
    assert ours.z[1] == pytest.approx(-theirs.z)


def test_log_rank_keeps_its_level_where_groups_differ_in_age_only():
    """One group is much younger than the other: its delays look shorter, and are not."""
    rng, z = np.random.default_rng(4), []
    for _ in range(400):
        old, young = seen_early(rng, 150, 4.0), seen_early(rng, 300, 1.0)
        pairs = np.concatenate([old, young], axis=1)
        z.append(truncated_log_rank(*pairs, np.arange(pairs.shape[1]) < old[0].size).z)
    assert np.mean(np.abs(z) > Z) == pytest.approx(0.05, abs=0.03)
    assert np.mean(z) == pytest.approx(0.0, abs=0.15)
    assert np.std(z) == pytest.approx(1.0, abs=0.1)


def test_log_rank_finds_the_group_that_comes_later():
    rng = np.random.default_rng(5)
    slow, fast = seen_early(rng, 2000, 4.0, mean=2.0), seen_early(rng, 1000, 4.0, mean=0.7)
    pairs = np.concatenate([slow, fast], axis=1)
    in_slow = np.arange(pairs.shape[1]) < slow[0].size
    assert truncated_log_rank(*pairs, in_slow).z > 4.0


def test_quantiles():
    curve = truncated_curve([1.0, 2.0, 3.0], [2.5, 4.0, 5.0])  # within: 1/4, 1/2, 1
    assert [curve.quantile(share) for share in (0.1, 0.25, 0.3, 0.5, 0.9)] == [1, 1, 2, 2, 3]
    assert truncated_curve([], []).quantile(0.5) is None


def test_log_rank_within_strata_is_the_sum_of_theirs():
    rng = np.random.default_rng(5)
    ages = rng.integers(3, 9, 300).astype(float)
    delays = np.minimum(rng.integers(1, 9, 300), ages)
    groups, strata = rng.random((2, 300)) < 0.4, rng.integers(0, 3, 300)
    parts = [
        truncated_log_rank(delays[own], ages[own], groups[:, own])
        for own in (strata == k for k in range(3))
    ]
    found = truncated_log_rank(delays, ages, groups, strata)
    np.testing.assert_allclose(found, np.sum(parts, axis=0), rtol=1e-12)
