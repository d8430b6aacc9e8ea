"""Scoring a whole decision set at once."""

import math

import numpy as np

from belated.core.jit import kernel
from belated.core.types import Matrix, Vector


@kernel
def most_optimistic(
    theta: Vector, W_inv: Matrix, radius: float, actions: Matrix
) -> tuple[int, float, float, float]:
    """Argmax of ``x'theta + radius ||x||_{W^-1}``: row, score, estimate, width.

    Ties go to the lowest row. The set is turned to (d, K) so that the inner loops run across
    actions; only the lower half of ``W_inv`` is read.
    """
    K, d = actions.shape
    columns = np.empty((d, K))
    for a in range(K):
        for i in range(d):
            columns[i, a] = actions[a, i]
    estimate, half, row = np.zeros(K), np.zeros(K), np.empty(K)
    for i in range(d):
        c = 0.5 * W_inv[i, i]
        for a in range(K):
            row[a] = c * columns[i, a]
        for j in range(i):
            c = W_inv[i, j]
            for a in range(K):
                row[a] += c * columns[j, a]
        c = theta[i]
        for a in range(K):
            half[a] += row[a] * columns[i, a]
            estimate[a] += c * columns[i, a]
    best, best_score, best_width = 0, -math.inf, 0.0
    for a in range(K):
        width = radius * math.sqrt(max(0.0, 2.0 * half[a]))
        score = estimate[a] + width
        if score > best_score:
            best, best_score, best_width = a, score, width
    return best, best_score, estimate[best], best_width
