"""The law of the scores x'theta where theta has Laplace's posterior, and a draw from it."""

from typing import Any

import numpy as np

from belated.core.jit import allocating_kernel, kernel
from belated.core.sparse import SparseRows
from belated.core.types import Integers, Matrix, Vector
from belated.estimators.laplace.fit import WAITING
from belated.model.protocols import score_law
from belated.model.state import State
from belated.numerics.entries import entry, inner, n_entries, n_rows
from belated.numerics.gaussian_scores import highest_draw
from belated.numerics.linalg import cholesky, copy


@kernel
def highest_drawn(
    policy: Any, state: State, actions: Any, rng: np.random.Generator
) -> tuple[int, float, float, float]:
    """Chooses the action whose score, drawn from the policy's ``score_law``, is the highest."""
    return _draw(policy, state, actions, rng)


@allocating_kernel
def _draw(
    policy: Any, state: State, actions: Any, rng: np.random.Generator
) -> tuple[int, float, float, float]:
    K = n_rows(actions)
    mean, root, z = np.empty(K), np.empty((K, min(K, state.theta.shape[0]))), np.empty(K)
    for a in range(K):  # as many as ``play_sparse_step`` is given, whether all are needed or not
        z[a] = rng.standard_normal()
    r = score_law(policy, state, actions, mean, root)
    index, score = highest_draw(mean, root, r, z)
    return index, score, mean[index], 0.0


@kernel
def fill_posterior_scores(
    state: State, actions: Any, scale: float, mean: Vector, root: Matrix
) -> int:
    """Fills in the law of the scores, by a root of X S X' or of S, whichever is smaller.

    An entry that all actions share adds the same number to every score. It decides nothing, so it
    counts in the mean alone: X has the other entries, and S their columns.
    """
    fit = state.fit
    waiting = int(fit.scalars[WAITING])
    for a in range(mean.shape[0]):
        mean[a] = inner(actions, a, state.theta)
    return _fill_root(
        fit.S, fit.terms[:waiting], fit.scales[:waiting], fit.place, actions, scale, root
    )


@allocating_kernel
def _fill_root(
    covariances: Matrix,
    terms: Matrix,
    scales: Vector,
    place: Integers,
    actions: Any,
    scale: float,
    root: Matrix,
) -> int:
    """Fills in the root, of so many columns as it returns; the first arguments are of the fit."""
    K, width = n_rows(actions), n_entries(actions, 0)
    differs, count = np.empty(width, np.int64), 0
    for k in range(width):
        differs[k] = 0 if _is_shared(actions, k) else 1
        count += differs[k]
    own = SparseRows(np.empty((K, count), np.int32), np.empty((K, count)))
    used = np.empty(K * count, np.int64)
    u = _number_columns(place, actions, differs, own, used)
    r = min(u, K)
    S, covariance, U = np.empty((u, u)), np.empty((r, r)), np.empty((r, r))
    _gather(covariances, used, S)
    if u < K:
        for p in range(u):
            copy(S[p], covariance[p])
    else:
        _fill_covariance(own, S, np.empty(u), covariance)
    _subtract_terms(terms, scales, own, used, u < K, np.empty(u), np.empty(r), covariance)
    cholesky(covariance, 0.0, U)
    lower = covariance  # no longer needed as such
    for p in range(r):
        for q in range(r):
            lower[p, q] = U[q, p] if q <= p else 0.0
    for a in range(K):
        row = root[a, :r]
        if u < K:
            _combine(own, a, lower, row)
        else:
            # rounding would let actions that are alike win a tie by turns
            copy(lower[_first_alike(own, a)], row)
        for q in range(r):
            row[q] *= scale
    return r


@kernel
def _first_alike(own: SparseRows, a: int) -> int:
    """Returns the first row with the entries of row ``a``."""
    for b in range(a):
        alike = True
        for k in range(n_entries(own, a)):
            i, x = entry(own, a, k)
            j, y = entry(own, b, k)
            if i != j or x != y:
                alike = False
                break
        if alike:
            return b
    return a


@kernel
def _combine(own: SparseRows, a: int, lower: Matrix, out: Vector) -> None:
    """``out`` becomes row ``a`` times ``lower``, which is read row by row."""
    for q in range(out.shape[0]):
        out[q] = 0.0
    for k in range(n_entries(own, a)):
        j, value = entry(own, a, k)
        row = lower[j]
        for q in range(out.shape[0]):
            out[q] += value * row[q]


@kernel
def _is_shared(actions: Any, k: int) -> bool:
    """Returns whether entry ``k`` is the same in all rows."""
    j, value = entry(actions, 0, k)
    for a in range(1, n_rows(actions)):
        i, other = entry(actions, a, k)
        if i != j or other != value:
            return False
    return True


@kernel
def _number_columns(
    place: Integers, actions: Any, differs: Integers, own: SparseRows, used: Integers
) -> int:
    """Fills in the entries that differ, with the columns that any action uses numbered from 0.

    Returns the number of these columns; ``used`` lists them. ``place`` is scratch: zeros.
    """
    u = 0
    for a in range(n_rows(actions)):
        at = 0
        for k in range(differs.shape[0]):
            if differs[k] == 1:
                j, value = entry(actions, a, k)
                own.columns[a, at], own.values[a, at] = 0, 0.0
                if value != 0.0:
                    if place[j] == 0:
                        used[u] = j
                        u += 1
                        place[j] = u
                    own.columns[a, at], own.values[a, at] = place[j] - 1, value
                at += 1
    for p in range(u):
        place[used[p]] = 0
    return u


@kernel
def _gather(S: Matrix, used: Integers, out: Matrix) -> None:
    """``out`` becomes the part of S of these columns, from the upper half of S."""
    for p in range(out.shape[0]):
        for q in range(p, out.shape[0]):
            i, j = min(used[p], used[q]), max(used[p], used[q])
            out[p, q] = S[i, j]
            out[q, p] = S[i, j]


@kernel
def _fill_covariance(own: SparseRows, S: Matrix, product: Vector, out: Matrix) -> None:
    """The upper half of ``out`` becomes that of X S X'; ``product`` is scratch."""
    for a in range(out.shape[0]):
        for q in range(product.shape[0]):
            product[q] = 0.0
        for k in range(n_entries(own, a)):
            j, value = entry(own, a, k)
            row = S[j]
            for q in range(row.shape[0]):
                product[q] += value * row[q]
        for b in range(a, out.shape[0]):
            out[a, b] = inner(own, b, product)


@kernel
def _subtract_terms(
    terms: Matrix,
    scales: Vector,
    own: SparseRows,
    used: Integers,
    of_columns: bool,
    term: Vector,
    product: Vector,
    out: Matrix,
) -> None:
    """Subtracts the terms that wait from the covariance of columns, or from that of scores.

    ``term`` and ``product`` are scratch, as long as there are columns and as ``out`` is wide.
    """
    for t in range(scales.shape[0]):
        for p in range(term.shape[0]):
            term[p] = terms[t, used[p]]
        for a in range(product.shape[0]):
            product[a] = term[a] if of_columns else inner(own, a, term)
        for a in range(product.shape[0]):
            weight, row, rest = scales[t] * product[a], out[a, a:], product[a:]
            for q in range(row.shape[0]):
                row[q] -= weight * rest[q]
