"""The probability that each of several jointly normal scores is the highest.

Scores are ``mean + root z`` with z standard normal. They are computed at 2,048 fixed points z, and
the points at which an action wins are counted. The points are a lattice (Korobov 1959) and its
mirror image, so that ``root z`` is computed once for z and -z: coordinate j of point k is the
normal quantile at ``(i + 1/2) / 1024`` with ``i = start_j + k a^j`` modulo 1024. The generator a
was found by a search. From the 65th coordinate on the order of the quantiles is random instead. The
first coordinates serve the actions with the highest means.

What is promised of a probability is a standard error below 0.01. In twenty shops it was a third of
that, and the largest error of 2,000 probabilities was 0.0133 (docs/default.md, which is printed);
of plain draws, as many, the standard error is 0.0110 for a probability of one half.
"""

import math
from functools import cache
from typing import Any

import numpy as np
from numba.extending import overload

from belated.core.jit import ROUGH, allocating_kernel, as_part, kernel, rough_kernel
from belated.core.types import Coarse, Integers, Matrix, Vector
from belated.numerics.lowered.products import dot
from belated.numerics.special import normal_quantile

POINTS = 2048
PAIRS = POINTS // 2  # of a point z and its mirror image -z
GENERATOR = 777
LATTICE = 64  # coordinates
BLOCK = 256  # points whose scores are in the fastest memory at once
FOUR = 4  # coordinates that are added at once
HOPELESS = 6.0  # standard deviations: a normal number lies beyond with probability 1e-9
ALIKE = 1e-12  # share of a variance that is taken for rounding


def normal_points(dim: int) -> Coarse:
    """Returns one point of each pair in blocks, (blocks, D, BLOCK), D at least ``dim``."""
    return _points(max(LATTICE, 1 << (dim - 1).bit_length()))


@cache
def _points(dim: int) -> Coarse:
    normal = np.array([normal_quantile((i + 0.5) / PAIRS) for i in range(PAIRS)], np.float32)
    numbers, points = np.arange(PAIRS), np.empty((dim, PAIRS), np.float32)
    for j in range(dim):
        rng = np.random.default_rng([1, j])
        if j < LATTICE:
            start, step = int(rng.integers(PAIRS)), pow(GENERATOR, j, PAIRS)
            points[j] = normal[(start + step * numbers) % PAIRS]
        else:
            points[j] = rng.permutation(normal)
    return np.ascontiguousarray(points.reshape(dim, -1, BLOCK).swapaxes(0, 1))


@kernel
def highest_draw(mean: Vector, root: Matrix, r: int, z: Vector) -> tuple[int, float]:
    """Returns the highest of the scores ``mean + root z`` and its row, the lowest of a tie."""
    best, highest = 0, -math.inf
    for a in range(mean.shape[0]):
        score = mean[a] + dot(root[a, :r], z)
        if score > highest:
            best, highest = a, score
    return best, highest


@allocating_kernel
def fill_chances(mean: Vector, root: Matrix, r: int, points: Coarse, out: Vector) -> None:
    """Fills in the share of points at which each of the scores ``mean + root z`` is the highest.

    ``root`` is (K, r), or has further columns that do not count. A tie goes to the lowest row. The
    actions that get zero without a look at the points beat the one with the highest mean with
    probabilities that together are below that of one point.
    """
    K = mean.shape[0]
    rows, behind = np.empty(K, np.int64), np.empty(K)
    for a in range(K):
        out[a] = 0.0
    n = _in_the_race(mean, root, r, rows, behind)
    if n == 1:
        out[rows[0]] = 1.0
        return
    apart, widest = np.empty((n, r)), 0.0
    for k in range(n):
        for j in range(r):
            apart[k, j] = root[rows[k], j] - root[rows[0], j]
        widest = max(widest, math.sqrt(dot(apart[k], apart[k])))
    lower, rank = apart, r
    if n <= r:
        lower = np.zeros((n, n))
        rank = _lower_root(apart, np.empty(n, np.int64), lower)
    unit = 1.0 / widest if widest > 0.0 else 1.0  # single precision does not hold every size
    level, coarse = np.empty(n, np.float32), np.zeros((n, rank + -rank % FOUR), np.float32)
    for k in range(n):
        level[k] = (mean[rows[k]] - mean[rows[0]]) * unit
        for j in range(rank):
            coarse[k, j] = lower[k, j] * unit
    counts, scores = np.zeros(n, np.int64), np.empty((5, BLOCK), np.float32)
    count_best(level, coarse, points, scores, np.empty((4, BLOCK), np.int32), counts)
    for k in range(n):
        out[rows[k]] = counts[k] / POINTS


@kernel
def _in_the_race(mean: Vector, root: Matrix, r: int, rows: Integers, behind: Vector) -> int:
    """Fills in the actions that can win, the likeliest to beat the best first; returns how many.

    ``behind`` becomes the distance of each to the highest mean, in standard deviations of the
    difference. As many are left out at the end as beat the best together with a probability below
    that of one point. An action with the same score as an earlier one never wins.
    """
    best, n = 0, 0
    for a in range(mean.shape[0]):
        best = a if mean[a] > mean[best] else best
    for a in range(mean.shape[0]):
        gap, square = mean[best] - mean[a], 0.0
        for j in range(r):
            square += (root[a, j] - root[best, j]) ** 2
        if gap > HOPELESS * math.sqrt(square):
            continue
        far = gap / math.sqrt(square) if gap > 0.0 else 0.0
        if not _is_there(mean, root, r, a, far, rows, behind, n):
            k = n
            while k > 0 and behind[k - 1] > far:
                rows[k], behind[k] = rows[k - 1], behind[k - 1]
                k -= 1
            rows[k], behind[k] = a, far
            n += 1
    missed = 0.0
    while n > 1:
        missed += 0.5 * math.erfc(behind[n - 1] / math.sqrt(2.0))
        if missed > 1.0 / POINTS:
            break
        n -= 1
    return n


@kernel
def _is_there(
    mean: Vector,
    root: Matrix,
    r: int,
    a: int,
    far: float,
    rows: Integers,
    behind: Vector,
    n: int,
) -> bool:
    """Returns whether one of the first ``n`` rows is as row ``a``, which is as ``far`` behind."""
    for k in range(n - 1, -1, -1):
        if behind[k] < far:
            return False
        if behind[k] == far and mean[rows[k]] == mean[a]:
            alike = True
            for j in range(r):
                if root[rows[k], j] != root[a, j]:
                    alike = False
                    break
            if alike:
                return True
    return False


@kernel
def _lower_root(x: Matrix, pivots: Integers, lower: Matrix) -> int:
    """``lower lower' = x x'``, in as few columns as the rank of ``x``, which it returns.

    A row that depends on those before it begins no column; ``pivots`` becomes the rows that do. So
    where the first row is zero, row k has at most k entries. ``lower`` is zeros to begin with.
    """
    rank = 0
    for k in range(x.shape[0]):
        row = lower[k]
        for j in range(rank):
            p = pivots[j]
            row[j] = (dot(x[k], x[p]) - dot(row[:j], lower[p])) / lower[p, j]
        square = dot(x[k], x[k])
        rest = square - dot(row[:rank], row)
        if rest > ALIKE * square and rank < lower.shape[1]:
            row[rank] = math.sqrt(rest)
            pivots[rank] = k
            rank += 1
    return rank


def count_best(
    level: Coarse,
    root: Coarse,
    points: Coarse,
    scores: Coarse,
    winners: Integers,
    counts: Integers,
) -> None:
    """Counts the points z and -z at which each of the scores ``level + root z`` is the highest.

    ``root`` has a whole number of FOURs of columns; zeros at the end of a row cost nothing.
    ``scores`` (5, BLOCK) and ``winners`` (4, BLOCK) are scratch.
    """
    moves = root @ points[:, : root.shape[1]]
    for side in (level[:, np.newaxis] + moves, level[:, np.newaxis] - moves):
        counts += np.bincount(side.argmax(1).ravel(), minlength=len(counts))


@rough_kernel
def _keep_higher(
    action: Any,  # an int32, and two numbers in single precision
    level: Any,
    sign: Any,
    move: Coarse,
    best: Coarse,
    winner: Integers,
    new_best: Coarse,
    new_winner: Integers,
) -> None:
    """Fills in the higher of ``best`` and the scores ``level + sign move``, and whose it is.

    Each result has an array of its own. In place, the compiler would write only where the score is
    higher, and that takes several times as long.
    """
    for k in range(move.shape[0]):
        score, held, holder = level + sign * move[k], best[k], winner[k]
        new_best[k] = score if score > held else held
        new_winner[k] = action if score > held else holder


@overload(count_best, strict=False, jit_options=as_part(ROUGH))  # type: ignore[untyped-decorator]
def _compiled_count_best(*arguments: Any) -> Any:
    def count_best(
        level: Coarse,
        root: Coarse,
        points: Coarse,
        scores: Coarse,
        winners: Integers,
        counts: Integers,
    ) -> None:
        K, r = root.shape
        move, old, new = scores[4], 0, 1
        for block in range(points.shape[0]):
            z = points[block]
            for k in range(move.shape[0]):
                scores[0, k] = scores[2, k] = np.float32(-np.inf)
                winners[0, k] = winners[2, k] = 0
            for a in range(K):
                row, width = root[a], r
                while width > 0 and row[width - 1] == 0.0:
                    width -= 1
                for k in range(move.shape[0]):
                    move[k] = np.float32(0.0)
                for j in range(0, width, FOUR):
                    z0, z1, z2, z3 = z[j], z[j + 1], z[j + 2], z[j + 3]
                    c0, c1, c2, c3 = row[j], row[j + 1], row[j + 2], row[j + 3]
                    for k in range(move.shape[0]):
                        move[k] += c0 * z0[k] + c1 * z1[k] + c2 * z2[k] + c3 * z3[k]
                old, new = a % 2, 1 - a % 2
                for at, sign in ((0, np.float32(1.0)), (2, np.float32(-1.0))):  # z, and -z
                    _keep_higher(
                        *(np.int32(a), level[a], sign, move, scores[at + old], winners[at + old]),
                        *(scores[at + new], winners[at + new]),
                    )
            for k in range(move.shape[0]):
                counts[winners[new, k]] += 1
                counts[winners[2 + new, k]] += 1

    return count_best
