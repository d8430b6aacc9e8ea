"""The model of rewards: against scikit-learn, cross-fitted, and what moves its predictions."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from belated.evaluation.off_policy import (
    Rewards,
    conversion_rewards,
    direct,
    estimate,
    explicit_rewards,
)
from belated.evaluation.reward_model import RIDGE, CrossFitted, fit

ACTIONS = 3


def world(rng, n=80):
    x = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    action = rng.integers(ACTIONS, size=n)
    reward = 1.0 + action * x[:, 1] + rng.normal(0.0, 0.1, n)
    reward[rng.random(n) < 0.3] = np.nan
    return x, action, reward, rng.uniform(0.3, 1.0, n)


def test_each_action_is_a_weighted_ridge_regression():
    x, action, reward, shares = world(np.random.default_rng(1))
    rewards = explicit_rewards(reward, shares)
    model = fit(x, action, ACTIONS, rewards, mean=0.7)
    for k in range(ACTIONS):
        own = (action == k) & ~np.isnan(reward)
        known = Ridge(alpha=RIDGE, fit_intercept=False)
        known.fit(x[own], reward[own] - 0.7, sample_weight=1.0 / shares[own])
        assert model.coefficients[k] == pytest.approx(known.coef_, abs=1e-9)
        predicted = model.of_actions(x, np.full(len(x), k))
        assert predicted == pytest.approx(0.7 + known.predict(x), abs=1e-9)


def test_an_action_without_rows_has_the_mean_of_all():
    x, action, reward, shares = world(np.random.default_rng(2))
    model = fit(x, action, ACTIONS + 1, explicit_rewards(reward, shares), mean=0.7)
    assert model.of_actions(x, np.full(len(x), ACTIONS)).tolist() == [0.7] * len(x)


def test_no_row_is_predicted_from_its_own_reward():
    x, action, reward, shares = world(np.random.default_rng(3))
    model = CrossFitted(x, action, ACTIONS, explicit_rewards(reward, shares))
    row = int(np.flatnonzero(~np.isnan(reward))[0])
    changed = reward.copy()
    changed[row] += 1.0
    again = CrossFitted(x, action, ACTIONS, explicit_rewards(changed, shares))
    again_mean = again.mean - model.mean  # all share it
    same = model.fold == model.fold[row]
    moved = abs(again.q_action - model.q_action)
    assert moved[same].max() < 2 * again_mean
    assert moved[~same].max() > 5 * again_mean


@pytest.mark.parametrize("weighted", [explicit_rewards, conversion_rewards])
def test_the_direct_method_moves_as_its_slopes_say(weighted):
    """The count of a row in the fit: by differences, with the mean of all rewards held."""
    rng = np.random.default_rng(4)
    x, action, reward, shares = world(rng)
    rewards, n = weighted(reward, shares), len(x)
    chances = rng.dirichlet(np.ones(ACTIONS), n)

    def mean_of_target(row, step):
        """Returns the mean prediction where the fit counts a row 1 + step times."""
        earned, counted = rewards.earned.copy(), rewards.counted.copy()
        earned[row] *= 1.0 + step
        counted[row] *= 1.0 + step
        model = CrossFitted(x, action, ACTIONS, Rewards(earned, counted, True))
        total = 0.0
        for k in (0, 1):
            own, other = model.fold == k, model.fold != k
            part = Rewards(earned[other], counted[other], True)
            fitted = fit(x[other], action[other], ACTIONS, part, whole.mean)
            total += fitted.of_target(x[own], chances[own]).sum()
        return total / n

    whole = CrossFitted(x, action, ACTIONS, rewards)
    whole.add_target(0, chances[:30])
    whole.add_target(30, chances[30:])
    terms = direct(whole.q_target, whole.of_fit(), whole.q_fit, rewards)
    found = estimate(terms, rewards)
    assert found.value == pytest.approx(mean_of_target(0, 0.0), rel=1e-12)
    own = (whole.q_target - found.value) / n
    moved = whole.of_fit() * (rewards.earned - rewards.counted * whole.q_fit)
    for row in range(0, n, 7):
        by_difference = (mean_of_target(row, 1e-5) - mean_of_target(row, -1e-5)) / 2e-5
        ours = found.direct[row] - own[row] + moved.mean() / n
        assert ours == pytest.approx(by_difference, abs=1e-9)


def test_both_halves_have_every_action_of_a_log_whose_actions_alternate():
    n = 4_000
    action = np.arange(n) % 2
    reward = (np.random.default_rng(6).random(n) < np.where(action == 1, 0.5, 0.3)).astype(float)
    model = CrossFitted(np.ones((n, 1)), action, 2, explicit_rewards(reward, np.ones(n)))
    for fitted in model.models:
        assert fitted.of_actions(np.ones((2, 1)), np.arange(2)) == pytest.approx(
            [0.3, 0.5], abs=0.06
        )
    assert np.bincount(model.fold).tolist() == [n // 2, n // 2]
