"""Facts computed from a learner to be shown: how sure it is, what it has played, its digest."""

from collections import Counter
from hashlib import sha256

import numpy as np

from belated.core.events import Certificate
from belated.core.generic import Generic
from belated.core.sparse import SparseRows, dense
from belated.core.types import Matrix, Vector
from belated.learner import files
from belated.learner.learner import Learner
from belated.learner.rows import rows_between
from belated.model.state import ERROR, PASSES, ROWS, SLACK


def width(learner: Learner, which: Generic[float]) -> float:
    """Returns ``sqrt_beta`` or ``radius``; raises where the policy has no confidence set."""
    if type(learner.policy) not in which.cases:
        raise TypeError(
            f"policy = {learner.policy!r} has no confidence set: expected one that has, such as "
            "DelayedOFUGLM(), for sqrt_beta and radius"
        )
    return float(which(learner.policy, learner.state))


def certificate(learner: Learner) -> Certificate:
    """Returns how close the estimate is to the exact one."""
    scalars, counts = learner.state.scalars, learner.state.counts
    return Certificate(
        float(scalars[ERROR]), float(scalars[SLACK]), int(counts[PASSES]), int(counts[ROWS])
    )


def fingerprint(learner: Learner) -> str:
    """Returns a digest of the whole state and history."""
    digest = sha256()
    for name, array in files.flatten(learner.state, learner.history).items():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def played(learner: Learner, matrix: Matrix) -> list[tuple[int, int]]:
    """Returns how many decisions played each row of ``matrix``, and how many have a reward."""
    n = learner.n_decided
    rows = _as_keys(played_rows(learner))
    returned = ~np.isnan(learner.history.y[:n])
    decisions = Counter(rows)
    rewards = Counter(row for row, came in zip(rows, returned, strict=True) if came)
    return [(decisions[key], rewards[key]) for key in _as_keys(matrix)]


def design(learner: Learner, weights: Vector) -> Matrix:
    """Returns ``lam I + sum of weight x x'``; lam is 0 where the policy has none."""
    x, lam = played_rows(learner), getattr(learner.policy, "lam", 0.0)
    return np.asarray(lam * np.eye(learner.dim) + (x.T * weights) @ x)


def returned_design(learner: Learner) -> Matrix:
    """Returns ``lam I + sum of weight x x'`` over the decisions whose reward has returned."""
    if not learner.is_sparse:
        return learner.state.W.copy()
    n, weight = learner.n_decided, learner.history.weight
    returned = (~np.isnan(learner.history.y[:n])).astype(np.float64)
    return design(learner, returned * weight[:n] if len(weight) else returned)


def played_rows(learner: Learner) -> Matrix:
    """Returns the vectors of all decisions, one row each."""
    rows = rows_between(learner.history, 0, learner.n_decided)
    return dense(rows, learner.dim) if isinstance(rows, SparseRows) else rows


def _as_keys(matrix: Matrix) -> list[bytes]:
    """Returns the bytes of each row; adding zero makes 0.0 and -0.0 the same."""
    width = matrix.shape[1] * matrix.itemsize
    return [row.tobytes() for row in (matrix + 0.0).view(f"V{width}").ravel()]
