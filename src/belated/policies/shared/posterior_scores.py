"""The law of the scores x'theta where theta has Laplace's posterior, and a draw from it."""

from typing import Any

import numpy as np

from belated.core.jit import allocating_kernel, kernel
from belated.core.types import Integers, Matrix, Vector
from belated.estimators.laplace import LaplaceFit
from belated.estimators.laplace.fit import WAITING, inner
from belated.model.protocols import score_law
from belated.model.state import State
from belated.numerics.gaussian_scores import highest_draw
from belated.numerics.linalg import cholesky
from belated.numerics.sparse import entry, n_entries, n_rows


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
    mean, root = np.empty(K), np.empty((K, K))
    r = score_law(policy, state, actions, mean, root)
    index, score = highest_draw(mean, root, r, rng)
    return index, score, mean[index], 0.0


@allocating_kernel
def fill_posterior_scores(
    state: State, actions: Any, scale: float, mean: Vector, root: Matrix
) -> int:
    """Fills in the law of the scores, by a root of X S X' or of S, whichever is smaller.

    The entries of S that count are gathered first: those of the columns that any action has.
    """
    K, total = mean.shape[0], 0
    for a in range(K):
        mean[a] = inner(actions, a, state.theta)
        total += n_entries(actions, a)
    used = np.empty(total, np.int64)
    u = _number_columns(state.fit, actions, used)
    S, products = np.empty((u, u)), np.zeros((K, u))
    _gather(state.fit, used, S)
    if u < K:
        _take_root(S)
    for a in range(K):
        out = products[a]
        for k in range(n_entries(actions, a)):
            j, value = entry(actions, a, k)
            if value != 0.0:
                row = S[state.fit.place[j] - 1]
                for q in range(u):
                    out[q] += value * row[q]
    if u >= K:
        _root_of_scores(state.fit, actions, products, root)
    for p in range(u):
        state.fit.place[used[p]] = 0
    r = min(u, K)
    for a in range(K):
        for b in range(r):
            root[a, b] = scale * (products[a, b] if u < K else root[a, b])
    return r


@kernel
def _number_columns(fit: LaplaceFit, actions: Any, used: Integers) -> int:
    """Numbers the columns that any action has, from 1, in ``fit.place``; returns how many."""
    count = 0
    for a in range(n_rows(actions)):
        for k in range(n_entries(actions, a)):
            j, value = entry(actions, a, k)
            if value != 0.0 and fit.place[j] == 0:
                used[count] = j
                count += 1
                fit.place[j] = count
    return count


@kernel
def _gather(fit: LaplaceFit, used: Integers, out: Matrix) -> None:
    """Gathers the covariance of these columns, the terms that wait included."""
    u = out.shape[0]
    for p in range(u):
        for q in range(p, u):
            i, j = min(used[p], used[q]), max(used[p], used[q])
            out[p, q] = fit.S[i, j]
    for t in range(int(fit.scalars[WAITING])):
        term = fit.terms[t]
        for p in range(u):
            weight = fit.scales[t] * term[used[p]]
            for q in range(p, u):
                out[p, q] -= weight * term[used[q]]
    for p in range(u):
        for q in range(p):
            out[p, q] = out[q, p]


@allocating_kernel
def _take_root(S: Matrix) -> None:
    """S becomes its lower root L, S = L L': then X L z has the law of X theta."""
    u = S.shape[0]
    U = np.empty((u, u))
    cholesky(S, 0.0, U)
    for p in range(u):
        for q in range(u):
            S[p, q] = U[q, p] if q <= p else 0.0


@allocating_kernel
def _root_of_scores(fit: LaplaceFit, actions: Any, products: Matrix, root: Matrix) -> None:
    """``root`` becomes the lower root of X S X', from the products X S."""
    K = products.shape[0]
    covariance = np.empty((K, K))
    for b in range(K):
        for a in range(b + 1):
            total = 0.0
            for k in range(n_entries(actions, b)):
                j, value = entry(actions, b, k)
                if value != 0.0:
                    total += value * products[a, fit.place[j] - 1]
            covariance[a, b] = total
            covariance[b, a] = total
    _take_root(covariance)
    for a in range(K):
        for b in range(K):
            root[a, b] = covariance[a, b]
