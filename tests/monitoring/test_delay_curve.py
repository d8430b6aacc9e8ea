"""The Kaplan-Meier curve and the log-rank test: by hand, and against statsmodels."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.duration.survfunc import SurvfuncRight, survdiff

from belated.monitoring.delay_curve import delay_curve, thinned
from belated.monitoring.log_rank import log_rank

observations = st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=60)


def test_by_hand():
    # Freireich's leukaemia trial (1963), treated group: remission in weeks, + where censored
    weeks = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
    censored = {3, 5, 7, 8, 11, 12, 13, 16, 17, 18, 19, 20}
    curve = delay_curve(weeks, [i not in censored for i in range(21)])
    assert curve.times.tolist() == [6, 7, 10, 13, 16, 22, 23]
    assert curve.at_risk.tolist() == [21, 17, 15, 12, 11, 7, 6]
    expected = [0.857143, 0.806723, 0.752941, 0.690196, 0.627451, 0.537815, 0.448179]
    assert curve.waiting == pytest.approx(expected, abs=1e-6)
    assert curve.median == 23.0
    assert curve.quantile(0.25) == 13.0
    assert curve.quantile(0.9) is None
    # Greenwood's sum at 6 weeks is 3 / (21 * 18), so the band on the log(-log) scale is
    spread = math.exp(1.959963985 * math.sqrt(3 / (21 * 18)) / -math.log(18 / 21))
    assert curve.lower[0] == pytest.approx((18 / 21) ** spread)
    assert curve.upper[0] == pytest.approx((18 / 21) ** (1 / spread))
    assert (curve.n_returned, curve.n_censored) == (9, 12)


@given(observations)
def test_as_statsmodels(pairs):
    delays, returned = map(np.array, zip(*pairs, strict=True))
    curve = delay_curve(delays, returned)
    if not returned.any():
        assert curve.times.size == 0
        return
    theirs = SurvfuncRight(delays.astype(float), returned.astype(int))
    came = theirs.n_events > 0
    assert np.array_equal(curve.times, theirs.surv_times[came])
    assert np.array_equal(curve.at_risk, theirs.n_risk[came])
    assert curve.waiting == pytest.approx(theirs.surv_prob[came])
    # their standard error is that of the share; on the log(-log) scale it is divided by S log S
    inside = (curve.waiting > 1e-9) & (curve.waiting < 1.0)
    S, error = curve.waiting[inside], theirs.surv_prob_se[came][inside]
    spread = np.exp(1.959963985 * error / (-S * np.log(S)))
    assert curve.lower[inside] == pytest.approx(S**spread, rel=1e-6)
    assert curve.upper[inside] == pytest.approx(S ** (1 / spread), rel=1e-6)
    assert (curve.lower <= curve.waiting).all()
    assert (curve.waiting <= curve.upper).all()


def test_without_censoring_it_is_the_empirical_distribution():
    delays = np.random.default_rng(0).exponential(5.0, 301)
    curve = delay_curve(delays, np.full(301, True))
    assert curve.waiting_at([1.0, 4.0]) == pytest.approx([(delays > x).mean() for x in (1.0, 4.0)])
    assert curve.median == pytest.approx(np.median(delays))
    assert (curve.waiting[-1], curve.lower[-1]) == (0.0, 0.0)
    assert curve.upper[-1] == curve.upper[-2]


def test_censoring_is_not_ignored():
    rng = np.random.default_rng(1)
    delays, ages = rng.exponential(10.0, 4000), rng.uniform(0.0, 20.0, 4000)
    curve = delay_curve(np.minimum(delays, ages), delays <= ages)
    assert curve.median == pytest.approx(10.0 * math.log(2.0), rel=0.1)
    assert np.median(delays[delays <= ages]) < 5.5  # what leaving out the pending would say


def test_band_covers():
    rng = np.random.default_rng(2)
    inside = 0
    for _ in range(400):
        delays, ages = rng.exponential(1.0, 150), rng.uniform(0.0, 3.0, 150)
        curve = delay_curve(np.minimum(delays, ages), delays <= ages)
        last = np.searchsorted(curve.times, 1.0) - 1
        inside += curve.lower[last] <= math.exp(-1.0) <= curve.upper[last]
    assert 0.92 <= inside / 400 <= 0.98


def test_edges():
    nothing = delay_curve([], [])
    assert (nothing.median, nothing.n_returned) == (None, 0)
    assert nothing.waiting_at([3.0]).tolist() == [1.0]
    pending = delay_curve([1.0, 2.0], [False, False])
    assert (pending.median, pending.n_censored) == (None, 2)
    one = delay_curve([4.0], [True])
    assert (one.median, one.waiting.tolist(), one.upper.tolist()) == (4.0, [0.0], [1.0])
    assert one.waiting_at([3.9, 4.0]).tolist() == [1.0, 0.0]
    tie = delay_curve([2.0, 2.0], [True, False])  # the reward comes before the censoring
    assert tie.waiting.tolist() == [0.5]


@pytest.mark.parametrize(
    ("delays", "returned", "message"),
    [
        ([1.0, -2.0], [True, True], r"delays\[1\] = -2.0: expected a finite number, 0 or more"),
        ([1.0, math.nan], [True, True], r"delays\[1\] = nan"),
        ([1.0], [True, False], r"returned has shape \(2,\): expected \(1,\), as delays"),
        ([1.0], [0.5], r"returned = \[0.5\]: expected True or False for each delay"),
        ([[1.0]], [[True]], r"delays has shape \(1, 1\): expected one dimension"),
        (["a"], [True], "delays = "),
    ],
)
def test_bad_input(delays, returned, message):
    with pytest.raises(ValueError, match=message):
        delay_curve(delays, returned)


def test_thinned_keeps_values_and_ends():
    curve = delay_curve(np.arange(1.0, 1001.0), np.full(1000, True))
    few = thinned(curve, 100)
    assert few.times.size == 100
    assert (few.times[0], few.times[-1]) == (1.0, 1000.0)
    assert few.waiting == pytest.approx(curve.waiting_at(few.times))
    assert thinned(curve, 1000) is curve


@given(observations, st.randoms(use_true_random=False))
def test_log_rank_as_statsmodels(pairs, random):
    delays = np.array([float(delay) for delay, _ in pairs])
    returned = np.array([came for _, came in pairs])
    group = np.array([random.random() < 0.5 for _ in pairs])
    ours = log_rank(delays, returned, group)
    if ours.variance < 1e-9:
        return
    squared, _ = survdiff(delays, returned.astype(int), group.astype(int))
    assert ours.z**2 == pytest.approx(squared)


def test_log_rank_strata_and_rows():
    rng = np.random.default_rng(3)
    delays, returned = rng.integers(1, 9, 200).astype(float), rng.random(200) < 0.7
    group, strata = rng.random(200) < 0.4, rng.integers(0, 3, 200)
    squared, _ = survdiff(delays, returned.astype(int), group.astype(int), strata=strata)
    assert log_rank(delays, returned, group, strata).z ** 2 == pytest.approx(squared)
    both = log_rank(delays, returned, np.array([group, ~group]))
    assert both.z[0] == pytest.approx(log_rank(delays, returned, group).z)
    assert both.z[0] == pytest.approx(-both.z[1])
    nothing = log_rank(delays, np.zeros(200, bool), group)
    assert nothing.z == 0.0
