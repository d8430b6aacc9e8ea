"""Retraining over HTTP: compared, refused, promoted, and back again."""

import json

import numpy as np

from belated.ledger.events import START, Kind
from belated.ledger.replica import Replica
from support.service_client import ACTIONS, Client


def shop(n=12, **settings):
    client, rng = Client(), np.random.default_rng(1)
    client.bandit(**settings)
    client("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS})
    for _ in range(n):
        made = client.decide()
        client.reward((made["decision_id"], float(rng.integers(2))))
    return client


def promotions(client):
    events, _ = client.service.ledger.follow(START)
    return sum(event.kind is Kind.PROMOTED for event in events)


def same_as_replayed(client):
    fresh = Replica(client.service.ledger)
    fresh.catch_up()
    return fresh.folds["shop"].digest() == client.service.replica.folds["shop"].digest()


def test_a_bandit_is_compared_promoted_and_brought_back():
    client = shop()
    before = client("GET", "/v1/bandits/shop")
    view = client("POST", "/v1/bandits/shop/retrain", {"policy": "thompson"})
    assert (view["changed"], view["against"], view["promoted"]) == (["policy"], [], False)
    assert (view["n_decisions"], view["n_rewards"]) == (12, 12)
    assert promotions(client) == 0
    wanted = {"policy": "thompson", "request_id": "one"}
    view = client("POST", "/v1/bandits/shop/promote", wanted)
    assert view["promoted"] is True
    state = client("GET", "/v1/bandits/shop")
    assert state["settings"]["policy"]["type"] == "thompson"
    assert same_as_replayed(client)
    again = client("POST", "/v1/bandits/shop/promote", wanted)  # the answer was lost, say
    assert (again["promoted"], promotions(client)) == (True, 1)
    made = client.decide()
    story = client("GET", f"/v1/decisions/{made['decision_id']}?explain=true")
    assert story["policy"] == "thompson"
    client.reward((made["decision_id"], 1.0))
    back = {"back": True, "request_id": "two"}
    assert client("POST", "/v1/bandits/shop/retrain", back)["changed"] == ["policy"]
    for _ in range(2):
        assert client("POST", "/v1/bandits/shop/promote", back)["promoted"] is True
    assert promotions(client) == 2
    state = client("GET", "/v1/bandits/shop")
    assert state["settings"] == before["settings"]
    assert same_as_replayed(client)
    explained = client("GET", f"/v1/decisions/{made['decision_id']}?explain=true")
    assert explained["explanation"] == story["explanation"]  # as it was then


def test_what_is_refused_changes_nothing():
    client = shop(family="gaussian")
    made = client.decide()
    client.reward((made["decision_id"], 0.5))
    n = promotions(client)
    for path in ("retrain", "promote"):
        for body, said in (
            ({}, "nothing to retrain"),
            ({"back": True}, "'shop' never was"),
            ({"policy": "best"}, "policy = 'best'"),
            ({"window": -1}, "window"),
            ({"loop": "conversion"}, "loop"),
        ):
            problem = client("POST", f"/v1/bandits/shop/{path}", body, 422)
            assert said in json.dumps(problem)
        client("POST", f"/v1/bandits/none/{path}", {"policy": "thompson"}, 404)
    view = client("POST", "/v1/bandits/shop/retrain", {"family": "bernoulli"})
    said = "1 of 13 decisions have a reward that this family cannot have"
    assert view["against"] == [said]
    problem = client("POST", "/v1/bandits/shop/promote", {"family": "bernoulli"}, 409)
    assert (problem["detail"], promotions(client)) == (said, n)
