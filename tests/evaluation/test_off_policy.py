"""Off-policy estimates: by hand, in their limits, their derivatives, and as OBP has them."""

import json
from pathlib import Path

import numpy as np
import pytest

from belated.evaluation.off_policy import (
    Recounted,
    Rewards,
    conversion_rewards,
    direct,
    doubly_robust,
    estimate,
    explicit_rewards,
    inverse_propensity,
    self_normalised,
)
from naive.off_policy_values import value

REFERENCE = Path(__file__).parents[1] / "data" / "open_bandit_pipeline" / "reference.json"
STEP = 1e-6


def test_by_hand():
    """Four rows, the third is pending; a half, a quarter and all of their kind have come."""
    reward = np.array([1.0, 2.0, np.nan, 4.0])
    shares = np.array([0.5, 0.25, 0.5, 1.0])
    weight = np.array([1.0, 0.5, 2.0, 3.0])
    rewards = explicit_rewards(reward, shares)
    assert rewards.earned.tolist() == [2.0, 8.0, 0.0, 4.0]
    assert rewards.counted.tolist() == [2.0, 4.0, 0.0, 1.0]
    assert estimate(inverse_propensity(weight), rewards).value == (2.0 + 4.0 + 12.0) / 4
    clipped = inverse_propensity(np.minimum(weight, 2.0))
    assert estimate(clipped, rewards).value == (2.0 + 4.0 + 8.0) / 4
    assert estimate(self_normalised(weight), rewards).value == 18.0 / (2.0 + 2.0 + 3.0)
    matches = np.array([1.0, 0.0, 1.0, 1.0])
    assert estimate(self_normalised(matches), rewards).value == (2.0 + 4.0) / (2.0 + 1.0)
    q, q_target = np.array([1.0, 1.0, 1.0, 2.0]), np.array([0.5, 1.5, 1.0, 1.0])
    # residuals, weighted: 1 * 2 * (1 - 1), 0.5 * 4 * (2 - 1), none, 3 * 1 * (4 - 2)
    expected = (4.0 + 0.0 + 2.0 + 0.0 + 6.0) / 4
    assert estimate(doubly_robust(weight, q, q_target), rewards).value == expected


def test_by_hand_for_conversions():
    """Silence is 0 so far, and a conversion counts for those that are still to come."""
    rewards = conversion_rewards(np.array([1.0, np.nan, np.nan]), np.array([0.5, 0.25, 1.0]))
    weight = np.array([1.0, 3.0, 2.0])
    assert rewards == Rewards(pytest.approx([2.0, 0.0, 0.0]), pytest.approx([1.0] * 3), False)
    assert estimate(inverse_propensity(weight), rewards).value == 2.0 / 3
    assert estimate(self_normalised(weight), rewards).value == 2.0 / 6
    q, q_target = np.array([0.5, 0.0, 1.0]), np.array([0.1, 0.2, 0.3])
    expected = (0.6 + 1.0 * (2.0 - 0.5) + 2.0 * (0.0 - 1.0)) / 3
    assert estimate(doubly_robust(weight, q, q_target), rewards).value == pytest.approx(expected)


def some_terms(rng, rewards, n):
    weight, q, q_target = rng.exponential(1.0, n), rng.normal(size=n), rng.normal(size=n)
    return {
        "IPS": inverse_propensity(weight),
        "SNIPS": self_normalised(weight),
        "direct": direct(q_target, weight, q, rewards),
        "DR": doubly_robust(weight, q, q_target),
    }


def some_rewards(rng, n, weighted):
    reward = rng.normal(1.0, 1.0, n)
    reward[rng.random(n) < 0.4] = np.nan
    shares = rng.uniform(0.2, 1.0, n)
    return reward, shares, weighted(reward, shares)


@pytest.mark.parametrize("weighted", [explicit_rewards, conversion_rewards])
def test_with_all_seen_an_estimate_is_the_usual_one_bit_for_bit(weighted):
    rng = np.random.default_rng(1)
    n = 50
    reward, weight, q, q_target = (rng.normal(1.0, 0.3, n) for _ in range(4))
    rewards = weighted(reward, np.ones(n))
    usual = {
        "IPS": (weight * reward).sum() / n,
        "SNIPS": (weight * reward).sum() / weight.sum(),
        "DR": (q_target + weight * reward - weight * q).sum() / n,
    }
    ours = {
        "IPS": inverse_propensity(weight),
        "SNIPS": self_normalised(weight),
        "DR": doubly_robust(weight, q, q_target),
    }
    for name, terms in ours.items():
        assert estimate(terms, rewards).value == usual[name]


@pytest.mark.parametrize("weighted", [explicit_rewards, conversion_rewards])
@pytest.mark.parametrize("name", ["IPS", "SNIPS", "direct", "DR"])
def test_derivatives(name, weighted):
    rng = np.random.default_rng(2)
    n = 30
    reward, shares, rewards = some_rewards(rng, n, weighted)
    terms, ones = some_terms(rng, rewards, n)[name], np.ones(n)
    found = estimate(terms, rewards)
    assert found.value == pytest.approx(value(terms, rewards, ones), rel=1e-14)
    steps = STEP * np.eye(n)
    by_count = [value(terms, rewards, ones + s) - value(terms, rewards, ones - s) for s in steps]
    assert found.direct == pytest.approx(np.array(by_count) / (2 * STEP), abs=1e-8)

    def with_shares(factor):
        return value(terms, weighted(reward, shares / factor), ones)

    by_share = [with_shares(np.exp(s)) - with_shares(np.exp(-s)) for s in steps]
    assert found.pull == pytest.approx(np.array(by_share) / (2 * STEP), abs=1e-8)


def test_the_direct_method_is_the_mean_of_what_the_model_predicts():
    rng = np.random.default_rng(3)
    _, _, rewards = some_rewards(rng, 40, explicit_rewards)
    q_target, of_fit, q_fit = rng.normal(size=40), rng.exponential(size=40), rng.normal(size=40)
    found = estimate(direct(q_target, of_fit, q_fit, rewards), rewards)
    assert found.value == pytest.approx(q_target.mean(), rel=1e-12)


def test_as_open_bandit_pipeline_has_it():
    """``reference.py`` beside the file made it; all rewards are there."""
    known = json.loads(REFERENCE.read_text())
    log = {name: np.array(column) for name, column in known["log"].items()}
    rows, action = np.arange(len(log["action"])), log["action"]
    rewards = explicit_rewards(log["reward"], np.ones(len(rows)))
    assert known["estimates"]
    for target, expected in known["estimates"].items():
        chances, q = log[target], log["q"]
        weight = chances[rows, action] / log["pscore"]
        q_target = (chances * q).sum(axis=1)
        none = np.zeros(len(rows))
        ours = {
            "ipw": inverse_propensity(weight),
            "clipped": inverse_propensity(np.minimum(weight, known["limit"])),
            "snipw": self_normalised(weight),
            "dm": direct(q_target, none, none, rewards),
            "dr": doubly_robust(weight, q[rows, action], q_target),
            "rm": self_normalised((chances[rows, action] == 1.0).astype(float)),
        }
        for name, theirs in expected.items():
            assert estimate(ours[name], rewards).value == pytest.approx(theirs, abs=1e-10), name


@pytest.mark.parametrize("weighted", [explicit_rewards, conversion_rewards])
def test_rows_that_are_counted_anew(weighted):
    """As the definition has it; a share may be 0 where nothing came or nothing is counted."""
    rng, n = np.random.default_rng(8), 200
    shares, came = rng.uniform(0.2, 1.0, n), rng.random(n) < 0.6
    reward = np.where(came, rng.normal(1.0, 1.0, n), np.nan)
    weight, q_action, q_target = rng.exponential(1.0, (3, n))
    rewards = weighted(reward, shares)
    terms = [
        inverse_propensity(weight),
        self_normalised(weight),
        doubly_robust(weight, q_action, q_target),
        direct(q_target, weight, q_action, rewards),
    ]
    recounted = Recounted(terms, weighted(reward, np.ones(n)))
    for _ in range(5):
        counts, other = rng.poisson(1.0, n).astype(float), rng.uniform(0.2, 1.0, n)
        slow = [value(one, weighted(reward, other), counts) for one in terms]
        assert recounted.values(counts, other) == pytest.approx(np.array(slow), rel=1e-12)
        other[~came] = 0.0
        other[counts == 0.0] = 0.0
        assert recounted.values(counts, other) == pytest.approx(np.array(slow), rel=1e-12)
