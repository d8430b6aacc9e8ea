"""Which action is best, and how sure is that: over HTTP, through the clients, on the dashboard."""

import asyncio
import inspect

import numpy as np
import pytest

from belated.client import AsyncClient
from belated.client import Client as HttpClient
from belated.core.ranking import Ranking
from belated.service.ranking import MOST_RANKED, MOST_SHOWN
from support.running_service import served
from support.service_client import ACTIONS, SECOND, Client

BANNERS = {
    "family": "bernoulli",
    "policy": "thompson",
    "features": {
        "categorical": {"banner": ["summer", "winter"], "device": ["phone", "desk"]},
        "interactions": [["banner", "device"]],
    },
}
BANNER_ACTIONS = {"s": {"banner": "summer"}, "w": {"banner": "winter"}}


@pytest.fixture
def client():
    made = Client()
    made.bandit()
    made("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS})
    return made


def ranking(client, status=200, **body):
    return client("POST", "/v1/bandits/shop/ranking", body, status)


def learn(client, action, rewards, **body):
    for reward in rewards:
        decision = client.decide(eligible=[action], **body)
        if reward is not None:
            client.reward((decision["decision_id"], reward))


def names(answer):
    return [row["name"] for row in answer["actions"]]


def test_the_best_comes_first(client):
    assert ranking(client)["verdict"] == "No action leads: no reward has been learnt yet."
    learn(client, "a", [1.0] * 8 + [None])
    learn(client, "b", [0.0] * 8)
    before = client.service.fold("shop").digest()
    answer = ranking(client)
    assert names(answer) == ["a", "c", "b"]
    assert (answer["kind"], answer["level"]) == ("confidence", 0.95)
    best = answer["actions"][0]
    assert (best["decisions"], best["rewards"], best["index"]) == (9, 8, 0)
    assert 0.0 <= best["low"] < best["mean"] < best["high"] <= 1.0
    assert answer["verdict"] == "a leads, but its interval overlaps with those of all 2 others."
    assert client.service.fold("shop").digest() == before, "nothing was decided"


def test_certainty_comes_with_rewards():
    client = Client()
    client.bandit(policy=None)  # the default
    client("PATCH", "/v1/bandits/shop/actions", {"put": {"a": [1.0, 0.0], "b": [0.0, 1.0]}})
    learn(client, "a", [1.0] * 40)
    learn(client, "b", [0.0] * 40)
    answer = ranking(client)
    assert answer["kind"] == "posterior"
    shown = client("GET", "/v1/dashboard")["bandit"]["best"]
    assert shown["note"] == (
        "Bars are 95 % posterior intervals of the mean reward: of each action by itself and now, "
        "from the model's posterior; nothing is proved of them."
    )
    assert answer["verdict"] == "a is best: its interval lies above that of b."


def test_in_a_context():
    client = Client()
    client.bandit(**BANNERS | {"dim": None})
    client("PATCH", "/v1/bandits/shop/actions", {"put": BANNER_ACTIONS})
    for banner, device in (("s", "phone"), ("s", "desk"), ("w", "phone"), ("w", "desk")):
        reward = float((banner, device) in {("s", "phone"), ("w", "desk")})
        learn(client, banner, [reward] * 6, context={"device": device})
    assert names(ranking(client, context={"device": "phone"}))[0] == "s"
    answer = ranking(client, context={"device": "desk"})
    assert names(answer)[0] == "w"
    assert [row["decisions"] for row in answer["actions"]] == [12, 12], "in whatever context"
    best = client("GET", "/v1/dashboard")["bandit"]["best"]
    assert best["note"].startswith("In the context of a recent decision: device = desk. ")
    assert names(best) == ["w", "s"]


def test_other_actions_than_those_registered(client):
    learn(client, "a", [1.0] * 8)
    assert names(ranking(client, eligible=["b", "c"])) == ["c", "b"]
    rows = [{"id": "a", "features": [0.0, 0.1]}, {"id": "new", "features": [0.7, 0.0]}]
    answer = ranking(client, actions=rows)
    assert [(row["name"], row["decisions"]) for row in answer["actions"]] == [("new", 0), ("a", 8)]
    matrix = ranking(client, matrix=[[0.0, 0.1], [0.7, 0.0]])
    assert [(row["name"], row["decisions"]) for row in matrix["actions"]] == [
        ("1", None),
        ("0", None),
    ]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"eligible": ["nobody"]}, "eligible = 'nobody': expected a registered action"),
        ({"matrix": [[3.0, 0.0]]}, "actions[0] has norm 3: expected at most max_norm = 1"),
        ({"matrix": [[0.1]]}, "actions has shape (1, 1): expected (K, 2)"),
        ({"context": {"device": "phone"}}, "expected None for a bandit without features"),
        ({"request_id": "order-77"}, "request_id"),
    ],
)
def test_what_is_refused_is_named(client, body, said):
    assert said in str(ranking(client, 422, **body))


def test_a_bandit_without_actions_has_no_best():
    client = Client()
    client.bandit()
    assert "has no action to choose from" in ranking(client, 422)["detail"]
    best = client("GET", "/v1/dashboard")["bandit"]["best"]
    assert best["note"] == "There is no ranking: bandit 'shop' has no action to choose from."
    assert best["actions"] == []


def test_the_dashboard_ranks_a_bounded_number(client):
    many = {f"x{k}": [0.001 * k, 0.0] for k in range(MOST_RANKED + 50)}
    client("PATCH", "/v1/bandits/shop/actions", {"put": many})
    learn(client, "x249", [1.0, 1.0])
    learn(client, "x1", [0.0])
    client.now += 2 * SECOND
    best = client("GET", "/v1/dashboard")["bandit"]["best"]
    assert len(best["actions"]) == MOST_SHOWN
    assert best["actions"][0]["name"] in ACTIONS | many
    assert (
        "Of the 200 actions that were played most. The first 12 of 200 are shown." in best["note"]
    )
    assert "95 % confidence intervals of the mean reward: proved" in best["note"]


def test_the_context_shown_stays_for_a_minute_and_goes_with_its_subject():
    client = Client()
    client.bandit(**BANNERS | {"dim": None})
    client("PATCH", "/v1/bandits/shop/actions", {"put": BANNER_ACTIONS})

    def note(after):
        client.now += after * SECOND
        return client("GET", "/v1/dashboard")["bandit"]["best"]["note"]

    client.decide(context={"device": "phone", "secret": "12"}, subject="anna")
    assert note(2).startswith("In the context of a recent decision: device = phone. ")
    client.decide(context={"device": "desk"})
    assert "device = phone" in note(2)
    assert "device = desk" in note(60)
    client.decide(context={"device": "phone"}, subject="anna")
    assert "device = phone" in note(60)
    client("DELETE", "/v1/bandits/shop/subjects/anna")
    assert "phone" not in note(2)


def test_rewards_of_a_conversion_loop_are_held_and_no_longer_waited_for():
    client = Client()
    client.bandit(loop="conversion", window=60)
    client("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS})
    learn(client, "a", [1.0, None, None])
    client.now += 5 * SECOND
    view = client("GET", "/v1/dashboard")["bandit"]
    assert view["missing"] == sum(bar["count"] for bar in view["pending"]) == 2
    waiting = client.service.fold("shop").pending.by_age(client.now)
    assert sum(waiting.counts) == 2, "the third has its reward, held until the window closes"
    assert client("GET", "/v1/bandits/shop")["n_pending"] == 2, "it means the same there"


def test_both_clients_have_best():
    """``belated.client`` gives the same ranking as the service's answer."""
    assert list(inspect.signature(HttpClient.best).parameters)[:3] == ["self", "bandit", "context"]

    async def with_await(url):
        async with AsyncClient(url) as client:
            return await client.best("shop")

    with served() as (url, _), HttpClient(url) as client:
        client.put_bandit("shop", {"family": "gaussian", "dim": 2, "policy": "thompson"})
        client.change_actions("shop", {"a": [1.0, 0.0], "b": [0.0, 1.0]})
        for name, reward in (("a", 0.1), ("b", 3.0), ("b", 2.0)):
            client.reward(client.decide("shop", eligible=[name]).decision_id, reward)
        found = client.best("shop")
        assert isinstance(found, Ranking)
        assert (found.best.name, found.best.decisions, found.best.rewards) == ("b", 2, 2)
        assert found.best.mean == pytest.approx(5.0 / 3.0)
        half = 1.959964 / np.sqrt(3.0)
        assert (found.best.low, found.best.high) == pytest.approx(
            (5.0 / 3.0 - half, 5.0 / 3.0 + half), rel=1e-6
        )
        assert asyncio.run(with_await(url)) == found
        assert client.best("shop", matrix=[[0.5, 0.5]]).best.decisions is None
        assert str(found).startswith("b leads, but its interval overlaps with that of a.")
