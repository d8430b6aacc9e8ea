"""Inverse gap weighting on sparse rows: what it knows is what the default knows."""

import numpy as np
import pytest

from belated import Bandit, Bernoulli, Features
from belated.core.sparse import SparseRows
from belated.learner.learner import Learner
from belated.model.protocols import choose, probabilities
from belated.numerics.entries import sparse
from belated.numerics.pruning import decision_set
from belated.numerics.row_draws import drawn_row
from belated.policies import AdaptiveThompson, InverseGap

GROUPS = {"ad": 4, "place": 3, "intercept": 1}


def actions(rng, K=5):
    X = np.zeros((K, 8))
    X[np.arange(K), rng.integers(4, size=K)] = 1.0
    X[np.arange(K), 4 + rng.integers(3, size=K)] = rng.normal(size=K)
    X[:, -1] = 1.0
    return X


def learnt(policy, n=60, **settings):
    """Returns a learner that was told what to play: the same for every policy."""
    rng = np.random.default_rng(0)
    learner = Learner(8, Bernoulli(), policy, 1.0, GROUPS, **settings)
    for t in range(n):
        learner.decide(actions(rng, 1), np.random.default_rng(0))
        learner.learn({t: float(rng.random() < 0.3)})
    return learner


def test_the_estimate_is_that_of_the_default():
    """With a prior for each group, learnt from the same rewards."""
    ours, default = learnt(InverseGap()), learnt(AdaptiveThompson())
    assert np.array_equal(ours.state.theta, default.state.theta)
    assert np.array_equal(ours.state.fit.precision, default.state.fit.precision)
    assert len(set(ours.state.fit.precision)) == 3


def test_sparse_and_dense_rows_have_the_same_probabilities():
    learner, X = learnt(InverseGap()), actions(np.random.default_rng(2))
    one, other = np.empty(5), np.empty(5)
    probabilities(learner.policy, learner.state, sparse(X), one)
    probabilities(learner.policy, learner.state, decision_set(X), other)
    assert one == pytest.approx(other, rel=1e-12)
    rng = np.random.default_rng(3)
    now, options = (learner.policy, learner.state), decision_set(X)
    rows = [choose(*now, options, rng)[0] for _ in range(2_000)]
    assert np.bincount(rows, minlength=5) / 2_000 == pytest.approx(one, abs=0.05)


def test_a_stored_law_draws_what_is_drawn_without_it():
    learner, options = learnt(InverseGap()), sparse(actions(np.random.default_rng(2)))
    law, one, other = learner.law_of(options), np.random.default_rng(4), np.random.default_rng(4)
    for _ in range(20):
        assert law.draw(one) == learner.choose_from(options, other)
    choice = law.draw(one)
    estimate = actions(np.random.default_rng(2))[choice.index] @ learner.state.theta
    assert choice.score == choice.estimate == pytest.approx(estimate)


def test_wide_rows_are_never_dense():
    features = Features(hashed={"user": 2000}).fit([{"user": "a"}])
    bandit = Bandit(family=Bernoulli(), features=features, policy="inverse-gap", seed=0)
    users = [{"user": "a"}, {"user": "b"}]
    bandit.learn(bandit.decide(users).id, 1.0)
    assert bandit._learner.history.starts[1] == 2
    assert bandit._learner.state.W.shape == (0, 0)
    made = SparseRows(np.array([[1], [2]], np.int32), np.ones((2, 1)))
    assert bandit._learner.choose(made, np.random.default_rng(0)).propensity > 0.0


def test_features_wider_than_a_covariance_are_refused():
    with pytest.raises(ValueError, match="dim = 5000: expected at most 4096 features; hash"):
        Bandit(5000, family=Bernoulli(), policy="inverse-gap")


def test_open_decisions_that_say_something_count_as_rewards():
    learner = learnt(InverseGap(gamma_scale=1.0, exponent=1.0), n=10, hears=True)
    X, rng = actions(np.random.default_rng(2)), np.random.default_rng(1)
    for _ in range(30):
        learner.decide(X, rng)
    learner.hear(np.arange(10, 40), np.full(30, 0.9))
    mu = 1.0 / (1.0 + np.exp(-X @ learner.state.theta))
    p = 1.0 / (5 + 40.0 * (mu.max() - mu))
    p[mu.argmax()] += 1.0 - p.sum()
    assert learner.choose(X, rng).probabilities == pytest.approx(p, rel=1e-9)


def test_a_saved_bandit_goes_on_alike(tmp_path):
    bandit = Bandit(8, family=Bernoulli(), policy="inverse-gap", groups=GROUPS, seed=1)
    rng = np.random.default_rng(5)
    for _ in range(30):
        bandit.learn(bandit.decide(actions(rng)).id, float(rng.random() < 0.3))
    bandit.save(tmp_path / "bandit.npz")
    again = Bandit.load(tmp_path / "bandit.npz", seed=2)
    X = actions(rng)
    assert again.fingerprint() == bandit.fingerprint()
    assert np.array_equal(again.probabilities(X), bandit.probabilities(X))


def test_a_row_that_is_never_played_is_not_drawn():
    """Not even where rounding leaves the sum of all shares below the number drawn."""
    below_one = np.nextafter(1.0, 0.0)
    assert drawn_row(np.array([0.0, 0.3, 0.7 - 1e-12, 0.0]), below_one) == 2
    assert drawn_row(np.array([0.0, 0.3, 0.7, 0.0]), 0.0) == 1


@pytest.mark.compiled
def test_what_was_warmed_up_needs_no_compiler():
    learner = Learner(8, Bernoulli(), InverseGap(), 1.0, GROUPS, hears=True)
    learner.warm_up()
    assert learner.is_compiled
