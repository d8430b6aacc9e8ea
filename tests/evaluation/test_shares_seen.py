"""Shares of rewards that are seen: as the delay curves say, with counts, and their derivatives."""

import numpy as np
import pytest

from belated.evaluation import shares_seen
from belated.evaluation.shares_seen import AllSeen, converted_shares, known_until, returned_shares
from belated.monitoring.delay_curve import delay_curve
from belated.monitoring.truncated_delays import truncated_curve

STEP = 1e-6


def returns(rng, n=60):
    """Delays in whole hours, so that there are ties; two strata and a few lonely rows."""
    delay, age = np.ceil(rng.exponential(4.0, n)), np.ceil(rng.uniform(1.0, 9.0, n))
    strata = rng.integers(-1, 2, n)
    return np.minimum(delay, age), delay <= age, age, strata


def laws(rng):
    """A law of each kind, and its rows."""
    waited, came, age, strata = returns(rng)
    old = age > 3.0
    yield returned_shares(waited, came, strata, age[old], strata[old]), len(age)
    yield converted_shares(waited, came, age, strata, age[old], strata[old]), len(age)


def test_returned_shares_are_those_of_kaplan_and_meier():
    waited, came, age, strata = returns(np.random.default_rng(1))
    shares = returned_shares(waited, came, strata, age, strata).shares(np.ones(len(age)))
    for k in (-1, 0, 1):
        own = (strata == k) | (k == -1)
        curve = delay_curve(waited[own], came[own])
        at = strata == k
        assert shares[at] == pytest.approx(1.0 - curve.waiting_at(age[at]), abs=1e-12)


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch):
    """Strata of a few rows have laws of their own, so that slow twins stay quick."""
    monkeypatch.setattr(shares_seen, "OF_ITS_OWN", 3)


def test_converted_shares_are_those_of_the_truncated_curve():
    waited, came, age, strata = returns(np.random.default_rng(2))
    age[:12], strata[:12] = 9.0, np.arange(12) % 2  # both strata are as old as the log
    waited[:12], came[:12] = 4.0, True
    shares = converted_shares(waited, came, age, strata, age, strata).shares(np.ones(len(age)))
    for k in (-1, 0, 1):
        own = ((strata == k) | (k == -1)) & came
        curve = truncated_curve(waited[own], age[own])
        at = strata == k
        assert shares[at] == pytest.approx(curve.within_at(age[at]), abs=1e-12)


def test_beyond_its_age_a_stratum_goes_on_as_all_do():
    """F is F of its own rows, up to the age that three conversions have, times F of all there."""
    rng = np.random.default_rng(6)
    waited, came, age, strata = returns(rng, 200)
    young = strata == 1
    age[young] = np.minimum(age[young], 5.0)
    came &= waited <= age
    lone = np.flatnonzero(young & came & (age == 5.0))[0]
    age[lone] = 9.0  # a single trial long ago tells nothing
    shares = converted_shares(waited, came, age, strata, age, strata).shares(np.ones(200))
    together = truncated_curve(waited[came], age[came])
    own = came & young & (waited <= 5.0)
    alone = truncated_curve(waited[own], np.minimum(age[own], 5.0))
    expected = alone.within_at(np.minimum(age, 5.0)) * together.within_at(np.maximum(age, 5.0))
    assert known_until(age[came & young]) == 5.0
    assert together.within_at(5.0) < 0.9
    assert shares[young] == pytest.approx(expected[young], abs=1e-12)


def test_a_count_is_a_row_so_many_times():
    rng = np.random.default_rng(3)
    waited, came, age, strata = returns(rng)
    counts = rng.poisson(1.0, len(age))
    again = np.repeat(np.arange(len(age)), counts)
    for law, repeated in (
        (
            returned_shares(waited, came, strata, age, strata),
            returned_shares(waited[again], came[again], strata[again], age, strata),
        ),
        (
            converted_shares(waited, came, age, strata, age, strata),
            converted_shares(waited[again], came[again], age[again], strata[again], age, strata),
        ),
    ):
        expected = repeated.shares(np.ones(len(again)))
        assert law.shares(counts.astype(float)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kind", [0, 1], ids=["returned", "converted"])
def test_the_slope_is_the_derivative_by_the_count_of_a_row(kind):
    rng = np.random.default_rng(4)
    law, n = list(laws(rng))[kind]
    ones = np.ones(n)
    pull = rng.normal(size=len(law.shares(ones))) * (law.shares(ones) > 0.0)

    def total(counts):
        shares = law.shares(counts)
        return (pull[pull != 0.0] * np.log(shares[pull != 0.0])).sum()

    steps = STEP * np.eye(n)
    by_difference = [(total(ones + step) - total(ones - step)) / (2 * STEP) for step in steps]
    assert law.slope(pull) == pytest.approx(by_difference, abs=1e-7)
    assert abs(law.slope(pull)).max() > 0.01
    assert law.slope(pull).sum() == pytest.approx(0.0, abs=1e-9)  # twice the log: the same law


def test_squared_slopes_add_up_to_greenwoods_variance():
    waited, came, _, _ = returns(np.random.default_rng(5))
    one = np.zeros(len(waited), int)
    law = returned_shares(waited, came, one, np.array([3.0]), one[:1])
    (share,) = law.shares(np.ones(len(waited)))
    times, events = np.unique(waited[came & (waited <= 3.0)], return_counts=True)
    at_risk = np.array([(waited >= t).sum() for t in times])
    greenwood = (1 - share) ** 2 * (events / (at_risk * (at_risk - events))).sum()
    assert (share * law.slope(np.ones(1))) @ (share * law.slope(np.ones(1))) == pytest.approx(
        greenwood, rel=1e-12
    )


def test_nothing_is_pending():
    one = np.zeros(3, int)
    law = returned_shares(np.array([1.0, 2.0, 3.0]), np.ones(3, bool), one, np.ones(2), one[:2])
    assert law == AllSeen(3, 2)
    assert law.shares(np.ones(3)).tolist() == [1.0, 1.0]
    assert law.slope(np.ones(2)).tolist() == [0.0, 0.0, 0.0]


def test_conversions_of_decisions_older_than_every_delay_are_all_seen():
    one = np.zeros(4, int)
    delays, age = np.array([1.0, 2.0, 0.0, 0.0]), np.full(4, 5.0)
    law = converted_shares(delays, np.array([True, True, False, False]), age, one, age, one)
    assert law.shares(np.ones(4)).tolist() == [1.0] * 4
    silent = converted_shares(delays, np.zeros(4, bool), age, one, age, one)
    assert silent.shares(np.ones(4)).tolist() == [1.0] * 4
    assert silent.slope(np.ones(4)).tolist() == [0.0] * 4
