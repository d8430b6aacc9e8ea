"""Vectors of decisions as bytes: dense as in version 0.1, or without zeros."""

import numpy as np
import pytest

from belated.core.sparse import SparseRows, dense
from belated.ledger.vectors import dim_of, is_sparse, matrix_of, packed, sparse_rows, vector_of


def rows(columns, values):
    return SparseRows(np.array([columns], np.int32), np.array([values], np.float64))


@pytest.mark.parametrize(
    ("columns", "values"),
    [([3], [2.5]), ([0, 4], [1.0, -1.0]), ([4, 1, 0], [1.0, 2.0, 0.0]), ([0], [0.0])],
)
def test_a_sparse_vector_comes_back(columns, values):
    given = rows(columns, values)
    x = packed(given, 0, 5)
    assert is_sparse(x)
    assert dim_of(x) == 5
    np.testing.assert_array_equal(vector_of(x), dense(given, 5)[0])
    np.testing.assert_array_equal(dense(sparse_rows([x]), 5), dense(given, 5))


def test_a_column_that_stands_there_twice_counts_twice():
    x = packed(rows([2, 2], [1.0, 0.5]), 0, 3)
    assert vector_of(x).tolist() == [0.0, 0.0, 1.5]
    assert dense(sparse_rows([x]), 3).tolist() == [[0.0, 0.0, 1.5]]


def test_a_dense_vector_is_its_numbers_as_in_version_0_1():
    matrix = np.array([[0.0, 0.25, -1.0]])
    x = packed(matrix, 0, 3)
    assert x == matrix[0].tobytes()
    assert not is_sparse(x)
    assert dim_of(x) == 3
    np.testing.assert_array_equal(dense(sparse_rows([x]), 3), matrix)


def test_both_forms_make_one_matrix():
    both = [packed(rows([1], [2.0]), 0, 3), np.array([1.0, 0.0, 3.0]).tobytes()]
    assert matrix_of(both, 3).tolist() == [[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]]
