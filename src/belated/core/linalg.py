"""Small dense kernels on symmetric matrices. In place; sums are never reordered.

Inner loops run along contiguous rows (axpy form), which vectorises without fastmath, so that the
compiled result equals the Python one bit for bit.
"""

import numpy as np

from belated.core.jit import kernel
from belated.core.types import Matrix, Vector


@kernel
def dot(a: Vector, b: Vector) -> float:
    """Inner product ``a'b``."""
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


@kernel
def matvec(A: Matrix, x: Vector, out: Vector) -> None:
    """``out = A x`` for symmetric ``A``."""
    d = x.shape[0]
    for i in range(d):
        out[i] = 0.0
    for j in range(d):
        for i in range(d):
            out[i] += A[j, i] * x[j]


@kernel
def add_outer(A: Matrix, weight: float, x: Vector) -> None:
    """Rank-one update ``A += weight x x'``."""
    d = x.shape[0]
    for i in range(d):
        wx = weight * x[i]
        for j in range(d):
            A[i, j] += wx * x[j]


@kernel
def inverse_add_outer(A_inv: Matrix, weight: float, x: Vector, work: Vector) -> float:
    """Sherman-Morrison: ``A_inv`` becomes ``(A + weight x x')^-1``; returns ``weight x'A_inv x``.

    The determinant of ``A`` grows by the factor one plus that number.
    """
    d = x.shape[0]
    matvec(A_inv, x, work)
    q = weight * dot(x, work)
    factor = weight / (1.0 + q)
    for i in range(d):
        f = factor * work[i]
        for j in range(d):
            A_inv[i, j] -= f * work[j]
    return q


@kernel
def cholesky(A: Matrix, shift: float, U: Matrix) -> None:
    """Upper factor ``U'U = A + shift I``; entries below the diagonal of ``U`` are left alone.

    A pivot lost to rounding is taken to be of the size of that rounding, so no NaN can arise.
    """
    d = A.shape[0]
    for i in range(d):
        for j in range(i, d):
            U[i, j] = A[i, j]
        U[i, i] += shift
    for k in range(d):
        pivot = np.sqrt(max(U[k, k], 1e-16 * (A[k, k] + shift)))
        U[k, k] = pivot
        for j in range(k + 1, d):
            U[k, j] /= pivot
        for i in range(k + 1, d):
            c = U[k, i]
            for j in range(i, d):
                U[i, j] -= c * U[k, j]


@kernel
def solve_transposed(U: Matrix, b: Vector) -> None:
    """Forward substitution in place: ``b`` becomes ``U^-T b``."""
    d = b.shape[0]
    for i in range(d):
        b[i] /= U[i, i]
        c = b[i]
        for j in range(i + 1, d):
            b[j] -= c * U[i, j]


@kernel
def solve_upper(U: Matrix, b: Vector) -> None:
    """Back substitution in place: ``b`` becomes ``U^-1 b``."""
    d = b.shape[0]
    for i in range(d - 1, -1, -1):
        r = b[i]
        for j in range(i + 1, d):
            r -= U[i, j] * b[j]
        b[i] = r / U[i, i]


@kernel
def inverse_and_log_det(A: Matrix, A_inv: Matrix) -> float:
    """Fill ``A_inv`` with the inverse of ``A`` from a fresh Cholesky factor; return log det A."""
    d = A.shape[0]
    U, column = np.zeros((d, d)), np.zeros(d)
    cholesky(A, 0.0, U)
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


@kernel
def grow(
    A: Matrix, A_inv: Matrix, log_det: float, weight: float, x: Vector, fresh: bool, work: Vector
) -> float:
    """``A += weight x x'`` with its inverse; takes log det A, returns the new one.

    The inverse is made anew when ``fresh`` asks for it (that bounds drift) and when the update is
    so large that Sherman-Morrison would lose more than about four digits to cancellation.
    """
    add_outer(A, weight, x)
    q = inverse_add_outer(A_inv, weight, x, work)
    if fresh:
        return inverse_and_log_det(A, A_inv)
    if q > 1e4:
        inverse_and_log_det(A, A_inv)
    return log_det + np.log1p(q)


@kernel
def quadratic(A: Matrix, x: Vector, work: Vector) -> float:
    """``x'A x`` for symmetric ``A``; ``work`` becomes ``A x``."""
    matvec(A, x, work)
    return dot(x, work)
