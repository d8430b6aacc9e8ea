"""Learning from silence: when ticks begin, and what they take in."""

import json
import math

import numpy as np
import pytest

from belated.families import Bernoulli
from belated.learner.learner import Learner
from belated.ledger.hearing import MOST_GROUPS, NEVER, Hearing
from belated.model.state import ERROR
from belated.monitoring.delay_law import delay_law
from belated.policies import AdaptiveThompson

DAY = 86_400_000_000
WINDOW = 4 * DAY
GROUPS = {"ad": 3, "intercept": 1}


class Loop:
    """Three ads, decisions evenly over time, conversions after exponential delays."""

    def __init__(self, seed=0, rate=0.3, every=DAY // 20, policy=None):
        self.rng, self.rate, self.every = np.random.default_rng(seed), rate, every
        self.learner = Learner(4, Bernoulli(), policy or AdaptiveThompson(), 1.0, GROUPS)
        self.hearing, self.times, self.to_come = Hearing(WINDOW), [], []
        self.ticks = 0

    def decide(self, n):
        for _ in range(n):
            now = len(self.times) * self.every
            for due in sorted(self.to_come):
                if due[0] <= now:
                    self.hearing.rewarded(due[1], 1.0, due[0] - self.times[due[1]])
                    self.to_come.remove(due)
            row = len(self.times)
            for old in range(row):
                unknown = np.isnan(self.learner.history.y[old]) and old not in self.hearing.rewards
                if unknown and self.times[old] + WINDOW < now:
                    self.hearing.closed(old, 0.0)
            if self.hearing.begins(now, 4):
                self.hearing.take_in(self.learner, np.array(self.times, np.int64), now)
                self.ticks += 1
            ad = int(self.rng.integers(3))
            x = np.zeros((1, 4))
            x[0, [ad, 3]] = 1.0
            self.learner.decide(x, self.rng)
            self.hearing.decided(f"ad-{ad}")
            self.times.append(now)
            delay = int(self.rng.exponential(DAY))
            if self.rng.random() < self.rate and delay <= WINDOW:
                self.to_come.append((now + delay, row))


def test_a_tick_takes_in_conversions_and_ages_together():
    loop = Loop()
    loop.decide(60)
    loop.hearing.take_in(loop.learner, np.array(loop.times), 3 * DAY)
    y, silence = loop.learner.history.y[:60], loop.learner.history.silence[:60]
    came = np.frombuffer(loop.hearing.codes, np.uint8) > 0
    assert (y[came] == 1.0).all()
    assert np.isnan(y[~came]).all()
    assert (silence[came] == 0.0).all()
    ages = 3 * DAY - np.array(loop.times)
    delays = {row: cell for row, cell in enumerate(loop.hearing.codes) if cell}
    # the same law from continuous delays at the ends of their cells
    ends = np.array([WINDOW * (cell / 64.0) ** 2 * (1 - 1e-12) for cell in delays.values()])
    groups = np.array(loop.hearing.groups, np.int64)
    rows = np.array(list(delays))
    seen = ends <= ages[rows]
    law = delay_law(ends[seen], ages[rows][seen], float(WINDOW), groups[rows][seen], 3)
    expected = law.within_at(ages[~came], groups[~came])
    np.testing.assert_allclose(silence[~came], expected, rtol=1e-9)
    assert (np.diff(silence[(groups == 0) & ~came]) <= 0.0).all()  # the older, the more it says


def test_between_ticks_nothing_is_learnt():
    loop = Loop(every=DAY // 1000)  # 62 decisions in a 64th of the window
    loop.decide(40)
    before = loop.learner.state.theta.copy()
    loop.hearing.rewarded(3, 1.0, DAY // 2)
    assert math.isnan(loop.learner.history.y[3])
    np.testing.assert_array_equal(loop.learner.state.theta, before)
    loop.hearing.take_in(loop.learner, np.array(loop.times), DAY)
    assert loop.learner.history.y[3] == 1.0


def test_ticks_come_often_enough_and_no_oftener():
    slow = Loop(every=WINDOW // 64)
    slow.decide(10)
    assert slow.ticks == 10  # each decision begins another 64th of the window
    fast = Loop(every=WINDOW // 64_000)
    fast.decide(100)
    assert fast.ticks == 1 + 99 // 16
    fast.hearing.n_open, fast.hearing.since = 100_000, 3_124
    assert not fast.hearing.begins(fast.times[-1], 4)
    fast.hearing.since += 1
    assert fast.hearing.begins(fast.times[-1], 4)
    assert not fast.hearing.begins(fast.times[-1], 16_000)
    fast.hearing.codes += bytes(512 * 3_126 - len(fast.hearing.codes))  # a long history
    assert not fast.hearing.begins(fast.times[-1], 4)
    fast.hearing.since += 1
    assert fast.hearing.begins(fast.times[-1], 4)


def test_once_all_windows_are_closed_the_estimate_is_the_ordinary_one():
    loop = Loop(seed=1)
    loop.decide(80)
    end = loop.times[-1] + 2 * WINDOW
    for due, row in loop.to_come:
        loop.hearing.rewarded(row, 1.0, due - loop.times[row])
    for row in range(80):
        if row not in loop.hearing.rewards and np.isnan(loop.learner.history.y[row]):
            loop.hearing.closed(row, 0.0)
    loop.hearing.take_in(loop.learner, np.array(loop.times), end)
    assert not np.isnan(loop.learner.history.y[:80]).any()
    assert loop.hearing.n_open == 0
    fixed = AdaptiveThompson(strength=1e12)
    ordinary = Learner(4, Bernoulli(), fixed, 1.0, GROUPS)
    own = Learner(4, Bernoulli(), fixed, 1.0, GROUPS)
    for learner in (ordinary, own):
        for row in range(80):
            x = np.zeros((1, 4))
            x[0, loop.learner.history.columns[2 * row : 2 * row + 2]] = 1.0
            learner.decide(x, np.random.default_rng(0))
    own.hear(np.arange(80), np.full(80, 0.5))
    for row in range(80):
        own.learn({row: float(loop.learner.history.y[row])})
    ordinary.learn(dict(enumerate(loop.learner.history.y[:80].tolist())))
    np.testing.assert_allclose(own.exact_theta(), ordinary.exact_theta(), atol=1e-9)
    assert own.state.scalars[ERROR] <= fixed.tol


def test_a_cancelled_decision_says_nothing_and_another_reward_takes_its_place():
    loop = Loop(rate=0.0)
    loop.decide(30)
    loop.hearing.cancelled(2)
    loop.hearing.rewarded(4, 1.0, DAY)
    loop.hearing.take_in(loop.learner, np.array(loop.times), 2 * DAY)
    assert loop.hearing.codes[2] == NEVER
    assert loop.learner.history.silence[2] == 0.0
    assert loop.learner.history.silence[3] > 0.0
    loop.hearing.closed(4, 0.0)
    loop.hearing.take_in(loop.learner, np.array(loop.times), 2 * DAY)
    assert loop.learner.history.y[4] == 0.0


def test_snapshots_go_on_bit_for_bit():
    one, other = Loop(seed=2), Loop(seed=2)
    one.decide(50)
    other.decide(50)
    again = Hearing(WINDOW)
    again.restore(json.loads(json.dumps(other.hearing.header())), other.hearing.arrays())
    other.hearing = again
    one.decide(40)
    other.decide(40)
    assert one.learner.state.theta.tobytes() == other.learner.state.theta.tobytes()
    assert one.hearing.header() == other.hearing.header()


@pytest.mark.parametrize("other", [WINDOW // 2, 2 * WINDOW])
def test_each_decision_is_judged_by_its_own_window(other):
    """The first hundred have another window, which all but the last thirty have seen end."""
    rng, rows = np.random.default_rng(5), np.arange(180)
    learner, hearing = Learner(4, Bernoulli(), AdaptiveThompson(), 1.0, GROUPS), Hearing(WINDOW)
    own = np.where(rows < 100, other, WINDOW)
    times = rows * DAY // 20
    now = int(times[100] + other - 30 * DAY // 20)
    made = times < now
    rows, own, times = rows[made], own[made], times[made]
    delays = np.where(rng.random(len(rows)) < 0.5, rng.exponential(2 * DAY, len(rows)), 1e18)
    for row in rows:
        learner.decide(np.array([[1.0, 0.0, 0.0, 1.0]]), rng)
        hearing.decided("ad", int(own[row]))
    ages = now - times
    came = delays <= np.minimum(ages, own)
    for row in np.flatnonzero(came):
        hearing.rewarded(int(row), 1.0, int(delays[row]))
    for row in np.flatnonzero(~came & (ages >= own)):
        hearing.closed(int(row), 0.0)
    again = Hearing(WINDOW)
    again.restore(json.loads(json.dumps(hearing.header())), hearing.arrays())
    again.take_in(learner, times, now)
    y, silence = learner.history.y[: len(rows)], learner.history.silence[: len(rows)]
    np.testing.assert_array_equal(y[came], 1.0)
    np.testing.assert_array_equal(y[~came & (ages >= own)], 0.0)
    # the law of what came within the present window, each truncated by its age and its own window
    seen = came & (delays <= WINDOW)
    assert seen.sum() < came.sum() or other < WINDOW
    ends = WINDOW * (np.ceil(64 * np.sqrt(delays[seen] / WINDOW)) / 64.0) ** 2 * (1 - 1e-12)
    until = np.minimum(ages, own)[seen]
    there = ends <= until
    law = delay_law(
        *(ends[there], until[there], float(WINDOW)), np.zeros(there.sum(), np.int64), n_groups=1
    )
    waits = ~came & (ages < own)
    assert waits[:100].any()
    expected = law.within_at(ages[waits], 0) / law.within_at(own[waits], 0)
    np.testing.assert_allclose(silence[waits], expected, rtol=1e-9)
    assert (silence[waits] <= 1.0).all()
    again.doubts.by_size, again.doubts.looked = "later", 10**9  # no look: the doubt stays
    again.take_in(learner, times, now)
    np.testing.assert_array_equal(np.isnan(learner.history.y[: len(rows)]), ages < own)


def test_many_actions_share_the_last_law():
    hearing = Hearing(WINDOW)
    for k in range(MOST_GROUPS + 5):
        hearing.decided(f"a{k}")
    assert list(hearing.groups)[-6:] == [MOST_GROUPS - 1] * 6
    assert hearing.groups[MOST_GROUPS - 2] == MOST_GROUPS - 2


@pytest.mark.parametrize("delay", [-5, 0, 10 * WINDOW])
def test_a_delay_outside_the_window_is_taken_to_its_end(delay):
    hearing = Hearing(WINDOW)
    hearing.decided("a")
    hearing.rewarded(0, 1.0, delay)
    assert hearing.codes[0] == (1 if delay <= 0 else 64)


def test_in_doubt_open_decisions_and_their_conversions_are_held():
    fixed = AdaptiveThompson(strength=1e12)
    loop = Loop(seed=3, policy=fixed)
    loop.decide(120)  # six days of a window of four
    loop.hearing.take_in(loop.learner, np.array(loop.times), 6 * DAY)
    before = loop.learner.history.y[:120].copy()
    assert loop.learner.n_observed == np.sum(~np.isnan(before))
    assert loop.hearing.failures == pytest.approx(loop.learner.history.silence.sum())
    now, times = 6 * DAY + DAY // 4, np.array(loop.times)
    doubts = loop.hearing.doubts
    doubts.drifts, doubts.since, doubts.looked = "later", 3 * DAY, 7 * 4  # no look before day 7
    loop.hearing.take_in(loop.learner, times, now)
    y, closed = loop.learner.history.y[:120], now - times >= WINDOW
    assert (before[~closed] == 1.0).any()  # conversions that were learnt, ...
    assert np.isnan(y[~closed]).all()  # ... and are not any more
    np.testing.assert_array_equal(y[closed] == 1.0, before[closed] == 1.0)
    assert loop.learner.n_observed == np.sum(~np.isnan(y))
    assert not loop.learner.history.silence.any()
    assert loop.hearing.failures == 0.0
    holding = Learner(4, Bernoulli(), fixed, 1.0, GROUPS)
    for row in range(120):
        x = np.zeros((1, 4))
        x[0, loop.learner.history.columns[2 * row : 2 * row + 2]] = 1.0
        holding.decide(x, np.random.default_rng(0))
    holding.learn({int(row): float(y[row]) for row in np.flatnonzero(~np.isnan(y))})
    np.testing.assert_allclose(loop.learner.exact_theta(), holding.exact_theta(), atol=1e-9)
    (broken,) = loop.hearing.broken()
    assert broken.name == "delay-drift"
    doubts.drifts = ""
    loop.hearing.take_in(loop.learner, times, now)
    np.testing.assert_array_equal(loop.learner.history.y[:120] == 1.0, before == 1.0)
    assert loop.learner.history.silence.any()
