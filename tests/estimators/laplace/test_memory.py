"""The default keeps one d x d matrix, and 24 bytes at most for each nonzero number it was given."""

import tracemalloc

import numpy as np

from belated import Bernoulli
from belated.core.sparse import SparseRows
from belated.estimators.laplace.renewing import renew
from belated.learner.learner import Learner
from belated.model.state import OBSERVED
from belated.numerics import symmetric
from belated.policies import AdaptiveThompson

ENTRIES = 10  # of a row


def learner_of(dim):
    groups = {"x": dim - 1, "intercept": 1}
    return Learner(dim, Bernoulli(), AdaptiveThompson(), 1.0, groups)


def decide(learner, rng, n):
    """Takes in so many decisions, without rewards."""
    columns = rng.integers(learner.dim - 1, size=(n, ENTRIES), dtype=np.int32)
    none = np.zeros(n, np.int64)
    rows = SparseRows(columns, np.ones((n, ENTRIES)))
    learner.fold(none, rows, np.arange(n), np.zeros(n), none)


def bytes_of(part):
    if isinstance(part, np.ndarray):
        return part.nbytes
    return sum(map(bytes_of, part)) if isinstance(part, tuple) else 0


def test_state_and_history_of_a_thousand_features():
    learner, rng = learner_of(1_000), np.random.default_rng(0)
    for _ in range(80):
        decide(learner, rng, 50)
    assert 8 * 1_000**2 <= bytes_of(learner.state) <= 1.1 * 8 * 1_000**2
    assert bytes_of(learner.history) <= 24 * 4_000 * ENTRIES


def test_a_renewal_makes_no_second_matrix(monkeypatch):
    """It makes two bands of as many rows as ``invert`` has pivots.

    Arrays are traced in plain Python, where the same ones are made as in compiled code.
    """
    monkeypatch.setattr(symmetric, "PIVOTS", 4)
    dim, rng = 50, np.random.default_rng(0)
    learner = learner_of(dim)
    decide(learner, rng, dim)
    learner.history.y[:dim] = 0.0
    learner.state.counts[OBSERVED] = dim
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        renew(learner.estimator, learner.family, learner.state, learner.history)
        most = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert most < 0.5 * 8 * dim**2
