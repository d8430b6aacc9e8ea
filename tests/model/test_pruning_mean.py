"""The most optimistic action on the scale of the mean, found without scoring all."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import config

import naive.optimistic
from belated.model.protocols import mean
from belated.model.pruning_mean import most_optimistic_mean
from belated.numerics import pruning
from belated.numerics.linalg import grow
from belated.numerics.lowered.products import dot
from belated.numerics.pruning import decision_set, new_cap, renew
from support.optimistic import NAMES


class Design:
    """A = lam I plus the terms added so far, its inverse, its cap."""

    def __init__(self, d, lam):
        self.A, self.A_inv, self.cap = lam * np.eye(d), np.eye(d) / lam, new_cap(d, lam)
        self.count, self.work = 0, np.full((2, d), np.nan)

    def add(self, x, renewing=True):
        self.count += 1
        grow(self.A, self.A_inv, 0.0, 1.0, x, self.count % 50 == 0, self.work[0])
        if renewing:
            renew(self.cap, self.A, self.A_inv, self.count, self.work[0])


def exact_scores(family, theta, design, bonus, actions):
    """The very scores that pruning compares, to the last bit."""
    return np.array(
        [
            mean(family, dot(x, theta)) + pruning._width(design.A_inv, bonus, x, design.work[0])
            for x in actions.astype(float)
        ]
    )


def check(name, design, theta, bonus, actions, garbage=np.nan):
    """The first of the highest scores, to the last bit, and what was said about it."""
    options = decision_set(actions)
    options.work[:] = garbage
    row, score, estimate, width = most_optimistic_mean(
        NAMES[name], theta, design.A_inv, design.cap, bonus, options, design.work
    )
    exact = exact_scores(NAMES[name], theta, design, bonus, actions)
    assert row == int(np.argmax(exact)), "ties go to the lowest row"
    assert score == exact[row]
    assert estimate == dot(actions[row].astype(float), theta)
    assert width == pruning._width(design.A_inv, bonus, actions[row].astype(float), design.work[0])
    with np.errstate(over="ignore"):
        scores = naive.optimistic.most_optimistic_mean(name, theta, design.A_inv, bonus, actions)
    if np.abs(scores).max() < 1e300:  # Poisson: exp is cut off at 700 in the package
        assert score == pytest.approx(scores.max(), rel=1e-9)
    return row


@pytest.mark.parametrize("K", [1, 2, 15, 16, 17, 64, 500])
@pytest.mark.parametrize("d", [1, 2, 5, 6, 11])
@pytest.mark.parametrize("name", NAMES)
def test_same_as_scoring_all(name, d, K):
    """While A grows from nothing, in all directions or mostly in one, for any bonus."""
    rng = np.random.default_rng(100 * d + K)
    for lam in (1e-4, 1.0, 1e4):
        design, favourite = Design(d, lam), rng.standard_normal(d)
        for bonus in (0.0, 1e-6, 0.1, 1.0, 1e3):
            for _ in range(5):
                x = rng.standard_normal(d) * rng.choice([1.0, 1e-2]) + favourite
                design.add(x / np.linalg.norm(x))
            actions = rng.standard_normal((K, d))
            actions /= np.linalg.norm(actions, axis=1, keepdims=True)
            theta = rng.standard_normal(d) * 10 ** rng.uniform(-2, 1)
            check(name, design, theta, bonus, actions, garbage=rng.choice([np.nan, np.inf, 1e30]))


eighths = st.integers(-8, 8).map(lambda k: k / 8)


@st.composite
def problems(draw):
    """Small numbers in eighths, so that equal scores are equal to the last bit."""
    d = draw(st.integers(1, 6))
    vector = st.lists(eighths, min_size=d, max_size=d).map(np.array)
    rows = draw(st.lists(vector, min_size=1, max_size=8))
    picks = draw(st.lists(st.integers(-1, len(rows) - 1), min_size=1, max_size=40))
    actions = np.array([rows[k] if k >= 0 else np.zeros(d) for k in picks])
    past = draw(st.lists(vector, max_size=12))
    lam = draw(st.sampled_from([2.0**-20, 0.25, 1.0, 2.0**20]))
    bonus = draw(st.sampled_from([0.0, 2.0**-30, 0.5, 1.0, 64.0]))
    scale = draw(st.sampled_from([2.0**-40, 1.0, 64.0]))
    name = draw(st.sampled_from(sorted(NAMES)))
    return name, actions, scale * draw(vector), past, lam, bonus, draw(st.booleans())


@given(problems())
def test_ties_duplicates_and_zeros(problem):
    name, actions, theta, past, lam, bonus, renewing = problem
    design = Design(actions.shape[1], lam)
    for x in past:
        design.add(x, renewing=renewing)
    check(name, design, theta, bonus, actions)


@pytest.mark.parametrize("name", ["bernoulli", "tanh", "probit"])
def test_means_that_saturate(name):
    """Where mu is flat all means are equal to the last bit, and the bonus decides, or the row."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        d = int(rng.integers(1, 8))
        design, theta = Design(d, 1.0), 1e4 * rng.standard_normal(d)
        actions = rng.standard_normal((30, d))
        for bonus in (0.0, 1e-12, 1e-3, 10.0):
            check(name, design, theta, bonus, np.vstack([actions, actions]))


@pytest.mark.parametrize("size", [1e-90, 1e-30, 1e-12, 1e12, 1e30, 1e70])
@pytest.mark.parametrize("name", NAMES)
def test_sizes_that_single_precision_cannot_hold(name, size):
    """Actions, estimates and bonuses of any size, together and one by one."""
    rng = np.random.default_rng(3)
    for d in (1, 3, 7):
        for of_action, of_theta, of_bonus in product((1.0, size), repeat=3):
            design = Design(d, 1.0)
            for x in rng.standard_normal((10, d)):
                design.add(x)
            actions = of_action * rng.standard_normal((40, d))
            check(name, design, of_theta * rng.standard_normal(d), of_bonus, actions)
        shrunk = Design(d, size)
        check(name, shrunk, np.ones(d) / math.sqrt(size), 1.0, rng.standard_normal((40, d)))


@pytest.mark.parametrize("name", NAMES)
def test_scores_that_single_precision_cannot_tell_apart(name):
    """Actions that differ in the tenth digit only: all bounds are equal, the scores are not."""
    rng = np.random.default_rng(4)
    for _ in range(60):
        d = int(rng.integers(1, 12))
        design, x = Design(d, 1.0), rng.standard_normal(d)
        for past in rng.standard_normal((20, d)):
            design.add(past)
        actions = x + 1e-10 * rng.standard_normal((50, d))
        check(name, design, rng.standard_normal(d), 0.5, actions)


@pytest.mark.skipif(not config.DISABLE_JIT, reason="counts calls inside a kernel")
def test_few_are_scored(monkeypatch):
    rng, calls, score = np.random.default_rng(2), [], pruning._score
    design = Design(5, 1.0)
    for x in rng.standard_normal((300, 5)):
        design.add(x / np.linalg.norm(x))
    counted = lambda *args: calls.append(1) or score(*args)  # noqa: E731
    monkeypatch.setattr(pruning, "_score", counted)
    for _ in range(50):
        actions = rng.standard_normal((200, 5))
        actions /= np.linalg.norm(actions, axis=1, keepdims=True)
        check("bernoulli", design, rng.standard_normal(5), 0.5, actions)
    assert len(calls) < 50 * 12
