"""The probability that a score is the highest: by fixed points, against many draws."""

import math

import numpy as np
import pytest

from belated.numerics.gaussian_scores import (
    BLOCK,
    HOPELESS,
    LATTICE,
    PAIRS,
    POINTS,
    _in_the_race,
    _lower_root,
    fill_chances,
    normal_points,
)
from belated.numerics.special import normal_cdf


def chances(mean, root):
    mean, root = np.array(mean, float), np.array(root, float)
    K, r = root.shape
    out = np.full(K, np.nan)
    fill_chances(mean, root, r, normal_points(min(K, r)), out)
    return out


def drawn(mean, root, rng, n=200_000):
    z = rng.standard_normal((root.shape[1], n), np.float32)
    scores = mean[:, np.newaxis].astype(np.float32) + root.astype(np.float32) @ z
    return np.bincount(scores.argmax(0), minlength=len(mean)) / n


def problem(rng, K, d):
    root = rng.standard_normal((K, d)) * rng.random(d)
    spread = float(rng.choice([0.0, 0.1, 0.3, 1.0]))
    return rng.standard_normal(K) * spread * math.sqrt((root**2).sum(1).mean()), root


def test_the_measured_error():
    """A standard error below 0.01 is promised; a worse generator of the points is seen earlier."""
    rng, errors = np.random.default_rng(12), []
    for K in (2, 3, 4, 6, 10, 15, 20, 30):
        for d in (1, 3, 25, 60):
            mean, root = problem(rng, K, d)
            errors.append(abs(chances(mean, root) - drawn(mean, root, rng)).max())
    assert math.sqrt(np.mean(np.square(errors))) < 0.0065
    assert max(errors) < 0.015


@pytest.mark.parametrize("gap", [-1.0, 0.0, 0.3, 2.0])
def test_two_actions(gap):
    root = np.array([[0.6, 0.0, 0.0], [0.0, 0.0, 0.8]])
    assert chances([gap, 0.0], root) == pytest.approx(
        [normal_cdf(gap), 1.0 - normal_cdf(gap)], abs=0.01
    )


def test_many_actions_and_many_dimensions():
    rng = np.random.default_rng(3)
    for K, d in ((150, 4), (90, 100)):
        mean, root = problem(rng, K, d)
        found = chances(mean, root)
        assert found.sum() == pytest.approx(1.0)
        assert found == pytest.approx(drawn(mean, root, rng), abs=0.015)


def test_the_order_of_actions_is_irrelevant_but_for_ties():
    rng = np.random.default_rng(4)
    mean, root = problem(rng, 7, 20)
    turn = rng.permutation(7)
    assert np.array_equal(chances(mean, root)[turn], chances(mean[turn], root[turn]))
    alike = chances([0.1, 0.2, 0.2], root[[0, 1, 1]])
    assert alike[2] == 0.0
    assert alike == pytest.approx([*chances([0.1, 0.2], root[:2]), 0.0], abs=1e-3)


def test_of_actions_that_are_alike_the_first_has_all():
    """As if the others were not there, whether columns or actions are more."""
    rng = np.random.default_rng(3)
    for K, d in ((6, 30), (40, 5)):
        mean, root = problem(rng, K, d)
        mean[2], root[2] = mean.max() + 1e-3, root[0]  # the best, and as uncertain as another
        copies = [0, 2, 2, 5, 0, 1]
        many = chances(np.append(mean, mean[copies]), np.vstack([root, root[copies]]))
        assert np.array_equal(many[:K], chances(mean, root))
        assert not many[K:].any()
    assert chances([0.5, 0.5], [[1.0], [1.0]]).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("size", [1e-40, 1.0, 1e40])
def test_any_size(size):
    mean, root = problem(np.random.default_rng(5), 5, 3)
    assert chances(size * mean, size * root) == pytest.approx(chances(mean, root), abs=1e-3)


def test_certain_cases():
    assert chances([1.0], [[2.0]]).tolist() == [1.0]
    assert chances([0.0, 1.0, 1.0], np.zeros((3, 2))).tolist() == [0.0, 1.0, 0.0]
    assert chances([0.0, 20.0], np.eye(2)).tolist() == [0.0, 1.0]


def test_hopeless_actions_are_left_out_only_where_they_never_win():
    """One that is left out changes nothing for the others, and wins below 1e-9 of the time."""
    mean, root = problem(np.random.default_rng(6), 4, 4)
    far = mean.max() - 40.0 * np.sqrt((root**2).sum(1)).max()
    more = chances([*mean, far], [*root, root[0]])
    assert more.tolist() == [*chances(mean, root), 0.0]


def test_the_points_are_normal_in_every_coordinate():
    points = normal_points(LATTICE + 6)
    assert points.shape == (PAIRS // BLOCK, 2 * LATTICE, BLOCK)
    rows = points.swapaxes(0, 1).reshape(2 * LATTICE, -1)
    assert np.array_equal(np.sort(rows, axis=1), np.tile(np.sort(rows[0]), (len(rows), 1)))
    assert rows[0].std() == pytest.approx(1.0, abs=1e-2)
    assert abs(np.corrcoef(rows) - np.eye(len(rows))).max() < 0.15
    assert np.array_equal(points[:, :LATTICE], normal_points(3))


def in_the_race(mean, root):
    rows, behind = np.empty(len(mean), np.int64), np.empty(len(mean))
    n = _in_the_race(np.array(mean, float), np.array(root, float), len(root[0]), rows, behind)
    return rows[:n].tolist()


def test_who_is_left_out_wins_less_often_than_said():
    """Those left out beat the best at one point of 2,048 at most, all of them together."""
    root = np.array([[1.0, 0.5], [0.2, 0.9], [1.0, -0.5]])
    apart = math.sqrt(0.8**2 + 0.4**2)  # of the second, relative to the first
    for gap in (3.2, 3.35):
        assert (normal_cdf(-gap) < 1.0 / POINTS) == (gap == 3.35)
        assert in_the_race([0.0, -gap * apart, -0.1], root) == ([0, 2, 1] if gap < 3.3 else [0, 2])
    # each of ten that are alike but in their own column would be left out if it were alone
    gap, root = 3.35 * math.sqrt(2.0), np.eye(11)
    assert len(in_the_race([gap, *np.zeros(10)], root)) == 11 - sum(
        k * normal_cdf(-3.35) < 1.0 / POINTS for k in range(1, 11)
    )
    assert 10 * normal_cdf(-HOPELESS) < 1e-8


@pytest.mark.parametrize("shape", [(6, 20), (20, 6)])
def test_a_root_in_as_few_columns_as_its_rank(shape):
    """Rows that depend on earlier ones, and rows of zeros, begin no column."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal(shape)
    x[0], x[3], x[5] = 0.0, x[1] - 2.0 * x[2], x[4]
    pivots, lower = np.empty(len(x), np.int64), np.zeros((len(x), len(x)))
    rank = _lower_root(x, pivots, lower)
    assert rank == np.linalg.matrix_rank(x)
    assert lower @ lower.T == pytest.approx(x @ x.T, abs=1e-12)
    assert not lower[:, rank:].any()
    assert not np.triu(lower).any()  # the first row is zero: row k has at most k entries
    assert lower[5] == pytest.approx(lower[4], abs=1e-12)
    assert pivots[:3].tolist() == [1, 2, 4]


@pytest.mark.compiled
def test_compiled_code_counts_as_plain_python_does():
    """But for points at which two scores are equal to single precision."""
    rng = np.random.default_rng(7)
    plain = getattr(fill_chances, "py_func", fill_chances)
    assert plain is not fill_chances
    for K, d in ((3, 2), (5, 5), (6, 30), (20, 89)):
        mean, root = problem(rng, K, d)
        out, twin = np.empty(K), np.empty(K)
        fill_chances(mean, root, d, normal_points(K), out)
        plain(mean, root, d, normal_points(K), twin)
        assert out == pytest.approx(twin, abs=2.5 / POINTS)
