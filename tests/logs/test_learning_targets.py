"""Policies that learn, replayed on a log: what they keep is a log of their own."""

import numpy as np
import pytest

from belated.logs.learning_targets import family_of, features_of, kept_rows
from belated.logs.policy_values import Options, policy_values
from belated.logs.seen_rewards import seen_rewards
from belated.logs.values import PENDING
from support.logged import (
    MEANS,
    NAMES,
    PLAYED,
    WINDOW,
    conversion_log,
    explicit_log,
)


def test_rejection_makes_actions_as_if_drawn_evenly():
    """``uniform`` keeps a row with probability c / (3 p): a third of each kind, for each action."""
    log = explicit_log(np.random.default_rng(1), 3_000, 0.0)
    kept = kept_rows(log, "uniform", None, seed=1)
    assert len(kept) == pytest.approx(3_000 * PLAYED.min(), abs=4 * np.sqrt(3_000 * 0.2 * 0.8))
    shares = np.bincount(log.action[kept], minlength=3) / len(kept)
    assert shares == pytest.approx([1 / 3] * 3, abs=4 * np.sqrt(2 / 9 / len(kept)))
    assert (np.diff(log.decided[kept]) >= 0).all()


@pytest.mark.parametrize("loop", ["explicit", "conversion"])
def test_a_policy_learns_from_late_rewards(loop):
    """It finds the best action, and a log whose rewards are all pending teaches nothing."""
    rng = np.random.default_rng(2)
    if loop == "explicit":
        log, window = explicit_log(rng, 3_000, 0.3), None
    else:
        log, window = conversion_log(rng, 3_000, 0.3), WINDOW
    kept = kept_rows(log, "thompson", window, seed=1)
    late = kept[len(kept) // 2 :]
    assert (log.action[late] == 2).mean() > 0.5
    nothing = log._replace(
        reward=np.full(3_000, np.nan), returned=np.full(3_000, PENDING), decided=log.decided
    )
    if loop == "explicit":
        kept = kept_rows(nothing, "thompson", None, seed=1)
        assert (log.action[kept] == 2).mean() < 0.5


def test_the_value_is_the_mean_reward_of_the_rows_it_keeps():
    log = explicit_log(np.random.default_rng(3), 4_000, 0.0)
    seen = seen_rewards(log, "explicit")
    (_, found) = policy_values(log, seen, ["thompson"], "action", Options(seed=4))
    (line,) = found.estimates
    kept = kept_rows(log, "thompson", None, seed=4)
    assert line.estimator == "replay"
    assert line.value == pytest.approx(log.reward[kept].mean(), rel=1e-12)
    assert line.effective_rows == len(kept)
    assert f"its first {len(kept):,} decisions" in found.words
    assert line.value > (MEANS * PLAYED).sum(axis=1).mean()  # it learns


def test_too_few_rows_are_kept():
    log = explicit_log(np.random.default_rng(5), 100, 0.0)
    seen = seen_rewards(log, "explicit")
    (_, found) = policy_values(log, seen, ["thompson"], "action", Options())
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
    assert family_of(log.reward) == "bernoulli"
    assert family_of(np.array([0.0, 2.5, np.nan])) == "gaussian"
