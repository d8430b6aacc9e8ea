"""The default policy: what it plays, what it needs, and that it earns."""

import numpy as np
import pytest

from belated import Bandit, Bernoulli, Features
from belated.core.sparse import SparseRows, dense
from belated.learner import rows as learner_rows
from belated.learner.action_intervals import score_deviations
from belated.learner.learner import Learner
from belated.model.protocols import score_law
from belated.numerics.entries import sparse
from belated.policies import AdaptiveThompson, adaptive_thompson

GROUPS = {"ad": 4, "place": 3, "intercept": 1}


def learnt(dim=8, n=40, groups=GROUPS, seed=0):
    rng = np.random.default_rng(seed)
    learner = Learner(dim, Bernoulli(), AdaptiveThompson(), 1.0, groups)
    for t in range(n):
        learner.decide(actions(rng, 3, dim), rng)
        learner.learn({t: float(rng.random() < 0.3)})
    return learner


def actions(rng, K, dim):
    X = np.zeros((K, dim))
    X[np.arange(K), rng.integers(4, size=K)] = 1.0
    X[np.arange(K), 4 + rng.integers(3, size=K)] = rng.normal(size=K)
    X[:, -1] = 1.0
    return X


@pytest.mark.parametrize("K", [1, 5, 20])  # fewer and more actions than columns
def test_scores_have_the_law_of_the_posterior(K):
    learner = learnt()
    X = actions(np.random.default_rng(1), K, 8)
    mean, root = np.empty(K), np.full((K, K), np.nan)
    r = score_law(learner.policy, learner.state, sparse(X), mean, root)
    S = np.triu(learner.state.fit.S) + np.triu(learner.state.fit.S, 1).T
    fit = learner.state.fit
    for t in range(int(fit.scalars[0])):
        S -= fit.scales[t] * np.outer(fit.terms[t], fit.terms[t])
    np.testing.assert_allclose(mean, X @ learner.state.theta, atol=1e-14)
    Y, R = X - X[0], root[:, :r] - root[0, :r]  # scores may all differ by the same number
    np.testing.assert_allclose(R @ R.T / learner.policy.scale**2, Y @ S @ Y.T, atol=1e-12)
    assert not learner.state.fit.place.any()


def test_what_all_actions_share_changes_neither_choice_nor_probabilities():
    """The same entries, once where all rows have them alike and once where they are told apart."""
    learner, X = learnt(), actions(np.random.default_rng(2), 5, 8)
    rows = sparse(X)  # each row: its ad, its place, the constant
    moved = SparseRows(rows.columns.copy(), rows.values.copy())
    moved.columns[0, [0, 2]], moved.values[0, [0, 2]] = rows.columns[0, [2, 0]], 1.0
    (r, one), (q, other) = (law(learner, given) for given in (rows, moved))
    assert r <= q
    np.testing.assert_allclose(one, other, atol=1e-12)


def law(learner, rows):
    K = len(rows.columns)
    mean, root = np.empty(K), np.zeros((K, K))
    r = score_law(learner.policy, learner.state, rows, mean, root)
    R = root[:, :r] - root[0, :r]
    return r, np.vstack([mean, R @ R.T])


def test_a_bandit_needs_no_policy():
    features = Features(categorical=["ad"]).fit([{"ad": "a"}, {"ad": "b"}])
    bandit = Bandit(family=Bernoulli(), features=features, seed=1)
    assert isinstance(bandit.policy, AdaptiveThompson)
    assert bandit._learner.groups == {"ad": 2, "intercept": 1}
    decision = bandit.decide([{"ad": "a"}, {"ad": "b"}])
    assert 0.0 < decision.propensity < 1.0
    rows = bandit._learner.history
    assert sorted(rows.values[:2]) == [1.0, 1.0]  # not scaled by the number of blocks


def test_it_finds_the_better_action_at_rates_as_people_have_them():
    """Two banners at 2 and 6 per cent, rewards 50 decisions late."""
    rng, waiting = np.random.default_rng(0), []
    bandit = Bandit(3, family=Bernoulli(), groups={"banner": 2, "intercept": 1}, seed=2)
    X = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    played = []
    for t in range(1500):
        decision = bandit.decide(X)
        played.append(decision.index)
        waiting.append((decision.id, float(rng.random() < (0.02, 0.06)[decision.index])))
        if t >= 50:
            bandit.learn(*waiting.pop(0))
    assert np.mean(played[-500:]) > 0.75


def test_every_family_has_a_default():
    for family in ("gaussian:sd=none", "gaussian", "bounded", "poisson", "probit", "tanh"):
        bandit = Bandit(2, family=family, seed=0)
        decision = bandit.decide(np.eye(2))
        bandit.learn(decision.id, 0.5 if "o" not in family else 1.0)
        assert np.isfinite(bandit.theta).all(), family


def test_wide_rows_are_never_dense():
    """The history holds entries, not zeros."""
    columns = {"user": 2000}
    features = Features(hashed=columns).fit([{"user": "a"}])
    bandit = Bandit(family=Bernoulli(), features=features, seed=0)
    bandit.decide([{"user": "a"}, {"user": "b"}])
    history = bandit._learner.history
    assert history.starts[1] == 2
    assert dense(bandit._learner.options(np.eye(3, 2001)), 2001).shape == (3, 2001)


def test_thousands_of_actions_of_few_features_need_no_square_of_their_number(monkeypatch):
    shapes, fill = [], adaptive_thompson.fill_posterior_scores

    def noting(state, actions, scale, mean, root):
        shapes.append(root.shape)
        return fill(state, actions, scale, mean, root)

    monkeypatch.setattr(adaptive_thompson, "fill_posterior_scores", noting)
    bandit, rows = Bandit(3, family=Bernoulli(), seed=0), np.eye(500, 3)
    bandit.decide(rows)
    score_deviations(bandit._learner, rows)
    assert shapes == [(500, 3), (500, 3)]


def test_more_actions_than_memory_can_hold_are_refused(monkeypatch):
    monkeypatch.setattr(learner_rows, "WIDEST", 8)
    bandit = Bandit(8, family=Bernoulli(), seed=0)
    said = "actions has 9 rows: expected at most 8 of 8 features; choose from fewer"
    with pytest.raises(ValueError, match=said):
        bandit.decide(np.eye(9, 8))
    assert bandit.n_decided == 0
    assert bandit.decide(np.eye(8)).id == 1
    assert Bandit(4, family=Bernoulli(), seed=0).decide(np.eye(16, 4)).id == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dim": 3, "groups": {"a": 2}}, "groups = {'a': 2}: expected sizes that sum to 3"),
        ({"dim": 3, "groups": {}}, "groups = {}: expected a dict"),
        ({"dim": 3, "groups": {"a": 1, "intercept": 2}}, "groups['intercept'] = 2: expected 1"),
        ({"dim": 5000}, "dim = 5000: expected at most 4096 features; hash a column"),
        (
            {"dim": 5000, "policy": "thompson"},
            "dim = 5000: expected at most 4096 features; hash a column",
        ),
        (
            {"dim": 5000, "policy": "thompson", "ledger": "memory://"},
            "dim = 5000: expected at most 4096 features; hash a column",
        ),
        ({"dim": 0}, "dim = 0: expected a whole number, 1 or more"),
        (
            {"dim": 3, "groups": {"a": 2, "b": 1}, "policy": "thompson"},
            "groups = {'a': 2, 'b': 1}: expected None: Thompson has no prior by groups",
        ),
        (
            {"dim": 2, "policy": "adaptive-thompson:prior_sd=0"},
            "policy = 'adaptive-thompson:prior_sd=0': prior_sd = 0: expected",
        ),
        ({"dim": 2, "policy": "thomson"}, "policy = 'thomson': expected one of adaptive-thompson"),
        (
            {"dim": 2, "policy": "adaptive-thompson:strength=-1"},
            "policy = 'adaptive-thompson:strength=-1': strength = -1: expected",
        ),
    ],
)
def test_bad_settings_are_named(arguments, words):
    with pytest.raises((ValueError, TypeError)) as error:
        Bandit(family=Bernoulli(), **arguments)
    assert str(error.value).startswith(words)


def test_an_action_without_features_of_its_own_is_played_half_the_time():
    """Its score is not drawn: the row of the covariance is zero, and so is the pivot."""
    learner = Learner(3, Bernoulli(), AdaptiveThompson(), 2.0)
    plain, fancy = [1.0, 0.0, 0.0], [1.0, 1.0, 1.0]
    for rows in ([plain, fancy], [fancy, plain]):
        choice = learner.choose(np.array(rows), np.random.default_rng(0))
        assert choice.probabilities == pytest.approx([0.5, 0.5], abs=1e-3)
