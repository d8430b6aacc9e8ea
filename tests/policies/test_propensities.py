"""The probability with which every policy says it plays, against how often it does."""

import math

import numpy as np
import pytest

from belated import Bandit, Bernoulli, Features, Gaussian, registry
from belated.core.sparse import count_rows
from belated.learner import weighing
from belated.model.plain_policy import is_own
from belated.model.protocols import draw_parameter, refusal
from belated.model.steps import count_choices
from belated.policies import InverseGap, Thompson

STATED = 0.015  # largest error of probabilities that are counted at fixed points; see the docstring


def randomised():
    for name in registry.POLICIES:
        kind = registry.load(registry.POLICIES, name)
        if not is_own(kind) and getattr(kind, "randomised", True):
            yield name


def learnt(policy, family, K=5, d=3, rounds=40, seed=3):
    """Returns a bandit after some rewards, and a decision set."""
    rng = np.random.default_rng(seed)
    bandit = Bandit(d, family=family, policy=policy, seed=1)
    X = rng.standard_normal((rounds + 1, K, d))
    X /= np.linalg.norm(X, axis=2, keepdims=True)
    for actions in X[1:]:
        decision = bandit.decide(actions, probabilities=False)
        if rng.random() < 0.7:
            bandit.learn(decision.id, float(rng.random() < 0.5))
    return bandit, X[0]


def frequencies(bandit, actions, replays):
    learner, rng = bandit._learner, np.random.default_rng(2)
    options, counts = learner.options(actions), np.zeros(count_rows(actions))
    before = bandit._state.memory
    saved = [part.copy() for part in before]
    for _ in range(replays):
        for part, value in zip(before, saved, strict=True):  # a chain begins where it stood
            part[...] = value
        counts[learner.choose_from(options, rng).index] += 1
    for part, value in zip(before, saved, strict=True):
        part[...] = value
    return counts / replays


def frequencies_in_a_million(bandit, actions):
    """The same by the kernel that chooses, without the way through Python and the propensities."""
    learner, counts = bandit._learner, np.zeros(count_rows(actions))
    assert type(learner.policy) not in draw_parameter.cases  # it would go on from draw to draw
    options, rng = learner.options(actions), np.random.default_rng(2)
    count_choices(*learner._now(), options, rng, 1_000_000, counts)
    return counts / 1_000_000


def check_frequencies(name, rounds, replays):
    """Raises where a policy plays an action more or less often than it says."""
    kind = registry.load(registry.POLICIES, name)
    family = Bernoulli()
    if refusal(registry.example_policy(kind, family), family):
        family = Gaussian()
    bandit, actions = learnt(registry.example_policy(kind, family), family, rounds=rounds)
    shares = frequencies(bandit, actions, replays)
    decision = bandit.decide(actions, probabilities=True)
    said = decision.probabilities
    assert said.sum() == pytest.approx(1.0)
    assert decision.propensity == said[decision.index] > 0.0
    stated = 5.0 * np.sqrt(said * (1 - said) / weighing.REPEATS) + STATED
    if weighing.weighs_cheaply(bandit.policy):
        stated = STATED
    assert (abs(shares - said) <= 5.0 * np.sqrt(said * (1 - said) / replays) + stated).all()


@pytest.mark.parametrize("rounds", [0, 40])
@pytest.mark.parametrize("name", list(randomised()))
def test_probabilities_are_frequencies(name, rounds, monkeypatch):
    monkeypatch.setattr(weighing, "REPEATS", 500)  # few, in plain Python
    check_frequencies(name, rounds, 200 if name == "polya-gamma" else 1_000)


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("name", list(randomised()))
def test_probabilities_are_frequencies_of_many_replays(name):
    replays = 1_000 if name == "polya-gamma" else 20_000  # it sweeps all data for each
    check_frequencies(name, 40, replays)


def test_a_probability_that_is_counted_has_a_standard_error_below_a_hundredth():
    assert math.sqrt(0.25 / weighing.REPEATS) < 0.01


@pytest.mark.slow
@pytest.mark.compiled
def test_a_million_replays():
    bandit, actions = learnt(Thompson(), Bernoulli(), K=20, d=20, rounds=200)
    said = bandit._learner.choose(actions, np.random.default_rng(0), weighed=True).probabilities
    assert said == pytest.approx(frequencies_in_a_million(bandit, actions), abs=0.0133)


@pytest.mark.slow
@pytest.mark.compiled
def test_a_million_replays_of_inverse_gap_weighting():
    """Its probabilities are exact: only chance separates them from the frequencies."""
    bandit, actions = learnt(InverseGap(), Bernoulli(), K=20, d=20, rounds=200)
    said = bandit._learner.choose(actions, np.random.default_rng(0), weighed=True).probabilities
    shares, error = (
        frequencies_in_a_million(bandit, actions),
        np.sqrt(said * (1 - said) / 1_000_000),
    )
    assert (abs(shares - said) <= 5.0 * error).all()


@pytest.mark.slow
@pytest.mark.compiled
def test_a_million_replays_of_the_default():
    """The frequencies are within the largest error that the docstring of the points states."""
    features = Features(categorical=["banner", "device"], interactions=[("banner", "device")])
    rows = [{"banner": k, "device": "pt"[k % 2]} for k in range(20)]
    bandit = Bandit(family=Bernoulli(), features=features.fit(rows), seed=1)
    rng, banners = np.random.default_rng(3), [{"banner": k} for k in range(20)]
    for t in range(2_000):
        decision = bandit.decide(banners, {"device": "pt"[t % 2]})
        bandit.learn(decision.id, float(rng.random() < 0.02 + 0.002 * decision.index))
    actions = bandit.features.sparse_rows(banners, {"device": "p"})
    said = bandit._learner.choose(actions, np.random.default_rng(0)).probabilities
    assert said == pytest.approx(frequencies_in_a_million(bandit, actions), abs=0.0133)


@pytest.mark.parametrize("d", [3, 30])
def test_of_actions_with_the_same_vector_the_default_plays_the_first(d):
    """As it says, whether scores are drawn by columns or, being fewer than these, by actions."""
    rng = np.random.default_rng(5)
    bandit = Bandit(d, family=Bernoulli(), seed=1)
    X = rng.standard_normal((5, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    for _ in range(60):
        bandit.learn(bandit.decide(X).id, float(rng.random() < 0.5))
    actions = X[[0, 3, 1, 3, 4, 0, 3]]
    said = bandit.decide(actions, probabilities=True).probabilities
    law, draws = bandit._learner.law_of(bandit._learner.options(actions)), np.random.default_rng(2)
    shares = np.bincount([law.draw(draws).index for _ in range(2_000)], minlength=7) / 2_000
    assert not said[[3, 5, 6]].any()
    assert not shares[[3, 5, 6]].any()
    assert said[1] > 0.05
    assert shares == pytest.approx(said, abs=0.05)


def test_a_decision_without_a_request_has_its_propensity_alone():
    bandit, actions = learnt(Thompson(), Bernoulli())
    decision = bandit.decide(actions)
    assert 0.0 < decision.propensity <= 1.0
    assert decision.probabilities is None


@pytest.mark.parametrize("policy", ["evill", "glm-fpl", "polya-gamma"])
def test_what_costs_thousands_of_decisions_is_left_out_on_request(policy, monkeypatch):
    monkeypatch.setattr(weighing, "REPEATS", 50)  # few, in plain Python

    def made(**asked):
        bandit, actions = learnt(policy, Bernoulli(), rounds=10)
        many = bandit.decide_many([actions, actions[:3]], **asked)
        return [bandit.decide(actions, **asked), *many, *bandit.decide_top(actions, top=5, **asked)]

    counted, usual, plain = made(probabilities=True), made(), made(probabilities=False)
    for others in (usual, plain):
        assert [decision.index for decision in counted] == [decision.index for decision in others]
        assert all(decision.probabilities is None for decision in others)
    assert [decision.propensity for decision in counted] == [d.propensity for d in usual]
    for decision in counted:
        assert decision.probabilities.sum() == pytest.approx(1.0)
        assert decision.propensity == decision.probabilities[decision.index] > 0.0
        assert decision.propensity * 51 == pytest.approx(round(decision.propensity * 51))
    assert counted[-1].propensity == pytest.approx(1.0)  # the only one left
    assert all(math.isnan(decision.propensity) for decision in plain)


def test_a_policy_that_draws_nothing_is_certain():
    bandit, actions = learnt("delayed-ofu-glm", Bernoulli())
    decision = bandit.decide(actions, probabilities=True)
    assert decision.propensity == 1.0
    assert decision.probabilities.tolist() == [
        float(a == decision.index) for a in range(len(actions))
    ]


def test_weighing_does_not_touch_the_stream():
    one, actions = learnt(Thompson(), Bernoulli())
    two, _ = learnt(Thompson(), Bernoulli())
    first = [one.decide(actions, probabilities=True).index for _ in range(20)]
    plain = [two._learner.decide(actions, two._backend.rng).index for _ in range(20)]
    assert first == plain


def test_a_refused_action_is_named():
    bandit, actions = learnt(Thompson(), Bernoulli())
    with pytest.raises(ValueError, match=r"actions\[1\] has norm 200000: expected at most 31622"):
        bandit.decide(np.array([actions[0], 200_000.0 * actions[1]]), probabilities=True)
    with pytest.raises(ValueError, match=r"actions\[0\]"):
        bandit.decide(np.full((2, 3), np.inf))


# ------------------------------------------------------------------------------- inverse gap


def test_inverse_gap_by_its_formula():
    policy = InverseGap(gamma_scale=7.0, exponent=0.4)
    bandit, actions = learnt(policy, Bernoulli())
    mu = 1.0 / (1.0 + np.exp(-actions @ bandit.theta))
    best = int(mu.argmax())
    p = 1.0 / (len(mu) + 7.0 * bandit.n_observed**0.4 * (mu[best] - mu))
    p[best] += 1.0 - p.sum()
    said = bandit.decide(actions, probabilities=True).probabilities
    assert said == pytest.approx(p, rel=1e-12)
    assert p[best] >= 1.0 / len(mu)


def test_inverse_gap_in_its_limits():
    bandit, actions = learnt(InverseGap(gamma_scale=0.0), Bernoulli())
    assert bandit.decide(actions, probabilities=True).probabilities == pytest.approx(0.2)
    bandit, actions = learnt(InverseGap(gamma_scale=1e12), Bernoulli())
    best = int((actions @ bandit.theta).argmax())
    decision = bandit.decide(actions)
    assert (decision.index, decision.propensity) == (best, pytest.approx(1.0))
