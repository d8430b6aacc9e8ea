"""The most optimistic action, found without scoring all of them: against scoring all of them."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import config, njit

import naive.optimistic
from belated.families import Bernoulli
from belated.model.pruning_mean import most_optimistic_mean
from belated.model.steps import is_within
from belated.numerics import pruning
from belated.numerics.linalg import grow, inverse_and_log_det
from belated.numerics.lowered import score_bounds as bounds
from belated.numerics.lowered.builders import score_bounds as builders
from belated.numerics.lowered.products import dot
from belated.numerics.pruning import (
    ACROSS,
    ALONG,
    RENEW_AT,
    RENEWALS,
    TYPICAL,
    DecisionSet,
    decision_set,
    most_optimistic,
    new_cap,
    renew,
    split_bound,
)


class Design:
    """A = lam I plus the terms added so far, its inverse, its cap."""

    def __init__(self, d, lam):
        self.A, self.A_inv, self.cap = lam * np.eye(d), np.eye(d) / lam, new_cap(d, lam)
        self.count, self.work = 0, np.full((2, d), np.nan)

    def add(self, x, weight=1.0, renewing=True):
        self.count += 1
        grow(self.A, self.A_inv, 0.0, weight, x, self.count % 50 == 0, self.work[0])
        if renewing:
            renew(self.cap, self.A, self.A_inv, self.count, self.work[0])

    def bound(self, x):
        """What the cap says about x'A_inv x."""
        c = x @ self.cap[4:]
        return self.cap[ACROSS] * (x @ x - c * c) + self.cap[ALONG] * c * c


def check(design, theta, radius, actions, garbage=np.nan):
    """The row of the first of the highest scores, and what was said about it."""
    options = decision_set(actions)
    options.work[:] = garbage
    row, score, estimate, width = most_optimistic(
        theta, design.A_inv, design.cap, radius, options, design.work
    )
    scores = naive.optimistic.most_optimistic(theta, design.A_inv, radius, actions)
    size = np.abs(scores).max() + np.linalg.norm(actions, axis=1).max() * np.linalg.norm(theta)
    assert scores[row] >= scores.max() - 1e-13 * size
    near = np.flatnonzero(scores >= scores.max() - 1e-13 * size)
    if len(near) == 1:
        assert row == near[0]
    copies = (actions == actions[row]).all(axis=1)
    assert row == np.flatnonzero(copies)[0], "ties go to the lowest row"
    assert score == pytest.approx(scores[row], rel=1e-12, abs=1e-13 * size)
    assert estimate == pytest.approx(actions[row] @ theta, rel=1e-12, abs=1e-13 * size)
    assert score == estimate + width
    return row


@pytest.mark.parametrize("K", [1, 2, 15, 16, 17, 64, 1000])
@pytest.mark.parametrize("d", [1, 2, 4, 5, 6, 11])
def test_same_as_scoring_all(d, K):
    """While A grows from nothing, in all directions or mostly in one, for any radius."""
    rng = np.random.default_rng(100 * d + K)
    for lam in (1e-4, 1.0, 1e4):
        design, favourite = Design(d, lam), rng.standard_normal(d)
        for radius in (0.0, 1e-6, 0.1, 1.0, 1e3):
            for _ in range(7):
                x = rng.standard_normal(d) * rng.choice([1.0, 1e-2]) + favourite
                design.add(x / np.linalg.norm(x))
            actions = rng.standard_normal((K, d))
            actions /= np.linalg.norm(actions, axis=1, keepdims=True)
            theta = rng.standard_normal(d) * 10 ** rng.uniform(-2, 1)
            check(design, theta, radius, actions, garbage=rng.choice([np.nan, np.inf, 1e30]))


@pytest.mark.parametrize("family", [None, Bernoulli()], ids=repr)
@pytest.mark.parametrize("K", [3, 16, 60])
@pytest.mark.parametrize("d", [2, 5, 9])
def test_the_same_actions_in_every_round(d, K, family):
    """Squares of earlier rounds narrow the search down, and what it finds stays the same."""
    rng = np.random.default_rng(100 * d + K)
    actions = rng.standard_normal((K, d))
    actions /= 2.0 * np.linalg.norm(actions, axis=1, keepdims=True)
    actions[-1] = actions[0]  # a tie
    fresh, theta_star = decision_set(actions), rng.standard_normal(d)
    fixed = fresh._replace(
        work=fresh.work.copy(), earlier_squares=np.full(fresh.work.shape[1] + 1, np.nan)
    )
    for lam, radius in ((1.0, 2.0), (1e-3, 0.1)):  # another matrix, the same arrays
        design = Design(d, lam)
        fixed.earlier_squares[-1] = np.nan
        used = False
        for t in range(150):
            theta = theta_star + rng.standard_normal(d) / math.sqrt(t + 1.0)
            found = []
            for options in (fresh, fixed):
                given = theta, design.A_inv, design.cap, radius, options, design.work
                if family is None:
                    found.append(most_optimistic(*given))
                else:
                    found.append(most_optimistic_mean(family, *given))
            assert found[0] == found[1]  # to the last bit
            squares = ((actions @ design.A_inv) * actions).sum(1)
            if fixed.earlier_squares[-1] == design.cap[RENEW_AT]:
                assert (fixed.earlier_squares[:K] >= squares).all()
                used = used or np.isfinite(fixed.earlier_squares[:K]).any()
            design.add(actions[found[0][0]])
        assert used or K < 60  # few actions are scored one by one


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
    radius = draw(st.sampled_from([0.0, 2.0**-30, 0.5, 1.0, 64.0]))
    return actions, draw(vector), past, lam, radius, draw(st.booleans())


@given(problems())
def test_ties_duplicates_and_zeros(problem):
    actions, theta, past, lam, radius, renewing = problem
    design = Design(actions.shape[1], lam)
    for x in past:
        design.add(x, renewing=renewing)
    row = check(design, theta, radius, actions)
    assert row == int(np.argmax(exact_scores(theta, design.A_inv, radius, actions, design.work)))


def exact_scores(theta, A_inv, radius, actions, work):
    """The very scores that pruning compares, to the last bit."""
    return np.array(
        [dot(x, theta) + pruning._width(A_inv, radius, x, work[0]) for x in actions.astype(float)]
    )


def test_estimates_that_cancel():
    """Actions orthogonal to theta, each twice: nothing but rounding is left to compare."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        d = int(rng.integers(5, 9))
        theta, X = rng.standard_normal(d), rng.standard_normal((10, d))
        X -= np.outer(X @ theta, theta) / (theta @ theta)
        actions = np.vstack([X, X])
        design = Design(d, 1.0)
        got = most_optimistic(
            theta, design.A_inv, design.cap, 0.0, decision_set(actions), design.work
        )
        scores = exact_scores(theta, design.A_inv, 0.0, actions, design.work)
        assert got[0] == int(np.argmax(scores)) < 10


@pytest.mark.parametrize("ratio", [1e8, 1e12, 1e14, 1e16])
def test_extreme_anisotropy(ratio):
    """Along the top eigenvector the two terms of the bound cancel down to their rounding."""
    rng = np.random.default_rng(1)
    for _ in range(60):
        d = int(rng.integers(2, 7))
        v = rng.standard_normal(d)
        v /= np.linalg.norm(v)
        A, A_inv = 1e-10 * np.eye(d) + 1e-10 * ratio * np.outer(v, v), np.zeros((d, d))
        inverse_and_log_det(A, 0.0, A_inv)
        cap, work = new_cap(d, 1e-10), np.zeros((12 + d, d))
        renew(cap, A, A_inv, 5, work[0])
        actions = v * rng.uniform(0.99, 1.0, (30, 1))
        got = most_optimistic(np.zeros(d), A_inv, cap, 1.0, decision_set(actions), work)
        scores = exact_scores(np.zeros(d), A_inv, 1.0, actions, work)
        assert scores[got[0]] == scores.max()


def test_signs_do_not_break_ties():
    """Without an estimate x and -x score alike; whichever comes first is played."""
    design, rng = Design(3, 1.0), np.random.default_rng(0)
    for x in rng.standard_normal((5, 3)):
        design.add(x)
    actions = rng.standard_normal((20, 3))
    actions = np.vstack([-actions, actions, -actions])
    assert check(design, np.zeros(3), 1.0, actions) < 20
    assert check(design, np.zeros(3), 1.0, np.zeros((40, 3))) == 0
    assert check(design, np.ones(3), 0.0, np.zeros((40, 3))) == 0


@pytest.mark.parametrize("lam", [1e-6, 1e-2, 1.0, 1e6])
@pytest.mark.parametrize("d", [1, 2, 5, 9])
def test_cap_stays_above(d, lam):
    """The cap is above x'A_inv x for all x, when made and ever after, renewed or not."""
    rng = np.random.default_rng(d)
    for renewed_until in (0, 1, 10, 60):
        design, favourite = Design(d, lam), rng.standard_normal(d)
        for k in range(60):
            x = rng.standard_normal(d) if k % 3 else favourite
            design.add(x / np.linalg.norm(x), renewing=k < renewed_until)
            along = design.cap[4:]
            assert np.linalg.norm(along) == pytest.approx(1.0)
            assert 0.0 < design.cap[ALONG] <= design.cap[ACROSS]
            assert design.cap[TYPICAL] > 0.0
            Q = np.linalg.eigh(design.A)[1].T
            for x in (*rng.standard_normal((3, d)), *Q, along, along + 0.1 * Q[0], np.zeros(d)):
                assert x @ design.A_inv @ x <= design.bound(x) * (1 + 1e-12)


def test_cap_is_tight():
    """Renewed, it is exact across the top eigenvector, and along it."""
    rng = np.random.default_rng(1)
    design, v = Design(4, 1.0), np.array([0.5, 0.5, 0.5, 0.5])
    for _ in range(400):
        design.add(v + 0.1 * rng.standard_normal(4))
    design.cap[3] = 0.0
    renew(design.cap, design.A, design.A_inv, design.count, design.work[0])
    eigenvalues = np.linalg.eigvalsh(design.A)
    assert design.cap[ACROSS] == pytest.approx(1 / eigenvalues[0], rel=0.02)
    assert design.cap[ALONG] == pytest.approx(1 / eigenvalues[-1], rel=0.02)


def test_cap_is_renewed_in_time():
    """After every reward at first, later whenever their number has grown by a certain part."""
    design, x, renewed = Design(1, 1.0), np.ones(1), []
    for _ in range(200):
        before = design.cap[ACROSS]
        design.add(x)
        if design.cap[ACROSS] != before:
            renewed.append(design.count)
    assert renewed[:RENEWALS] == list(range(1, RENEWALS + 1))
    assert all(b - a == 1 + a // RENEWALS for a, b in pairwise(renewed))
    assert new_cap(1, 4.0)[ACROSS] == pytest.approx(0.25)


@pytest.mark.skipif(not config.DISABLE_JIT, reason="counts calls inside a kernel")
@pytest.mark.parametrize(("radius", "most"), [(2.0, 12), (1e3, 4)])
def test_few_are_scored(radius, most, monkeypatch):
    """Also where the width decides alone: then all squares are computed at once."""
    rng, calls, width = np.random.default_rng(2), [], pruning._width
    design = Design(5, 1.0)
    for x in rng.standard_normal((300, 5)):
        design.add(x / np.linalg.norm(x))
    monkeypatch.setattr(pruning, "_width", lambda *args: calls.append(1) or width(*args))
    for _ in range(50):
        actions = rng.standard_normal((200, 5))
        actions /= np.linalg.norm(actions, axis=1, keepdims=True)
        check(design, rng.standard_normal(5), radius, actions)
    assert len(calls) < 50 * most


def test_decision_sets():
    actions = np.array([[3.0, 4.0], [0.0, 0.0], [1.0, -1.0]])
    options = decision_set(actions)
    assert isinstance(options, DecisionSet)
    assert np.array_equal(options.rows, actions)
    assert np.array_equal(options.coarse[:2, :3], actions.T)
    assert options.coarse[2, :3].tolist() == [25.0, 0.0, 2.0]
    assert options.coarse.shape == (3, 16)
    assert not options.coarse[:, 3:].any()
    assert options.coarse.dtype == np.float32
    assert 25.0 <= options.longest < 25.001
    assert options.work.shape == (4, 16)
    assert decision_set(np.zeros((40, 2))).work.shape == (4, 48)


def test_decision_sets_of_anything():
    """What is not a finite number, or too large a one, counts as large: no bound is NaN."""
    for bad in (math.nan, math.inf, -math.inf, 1e200, -1.7e308):
        for x in ([bad, 1.0], [1.0, bad], [bad, bad], [bad, math.nan]):
            for actions in ([[1.0, 2.0], x], [x, [1.0, 2.0]], [x, [math.inf, 1.0], x]):
                options = decision_set(np.array(actions))
                assert options.longest > pruning.LARGE
                assert np.isfinite(options.coarse).all()
                assert not all(is_within(x, 1e140) for x in options.rows)
    assert decision_set(np.array([[1e-200, 0.0]])).longest == 0.0
    assert is_within(np.array([0.6, 0.8]), 1.0)
    assert not is_within(np.array([0.6, 0.81]), 1.0)


@pytest.mark.parametrize("size", [1e-90, 1e-30, 1e-12, 1e12, 1e30, 1e90])
def test_sizes_that_single_precision_cannot_hold(size):
    """Actions, estimates and radii of any size, together and one by one."""
    rng = np.random.default_rng(3)
    for d in (1, 3, 7):
        for of_action, of_theta, of_radius in product((1.0, size), repeat=3):
            design = Design(d, 1.0)
            for x in rng.standard_normal((10, d)):
                design.add(x)
            actions = of_action * rng.standard_normal((40, d))
            check(design, of_theta * rng.standard_normal(d), of_radius, actions)
        shrunk = Design(d, size)
        check(shrunk, np.ones(d) / math.sqrt(size), 1.0, rng.standard_normal((40, d)))


def test_scores_that_single_precision_cannot_tell_apart():
    """Actions that differ in the tenth digit only: all bounds are equal, the scores are not."""
    rng = np.random.default_rng(4)
    for _ in range(100):
        d = int(rng.integers(1, 12))
        design, x = Design(d, 1.0), rng.standard_normal(d)
        for past in rng.standard_normal((20, d)):
            design.add(past)
        actions = x + 1e-10 * rng.standard_normal((50, d))
        theta = rng.standard_normal(d)
        row = check(design, theta, 0.5, actions)
        assert row == np.argmax(exact_scores(theta, design.A_inv, 0.5, actions, design.work))


@pytest.mark.parametrize("scale", [1e-100, 1e-12, 1.0, 1e12, 1e100])
@pytest.mark.parametrize("d", [1, 2, 3, 8, 15])
def test_split_bound(d, scale):
    """Above x'A_inv x for every x, and as near as the power it uses allows."""
    rng = np.random.default_rng(d)
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    for spread in (0.0, 1e-3, 1.0, 6.0):
        eigenvalues = 10 ** -(spread * rng.random(d))
        P = Q.T @ np.diag(eigenvalues) @ Q * scale
        P = (P + P.T) / 2
        A = Q.T @ np.diag(1 / eigenvalues) @ Q / scale
        kept, v = P.copy(), rng.standard_normal(d)
        along, across = split_bound(A, P, v)
        assert np.array_equal(P, kept)
        assert np.linalg.norm(v) == pytest.approx(1.0)
        assert across >= along
        X = np.vstack([rng.standard_normal((50, d)), Q])
        c, squares = X @ v, np.einsum("ki,ij,kj->k", X, P / scale, X)
        bound = along / scale * c**2 + across / scale * ((X**2).sum(1) - c**2)
        assert np.all(bound * pruning.SLACK > squares)
        # what it is made of, from all eigenvalues
        inner = v @ P @ v
        off = np.linalg.norm((P @ v - inner * v) / scale) * scale
        rest = np.linalg.svd(np.vstack([v[None], np.eye(d)]))[2][1:] if d > 1 else np.empty((0, d))
        rest = rest - np.outer(rest @ v, v)
        rest = np.linalg.qr(rest.T)[0].T if d > 1 else rest
        others = np.linalg.eigvalsh(rest @ P @ rest.T / scale) * scale
        m = others.mean() - others.std() if d > 1 else 0.0
        sharpest = max(others.max(initial=0.0), inner) + off
        widest = max(m + d ** (1 / 32) * np.abs(others - m).max(initial=0.0), inner) + off
        assert along == pytest.approx(inner + off, rel=1e-9)
        assert sharpest * (1 - 1e-9) <= across <= widest * (1 + 1e-9)


@pytest.mark.compiled
@pytest.mark.parametrize("at_once", [(7, 4, 2, 1), (3, 2, 1)])
def test_bounds_in_a_kernel(at_once, monkeypatch):
    """The same as NumPy's to single precision, for every number of actions, and nothing else."""
    monkeypatch.setattr(builders, "AT_ONCE", at_once)
    compiled, rng = njit(lambda *arguments: bounds.bound_all(*arguments)), np.random.default_rng(0)
    numbers = np.float32([0.7, 0.6, 1.3, 0.5])
    for d in (1, 2, 5, 20):
        for K in (1, 16, 17, 40, 50, 75, 90, 100, 128, 250):
            options = decision_set(rng.standard_normal((K, d)))
            theta, v = rng.standard_normal((2, d))
            plain, fast = (np.full((4, options.coarse.shape[1]), 7.0, np.float32) for _ in range(2))
            bounds.bound_all(options.coarse, theta, v, *numbers, plain)
            compiled(options.coarse, theta, v, *numbers, fast)
            assert np.allclose(plain, fast, rtol=1e-4, atol=1e-4)
            X, exact = options.rows, np.empty((3, K))
            exact[0] = X @ theta
            exact[1] = 0.7 * (X**2).sum(1) - 0.6 * (X @ v) ** 2
            exact[2] = exact[0] + 1.3 * (exact[1] + 0.5)
            assert np.allclose(fast[:3, :K], exact, rtol=1e-4, atol=1e-4)


def search(row, level, out, K):
    out[0] = bounds.highest(row, K)
    out[1] = bounds.count_reaching(row, level)
    bits = bounds.reaching(row, 16, level)
    out[2] = bits
    out[3] = bounds.lowest(bits | 0x8000)


@pytest.mark.parametrize("function", [search, pytest.param("kernel", marks=pytest.mark.compiled)])
def test_search_among_bounds(function):
    """The first of the highest, how many reach a level, and which."""
    function = njit(search) if function == "kernel" else function
    rng = np.random.default_rng(0)
    for n in (32, 48, 112):
        for K in (n - 15, n - 1, n):
            for _ in range(20):
                row = rng.integers(-4, 4, n).astype(np.float32)
                row[K:] = 9.0  # not among them
                level, out, kept = (
                    np.float32(rng.integers(-4, 9)),
                    np.zeros(4, np.int64),
                    row.copy(),
                )
                function(row, level, out, K)
                assert out[0] == np.argmax(kept[:K])
                assert np.array_equal(row[:K], kept[:K])
                assert np.all(row[K:] == -np.inf)
                assert out[1] == np.sum(row >= level)
                hits = [k for k in range(16) if row[16 + k] >= level]
                assert out[2] == sum(2**k for k in hits)
                assert out[3] == min([*hits, 15])


def test_split_bound_holds_from_the_worst_direction():
    """However badly v is chosen, and however far the eigenvalues are apart."""
    rng = np.random.default_rng(0)
    for d in (1, 2, 3, 7, 12):
        for _ in range(20):
            Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
            eigenvalues = np.sort(10 ** -(12.0 * rng.random(d)))
            P = (Q.T * eigenvalues) @ Q
            v = Q[-1].copy()  # that of the least eigenvalue of A
            along, across = split_bound((Q.T / eigenvalues) @ Q, (P + P.T) / 2, v)
            gap = along * np.outer(v, v) + across * (np.eye(d) - np.outer(v, v)) - P
            assert np.linalg.eigvalsh(gap)[0] >= -1e-12 * across
            assert across >= eigenvalues[-1] * (1 - 1e-12)


def test_split_bound_where_one_direction_is_known_well():
    """All other eigenvalues being equal, both bounds are exact."""
    d = 12
    A = 3.0 * np.eye(d)
    A[0, 0] = 500.0
    v = np.eye(d)[0] + 1e-3
    along, across = split_bound(A, np.linalg.inv(A), v)
    assert along == pytest.approx(1 / 500.0, rel=1e-4)
    assert across == pytest.approx(1 / 3.0, rel=1e-4)
