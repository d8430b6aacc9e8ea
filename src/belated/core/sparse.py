"""Rows of features as lists of their nonzero entries. This module imports no Numba."""

from typing import NamedTuple

import numpy as np

from belated.core.types import Integers, Matrix

LARGEST_ENTRY = 1e6  # of a row: beyond it squares of such entries drown all others


class SparseRows(NamedTuple):
    """Rows of one length in memory: shorter rows end in zeros at column 0."""

    columns: Integers  # (K, s) int32, in which columns the entries are
    values: Matrix  # (K, s)


def count_rows(rows: Matrix | SparseRows) -> int:
    """Returns the number of rows, dense or sparse."""
    return len(rows.columns) if isinstance(rows, SparseRows) else len(rows)


def without_row(rows: Matrix | SparseRows, k: int) -> Matrix | SparseRows:
    """Returns all rows but row ``k``.

    >>> without_row(np.array([[1.0], [2.0], [3.0]]), 1).tolist()
    [[1.0], [3.0]]
    """
    if isinstance(rows, SparseRows):
        return SparseRows(np.delete(rows.columns, k, axis=0), np.delete(rows.values, k, axis=0))
    return np.delete(rows, k, axis=0)


def dense(rows: Matrix | SparseRows, dim: int) -> Matrix:
    """Returns rows with all their zeros; dense ones as they are.

    >>> dense(SparseRows(np.array([[2, 0]], np.int32), np.array([[1.5, 0.0]])), 3)
    array([[0. , 0. , 1.5]])
    """
    if not isinstance(rows, SparseRows):
        return rows
    full = np.zeros((len(rows.columns), dim))
    np.add.at(full, (np.arange(len(full))[:, np.newaxis], rows.columns), rows.values)
    return full
