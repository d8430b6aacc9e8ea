"""Verdicts on claims: tests, Holm's correction, grades."""

import math

import numpy as np
import pytest
from scipy import stats

from belated.experiments.judging.grading import (
    CONTRADICTED,
    EVERYWHERE,
    MIXED,
    NOT_JUDGED,
    UNCONFIRMED,
    Evidence,
    binomial_test,
    findings,
    graded,
    holm,
    student_test,
)
from belated.experiments.run_intervals import mean_interval, stratified_mean
from belated.numerics.student import student_tail


@pytest.mark.parametrize("df", [1, 9, 29, 200])
@pytest.mark.parametrize("t", [-3.0, -0.4, 0.0, 1.0, 2.045, 8.0])
def test_student_tail(t, df):
    assert student_tail(t, df) == pytest.approx(stats.t.sf(t, df), rel=1e-9)


def test_student_test_is_the_t_test():
    runs = np.random.default_rng(3).normal(0.3, 1.0, 12)
    test = student_test(mean_interval(runs), 12, 0.1)
    assert test.p_higher == pytest.approx(
        stats.ttest_1samp(runs, 0.1, alternative="greater").pvalue
    )
    assert test.p_lower == pytest.approx(stats.ttest_1samp(runs, 0.1, alternative="less").pvalue)
    assert findings([test])[0] != "equal"


def test_equal_is_two_one_sided_tests():
    runs = np.random.default_rng(4).normal(0.05, 0.3, 12)
    test = student_test(mean_interval(runs), 12, 0.0, margin=0.4)
    above = stats.ttest_1samp(runs, -0.4, alternative="greater").pvalue
    below = stats.ttest_1samp(runs, 0.4, alternative="less").pvalue
    assert test.p_equal == pytest.approx(max(above, below))
    assert test.alone == "equal"


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_settings_at_the_margin_are_hardly_ever_called_equal(side):
    """48 settings whose difference is the margin: one false finding in 2.5% of the repeats."""
    rng, margin, n, repeats = np.random.default_rng(11), 0.02, 30, 300
    false = 0
    for _ in range(repeats):
        runs = rng.normal(side * margin, 0.01, (48, n))
        tests = [student_test(mean_interval(its), n, 0.0, margin) for its in runs]
        false += "equal" in findings(tests)
    assert false <= stats.binom.ppf(0.999, repeats, 0.025)


def test_one_run_shows_nothing_and_equal_runs_show_all():
    assert student_test(mean_interval([1.0]), 1, 0.0).alone == "open"
    assert student_test(mean_interval([1.0, 1.0]), 2, 0.0).alone == "higher"
    assert student_test(mean_interval([-1.0, -1.0]), 2, 0.0).alone == "lower"
    assert student_test(mean_interval([0.0, 0.0]), 2, 0.0).alone == "equal"


@pytest.mark.parametrize(("hits", "trials"), [(0, 30), (1, 30), (5, 30), (30, 30), (3, 400)])
def test_binomial_test(hits, trials):
    test = binomial_test(hits, trials, 0.05 / 3)
    assert test.p_lower == pytest.approx(stats.binom.cdf(hits, trials, 0.05 / 3))
    assert test.p_higher == pytest.approx(stats.binom.sf(hits - 1, trials, 0.05 / 3))


def test_holm():
    # the classical example: 0.01 <= 0.05 / 4, 0.015 <= 0.05 / 3, 0.03 > 0.05 / 2: stop
    assert holm([0.01, 0.04, 0.03, 0.015], 0.05) == [True, False, False, True]
    assert holm([math.nan, 0.001], 0.025) == [False, True]
    assert holm([]) == []


def test_holm_keeps_the_chance_of_a_false_finding():
    rng = np.random.default_rng(5)
    false = [any(holm(rng.random(72))) for _ in range(4000)]
    assert np.mean(false) == pytest.approx(0.025, abs=0.007)


def test_findings_are_adjusted_in_both_directions():
    clear, weak = Evidence(1e-6, 1.0 - 1e-6), Evidence(0.02, 0.98)
    assert findings([weak]) == ["lower"]
    assert findings([weak, *[Evidence(0.5, 0.5)] * 9]) == ["open"] * 10
    worse = Evidence(1.0 - 1e-6, 1e-6)
    near = Evidence(0.5, 0.5, 1e-6)
    assert findings([clear, worse, near]) == ["lower", "higher", "equal"]
    assert findings([clear, worse, near._replace(p_equal=0.02)])[2] == "open"


@pytest.mark.parametrize(
    ("found", "pooled", "verdict"),
    [
        (["lower"] * 3, "lower", EVERYWHERE),
        (["lower", "open", "open"], "lower", "supported overall, 2 of 3 settings open"),
        (["open"] * 3, "lower", "supported overall, 3 of 3 settings open"),
        (["open"] * 3, "open", UNCONFIRMED),
        (["lower", "open"], "open", UNCONFIRMED),
        (["lower", "higher"], "lower", MIXED),
        (["lower", "equal"], "lower", MIXED),
        (["open", "higher"], "lower", MIXED),
        (["open", "higher"], "open", CONTRADICTED),
        (["open", "open"], "higher", CONTRADICTED),
        (["open", "open"], "equal", CONTRADICTED),
        ([], "open", NOT_JUDGED),
    ],
)
def test_grades(found, pooled, verdict):
    assert graded(found, pooled) == verdict


def test_an_at_most_claim_is_supported_by_equality():
    assert graded(["lower", "equal"], "equal", supports=("lower", "equal")) == EVERYWHERE


def test_stratified_mean():
    rng = np.random.default_rng(7)
    alike = rng.normal(size=40)
    assert stratified_mean([alike])[0] == pytest.approx(mean_interval(alike))
    few, many = rng.normal(0.0, 1.0, 5), rng.normal(10.0, 1.0, 500)
    estimate, df = stratified_mean([few, many])
    assert estimate.value == pytest.approx((few.mean() + many.mean()) / 2)  # counted alike
    error = math.sqrt(few.var(ddof=1) / 5 + many.var(ddof=1) / 500) / 2
    assert (estimate.high - estimate.value) / error == pytest.approx(stats.t.ppf(0.975, df))
    assert math.isnan(stratified_mean([few, [1.0]])[0].low)
