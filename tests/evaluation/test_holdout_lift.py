"""The bandit against its holdout: pending rewards, subjects, and looks at any time."""

import numpy as np
import pytest

from belated.evaluation.anytime import anytime_errors, least_reach
from belated.evaluation.holdout_lift import ALL_ALIKE, Decisions, lift
from support.logged import young_action_log

DAY = 86_400.0
WINDOW = 4.0 * DAY


def decisions(rng, n, *args, **kwargs):
    """Decisions as they are known now."""
    return seen(truth(rng, n, *args, **kwargs), 0.0)


def truth(rng, n, rates=(0.3, 0.3), days=(2.0, 2.0), share=0.3, window=None, span=4.0):
    """Decisions of the last days, with mean rewards and mean delays for bandit and holdout.

    With a window only rewards of 1 report, and none comes after the window.
    """
    held_out = rng.random(n) < share
    group = held_out.astype(int)
    reward = (rng.random(n) < np.array(rates)[group]).astype(float)
    age = span * DAY * rng.random(n)
    delay = rng.exponential(np.array(days)[group] * DAY)
    if window is not None:
        age[0] = window + DAY  # one window at least has closed
        delay = window * rng.random(n) ** (1.0 / np.array(days)[group])  # the larger, the later
        reward[reward == 0.0] = np.nan
    return Decisions(held_out, group, np.arange(n), age, delay, reward)


def seen(log, before):
    """The log as it was a time before now: later decisions and rewards are not known yet."""
    there = log.age >= before
    log = Decisions(*(column[there] for column in log))
    age = log.age - before
    came = ~np.isnan(log.reward) & (log.waited <= age)
    return log._replace(
        age=age,
        waited=np.where(came, log.waited, age),
        reward=np.where(came, log.reward, np.nan),
    )


def naive_difference(log):
    """Rewards per decision so far, as if what is pending were nothing."""
    earned = np.nan_to_num(log.reward)
    return earned[~log.held_out].mean() - earned[log.held_out].mean()


@pytest.mark.parametrize("window", [None, WINDOW])
def test_the_faster_group_is_not_the_better_one(window):
    """Equal rates, other delays: there is no lift, and whoever takes pending for 0 finds one."""
    days = (0.3, 3.0) if window is None else (0.5, 3.0)
    log = decisions(np.random.default_rng(1), 20_000, days=days, window=window, span=6.0)
    found = lift(log, conversions=window is not None, window=window)
    assert naive_difference(log) > 0.05
    assert found.low < 0.0 < found.high
    assert found.high - found.low < 0.1
    bandit, holdout = found.groups
    assert holdout.pending / holdout.decisions > bandit.pending / bandit.decisions


@pytest.mark.parametrize("window", [None, WINDOW])
def test_the_better_group_is_found_though_it_is_slower(window):
    days = (3.0, 0.3) if window is None else (3.0, 0.5)
    log = decisions(np.random.default_rng(1), 20_000, (0.4, 0.3), days, window=window, span=6.0)
    found = lift(log, conversions=window is not None, window=window)
    assert naive_difference(log) < 0.0
    assert 0.0 < found.low < 0.1 < found.high
    assert [group.mean for group in found.groups] == pytest.approx([0.4, 0.3], abs=0.04)
    assert found.difference == found.groups[0].mean - found.groups[1].mean


def test_a_new_action_that_is_younger_than_the_window_makes_no_lift():
    """All actions earn 0.3, and half of the bandit's traffic is a new one, 4 of 7 days old.

    Of its conversions only those within 4 days can have come: as if these were all, the bandit
    loses 0.03 to its holdout.
    """
    rng, n = np.random.default_rng(1), 60_000
    logged = young_action_log(rng, n)
    held_out = rng.random(n) < 0.3
    action = np.where(held_out, 0, logged.action)
    log = Decisions(
        *(held_out, action, np.arange(n), logged.age, logged.waited, logged.reward),
    )
    found = lift(log, conversions=True, window=7.0 * DAY, range=1.0)
    assert found.low < 0.0 < found.high
    assert abs(found.difference) < 0.01
    assert found.high - found.low < 0.05


def several(rng, n, late):
    """Conversions of two rewards each within a week; the second is late by so many days.

    Returns one row for each decision and each further reward, and which reward it is.
    """
    held_out, age, converts = rng.random(n) < 0.3, 10.0 * rng.random(n), rng.random(n) < 0.3
    first = 3.0 * rng.random(n)
    second = first + np.where(held_out, late[1], late[0]) * (0.5 + 0.5 * rng.random(n))
    times = np.concatenate([first, second])
    age, group = np.tile(age, 2), np.tile(held_out, 2)
    came = np.tile(converts, 2) & (times <= age)
    place = np.repeat([0, 1], n)
    log = Decisions(
        *(group, group.astype(int), np.tile(np.arange(n), 2), age * DAY),
        *(np.where(came, times, age) * DAY, np.where(came, 1.0, np.nan)),
    )
    rows = came | (place == 0)
    return Decisions(*(column[rows] for column in log)), place[rows]


def test_several_rewards_of_a_decision_have_delays_of_their_own():
    """Both groups earn 0.6 a decision; the second half of it is slower in the holdout."""
    wrong = 0
    for seed in range(10):
        log, place = several(np.random.default_rng(seed), 20_000, late=(0.3, 4.0))
        found = lift(log, conversions=True, window=7.0 * DAY, place=place)
        wrong += not found.low <= 0.0 <= found.high
        assert abs(found.difference) < 0.04
        assert found.high - found.low < 0.15
        assert [group.mean for group in found.groups] == pytest.approx([0.6, 0.6], abs=0.04)
        assert sum(group.decisions for group in found.groups) == 20_000
    assert wrong <= 1


def test_only_decisions_whose_window_is_over():
    log = decisions(np.random.default_rng(1), 5000, (0.6, 0.3), (0.1, 0.1), span=6.0)
    found = lift(log, conversions=False, window=WINDOW, closed_only=True)
    old = log.age >= WINDOW
    assert sum(group.too_young for group in found.groups) == (~old).sum()
    held_out = log.held_out[old]
    means = [log.reward[old][group].mean() for group in (~held_out, held_out)]
    assert [group.mean for group in found.groups] == pytest.approx(means)


def test_without_pending_rewards_it_is_the_difference_of_means():
    """Golden: 60 of 100 against 30 of 100.

    A group's variance counts as no less than that of all rows, 0.225: see ``difference``.
    """
    held_out = np.repeat([False, True], 100)
    reward = np.concatenate([np.arange(100) < 60, np.arange(100) < 30]).astype(float)
    same = np.ones(200)
    log = Decisions(held_out, np.zeros(200, int), np.arange(200), 9.0 * same, same, reward)
    found = lift(log, conversions=False)
    assert found.difference == pytest.approx(0.3)
    reach = np.sqrt(0.24 / 100 + 0.225 / 100) * anytime_errors(200)
    assert (found.low, found.high) == pytest.approx((0.3 - reach, 0.3 + reach))
    assert [group.rewards for group in found.groups] == [100, 100]
    assert [group.pending for group in found.groups] == [0, 0]
    wider = lift(log, conversions=False, level=0.99)
    assert wider.low < found.low < found.high < wider.high


@pytest.mark.parametrize("times", [1, 4])
def test_two_groups_that_do_not_vary_have_an_interval(times):
    """All of 100 subjects bought, and none of 60 held out: not certain, whatever their visits."""
    held_out = np.repeat(np.arange(160) >= 100, times)
    subject, same = np.repeat(np.arange(160), times), np.ones(160 * times)
    log = Decisions(held_out, 0 * subject, subject, 9.0 * same, same, 1.0 * ~held_out)
    found = lift(log, conversions=False, range=1.0)
    reach = least_reach(100, 1.0, 0.975) + least_reach(60, 1.0, 0.975)
    assert (found.low, found.high) == pytest.approx((1.0 - reach, 1.0 + reach))
    unbounded = lift(log, conversions=False)
    assert (unbounded.difference, unbounded.low) == (None, None)
    assert unbounded.reason == ALL_ALIKE


def test_decisions_of_one_subject_count_as_one():
    """Every decision four times over says no more than once."""
    log = decisions(np.random.default_rng(1), 2000, days=(1e-3, 1e-3))
    many = Decisions(*(np.repeat(column, 4) for column in log))
    once, four = lift(log, conversions=False), lift(many, conversions=False)
    assert (four.low, four.high) == pytest.approx((once.low, once.high))
    apart = lift(many._replace(subject=np.arange(8000)), conversions=False)
    assert apart.high - apart.low < 0.75 * (four.high - four.low)


def test_it_is_too_early():
    rng = np.random.default_rng(1)
    none = Decisions(*[np.empty(0, int)] * 3, *[np.empty(0)] * 3)
    none = none._replace(held_out=np.empty(0, bool))
    for conversions in (False, True):
        found = lift(none, conversions=conversions, window=WINDOW)
        assert found.difference is None
        assert found.reason
    few = lift(decisions(rng, 400, share=0.1), conversions=False)
    assert few.low is None
    assert "the holdout has" in few.reason
    log = decisions(rng, 1000, window=WINDOW)
    young = log._replace(age=np.minimum(log.age, 3.9 * DAY))
    assert "no window of the bandit is over" in lift(young, conversions=True, window=WINDOW).reason
    young.age[:8] = 30.0 * DAY  # such as a trial long ago; nothing is known by it
    with_old = lift(young, conversions=True, window=WINDOW)
    assert with_old.difference is None
    assert "conversions whose window is over, and 10 are needed" in with_old.reason


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, WINDOW])
def test_monitored_runs_without_effect_are_rarely_wrong(window):
    """300 runs, each looked at ten times while rewards come in, delays differing by group.

    At most 5 per cent of them may ever show an effect.
    """
    rng, wrong = np.random.default_rng(1), 0
    days = (0.3, 1.0) if window is None else (0.5, 3.0)
    for _ in range(300):
        log = truth(rng, 4000, days=days, share=0.2, window=window, span=10.0)
        for before in np.linspace(9.0, 0.0, 10) * DAY:
            found = lift(seen(log, before), conversions=window is not None, window=window)
            if found.low is not None and not found.low <= 0.0 <= found.high:
                wrong += 1
                break
    assert wrong <= 0.05 * 300
