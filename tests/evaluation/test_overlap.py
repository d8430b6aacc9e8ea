"""Overlap of target and log, and refusals in words."""

import numpy as np
import pytest

from belated.evaluation.overlap import (
    effective_rows,
    overlap,
    refusals,
    too_young,
    unlikely_weights,
)


def checked(weight, counted=1.0, earned=1.0, target=(0.5, 0.5), played=(0, 1)):
    n = len(weight)
    action = np.resize(played, n)
    found = overlap(["a", "b"], action, np.full(n, 0.5), weight, np.array(target))
    reasons = refusals(found, weight, np.full(n, counted), np.full(n, earned))
    return found, reasons or unlikely_weights(found, action, weight)


def test_overlap_by_hand():
    action, propensity = np.array([0, 0, 1]), np.array([0.5, 0.25, 0.5])
    found = overlap(
        ["a", "b", "c"], action, propensity, np.array([1.0, 2.0, 0.3]), np.array([0.6, 0.1, 0.3])
    )
    assert found[0] == ("a", pytest.approx(2 / 3), 0.6, 0.25, pytest.approx(1.0))
    assert found[1] == ("b", pytest.approx(1 / 3), 0.1, 0.5, pytest.approx(0.1))
    assert found[2] == ("c", 0.0, 0.3, None, 0.0)


def test_effective_rows():
    assert effective_rows(np.array([3.0, 3.0])) == 2.0
    assert effective_rows(np.array([2.0, 1.0, 1.0])) == 16.0 / 6.0
    assert effective_rows(np.zeros(4)) == 0.0


def test_a_log_that_can_answer_is_not_refused():
    assert checked(np.ones(100))[1] == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"played": (0,), "target": (0.9, 0.1)}, "plays 'b' in 10% of the decisions, and the log"),
        ({"counted": 0.0}, "are worth 0.0 rows of its own; expected 50"),
        ({"earned": 0.0}, "not zero and like the target's are worth 0.0; expected 10"),
    ],
)
def test_refusals(changes, said):
    _, reasons = checked(np.ones(100), **changes)
    assert len(reasons) == 1
    assert said in reasons[0]


def test_few_rows_are_worth_anything():
    weight = np.zeros(1_000)
    weight[:3] = 1_000 / 3
    (reason,) = checked(weight)[1]
    assert "worth 3.0 rows" in reason


@pytest.mark.parametrize(
    ("average", "said"), [(0.7, "where the log could not"), (1.4, "met too often")]
)
def test_weights_that_do_not_average_one(average, said):
    (reason,) = checked(np.full(400, average))[1]
    assert f"average {average:.3f} in place of 1" in reason
    assert said in reason


def judged(action, propensity, target, subject=None):
    """Returns what is said of the weights of a target that plays alike in every row."""
    weight = np.array(target)[action] / propensity
    names = [str(k) for k in range(len(target))]
    found = overlap(names, action, propensity, weight, np.array(target))
    never = any(o.least_propensity is None and o.target > 0.0 for o in found)  # refused before
    return [] if never else unlikely_weights(found, action, weight, subject)


def test_weights_that_average_one_and_are_wrong_for_each_action():
    action = (np.random.default_rng(1).random(6_000) < 0.4).astype(int)
    (reason,) = judged(action, np.full(6_000, 0.5), [0.5, 0.5])
    assert "make 0.6" in reason
    assert "of '0' in place of 0.500: the propensities of the log are wrong" in reason
    assert "--map subject=COLUMN" in reason
    assert judged(action, np.where(action == 1, 0.4, 0.6), [0.5, 0.5]) == []


def by_chance(rng, n, rare):
    """Returns actions that were drawn with these probabilities, and their propensities."""
    action = (rng.random(n) < rare).astype(int)
    return action, np.where(action == 1, rare, 1.0 - rare)


def by_thompson(rng, n):
    """The same of Thompson sampling with three arms, of which few plays decide."""
    won, lost = np.ones(3), np.ones(3)
    action, propensity = np.empty(n, int), np.empty(n)
    for i in range(n):
        best = rng.beta(won, lost, (40, 3)).argmax(axis=1)
        chances = 0.97 * np.bincount(best, minlength=3) / 40 + 0.01
        action[i] = rng.choice(3, p=chances)
        propensity[i] = chances[action[i]]
        reward = rng.random() < (0.3, 0.4, 0.5)[action[i]]
        won[action[i]] += reward
        lost[action[i]] += not reward
    return action, propensity


@pytest.mark.parametrize("n", [60, 300, 2_000])
@pytest.mark.parametrize("target", [[0.5, 0.5], [0.8, 0.2], [1.0, 0.0]])
@pytest.mark.parametrize("rare", [0.3, 0.1, "six rows"])
def test_right_propensities_are_not_called_wrong(n, target, rare):
    rng = np.random.default_rng(n)
    rare = 6 / n if rare == "six rows" else rare
    for _ in range(2_000):
        assert judged(*by_chance(rng, n, rare), target) == []


@pytest.mark.parametrize("target", [[1 / 3, 1 / 3, 1 / 3], [0.6, 0.2, 0.2], [0.0, 0.1, 0.9]])
def test_right_propensities_of_a_policy_that_learns_are_not_called_wrong(target):
    rng = np.random.default_rng(3)
    for _ in range(100):
        assert judged(*by_thompson(rng, 150), target) == []


def test_subjects_that_keep_their_action():
    """An A/B test of 60 users: their rows are no 3,000 draws."""
    rng, alone = np.random.default_rng(4), 0
    for _ in range(300):
        action, _ = by_chance(rng, 60, 0.5)
        subject = rng.integers(60, size=3_000)
        rows = action[subject], np.full(3_000, 0.5), [0.5, 0.5]
        assert judged(*rows, subject) == []
        alone += len(judged(*rows))
    assert alone > 30  # as if each row were a draw


def test_wrong_propensities_of_subjects():
    rng = np.random.default_rng(5)
    action, _ = by_chance(rng, 1_000, 0.3)
    subject = rng.integers(1_000, size=5_000)
    (reason,) = judged(action[subject], np.full(5_000, 0.5), [0.5, 0.5], subject)
    assert reason.endswith("the propensities of the log are wrong.")


def test_most_decisions_are_too_young():
    assert too_young(0.5) == []
    (reason,) = too_young(0.4)
    assert "Only 40% of the decisions are old enough" in reason
