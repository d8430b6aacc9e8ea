"""The propensity of every decision is a number, whichever policy plays and whoever asks."""

import math

import pytest

from belated import Bandit, Features, registry
from belated.learner import weighing
from belated.learner.weighing import weighs_cheaply
from belated.model.plain_policy import is_own
from belated.model.protocols import draw_parameter, feedback_of, refusal
from support.service_client import Client

ADS = ["a", "b", "c"]
RANK = "/personalizer/v1.0/rank"
REWARDS = [1.0, 0.0, 1.0]


def policies():
    """Every policy of the registry that a ``Bandit`` plays, as text, and a family it accepts."""
    for name in registry.POLICIES:
        kind = registry.load(registry.POLICIES, name)
        if not is_own(kind):
            given = [
                f"{field}={v}" for field, v in registry.EXAMPLES.items() if field in kind._fields
            ]
            family = "bernoulli"
            policy = registry.example_policy(kind, registry.parsed(registry.FAMILIES, family, ""))
            if refusal(policy, registry.parsed(registry.FAMILIES, family, "")):
                family = "gaussian:sd=1"
            yield f"{name}:{','.join(given)}" if given else name, family


def is_kept(text):
    """Whether a ledger accepts the policy."""
    policy = registry.parsed(registry.POLICIES, text, "policy")
    return type(policy) not in draw_parameter.cases and feedback_of(policy) in ("identified", "any")


ALL = list(policies())
KEPT = [(text, family) for text, family in ALL if is_kept(text)]


@pytest.fixture(autouse=True)
def _few_repeats(monkeypatch):
    monkeypatch.setattr(weighing, "REPEATS", 40)


def made(text, family, **settings):
    return Bandit(
        family=registry.parsed(registry.FAMILIES, family, "family"),
        policy=registry.parsed(registry.POLICIES, text, "policy"),
        features=Features(categorical=["id"]).fit([{"id": ad} for ad in ADS]),
        seed=1,
        **settings,
    )


def propensities_of(bandit, **options):
    found = []
    for reward in REWARDS:
        decision = bandit.decide([{"id": ad} for ad in ADS], **options)
        bandit.learn(decision.id, reward)
        found.append(decision.propensity)
    return found


@pytest.mark.parametrize(("text", "family"), ALL)
def test_in_memory(text, family):
    bandit = made(text, family)
    assert all(0.0 < p <= 1.0 for p in propensities_of(bandit))
    assert all(0.0 < p <= 1.0 for p in propensities_of(bandit, probabilities=True))
    if not weighs_cheaply(bandit.policy):  # 2,600 decisions to count it can be spared
        assert all(map(math.isnan, propensities_of(bandit, probabilities=False)))


@pytest.mark.parametrize(("text", "family"), KEPT)
def test_with_a_ledger(text, family):
    bandit = made(text, family, ledger="memory://")
    assert all(0.0 < p <= 1.0 for p in propensities_of(bandit))


@pytest.mark.parametrize(("text", "family"), KEPT)
def test_over_http_and_by_personalizer_calls(text, family):
    client = Client(personalizer="shop")
    features = {"categorical": {"id": ADS}}
    client.bandit(family=family, policy=text, dim=None, features=features)
    client("PATCH", "/v1/bandits/shop/actions", {"put": {ad: {"id": ad} for ad in ADS}})
    for reward in REWARDS:
        decision = client.decide()
        story = client("GET", f"/v1/decisions/{decision['decision_id']}")
        assert 0.0 < decision["propensity"] == story["propensity"] <= 1.0
        client.reward((decision["decision_id"], reward))
        ranked = client("POST", RANK, {"actions": [{"id": ad} for ad in ADS]}, 201)
        chances = {action["id"]: action["probability"] for action in ranked["ranking"]}
        assert 0.0 < chances[ranked["rewardActionId"]] <= 1.0
        assert sum(chances.values()) == pytest.approx(1.0)


def test_only_these_policies_are_asked_many_times():
    """Those that ``Decision.propensity`` and the page of the service name."""
    dear = {
        text.split(":")[0] for text, family in ALL if not weighs_cheaply(made(text, family).policy)
    }
    assert dear == {"evill", "glm-fpl", "polya-gamma"}
