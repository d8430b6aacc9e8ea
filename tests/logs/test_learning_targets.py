"""Policies that learn, replayed on a log: what they keep is a log of their own."""

import numpy as np
import pytest
from scipy.stats import binom

from belated.evaluation.anytime import anytime_errors
from belated.families import Bernoulli, Gaussian, Poisson
from belated.logs.learning_targets import Player, features_of
from belated.logs.policy_values import Estimated, Options, policy_values, with_luck
from belated.logs.seen_rewards import seen_rewards
from belated.logs.values import PENDING
from support.logged import (
    NAMES,
    NOW,
    PLAYED,
    TWO,
    WINDOW,
    explicit_log,
    two_actions_log,
)


def small_log(rng, n, pending=0.0):
    """A log without context: plain Python decides slowly."""
    return explicit_log(rng, n, pending)._replace(context={})


def kept_rows(log, policy, window, seed):
    return Player(log, policy, window, seed).kept_rows()


def without_failures(log):
    """The log of a shop where only conversions report."""
    silent = log.reward == 0.0
    return log._replace(
        reward=np.where(silent, np.nan, log.reward),
        returned=np.where(silent, PENDING, log.returned),
    )


def test_rejection_makes_actions_as_if_drawn_evenly():
    """``uniform`` keeps a row with probability c / (3 p): as many of each action."""
    log = small_log(np.random.default_rng(1), 2_000)
    kept = kept_rows(log, "uniform", None, seed=1)
    assert len(kept) == pytest.approx(2_000 * PLAYED.min(), abs=4 * np.sqrt(2_000 * 0.2 * 0.8))
    shares = np.bincount(log.action[kept], minlength=3) / len(kept)
    assert shares == pytest.approx([1 / 3] * 3, abs=4 * np.sqrt(2 / 9 / len(kept)))
    assert (np.diff(log.decided[kept]) >= 0).all()


@pytest.mark.parametrize("loop", ["explicit", "conversion"])
def test_a_policy_learns_from_late_rewards(loop):
    """Over 40 days it finds the best action."""
    log = small_log(np.random.default_rng(2), 1_000)
    window = None if loop == "explicit" else WINDOW
    log = log if loop == "explicit" else without_failures(log)
    kept = kept_rows(log, "adaptive-thompson", window, seed=1)
    late = log.action[kept[len(kept) // 2 :]]
    assert (late == 2).mean() > 0.6


def test_rewards_that_come_after_the_last_decision_teach_nothing():
    log = small_log(np.random.default_rng(2), 500)
    late = log._replace(returned=np.full(500, NOW))
    unknown = log._replace(reward=np.full(500, np.nan), returned=np.full(500, PENDING))
    kept = kept_rows(late, "adaptive-thompson", None, seed=1)
    assert kept.tolist() == kept_rows(unknown, "adaptive-thompson", None, seed=1).tolist()
    assert kept.tolist() != kept_rows(log, "adaptive-thompson", None, seed=1).tolist()


def test_the_value_is_the_mean_reward_of_the_rows_it_keeps():
    log = small_log(np.random.default_rng(3), 1_000)
    seen = seen_rewards(log, "explicit")
    (_, found) = policy_values(log, seen, ["greedy"], "action", Options(seed=4, replays=3))
    (line,) = found.estimates
    player = Player(log, "greedy", None, seed=4)
    first, *others = kept = [player.kept_rows(replay) for replay in range(3)]
    assert line.estimator == "replay"
    assert line.value == pytest.approx(log.reward[np.concatenate(kept)].mean(), rel=1e-12)
    assert line.effective_rows == len(first)
    assert f"its first {len(first):,} decisions, by 3 replays" in found.words
    for other in others:
        assert set(other.tolist()) != set(first.tolist())


def test_a_replay_deals_rows_to_times_that_are_near():
    """A policy without luck of its own, too, has another path."""
    log = explicit_log(np.random.default_rng(8), 1_000, 0.3)._replace(context={})
    log = log._replace(propensity=np.full(1_000, 1 / 3))
    player = Player(log, "linucb", None, seed=1)
    first, second = player.kept_rows(0), player.kept_rows(1)
    assert first.tolist() == kept_rows(log, "linucb", None, seed=2).tolist()  # nothing was drawn
    place = np.argsort(np.argsort(log.decided))
    assert (np.diff(place[first]) > 0).all()
    assert (np.diff(place[second]) < 0).any()
    assert np.diff(place[second]).min() > -200  # a tenth of the log to either side
    assert player.kept_rows(1).tolist() == second.tolist()


def test_rewards_wait_as_long_wherever_their_row_is_dealt(monkeypatch):
    log = explicit_log(np.random.default_rng(8), 300, 0.3)._replace(context={})
    player, waits = Player(log, "uniform", None, seed=1), []

    def noted(heap, entry):
        waits.append((entry[1], entry[0] - player.now))

    monkeypatch.setattr("belated.logs.learning_targets.heapq.heappush", noted)
    player.kept_rows(1)
    rows, late = np.array(waits).T
    assert (late == (log.returned - log.decided)[rows]).all()
    assert len(rows) > 20


def test_the_luck_of_a_path_is_in_the_interval():
    line = Estimated("replay", 0.5, 0.47, 0.53, 100.0, 0.1, 0.06, 0.14)
    values = [0.48, 0.5, 0.52]
    wide = with_luck(line, values, 1_000, Options(level=0.9))
    luck = 2.9199856 * 0.02  # Student's t, two degrees of freedom
    assert (wide.low, wide.high) == pytest.approx(
        (0.5 - np.hypot(0.03, luck), 0.5 + np.hypot(0.03, luck))
    )
    assert wide.gain_high - wide.gain == pytest.approx(np.hypot(0.04, luck))
    assert wide.gain - wide.gain_low == pytest.approx(np.hypot(0.04, luck))
    later = with_luck(line, [*values] * 10, 1_000, Options(interval="anytime"))
    spread = float(np.std([*values] * 10, ddof=1))
    assert later.high - 0.5 == pytest.approx(np.hypot(0.03, anytime_errors(1_000) * spread))
    assert with_luck(line._replace(low=None, high=None), values, 9, Options()).low is None


@pytest.mark.slow
def test_level_of_replay_for_what_a_policy_earns_on_average():
    """Greedy may lock in on the worse action: the rows of one path say nothing of that."""
    logs, paths, found = 40, [], []
    for seed in range(logs):
        log = two_actions_log(np.random.default_rng(seed), 400)
        seen = seen_rewards(log, "explicit")
        (_, of_greedy) = policy_values(log, seen, ["greedy"], "action", Options(seed=seed))
        found += of_greedy.estimates
        paths.append(TWO[log.action[kept_rows(log, "greedy", None, seed)]].mean())
    truth = np.mean(paths)
    assert np.std(paths) > 0.03
    wrong = sum(not line.low <= truth <= line.high for line in found)
    assert len(found) == logs
    assert binom.sf(wrong - 1, logs, 0.05) > 0.05
    assert np.mean([line.high - line.low for line in found]) < 0.3


def test_too_few_rows_are_kept():
    log = small_log(np.random.default_rng(5), 100)
    seen = seen_rewards(log, "explicit")
    (_, found) = policy_values(log, seen, ["thompson"], "action", Options(replays=2))
    assert found.estimates == []
    assert "rows of its own; expected 50 or more" in found.refusals[0]


def test_features_and_family_are_those_of_the_log():
    log = explicit_log(np.random.default_rng(6), 50, 0.0)
    log = log._replace(context=log.context | {"price": np.append(np.arange(49.0), np.nan)})
    features = features_of(log)
    assert set(features.groups) == {
        *("action", "kind", "price", "action * kind", "action * price", "intercept")
    }
    assert [n for n in features.names if n.startswith("action=")][:3] == [
        f"action={name}" for name in NAMES
    ]


@pytest.mark.parametrize(
    ("rewards", "family"),
    [([0.0, 1.0], Bernoulli()), ([0.0, 3.0], Poisson()), ([0.5, 40.0], Gaussian().checked())],
)
def test_a_bandit_is_told_of_rewards_what_users_tell_it(rewards, family):
    """As in ``belated plan``: the noise of amounts is learnt."""
    log = small_log(np.random.default_rng(6), 50)
    log = log._replace(reward=np.resize(np.array([*rewards, np.nan]), 50))
    assert Player(log, "adaptive-thompson", None, seed=1).bandit.family == family


def test_a_policy_that_asks_for_a_horizon():
    log = small_log(np.random.default_rng(7), 600)
    (_, found) = policy_values(
        log, seen_rewards(log, "explicit"), ["linucb"], "action", Options(seed=4, replays=2)
    )
    assert not found.refusals
    assert Player(log, "linucb", None, 4).bandit.policy.horizon == 200


@pytest.mark.parametrize("window", [None, WINDOW])
def test_amounts_are_on_the_scale_of_the_log(window):
    """Sales of 60 against 20, with noise of 10: at sd = 1 the first reward would decide.

    The default learns the noise, another policy is told it.
    """
    rng = np.random.default_rng(8)
    log = small_log(rng, 600)
    log = log._replace(reward=np.where(log.action == 2, 60.0, 20.0) + rng.normal(0.0, 10.0, 600))
    bandit = Player(log, "thompson", window, 4).bandit
    assert bandit.family.sd == pytest.approx(log.reward.std())
    sold = without_failures(log._replace(reward=np.where(rng.random(600) < 0.1, 50.0, 0.0)))
    assert Player(log, "adaptive-thompson", window, 4).bandit.family == Gaussian().checked()
    if window is not None:  # alike, but for those that do not buy
        assert Player(sold, "thompson", window, 4).bandit.family.sd > 10.0


def test_all_names_are_read_before_anything_is_played(monkeypatch):
    log = small_log(np.random.default_rng(9), 200)
    monkeypatch.setattr(Player, "kept_rows", lambda self: pytest.fail("it was played"))
    for wrong in ("fixed:nothing", "thompson:size=2", "nowhere:rule"):
        with pytest.raises(ValueError, match=r"size|nothing|nowhere"):
            policy_values(
                log, seen_rewards(log, "explicit"), ["greedy", wrong], "action", Options()
            )
