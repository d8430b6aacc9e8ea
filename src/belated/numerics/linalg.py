"""Small dense kernels on symmetric matrices. In place; sums are never reordered.

Kernels that run at every reward are in ``numerics/lowered/products.py``; the rest are loops along
contiguous rows, which vectorise without fastmath: compiled results equal those of plain Python bit
for bit. Such loops run over slices from a constant index: where an index might be negative, Numba
has to ask at every step and does not vectorise.
"""

import numpy as np

from belated.core.jit import allocating_kernel, inlined_kernel, kernel
from belated.core.types import Matrix, Vector
from belated.numerics.lowered.products import add_outer, quadratic
from belated.numerics.special import log_of_one_plus

LEAST_PIVOT = 1e-300
LARGE_UPDATE = 1e4  # above it Sherman-Morrison would lose more than about four digits


@inlined_kernel
def copy(values: Vector, out: Vector) -> None:
    """``out = values``."""
    for i in range(values.shape[0]):
        out[i] = values[i]


@inlined_kernel
def inverse_add_outer(A_inv: Matrix, weight: float, x: Vector, work: Vector) -> float:
    """Sherman-Morrison: ``A_inv`` becomes ``(A + weight x x')^-1``; returns ``weight x'A_inv x``.

    The determinant of ``A`` grows by the factor one plus that number.
    """
    q = weight * quadratic(A_inv, x, work)
    add_outer(A_inv, -weight / (1.0 + q), work)
    return q


@kernel
def cholesky(A: Matrix, shift: float, U: Matrix) -> None:
    """Upper factor ``U'U = A + shift I``; entries below the diagonal of ``U`` are left alone.

    A pivot lost to rounding is taken to be of the size of that rounding, and a zero row to be next
    to zero, so no NaN can arise.
    """
    d = A.shape[0]
    for i in range(d):
        source, row = A[i, i:], U[i, i:]
        for j in range(row.shape[0]):
            row[j] = source[j]
        row[0] += shift
    for k in range(d):
        pivot = np.sqrt(max(U[k, k], 1e-16 * (A[k, k] + shift), LEAST_PIVOT))
        row = U[k, k:]
        row[0] = pivot
        for j in range(1, row.shape[0]):
            row[j] /= pivot
        for i in range(k + 1, d):
            c, above, below = U[k, i], U[k, i:], U[i, i:]
            for j in range(below.shape[0]):
                below[j] -= c * above[j]


@kernel
def exceeds(A: Matrix, bound: float, U: Matrix) -> bool:
    """Returns whether every eigenvalue of ``A`` is above ``bound``, by a Cholesky factor."""
    d = A.shape[0]
    for i in range(d):
        for j in range(d):
            U[i, j] = A[i, j]
        U[i, i] -= bound
    for k in range(d):
        pivot = U[k, k]
        if not pivot > 0.0:
            return False
        for i in range(k + 1, d):
            c = U[k, i] / pivot
            for j in range(d):
                U[i, j] -= c * U[k, j]
    return True


@kernel
def solve_transposed(U: Matrix, b: Vector) -> None:
    """Forward substitution in place: ``b`` becomes ``U^-T b``."""
    d = b.shape[0]
    for i in range(d):
        b[i] /= U[i, i]
        c, row, rest = b[i], U[i, i:], b[i:]
        for j in range(1, row.shape[0]):
            rest[j] -= c * row[j]


@kernel
def solve_upper(U: Matrix, b: Vector) -> None:
    """Back substitution in place: ``b`` becomes ``U^-1 b``."""
    d = b.shape[0]
    for i in range(d - 1, -1, -1):
        row, rest = U[i, i:], b[i:]
        r = rest[0]
        for j in range(1, row.shape[0]):
            r -= row[j] * rest[j]
        rest[0] = r / row[0]


@allocating_kernel
def inverse_and_log_det(A: Matrix, shift: float, A_inv: Matrix) -> float:
    """``A_inv`` becomes the inverse of ``A + shift I`` by a fresh Cholesky factor; its log det."""
    d = A.shape[0]
    U, column = np.zeros((d, d)), np.zeros(d)
    cholesky(A, shift, U)
    log_det = 0.0
    for j in range(d):
        log_det += 2.0 * np.log(U[j, j])
        for i in range(d):
            column[i] = 1.0 if i == j else 0.0
        solve_transposed(U, column)
        solve_upper(U, column)
        for i in range(j, d):  # the lower half, mirrored: exactly symmetric
            A_inv[i, j] = column[i]
            A_inv[j, i] = column[i]
    return log_det


@inlined_kernel
def grow(
    A: Matrix, A_inv: Matrix, log_det: float, weight: float, x: Vector, fresh: bool, work: Vector
) -> float:
    """``A += weight x x'`` with its inverse; takes log det A, returns the new one.

    The inverse is made anew when ``fresh`` asks for it (that bounds drift) and when the update is
    so large that Sherman-Morrison would lose digits to cancellation.
    """
    add_outer(A, weight, x)
    q = inverse_add_outer(A_inv, weight, x, work)
    if fresh or not q >= 0.0:  # negative only where rounding has destroyed the inverse
        return inverse_and_log_det(A, 0.0, A_inv)
    if q > LARGE_UPDATE:
        inverse_and_log_det(A, 0.0, A_inv)
    return log_det + log_of_one_plus(q)
