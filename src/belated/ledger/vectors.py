"""The vector of a decision as bytes: all its numbers, or only those that are not zero.

Bandits with wide features write the second form: the number of features, columns and values, an
even number of them. The first form is a multiple of eight bytes long, the second four bytes more.
"""

from array import array
from collections.abc import Sequence

import numpy as np

from belated.core.sparse import SparseRows
from belated.core.types import Integers, Matrix, Vector


def as_sparse(matrix: Matrix) -> SparseRows:
    """Returns the nonzero entries of dense rows."""
    from belated.numerics.entries import sparse  # a service without bandits does without Numba

    return sparse(matrix)


def packed(rows: Matrix | SparseRows, row: int, dim: int) -> bytes:
    """Returns a row as bytes, a sparse one without its zeros.

    >>> vector_of(packed(SparseRows(np.array([[2, 0]], np.int32), np.array([[1.5, 0.0]])), 0, 3))
    array([0. , 0. , 1.5])
    """
    if not isinstance(rows, SparseRows):
        return rows[row].tobytes()
    # lists: an array of ten numbers takes ten times as long
    columns, values = rows.columns[row].tolist(), rows.values[row].tolist()
    if 0.0 in values:
        there = [(j, value) for j, value in zip(columns, values, strict=True) if value != 0.0]
        columns, values = [j for j, _ in there], [value for _, value in there]
    if len(columns) % 2:
        columns, values = [*columns, 0], [*values, 0.0]
    return array("i", [dim, *columns]).tobytes() + array("d", values).tobytes()


def is_sparse(x: bytes) -> bool:
    """Returns whether these bytes leave out zeros."""
    return len(x) % 8 == 4


def entries_of(x: bytes) -> tuple[int, Integers, Vector]:
    """Returns the number of features, and the columns and values of what may not be zero."""
    if is_sparse(x):
        n = (len(x) - 4) // 12
        dim = int(np.frombuffer(x, np.int32, 1)[0])
        return dim, np.frombuffer(x, np.int32, n, 4), np.frombuffer(x, np.float64, n, 4 + 4 * n)
    vector = np.frombuffer(x)
    columns = np.flatnonzero(vector)
    return len(vector), columns, vector[columns]


def dim_of(x: bytes) -> int:
    """Returns the number of features of a vector."""
    return int(np.frombuffer(x, np.int32, 1)[0]) if is_sparse(x) else len(x) // 8


def vector_of(x: bytes) -> Vector:
    """Returns a vector with all its zeros."""
    if not is_sparse(x):
        return np.frombuffer(x)
    dim, columns, values = entries_of(x)
    vector = np.zeros(dim)
    np.add.at(vector, columns, values)  # a column may stand there twice
    return vector


def sparse_rows(xs: Sequence[bytes]) -> SparseRows:
    """Returns the rows of several vectors."""
    parts = [entries_of(x)[1:] for x in xs]
    width = max((len(columns) for columns, _ in parts), default=0) or 1
    rows = SparseRows(np.zeros((len(xs), width), np.int32), np.zeros((len(xs), width)))
    for k, (columns, values) in enumerate(parts):
        rows.columns[k, : len(columns)], rows.values[k, : len(columns)] = columns, values
    return rows


def matrix_of(xs: Sequence[bytes], dim: int) -> Matrix:
    """Returns several vectors with all their zeros, writable."""
    if any(is_sparse(x) for x in xs):
        return np.array([vector_of(x) for x in xs])
    return np.frombuffer(bytearray().join(xs)).reshape(-1, dim)
