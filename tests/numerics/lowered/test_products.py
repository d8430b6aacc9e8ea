"""Products of small matrices: NumPy's results, and the same bits from a kernel, at every size."""

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError

from belated.numerics.linalg import inverse_add_outer
from belated.numerics.lowered.builders import lowering
from belated.numerics.lowered.builders.products import PANELS
from belated.numerics.lowered.products import (
    add_outer,
    dot,
    inner_products,
    matvec,
    quadratic,
)
from belated.numerics.lowered.third_derivative import (
    BATCH,
    add_squares,
    add_thirds,
    multiply_all_pairs,
    multiply_pairs,
    new_third,
    sweep,
)

SIZES = [*range(1, 46), 64]


def problem(d):
    rng = np.random.default_rng(d)
    A = rng.standard_normal((d, d))
    return A + A.T, rng.standard_normal(d)


def all_four(A, x, out):
    matvec(A, x, out[0])
    out[1, 0] = quadratic(A, x, out[2])
    out[3, 0] = dot(A[0], x)
    add_outer(A, -0.3, x)


@pytest.fixture(params=[True, False], ids=["masked", "portions"])
def masked(request, monkeypatch):
    """With and without an instruction that loads a part of a pack."""
    monkeypatch.setattr(lowering, "MASKED_LOADS", request.param)


@pytest.mark.parametrize("d", SIZES)
def test_plain_products(d):
    A, x = problem(d)
    out, kept = np.full((4, d), 7.0), A.copy()
    all_four(A, x, out)
    assert np.allclose(out[0], kept @ x, rtol=1e-12, atol=1e-12)
    assert np.array_equal(out[2], out[0])
    assert out[1, 0] == pytest.approx(x @ kept @ x, rel=1e-10, abs=1e-10)
    assert out[3, 0] == pytest.approx(kept[0] @ x, rel=1e-10, abs=1e-10)
    assert np.allclose(A, kept - 0.3 * np.outer(x, x), rtol=1e-12, atol=1e-12)


def test_dot_adds_halves_on_halves():
    """Not from left to right; and the second vector may be longer."""
    big = np.array([1e16, 1.0, 0.0, 0.0, -1e16, 1.0, 0.0, 0.0])
    assert dot(big, np.ones(11)) == 2.0
    assert dot(np.ones(3), np.arange(9.0)) == 3.0


def test_panels_have_their_width():
    assert all(columns == sum(widths) for columns, widths in PANELS.items())


@pytest.mark.compiled
def test_kernels_do_the_same(masked):
    """Bit for bit, and nothing beyond the matrix is touched."""
    compiled = njit(all_four)
    for d in SIZES:
        A, x = problem(d)
        room = np.full(d * d + 24, 7.0)
        B = room[8 : 8 + d * d].reshape(d, d)
        B[:] = A
        plain, fast = np.full((4, d), 7.0), np.full((4, d), 7.0)
        all_four(A, x, plain)
        compiled(B, x, fast)
        assert np.array_equal(plain, fast), d
        assert np.array_equal(A, B), d
        assert np.all(room[:8] == 7.0)
        assert np.all(room[8 + d * d :] == 7.0)


@pytest.mark.compiled
def test_kernels_do_the_same_with_thirds(masked):
    def batch(x, weights, T3):
        multiply_all_pairs(x, T3)
        add_squares(weights, T3)
        add_thirds(x, weights, T3)

    def form(T3, step, out):
        multiply_pairs(step, T3[step.shape[0]])
        sweep(T3, step, out)

    compiled_batch, compiled_form = njit(batch), njit(form)
    for d in range(1, 30):
        rng = np.random.default_rng(d)
        plain, fast = new_third(d), new_third(d)
        for _ in range(3):
            x, weights = rng.standard_normal((BATCH, d)), rng.standard_normal(BATCH)
            batch(x, weights, plain)
            compiled_batch(x, weights, fast)
        pairs = 0
        for k in range(d):  # what is beyond the pairs of a row is never used
            pairs += k + 1
            assert np.array_equal(plain[k, :pairs], fast[k, :pairs]), d
        assert np.array_equal(plain[d + BATCH, :pairs], fast[d + BATCH, :pairs]), d
        step, outs = rng.standard_normal(d), np.full((2, d + 1), 7.0)
        form(plain, step, outs[0, :d])
        compiled_form(fast, step, outs[1, :d])
        assert np.array_equal(*outs), d
        assert np.array_equal(plain[d : d + 2, :pairs], fast[d : d + 2, :pairs]), d


@pytest.mark.parametrize("d", [1, 3, 4, 7, 8, 10, 20, 23])
def test_inner_products(d):
    rng = np.random.default_rng(d)
    gradient, bent, ref, anchor, H_anchor, step, H_step = vectors = rng.standard_normal((7, d))
    off = H_step.copy()
    got = inner_products(gradient, bent, ref, anchor, H_anchor, step, off, 0.3)
    assert np.allclose(off, gradient + bent + H_step + 0.3 * (ref + step))
    squares = [np.sum(v**2) for v in (gradient, H_step, off, step, ref, step - anchor)]
    assert got == pytest.approx((*squares, step @ H_anchor, anchor @ H_anchor))
    assert np.array_equal(vectors[-1], H_step)


@pytest.mark.compiled
def test_kernels_do_the_same_with_inner_products(masked):
    compiled = njit(lambda *arguments: inner_products(*arguments))
    for d in range(1, 26):
        rng = np.random.default_rng(d)
        vectors = rng.standard_normal((7, d + 8))
        vectors[:, d:] = 7.0
        results = []
        for function in (inner_products, compiled):
            copies = [v.copy() for v in vectors]
            results.append((function(*(v[:d] for v in copies), 0.3), copies))
        (plain, left), (fast, also_left) = results
        assert plain == fast, d
        assert np.array_equal(left, also_left), d


@pytest.mark.compiled
def test_other_arrays_are_refused():
    """Numbers are read as they lie: no strides, no other type."""
    A, x = problem(4)
    for B, y in ((A[:, ::-1], x), (A, x[::-1]), (A.T, x)):
        with pytest.raises(TypeError, match=r"is not contiguous .*: pass \w+\.copy\(\)"):
            njit(lambda B, y: quadratic(B, y, np.empty(4)))(B, y)
    for B in (A.astype(np.float32), A[0]):
        with pytest.raises(TypingError):
            njit(lambda B, y: quadratic(B, y, np.empty(4)))(B, x)
    with pytest.raises(TypingError):
        njit(lambda A, x: add_outer(A, 1, x))(A, x)


def test_sherman_morrison():
    A, x = problem(6)
    A = A @ A.T + np.eye(6)
    inverse, work = np.linalg.inv(A), np.empty(6)
    q = inverse_add_outer(inverse, 0.7, x, work)
    assert q == pytest.approx(0.7 * x @ np.linalg.solve(A, x))
    assert np.allclose(inverse, np.linalg.inv(A + 0.7 * np.outer(x, x)), rtol=1e-9)
