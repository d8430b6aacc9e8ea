"""Explanations: the numbers and the rule by which an action was chosen."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from belated import Bernoulli, Gaussian
from belated.learner.action_intervals import score_deviations
from belated.learner.learner import Learner
from belated.model.intervals import Z, posterior_widths
from belated.policies import AdaptiveThompson, LinTS
from support.service_client import Client

ACTIONS = {"a": [1.0, 0.0], "b": [0.0, 1.0]}


def asked(client, **body):
    """A decision, and its explanation."""
    decision = client.decide(**body)
    story = client("GET", f"/v1/decisions/{decision['decision_id']}", explain=True)
    return decision, story["explanation"]


def played(**settings):
    """A bandit of two actions that do not share a feature, after some rewards."""
    client = Client()
    client.bandit(**settings)
    client("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS})
    for reward in [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]:
        client.reward((client.decide()["decision_id"], reward))
    return client


@pytest.mark.parametrize("policy", [None, "thompson"])
def test_deviations_explain_the_probability_of_what_was_played(policy):
    client = played(policy=policy)
    decision, known = asked(client)
    a, b = known["actions"]
    # The scores are independent: the higher mean wins with the probability of a normal law.
    z = (a["estimate"] - b["estimate"]) / math.hypot(a["sd"], b["sd"])
    chance = NormalDist().cdf(z)
    expected = chance if decision["action"] == "a" else 1.0 - chance
    assert decision["propensity"] == pytest.approx(expected, abs=0.02)
    assert a["bonus"] is None
    assert "drew a score for each action" in known["rule"]


def test_deviations_are_those_of_the_posterior():
    policy, rng = AdaptiveThompson(), np.random.default_rng(3)
    learner = Learner(3, Bernoulli(), policy, 1.0)
    X = rng.uniform(-0.5, 0.5, (5, 3))
    for _ in range(30):
        decision = learner.decide(X, rng)
        learner.learn({decision.id - 1: float(rng.random() < 0.3)})
    by_posterior = posterior_widths(learner.policy, learner.family, learner.state, X) / Z
    before = learner.state.theta.copy()
    assert score_deviations(learner, X) == pytest.approx(policy.scale * by_posterior, rel=1e-9)
    assert np.array_equal(learner.state.theta, before)


def test_more_features_than_actions_and_fewer():
    rng = np.random.default_rng(4)
    for policy in (AdaptiveThompson(), LinTS()):
        learner = Learner(4, Gaussian(sd=1.0), policy, 1.0)
        X = rng.uniform(-0.5, 0.5, (6, 4))
        wide = score_deviations(learner, X)
        assert wide is not None
        assert score_deviations(learner, X[:2]) == pytest.approx(wide[:2])


@pytest.mark.parametrize(
    ("settings", "rule", "has_bonus"),
    [
        ({}, "it is optimistic, and bonus says", True),
        ({"exploration": 0.1}, "drawn uniformly with probability 0.1; otherwise the policy", True),
        ({"holdout": 0.9999}, "held out: the baseline was played", True),
        ({"policy": "inverse-gap"}, "gave each action a probability", False),
        ({"policy": "evill"}, "closed form", False),
        ({"loop": "conversion", "window": 60}, "nothing was learnt yet", True),
    ],
)
def test_the_rule_in_words(settings, rule, has_bonus):
    client = Client()
    client.bandit(**settings)
    client("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS})
    _, known = asked(client)
    assert rule in known["rule"]
    for view in known["actions"]:
        assert view["sd"] is None
        assert (view["bonus"] is not None) is has_bonus


def test_the_callers_choice():
    client = Client()
    client.bandit(mode="shadow")
    client("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS})
    decision, known = asked(client, played="b", propensity=1.0)
    assert known["rule"] == (
        f"the caller chose; the bandit, in shadow mode, would have played {decision['proposal']!r}"
    )
