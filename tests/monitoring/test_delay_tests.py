"""Tests of delays: they find what is there, and seldom what is not."""

import numpy as np
import pytest

from belated.monitoring import delay_tests
from belated.monitoring.delay_tests import (
    Censored,
    Truncated,
    by_group,
    by_reward,
    by_size,
    by_time,
    large_rewards,
)
from belated.monitoring.missing_rewards import missing_over_time

HORIZON = 100_000.0


def log_of(n, seed, mean=lambda decided, group, reward: 3000.0):
    """Decisions of a day, a group and a reward for each, and the delay until now."""
    rng = np.random.default_rng(seed)
    decided = np.sort(rng.uniform(0.0, HORIZON, n))
    group = rng.choice(["a", "b", "c"], n)
    reward = rng.random(n)
    delay = rng.exponential(mean(decided, group, reward) * np.ones(n))
    age = HORIZON - decided
    return decided, group, reward, np.minimum(delay, age), delay <= age, age


def found_in(kind, seed, **how):
    decided, group, reward, delay, came, age = log_of(2000, seed, **how)
    if kind == "censored":
        delays, use = Censored(delay, came), slice(None)
        size = by_reward(delay, came, np.where(came, reward, np.nan), decided, age)
    else:
        delays, use = Truncated(delay[came], age[came]), came
        size = by_size(delays, reward[came])
    return {
        "reward": size,
        "action": by_group(delays, group[use]),
        "time": by_time(delays, decided[use]),
    }


MEANS = {
    "reward": lambda decided, group, reward: np.where(reward > 0.5, 5000.0, 2000.0),
    "action": lambda decided, group, reward: np.where(group == "b", 6000.0, 3000.0),
    "time": lambda decided, group, reward: np.where(decided > 0.4 * HORIZON, 6000.0, 3000.0),
}


@pytest.mark.parametrize("kind", ["censored", "truncated"])
@pytest.mark.parametrize("what", MEANS)
def test_what_is_there_is_found(what, kind):
    found = found_in(kind, 1, mean=MEANS[what])
    assert found[what].matters
    assert found[what].z > 0.0  # the group comes later
    assert found[what].median > 1.3 * found[what].other
    assert [name for name in found if found[name].matters] == [what]
    if what == "action":
        assert found[what].name == "b"
    if what == "time":
        assert float(found[what].name) == pytest.approx(0.4 * HORIZON, rel=0.15)


@pytest.mark.parametrize("kind", ["censored", "truncated"])
def test_what_is_not_there_is_found_as_seldom_as_p_says(kind):
    ps = np.array([[f.p for f in found_in(kind, seed).values()] for seed in range(150)])
    assert (ps[:, 0] < 0.05).sum() <= 16  # one comparison: 7.5 of 150, more than 16 in 1 of 1,000
    assert (ps < 0.05).sum(axis=0).max() <= 16
    assert (ps[:, 0] < 0.5).mean() == pytest.approx(0.5, abs=0.17)


def test_actions_mislead_unless_they_are_strata():
    """A slow action earns more, and is played more and more."""
    misled, ps = 0, []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        decided = np.sort(rng.uniform(0.0, HORIZON, 2000))
        slow = rng.random(2000) < 0.1 + 0.8 * decided / HORIZON
        reward = rng.random(2000) + slow
        delay = rng.exponential(np.where(slow, 9000.0, 3000.0))
        age = HORIZON - decided
        came = delay <= age
        for strata in (None, slow.astype(int)):
            of = None if strata is None else strata[came]
            conversions = Truncated(delay[came], age[came], of)
            waited = Censored(np.minimum(delay, age), came, strata)
            found = [
                by_reward(waited.delay, came, reward, decided, age, strata),
                by_size(conversions, reward[came]),
                by_time(waited, decided),
                by_time(conversions, decided[came]),
            ]
            if strata is None:
                misled += all(one.matters for one in found)
            else:
                assert not any(one.matters for one in found)
                ps.append([one.p for one in found])
    assert misled > 90
    # of 100 at 5 %: more than 12 in 1 of 700
    assert (np.array(ps) < 0.05).sum(axis=0).max() <= 12


def test_strata_with_one_kind_only_cannot_be_told():
    """The slow action takes the place of the quick one: was it the time?"""
    rng = np.random.default_rng(2)
    decided = np.arange(1000.0)
    later = decided >= 500.0
    delays = Censored(rng.exponential(1.0 + later), np.full(1000, True))
    assert by_group(delays, later).matters
    assert by_group(delays._replace(strata=later.astype(int)), later) is None


def test_large_is_large_for_its_stratum():
    reward, strata = np.array([1.0, 2.0, 3.0, 7.0, 8.0, 9.0]), np.array([0, 0, 0, 1, 1, 1])
    assert large_rewards(reward).tolist() == [False] * 3 + [True] * 3
    assert large_rewards(reward, strata).tolist() == [False, False, True] * 2


def test_factor_is_that_of_the_hazards():
    rng = np.random.default_rng(3)
    group = rng.random(40_000) < 0.5
    delay = rng.exponential(np.where(group, 1.2, 1.0))
    found = by_group(Censored(delay, np.full(40_000, True)), group)
    assert found.factor == pytest.approx(1.2, rel=0.03)


def test_too_few_to_tell():
    nothing = np.empty(0)
    no = np.empty(0, bool)
    assert by_time(Censored(nothing, no), nothing) is None
    assert by_group(Truncated(nothing, nothing), nothing) is None
    assert by_reward(nothing, no, nothing, nothing, nothing) is None
    assert by_size(Truncated(np.ones(50), np.ones(50)), np.ones(50)) is None  # all are alike
    assert delay_tests.LEAST == 20


def test_missing_rewards_over_time():
    rng = np.random.default_rng(8)
    decided = np.sort(rng.uniform(0.0, 1.0, 12_000))
    waiting = 0.1 + 0.5 * decided
    missing = rng.random(12_000) < waiting
    periods = missing_over_time(decided, missing, waiting)
    assert len(periods) == 12
    assert sum(period.decisions for period in periods) == 12_000
    assert sum(period.missing for period in periods) == missing.sum()
    assert not any(period.is_odd for period in periods)
    missing[3000:4000] = True  # an outage
    odd = [
        k for k, period in enumerate(missing_over_time(decided, missing, waiting)) if period.is_odd
    ]
    assert odd == [3]
