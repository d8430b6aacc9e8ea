"""Rows of features as lists of their nonzero entries, so that a wide row costs what it holds.

Code that runs over the entries of a row asks ``n_entries`` and ``entry`` and works on every kind of
rows: sparse ones, and dense ones, whose entries are all of their columns.
"""

from typing import Any

import numpy as np

from belated.core.generic import generic
from belated.core.jit import inlined_kernel, kernel
from belated.core.sparse import SparseRows
from belated.core.types import Integers, Matrix, Vector
from belated.numerics.pruning import DecisionSet


@generic
def n_rows(rows: Any) -> int:
    """Returns the number of rows."""


@generic
def n_entries(rows: Any, row: int) -> int:
    """Returns how many entries a row has; some may be zero."""


@generic
def entry(rows: Any, row: int, k: int) -> tuple[int, float]:
    """Returns the column and the value of entry ``k`` of a row."""


@n_rows.case(SparseRows)
def _n_sparse_rows(rows: SparseRows) -> int:
    return rows.columns.shape[0]


@n_rows.case(DecisionSet)
def _n_dense_rows(rows: DecisionSet) -> int:
    return rows.rows.shape[0]


@n_entries.case(SparseRows)
def _n_sparse(rows: SparseRows, row: int) -> int:
    return rows.columns.shape[1]


@entry.case(SparseRows)
def _sparse_entry(rows: SparseRows, row: int, k: int) -> tuple[int, float]:
    return rows.columns[row, k], rows.values[row, k]


@n_entries.case(DecisionSet)
def _n_dense(rows: DecisionSet, row: int) -> int:
    return rows.rows.shape[1]


@entry.case(DecisionSet)
def _dense_entry(rows: DecisionSet, row: int, k: int) -> tuple[int, float]:
    return k, rows.rows[row, k]


@inlined_kernel
def inner(rows: Any, row: int, vector: Vector) -> float:
    """Returns the product of a row and a vector."""
    total = 0.0
    for k in range(n_entries(rows, row)):
        j, value = entry(rows, row, k)
        total += value * vector[j]
    return total


def sparse(rows: Matrix) -> SparseRows:
    """Returns the nonzero entries of dense rows.

    >>> sparse(np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])).columns
    array([[1, 0],
           [0, 2]], dtype=int32)
    """
    width = max(1, _most_entries(rows))
    found = SparseRows(np.zeros((len(rows), width), np.int32), np.zeros((len(rows), width)))
    _collect(rows, found.columns, found.values)
    return found


@kernel
def _most_entries(rows: Matrix) -> int:
    most = 0
    for a in range(rows.shape[0]):
        count = 0
        for j in range(rows.shape[1]):
            if rows[a, j] != 0.0:
                count += 1
        most = max(most, count)
    return most


@kernel
def _collect(rows: Matrix, columns: Integers, values: Vector) -> None:
    for a in range(rows.shape[0]):
        count = 0
        for j in range(rows.shape[1]):
            if rows[a, j] != 0.0:
                columns[a, count], values[a, count] = j, rows[a, j]
                count += 1


@kernel
def are_within_size(values: Matrix, largest: float) -> bool:
    """Returns whether every number is finite and at most ``largest`` in size.

    NumPy would take three passes and as many calls for it, a tenth of the time of a decision.
    """
    for a in range(values.shape[0]):
        for k in range(values.shape[1]):
            if not abs(values[a, k]) <= largest:  # NaN, too
                return False
    return True
