"""Wide symmetric matrices, of which only the upper half is kept up to date.

Half the arithmetic, and rank-one terms are taken in by blocks: one by one, each would read and
write the whole matrix, which takes longer than the arithmetic once it leaves the cache. Loops run
along rows and sums are never reordered, so compiled code gives the bits of plain Python on every
machine.
"""

import numpy as np

from belated.core.jit import allocating_kernel, kernel
from belated.core.types import Matrix, Vector
from belated.numerics.linalg import cholesky, solve_transposed, solve_upper
from belated.numerics.lowered.products import dot

TILE = 256  # columns at a time: with 64 terms, a tile of them stays in the second-level cache
PIVOTS = 64  # columns that ``invert`` eliminates at a time


@kernel
def subtract_squares(A: Matrix, V: Matrix, scale: Vector, count: int) -> None:
    """``A -= scale[0] v_0 v_0' + ...`` for the first ``count`` rows ``v`` of ``V``; upper half."""
    d = A.shape[0]
    for start in range(0, d, TILE):
        end = min(d, start + TILE)
        for i in range(end):
            first = max(i, start)
            row = A[i, first:end]
            k = 0
            while k + 4 <= count:
                a, b = scale[k] * V[k, i], scale[k + 1] * V[k + 1, i]
                c, e = scale[k + 2] * V[k + 2, i], scale[k + 3] * V[k + 3, i]
                u, v = V[k, first:end], V[k + 1, first:end]
                w, x = V[k + 2, first:end], V[k + 3, first:end]
                for j in range(row.shape[0]):
                    row[j] -= a * u[j] + b * v[j] + (c * w[j] + e * x[j])
                k += 4
            while k < count:
                a, u = scale[k] * V[k, i], V[k, first:end]
                for j in range(row.shape[0]):
                    row[j] -= a * u[j]
                k += 1


@kernel
def multiply(A: Matrix, x: Vector, out: Vector) -> None:
    """``out = A x``, from the upper half, in one pass over its rows."""
    d = A.shape[0]
    for i in range(d):
        out[i] = 0.0
    for i in range(d):
        row, rest, weight = A[i, i:], out[i:], x[i]
        total = rest[0] + dot(row, x[i:])
        for j in range(row.shape[0]):
            rest[j] += weight * row[j]
        rest[0] = total


@allocating_kernel
def invert(A: Matrix) -> None:
    """``A`` becomes its inverse, in place: Gauss and Jordan's method, a block of pivots at a time.

    Sweeping a positive definite matrix on the block J turns it into

        A_JJ -> -A_JJ^-1,    A_Jk -> A_JJ^-1 A_Jk,    A_kl -> A_kl - A_kJ A_JJ^-1 A_Jl,

    and into -A^-1 once every column has been swept (K. Lange: Numerical Analysis for Statisticians,
    2010). Nearly all the work is in ``subtract_squares``.
    """
    d = A.shape[0]
    n = min(PIVOTS, d)
    rows, half, block, U = np.empty((n, d)), np.empty((n, d)), np.empty((n, n)), np.empty((n, n))
    _sweep_all(A, rows, half, block, U, np.empty(n), np.empty(n))


@kernel
def _sweep_all(
    A: Matrix, rows: Matrix, half: Matrix, block: Matrix, U: Matrix, column: Vector, ones: Vector
) -> None:
    """``A`` becomes its inverse; all else is scratch."""
    d = A.shape[0]
    for p in range(ones.shape[0]):
        ones[p] = 1.0
    for start in range(0, d, PIVOTS):
        n = min(PIVOTS, d - start)
        end = start + n
        for p in range(n):
            j = start + p
            for i in range(j):
                rows[p, i] = A[i, j]
            for i in range(j, d):
                rows[p, i] = A[j, i]
            for q in range(n):
                block[p, q] = rows[p, start + q]
        for p in range(n):  # the block is symmetric: its upper half was read into both halves
            for q in range(p):
                block[p, q] = block[q, p]
        cholesky(block[:n, :n], 0.0, U[:n, :n])
        # half = U^-T rows, so that half'half = A_kJ A_JJ^-1 A_Jl
        for p in range(n):
            for i in range(d):
                half[p, i] = 0.0 if start <= i < end else rows[p, i]
        for p in range(n):
            pivot, own = U[p, p], half[p]
            for i in range(d):
                own[i] /= pivot
            for q in range(p + 1, n):
                c, other = U[p, q], half[q]
                for i in range(d):
                    other[i] -= c * own[i]
        subtract_squares(A, half, ones, n)
        # rows = U^-1 half = A_JJ^-1 rows outside the block
        for p in range(n - 1, -1, -1):
            own = half[p]
            for q in range(p + 1, n):
                c, other = U[p, q], half[q]
                for i in range(d):
                    own[i] -= c * other[i]
            pivot = U[p, p]
            for i in range(d):
                own[i] /= pivot
            j = start + p
            for i in range(start):
                A[i, j] = own[i]
            for i in range(end, d):
                A[j, i] = own[i]
        for p in range(n):
            for q in range(n):
                column[q] = 1.0 if q == p else 0.0
            solve_transposed(U[:n, :n], column[:n])
            solve_upper(U[:n, :n], column[:n])
            for q in range(p + 1):
                A[start + q, start + p] = -column[q]
    for i in range(d):
        row = A[i, i:]
        for j in range(row.shape[0]):
            row[j] = -row[j]
