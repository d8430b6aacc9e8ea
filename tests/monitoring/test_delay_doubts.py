"""Whether delays drift or depend on the size of the reward: false alarms, power, what follows."""

import json
import math

import numpy as np
import pytest

from belated.core.times import DAY
from belated.monitoring.delay_doubts import (
    IMPROBABLE,
    LOOKS,
    Doubts,
    Seen,
    by_size,
    drift,
    is_doubtful,
    log_rank_of_cells,
)
from belated.monitoring.delay_law import CELLS, cells_of_ages, cells_of_delays
from belated.monitoring.log_rank import LogRank
from belated.monitoring.truncated_delays import truncated_log_rank

DAYS = 4.0  # a window


class Life:
    """Conversions of ``n`` decisions over some days, of which only the early ones are seen."""

    def __init__(self, seed, n=1000, days=40.0, actions=3, sizes=False, mean_of=None):
        rng = np.random.default_rng([3, seed])
        self.made = np.sort(rng.uniform(0.0, days, n))
        self.action = rng.integers(actions, size=n)
        self.reward = 1.0 + rng.poisson(1.0, n) if sizes else np.ones(n)
        mean = np.ones(n) if mean_of is None else mean_of(self)
        self.delay = -mean * np.log1p(rng.random(n) * np.expm1(-DAYS / mean))

    def seen(self, now):
        delays = cells_of_delays(self.delay, DAYS, CELLS)
        ages = cells_of_ages(np.maximum(now - self.made, 0.0), DAYS, CELLS)
        rows = np.flatnonzero(delays <= ages)
        times = (self.made * DAY).astype(np.int64)
        columns = delays, ages, self.action, times, self.reward
        return Seen(rows, *(column[rows] for column in columns))

    def looks(self, days):
        """Yields the doubts after each look."""
        doubts = Doubts(int(DAYS * DAY))
        for look in range(1, round(days / DAYS * LOOKS) + 1):
            now = look * DAYS / LOOKS
            seen = self.seen(now)
            doubts.look(seen.only(np.flatnonzero(seen.rows >= doubts.first)), int(now * DAY))
            yield now, doubts


def test_the_test_is_that_of_truncated_delays():
    seen = Life(0, n=300, days=6.0, actions=1).seen(6.0)
    part = (seen.times > 3 * DAY).astype(np.int64)
    mine = log_rank_of_cells(seen, part)
    other = truncated_log_rank(seen.delays, seen.ages, part)
    assert mine == pytest.approx(tuple(other), rel=1e-12)


def test_actions_are_compared_with_themselves_only():
    life = Life(1, n=900, days=8.0)
    seen = life.seen(8.0)
    part = (seen.times > 4 * DAY).astype(np.int64)
    each = [np.flatnonzero(seen.groups == g) for g in range(3)]
    alone = [
        log_rank_of_cells(seen.only(rows)._replace(groups=np.zeros(len(rows), int)), part[rows])
        for rows in each
    ]
    assert log_rank_of_cells(seen, part) == pytest.approx(np.sum(alone, axis=0), rel=1e-12)


def test_a_slow_action_that_is_played_more_is_no_drift():
    def mean_of(life):
        slow = np.random.default_rng(0).random(len(life.made)) < np.where(life.made < 20, 0.1, 0.9)
        life.action = slow.astype(np.int64)
        return np.where(slow, 3.0, 0.3)

    life = Life(2, n=2000, mean_of=mean_of)
    window, now = int(DAYS * DAY), 40 * DAY
    assert drift(life.seen(40.0), window, now) is None
    mixed = life.seen(40.0)
    assert drift(mixed._replace(groups=np.zeros_like(mixed.groups)), window, now) is not None


def test_chance_is_bounded_by_bennett():
    z = math.sqrt(-2.0 * math.log(IMPROBABLE))
    wide = 500.0  # nearly normal: the bound is exp(-z^2 / 2)
    beyond = 1.05 * z * math.sqrt(wide)
    assert is_doubtful(LogRank(wide + beyond, wide, wide))
    assert not is_doubtful(LogRank(wide + 0.98 * z * math.sqrt(wide), wide, wide))
    # variance 1 and 12 too many: z = 12, and the chance of a Poisson(1) to be 13 or more is 6e-11
    assert is_doubtful(LogRank(13.0, 1.0, 1.0))
    assert not is_doubtful(LogRank(8.0, 1.0, 1.0))  # z = 7, chance 1e-5
    assert not is_doubtful(LogRank(1e6 + 6e4, 1e6, 1e6))  # z = 60, but only 6 per cent
    assert not is_doubtful(LogRank(0.0, 0.0, 0.0))


def false_alarms(lives, **settings):
    days = settings.get("days", 40.0)
    return sum(
        any(doubts.hold for _, doubts in Life(seed, **settings).looks(days))
        for seed in range(lives)
    )


@pytest.mark.parametrize("n", [100, 400, 2000])
def test_no_false_alarm(n):
    assert false_alarms(25, n=n, sizes=True) == 0


@pytest.mark.nightly
@pytest.mark.slow
def test_a_thousand_lives_without_a_false_alarm():
    # 40 looks at 9 comparisons, each doubtful with probability 2e-7 at most: 1 life in 10,000
    assert false_alarms(1000, n=400, sizes=True) == 0


def test_conversions_that_are_handed_in_every_night_are_no_drift():
    for seed in range(5):
        life = Life(seed, n=10_000)
        life.delay = np.minimum(np.ceil(life.made + life.delay) - life.made, DAYS)
        assert not any(doubts.hold for _, doubts in life.looks(40.0))


@pytest.mark.parametrize(("factor", "word"), [(3.0, "later"), (1.0 / 3.0, "sooner")])
def test_a_drift_is_found_held_and_over(factor, word):
    for seed in range(5):
        life = Life(seed, n=4000, mean_of=lambda life: np.where(life.made < 20.0, 1.0, factor))
        held = [(now, doubts.since / DAY) for now, doubts in life.looks(40.0) if doubts.hold]
        first, last = held[0][0], held[-1][0]
        assert 20.0 < first <= 27.0
        assert last <= 36.0  # steady again
        assert 18.0 < held[-1][1] < 28.0  # since when
        assert last >= held[-1][1] + DAYS - 1.0  # not before all decisions before it are closed
    (doubt,) = next(doubts for _, doubts in life.looks(40.0) if doubts.hold).listed()
    assert doubt.name == "delay-drift"
    assert f"come {word} than those before." in doubt.sentence
    assert "Open decisions count for nothing" in doubt.change


def test_after_a_drift_only_the_conversions_since_then_count():
    life = Life(0, n=4000, mean_of=lambda life: np.where(life.made < 20.0, 1.0, 3.0))
    *_, (_, doubts) = life.looks(40.0)
    assert life.made[doubts.first - 1] * DAY < doubts.since <= life.made[doubts.first + 5] * DAY
    assert not doubts.hold


def test_delays_that_depend_on_the_size_are_found_and_stay_found():
    for seed in range(5):
        life = Life(seed, n=2000, sizes=True, mean_of=lambda life: 0.4 * life.reward)
        seen = life.seen(40.0)
        assert by_size(seen).z > 0.0
        *_, (_, doubts) = life.looks(40.0)
        (doubt,) = doubts.listed()
        assert doubt.name == "delay-size"
        assert "large rewards come later than small ones" in doubt.sentence
    assert by_size(seen._replace(rewards=np.ones(len(seen.rows)))) is None


def test_a_mean_that_doubles_is_found_in_time():
    found = 0
    for seed in range(10):
        life = Life(seed, n=6000, mean_of=lambda life: np.where(life.made < 20.0, 1.0, 2.0))
        found += any(doubts.drifts == "later" for _, doubts in life.looks(40.0))
    assert found >= 9


def test_the_state_goes_through_json():
    life = Life(0, n=4000, mean_of=lambda life: np.where(life.made < 20.0, 1.0, 3.0))
    doubts = next(doubts for _, doubts in life.looks(40.0) if doubts.hold)
    again = Doubts(doubts.window)
    again.restore(json.loads(json.dumps(doubts.header())))
    assert again.listed() == doubts.listed()
    assert again.header() == doubts.header()
