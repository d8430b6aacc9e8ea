"""Overlap of target and log, and refusals in words."""

import numpy as np
import pytest

from belated.evaluation.overlap import effective_rows, overlap, refusals, too_young


def checked(weight, counted=1.0, earned=1.0, target=(0.5, 0.5), played=(0, 1)):
    n = len(weight)
    action = np.resize(played, n)
    found = overlap(["a", "b"], action, np.full(n, 0.5), weight, np.array(target))
    return found, refusals(found, weight, np.full(n, counted), np.full(n, earned))


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


def test_most_decisions_are_too_young():
    assert too_young(0.5) == []
    (reason,) = too_young(0.4)
    assert "Only 40% of the decisions are old enough" in reason
