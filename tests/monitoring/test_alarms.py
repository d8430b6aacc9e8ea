"""Alarms: each speaks up when it should, in plain words, and keeps quiet in a healthy loop."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from belated.core.wording import duration, moment
from belated.monitoring import alarms
from belated.monitoring.finding_alarms import (
    Facts,
    closed_decisions,
    decided_since_reward,
    find_alarms,
    pending_by_age,
    usual_gap,
)
from belated.monitoring.observations import Observations
from belated.monitoring.statistics import Statistics

NOW = 1_700_049_600.0  # Wednesday, 15 November 2023, noon UTC
DAY = 86400.0
NIGHTLY = bool(os.environ.get("BELATED_NIGHTLY"))
ENOUGH = 30_000  # looks: at 1 in 1,000, seven alarms or fewer among them have probability 1e-6
LOOKS = ENOUGH if NIGHTLY else 1000


def check_rare(found, looks):
    """Fewer than one alarm in 1,000 looks at healthy loops.

    At that rate so few would be found in one of a million runs. A short run cannot show it, and
    must find none.
    """
    assert found == 0 or binom.cdf(found, looks, 1e-3) <= 1e-6


def watched(rng, n=2000, span=7 * DAY, delay=None, reward=None, window=np.inf, action=None):
    """Decisions over a span and what is known of them now. Delay and reward may depend on time."""
    decided = NOW - np.sort(rng.uniform(0.0, span, n))[::-1]
    delays = rng.exponential(1200.0, n) if delay is None else delay(decided)
    rewards = rng.normal(size=n) if reward is None else reward(decided, delays)
    limit = np.minimum(NOW - decided, window)
    came = delays <= limit
    known = np.where(came, delays, limit), came, np.where(came, rewards, np.nan)
    return Observations(decided, *known, np.zeros(n, np.int64) if action is None else action)


# ------------------------------------------------------------------------------ delays changed


def slower_since(rng, time, factor, scale=1200.0):
    return lambda decided: (
        rng.exponential(scale, decided.size) * np.where(decided > time, factor, 1.0)
    )


@pytest.mark.slow
def test_delays_changed_false_alarms():
    rng = np.random.default_rng(0)
    laws = [
        lambda decided: rng.exponential(1200.0, decided.size),
        lambda decided: rng.lognormal(8.0, 2.0, decided.size),  # half of the rewards in an hour
        lambda decided: rng.pareto(0.8, decided.size) * 600.0,
        lambda decided: rng.exponential(3 * DAY, decided.size),  # most are pending
    ]
    found = sum(
        alarms.delays_changed(NOW, watched(rng, rng.integers(50, 3000), delay=law)) is not None
        for _ in range(LOOKS // 4)
        for law in laws
    )
    check_rare(found, LOOKS)


@pytest.mark.parametrize("scale", [60.0, 1200.0, 4 * 3600.0])
def test_delays_changed_power(scale):
    rng = np.random.default_rng(1)
    found = [
        alarms.delays_changed(NOW, watched(rng, delay=slower_since(rng, NOW - DAY, 2.0, scale)))
        for _ in range(50)
    ]
    assert sum(alarm is not None for alarm in found) >= 48
    sentences = [alarm.sentence for alarm in found if alarm]
    assert sum("since Tuesday" in s or "UTC" in s for s in sentences) >= 0.9 * len(sentences)
    assert sum("doubled" in sentence for sentence in sentences) >= 0.7 * len(sentences)


def test_delays_changed_is_silent_about_shorter_delays_and_small_changes():
    rng = np.random.default_rng(2)
    for factor in (0.3, 1.2):
        seen = watched(rng, 4000, delay=slower_since(rng, NOW - 2 * DAY, factor))
        assert alarms.delays_changed(NOW, seen) is None
    assert alarms.delays_changed(NOW, watched(rng, 0)) is None
    nothing_came = watched(rng, 500, delay=lambda decided: np.full(decided.size, 1e9))
    assert alarms.delays_changed(NOW, nothing_came) is None


def test_a_slow_action_that_earns_more_and_is_played_more_raises_no_alarm():
    """Delays depend on the action alone; who does not know the action sees two false causes."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        slow = rng.random(2000) < np.linspace(0.1, 0.9, 2000)
        seen = watched(
            rng,
            delay=lambda decided, rng=rng, slow=slow: rng.exponential(np.where(slow, 6e4, 1200.0)),
            reward=lambda decided, delays, rng=rng, slow=slow: slow + rng.normal(size=2000),
            action=slow.astype(np.int64),
        )
        blind = replace(seen, action=np.full(2000, -1))
        for alarm in (
            lambda seen: alarms.delays_changed(NOW, seen),
            lambda seen: alarms.delay_depends_on_reward(seen, NOW),
        ):
            assert alarm(seen) is None
            assert alarm(blind) is not None


def test_delays_changed_words():
    rng = np.random.default_rng(3)
    seen = watched(rng, 4000, delay=slower_since(rng, NOW - DAY, 4.0))
    assert alarms.delays_changed(NOW, seen) == (
        "delays-changed",
        "warn",
        "Delays have grown 4-fold since Tuesday: half of the rewards come within 49 minutes, "
        "before within 14 minutes.",
    )


# ---------------------------------------------------------------------- delay depends on reward


@pytest.mark.slow
def test_dependence_false_alarms():
    rng = np.random.default_rng(4)
    start = NOW - 7 * DAY

    def learning(decided, delays):  # rewards get better: young decisions have high ones
        return rng.normal(size=decided.size) + 3.0 * (decided - start) / DAY

    def rare(decided, delays):
        return (rng.random(decided.size) < 0.1).astype(float)

    def slow(decided):
        return rng.exponential(DAY, decided.size)

    def ever_slower(decided):
        return rng.exponential(600.0, decided.size) * (1.0 + (decided - start) / DAY)

    settings = [(None, None), (slow, learning), (ever_slower, learning), (slow, rare)]
    found = 0
    for _ in range(LOOKS // 4):
        for delay, reward in settings:
            seen = watched(rng, 2000, delay=delay, reward=reward)
            found += alarms.delay_depends_on_reward(seen, NOW) is not None
    check_rare(found, LOOKS)


def test_dependence_power_and_words():
    rng = np.random.default_rng(5)

    def bought_or_not(decided, delays):  # a purchase comes at once, a refusal after a while
        return (delays < 900.0) * (rng.random(decided.size) < 0.7) * 1.0

    found = [
        alarms.delay_depends_on_reward(watched(rng, 1000, reward=bought_or_not), NOW)
        for _ in range(50)
    ]
    assert all(found)
    assert found[0].severity == "bad"
    first, second = found[0].sentence.split(". ", 1)
    assert first == "Delay depends on reward: the guarantee does not hold"
    assert second.startswith("High rewards come after ")

    def reversed_rewards(decided, delays):
        return -bought_or_not(decided, delays)

    seen = watched(rng, 1000, reward=reversed_rewards)
    assert "Low rewards come after" in alarms.delay_depends_on_reward(seen, NOW).sentence


def test_dependence_needs_two_classes():
    rng = np.random.default_rng(6)
    same = watched(rng, reward=lambda decided, delays: np.ones(decided.size))
    assert alarms.delay_depends_on_reward(same, NOW) is None
    assert alarms.delay_depends_on_reward(watched(rng, 10), NOW) is None
    unripe = watched(rng, 500, span=60.0, delay=lambda decided: rng.uniform(0, 90, decided.size))
    assert alarms.delay_depends_on_reward(unripe, NOW) is None


# ---------------------------------------------------------------------------- rewards stopped


class Loop:
    """Statistics fed by a simulated loop, event by event, in the order of time."""

    def __init__(self, rng, start, end, rate, delay, window=np.inf, bundle=0.0, stop=np.inf):
        n = rng.poisson(rate * (end - start))
        decided = np.sort(rng.uniform(start, end, n))
        comes = decided + delay(n)
        if bundle:  # rewards are sent in bundles, at full multiples of this many seconds
            comes = np.ceil(comes / bundle) * bundle
        closes = np.minimum(comes, decided + window)
        self.statistics = Statistics()
        drawn = np.random.default_rng(17).bytes(16 * n)  # they decide who is followed
        ids = [drawn[16 * k : 16 * k + 16] for k in range(n)]
        decided_us = [int(1e6 * t) for t in decided]
        self.statistics.decided(ids, decided_us, ["a"] * n, [0.5] * n, [None] * n)
        for kind, chosen in (
            ("returned", (comes <= decided + window) & (closes <= min(end, stop))),
            ("expired", (comes > decided + window) & (closes <= end)),
        ):
            order = [i for i in np.argsort(closes) if chosen[i]]
            batch = [
                [ids[i] for i in order],
                [decided_us[i] for i in order],
                [int(1e6 * closes[i]) for i in order],
                ["a"] * len(order),
            ]
            rewards = [[1.0] * len(order)] if kind == "returned" else []
            getattr(self.statistics, kind)(*batch, *rewards)
        self.end_us = int(1e6 * end)

    def alarms(self, facts=None):
        return {alarm.key for alarm in find_alarms(self.statistics, self.end_us, facts or Facts())}


@pytest.mark.slow
def test_stopped_false_alarms():
    rng = np.random.default_rng(7)
    found = looks = 0
    for _ in range(LOOKS // 5):
        scale = 10.0 ** rng.uniform(0.0, 4.0)
        end = NOW + rng.uniform(0.0, 3600.0)
        for delay in (
            lambda n, s=scale: rng.exponential(s, n),
            lambda n, s=scale: rng.lognormal(np.log(s), 1.5, n),
            lambda n, s=scale: np.where(rng.random(n) < 0.4, 1e12, rng.exponential(s, n)),
        ):
            life = rng.choice([0.3, 1.0, 3.0, 40.0]) * scale
            loop = Loop(rng, end - life, end, 40.0 / life * rng.uniform(0.2, 40.0), delay)
            found += "rewards-stopped" in loop.alarms()
            looks += 1
    for _ in range(LOOKS - looks):  # bundles every ten minutes: gaps are usual
        end = NOW + rng.uniform(0.0, 3600.0)
        loop = Loop(rng, end - 7000.0, end, 0.3, lambda n: rng.exponential(200.0, n), bundle=600.0)
        found += "rewards-stopped" in loop.alarms()
    check_rare(found, LOOKS)


@pytest.mark.parametrize("scale", [2.0, 300.0, 7200.0])
def test_stopped_power(scale):
    rng = np.random.default_rng(8)
    for _ in range(20):
        silence = max(60.0, 2.0 * scale)
        loop = Loop(
            *(rng, NOW - 40.0 * scale, NOW, 40.0 / scale, lambda n: rng.exponential(scale, n)),
            stop=NOW - silence,
        )
        (alarm,) = (
            alarm
            for alarm in find_alarms(loop.statistics, loop.end_us, Facts())
            if alarm.key == "rewards-stopped"
        )
        assert alarm.severity == "bad"


def test_stopped_in_bundles_is_found_after_two_bundles():
    rng = np.random.default_rng(9)

    def loop(stop):
        return Loop(
            *(rng, NOW - 7000.0, NOW, 0.5, lambda n: rng.exponential(200.0, n)),
            bundle=600.0,
            stop=NOW - stop,
        ).alarms()

    assert "rewards-stopped" not in loop(500.0)
    assert "rewards-stopped" in loop(2000.0)


def test_stopped_words():
    rng = np.random.default_rng(10)
    loop = Loop(
        *(rng, NOW - 7000.0, NOW, 1.0, lambda n: rng.exponential(60.0, n)), stop=NOW - 2040.0
    )
    alarm, *_ = find_alarms(loop.statistics, loop.end_us, Facts())
    assert alarm.sentence == (
        "Rewards stopped 34 minutes ago: about 2,100 should have come since then."
    )


def test_silence_at_night_is_no_alarm():
    rng = np.random.default_rng(11)
    loop = Loop(rng, NOW - 20000.0, NOW - 10000.0, 0.5, lambda n: rng.exponential(60.0, n))
    loop.end_us = int(1e6 * NOW)
    assert loop.alarms() == set()


# ------------------------------------------------------------------------------ missing rewards


@pytest.mark.slow
def test_missing_false_alarms():
    rng = np.random.default_rng(12)
    found = 0
    for _ in range(ENOUGH):
        share = rng.uniform(0.0, 0.9)
        n, before = rng.integers(1, 5000, 2)
        lost, lost_before = rng.binomial(n, share), rng.binomial(before, share)
        found += alarms.rewards_missing(lost, n, lost_before, before) is not None
    check_rare(found, ENOUGH)


def test_missing_power_and_words():
    assert alarms.rewards_missing(120, 1000, 300, 10000) == (
        "rewards-missing",
        "warn",
        "12 % of decisions never got a reward within the window, expected 3 %.",
    )
    assert alarms.rewards_missing(1000, 1000, 30, 1000).severity == "bad"
    assert alarms.rewards_missing(0, 0, 0, 10) is None
    assert alarms.rewards_missing(5, 10, 0, 0) is None


def test_closed_decisions_wait_for_their_window():
    rng = np.random.default_rng(13)
    window = 7200.0
    loop = Loop(
        *(rng, NOW - 3 * DAY, NOW, 0.02, lambda n: np.where(rng.random(n) < 0.3, 1e9, 60.0)),
        window=window,
    )
    lost, closed, lost_before, before = closed_decisions(loop.statistics, loop.end_us)
    assert lost / closed == pytest.approx(0.3, abs=0.05)
    assert lost_before / before == pytest.approx(0.3, abs=0.05)
    # all decisions but those of the last two to three hours, the first hour being a part of one
    assert closed + before == pytest.approx(0.02 * (3 * DAY - 1.25 * window), rel=0.05)
    assert loop.alarms() == set()


# --------------------------------------------------------------------- the plain comparisons


def test_refused():
    assert alarms.rewards_refused(9, 0, 0) is None
    assert alarms.rewards_refused(10, 0, 10000) is None
    assert alarms.rewards_refused(37, 3, 960).sentence == (
        "Rewards come back that cannot be used: 37 for an unknown decision and 3 conflicting in "
        "the last hour (4 % of all)."
    )
    assert alarms.rewards_refused(0, 50, 50).severity == "bad"


def test_rewards_late():
    assert alarms.rewards_late(19, 50) is None
    assert alarms.rewards_late(99, 1000) is None
    assert alarms.rewards_late(100, 1000).sentence == (
        "10 % of all rewards came after their window had closed and are not learnt: the window is "
        "too short (belated retrain --window changes it)."
    )
    assert alarms.rewards_late(266, 677).severity == "bad"


def test_replica_behind():
    assert alarms.replica_behind(10.0, 1000) is None
    assert alarms.replica_behind(12.0, 300).sentence == (
        "This replica is 12 seconds behind the log, 300 decisions it has not seen."
    )
    assert alarms.replica_behind(101.0, 1).severity == "bad"
    unknown = alarms.replica_behind(12.0, None)
    assert unknown.sentence == "This replica is 12 seconds behind the log."


def test_propensity_below_floor():
    assert alarms.propensity_below_floor(None, 0.1) is None
    assert alarms.propensity_below_floor(0.1, None) is None
    assert alarms.propensity_below_floor(0.01, 0.01) is None
    assert "probability 0.002, below the floor of 0.01" in (
        alarms.propensity_below_floor(0.002, 0.01).sentence
    )


def test_words():
    assert [duration(s) for s in (1.0, 119.0, 121.0, 90 * 60, 47 * 3600, 1e6, 1e-9)] == [
        *("1 second", "119 seconds", "2 minutes", "90 minutes", "47 hours", "12 days"),
        "0 seconds",
    ]
    assert moment(NOW - 6 * DAY, NOW) == "Thursday"
    assert moment(NOW - 8 * DAY, NOW) == "7 November"
    assert moment(NOW - 400 * DAY, NOW) == "11 October 2022"
    assert moment(NOW - 3 * 3600, NOW) == "09:00 UTC"


# --------------------------------------------------------------------------------- statistics


def events(rng, n=6000, actions=5):
    """A simulated log: (time, kind, arguments), in order."""
    log = []
    clock = int(1e6 * NOW)
    for i in range(n):
        clock += int(rng.exponential(3e6))
        id, action = i.to_bytes(16, "big"), f"a{rng.integers(actions)}"
        width = None if i % 7 == 0 else 1.0 / np.sqrt(i + 1.0)
        log.append((clock, "decided", (id, clock, action, float(rng.uniform(0.1, 1.0)), width)))
        ends = clock + int(rng.exponential(600e6))
        due = clock + int(1200e6)
        kind = rng.random()
        if kind < 0.02:
            log.append((due // 2 + clock // 2, "cancelled", (id, clock, due // 2 + clock // 2)))
        elif ends <= due:
            reward = float(rng.normal())
            log.append((ends, "returned", (id, clock, ends, action, reward)))
            if kind > 0.98:
                log.append((ends + 5, "revised", (ends + 5, action, reward, reward + 1.0)))
        else:
            log.append((due, "expired", (id, clock, due, action)))
            if kind > 0.9:
                log.append((ends, "revised", (ends, action, None, 0.25)))
    return sorted(log, key=lambda event: event[0])


def fed(log, batch):
    """Chunks of the log, each told kind by kind."""
    statistics = Statistics()
    for start in range(0, len(log), batch):
        chunk = log[start : start + batch]
        for kind in ("decided", "expired", "cancelled", "returned", "revised"):
            rows = [arguments for _, k, arguments in chunk if k == kind]
            if rows:
                tell(statistics, kind, *map(list, zip(*rows, strict=True)))
    return statistics


def tell(statistics, kind, *columns):
    if kind == "revised":  # knows actions by the numbers they were given
        names = list(statistics.actions.by_name)
        times, actions, *rest = columns
        columns = times, [names.index(action) for action in actions], *rest
    getattr(statistics, kind)(*columns)


def test_batches_do_not_matter():
    log = events(np.random.default_rng(14))
    one_by_one = fed(log, 1).to_dict()
    for batch in (7, 1000, len(log)):
        assert fed(log, batch).to_dict() == one_by_one


def test_snapshot_is_exact_and_goes_on():
    log = events(np.random.default_rng(15), 3000)
    half = fed(log[:4000], 100)
    saved = json.loads(json.dumps(half.to_dict()))
    restored = Statistics.from_dict(saved)
    assert restored.to_dict() == half.to_dict()
    for statistics in (half, restored):
        for _, kind, arguments in log[4000:]:
            tell(statistics, kind, *([argument] for argument in arguments))
    assert restored.to_dict() == half.to_dict() == fed(log, 100).to_dict()
    with pytest.raises(ValueError, match="format = 99: expected 2"):
        Statistics.from_dict({**saved, "format": 99})


def test_counts_by_hand():
    log = events(np.random.default_rng(16), 2000)
    statistics = fed(log, 64)
    now_us = log[-1][0]
    kinds = [kind for _, kind, _ in log]
    assert statistics.n_decided == kinds.count("decided") == 2000
    assert statistics.n_returned == kinds.count("returned")
    assert statistics.n_expired == kinds.count("expired")
    assert statistics.n_pending == 0  # the log runs until all are closed
    ages, counts = pending_by_age(fed(log[:3000], 50), log[2999][0])
    open_at = {a[0]: t for t, k, a in log[:3000] if k == "decided"}
    for _, kind, arguments in log[:3000]:
        if kind in ("returned", "expired", "cancelled"):
            open_at.pop(arguments[0])
    assert counts.sum() == len(open_at)
    true_mean = np.mean([(log[2999][0] - t) / 1e6 for t in open_at.values()])
    assert ages @ counts / counts.sum() == pytest.approx(true_mean, abs=10.0)
    for action, totals in statistics.actions.by_name.items():
        came = [a[4] for _, k, a in log if k == "returned" and a[3] == action]
        revised = [a for _, k, a in log if k == "revised" and a[1] == action]
        count, total, _ = totals.known(None)
        assert count == len(came) + sum(a[2] is None for a in revised)
        assert total == pytest.approx(sum(came) + sum(a[3] - (a[2] or 0.0) for a in revised))
        assert totals.known(0.5)[0] == count + totals.expired
    times, counts, totals = statistics.rewards.until(now_us)
    assert (np.diff(times) >= 0).all()
    assert len(times) <= 257
    at = len(times) // 2
    before = [a[4] for t, k, a in log if k == "returned" and t / 1e6 < times[at]]
    assert counts[at] == len(before)
    assert totals[at] == pytest.approx(sum(before))


def test_memory_is_bounded_and_the_sample_unbiased():
    rng = np.random.default_rng(17)
    statistics = Statistics()
    n, rate = 60_000, 100.0
    decided = [int(1e6 * (NOW + i / rate)) for i in range(n)]
    ids = [i.to_bytes(16, "big") for i in range(n)]
    statistics.decided(ids, decided, [f"a{i % 1500}" for i in range(n)], [1.0] * n, [1.0] * n)
    delays = rng.exponential(120.0, n)
    came = [i for i in range(n) if i / rate + delays[i] <= n / rate]
    statistics.returned(
        *([ids[i] for i in came], [decided[i] for i in came]),
        *([decided[i] + int(1e6 * delays[i]) for i in came], [f"a{i % 1500}" for i in came]),
        [1.0] * len(came),
    )
    assert 2048 <= len(statistics.followed.outcomes) <= 4096
    assert len(statistics.actions.by_name) == 1001
    assert sum(totals.decided for totals in statistics.actions.by_name.values()) == n
    seen = statistics.followed.observations(int(1e6 * (NOW + n / rate)))
    mean = seen.delay.sum() / seen.returned.sum()  # censored, exponential: maximum likelihood
    assert mean == pytest.approx(120.0, rel=0.08)
    assert len(statistics.followed.waiting) == (~seen.returned).sum()


def test_the_sample_takes_more_when_decisions_become_rare():
    statistics = Statistics()
    ids = [i.to_bytes(16, "big") for i in range(20_000)]
    burst = [int(1e6 * NOW) + 1000 * i for i in range(20_000)]
    followed = statistics.followed
    followed.decided(ids, burst, [0] * 20_000)
    assert followed.keep_one_in >= 4
    rare = [int(1e6 * (NOW + 3600 * (i + 1))) for i in range(2000)]
    later = [(50_000 + i).to_bytes(16, "big") for i in range(2000)]
    followed.decided(later, rare, [0] * 2000)
    assert followed.keep_one_in == 1


def test_a_sample_of_version_0_1_has_no_actions():
    statistics = fed(events(np.random.default_rng(18), 50), 10)
    saved = statistics.to_dict()
    assert set(saved["followed"].pop("actions")) > {0}
    old = Statistics.from_dict(saved)
    assert set(old.followed.actions) == {-1}


def test_a_broken_batch_changes_nothing():
    statistics = fed(events(np.random.default_rng(18), 50), 10)
    before = statistics.to_dict()
    with pytest.raises(ValueError, match=r"lengths = .*'rewards': 0.*expected sequences of equal"):
        statistics.returned([b"x"], [1], [2], ["a"], [])
    assert statistics.to_dict() == before


def test_empty_statistics_have_no_alarms():
    statistics = Statistics()
    assert find_alarms(statistics, int(1e6 * NOW), Facts()) == []
    assert usual_gap(statistics, int(1e6 * NOW)) == 0
    assert decided_since_reward(statistics, int(1e6 * NOW)) == 0
    ages, counts = pending_by_age(statistics, int(1e6 * NOW))
    assert ages.size == counts.size == 0


def test_worst_alarm_first():
    rng = np.random.default_rng(19)
    loop = Loop(
        *(rng, NOW - 7000.0, NOW, 1.0, lambda n: rng.exponential(60.0, n)), stop=NOW - 2040.0
    )
    facts = Facts(floor=0.6, unknown=20, conflicts=1, behind_seconds=30.0, behind_decisions=4)
    found = find_alarms(loop.statistics, loop.end_us, facts)
    assert [alarm.severity for alarm in found] == sorted(a.severity for a in found)
    assert {alarm.key for alarm in found} >= {"rewards-stopped", "replica-behind"}
