"""Simulated logs of which the truth is known: three actions, a context of two kinds, late rewards.

Delays differ by action, and the slowest action is the best and the target's favourite: who leaves
pending rewards out, or takes them for 0, is misled.
"""

import numpy as np

from belated.logs.values import PENDING
from belated.logs.whole_log import WholeLog

NAMES = ["boots", "map", "tent"]
NOW = 1_750_000_000_000_000
MEANS = np.array([[0.2, 0.3, 0.6], [0.4, 0.3, 0.5]])  # of the reward, by kind and action
PLAYED = np.array([[0.5, 0.3, 0.2], [0.2, 0.4, 0.4]])  # with these probabilities
WANTED = np.array([[0.1, 0.2, 0.7], [0.2, 0.1, 0.7]])  # by the target
MEAN_DELAY = np.array([0.5, 1.0, 2.0])
DAY = 86_400.0
WINDOW = 4.0 * DAY
TRUTH = float((MEANS * WANTED).sum(axis=1).mean())
GAIN = TRUTH - float((MEANS * PLAYED).sum(axis=1).mean())


def target(context, actions):
    """The target as a function of the user."""
    assert actions == NAMES
    return WANTED[(context["kind"] == "new").astype(int)]


def explicit_log(rng, n, pending):
    """A log where every decision gets a reward, of which about the given share is pending."""
    first, last = {0.0: (40.0, 80.0), 0.3: (0.0, 3.3), 0.7: (0.0, 0.68)}[pending]
    return _log(rng, n, rng.uniform(first, last, n), lambda action: _exponential(rng, action))


def conversion_log(rng, n, pending):
    """A log where only conversions report, of which about the given share is pending."""
    ages = {0.0: (1.0, 4.0, 4.0), 0.3: (0.4, 0.8, 3.2), 0.7: (0.1, 0.75, 0.85)}
    old, youngest, oldest = ages[pending]
    days = np.where(rng.random(n) < old, 4.1, rng.uniform(youngest, oldest, n))
    log = _log(rng, n, days, lambda action: _within_window(rng, action))
    silent = log.reward == 0.0
    log.returned[silent], log.reward[silent] = PENDING, np.nan
    return log


def _exponential(rng, action):
    return rng.exponential(MEAN_DELAY[action])


def _within_window(rng, action):
    """Delays of conversions, all within the window: the larger the action, the later."""
    return 4.0 * rng.random(len(action)) ** (1.0 / (0.8 + 0.1 * action))


def _log(rng, n, days, delays_of):
    kind = rng.integers(2, size=n)
    action = (rng.random((n, 1)) > PLAYED[kind].cumsum(axis=1)).sum(axis=1)
    reward = (rng.random(n) < MEANS[kind, action]).astype(float)
    decided = NOW - (days * DAY * 1e6).astype(np.int64)
    returned = decided + (delays_of(action) * DAY * 1e6).astype(np.int64)
    late = returned > NOW
    returned[late], reward[late] = PENDING, np.nan
    texts = np.array(["old", "new"], object)[kind]
    propensity = PLAYED[kind, action]
    return WholeLog(decided, returned, reward, propensity, action, NAMES, {"kind": texts}, NOW)


def young_action_log(rng, n, new_for=4.0, window=7.0, rate=0.3):
    """Conversions of two weeks, with a new action that is younger than the window.

    Both actions convert alike, evenly over the window. The new one has half the traffic.
    """
    days = rng.uniform(0.0, 2.0 * window, n)
    there = days < new_for
    action = (there & (rng.random(n) < 0.5)).astype(int)
    delay = window * rng.random(n)
    came = (rng.random(n) < rate) & (delay <= days)
    decided = NOW - (days * DAY * 1e6).astype(np.int64)
    returned = np.where(came, decided + (delay * DAY * 1e6).astype(np.int64), PENDING)
    reward, propensity = np.where(came, 1.0, np.nan), np.where(there, 0.5, 1.0)
    return WholeLog(decided, returned, reward, propensity, action, ["boots", "tent"], {}, NOW)


TWO = np.array([0.3, 0.5])  # rewards of two actions


def two_actions_log(rng, n=700):
    """Two actions, played evenly for ten days; the better one's rewards come in two days."""
    action = rng.integers(2, size=n)
    decided = NOW - (rng.uniform(0.0, 10.0 * DAY, n) * 1e6).astype(np.int64)
    delay = rng.exponential(np.where(action == 1, 2.0, 0.4) * DAY)
    returned = decided + (delay * 1e6).astype(np.int64)
    came, reward = returned <= NOW, (rng.random(n) < TWO[action]).astype(float)
    returned, reward = np.where(came, returned, PENDING), np.where(came, reward, np.nan)
    return WholeLog(decided, returned, reward, np.full(n, 0.5), action, ["a", "b"], {}, NOW)
