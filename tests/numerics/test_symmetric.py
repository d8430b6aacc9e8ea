"""Wide symmetric matrices by their upper half, against NumPy."""

import numpy as np
import pytest

from belated.numerics.symmetric import PIVOTS, invert, multiply, subtract_squares


def upper(A):
    """Returns a copy whose lower half must not be read."""
    halved = A.copy()
    halved[np.tril_indices(len(A), -1)] = np.nan
    return halved


def positive_definite(d, seed):
    X = np.random.default_rng(seed).normal(size=(2 * d, d))
    return X.T @ X / d + np.eye(d)


@pytest.mark.parametrize("d", [1, 2, 7, PIVOTS, PIVOTS + 1])
def test_inverse_is_numpys(d):
    A = positive_definite(d, d)
    found = upper(A)
    invert(found)
    np.testing.assert_allclose(
        found[np.triu_indices(d)], np.linalg.inv(A)[np.triu_indices(d)], rtol=1e-11, atol=1e-13
    )
    assert np.isnan(found[np.tril_indices(d, -1)]).all()


@pytest.mark.parametrize("count", [0, 1, 4, 7])
def test_squares_are_subtracted_from_the_upper_half(count):
    d, rng = 11, np.random.default_rng(count)
    A, V, scale = positive_definite(d, 3), rng.normal(size=(8, d)), rng.random(8)
    found = upper(A)
    subtract_squares(found, V, scale, count)
    expected = A - (V[:count].T * scale[:count]) @ V[:count]
    np.testing.assert_allclose(
        found[np.triu_indices(d)], expected[np.triu_indices(d)], rtol=1e-13, atol=1e-13
    )


def test_products_read_the_upper_half_only():
    d, rng = 9, np.random.default_rng(0)
    A, x, out = positive_definite(d, 1), rng.normal(size=d), np.ones(d)
    multiply(upper(A), x, out)
    np.testing.assert_allclose(out, A @ x, rtol=1e-13)


@pytest.mark.compiled
def test_tiles_and_blocks_when_compiled():
    A = positive_definite(600, 5)
    found = upper(A)
    invert(found)
    at = np.triu_indices(600)
    np.testing.assert_allclose(found[at], np.linalg.inv(A)[at], rtol=1e-9, atol=1e-11)
