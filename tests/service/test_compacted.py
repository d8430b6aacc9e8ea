"""A service whose log is compacted under it goes on, and says what it cannot do any more."""

import asyncio

import numpy as np

from belated.ledger.ids import to_text
from belated.ledger.replica import Replica
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.tools.compacting import compacted
from support.replicas import Clock, decide, explicit, same
from support.service_client import Client

ACTIONS = {"put": {"a": [0.6, 0.0], "b": [0.0, 0.8]}}


def test_a_service_says_what_was_compacted():
    client = Client(MemoryLedger())
    client.bandit()
    client("PATCH", "/v1/bandits/shop/actions", ACTIONS)
    old = [client.decide(subject="me")["decision_id"] for _ in range(4)]
    assert client.reward((old[0], 1)) == ["accepted"]
    assert client("DELETE", "/v1/bandits/shop/subjects/you") == {"decisions": 0}
    client.now += 86_400_000_000
    young = client.decide(subject="me")["decision_id"]
    compacted(client.service.ledger, client.now)
    assert client.reward((old[0], 1), (old[1], 0)) == ["unknown", "accepted"]
    said = client("GET", f"/v1/decisions/{old[0]}", status=404)
    assert "were compacted, and of those only the ones that were still open" in said["detail"]
    story = client("GET", f"/v1/decisions/{old[1]}")
    assert (story["status"], story["subject"]) == ("rewarded", None)
    said = client("GET", f"/v1/decisions/{old[1]}", status=410, explain="true")
    assert said["type"].endswith("compacted")
    assert client("GET", f"/v1/decisions/{young}", explain="true")["explanation"]["n_decided"] == 4
    erased = client("DELETE", "/v1/bandits/shop/subjects/me")
    assert erased["decisions"] == 1
    assert "Their vectors and rewards are part of the model and stay" in erased["note"]
    assert same(client.service.replica, replayed(client))
    assert client.service.fold("shop").n_rows == 4


def replayed(client):
    fresh = Replica(client.service.ledger)
    fresh.catch_up()
    return fresh


def test_a_service_that_is_behind_starts_again_from_the_base():
    """Another process wrote and compacted what this one has not read."""
    ledger = MemoryLedger()
    other = Replica(ledger, clock=Clock(), seed=1)
    other.configure("shop", explicit())
    client, rng = Client(ledger), np.random.default_rng(1)
    ids = [decide(other, rng) for _ in range(5)]
    other.reward([(id, 1.0) for id in ids[:3]])
    compacted(ledger, other.clock() + 1)
    assert client.service.replica.position < ledger.base().position
    assert client.reward((to_text(ids[4]), 1)) == ["accepted"]  # committed, then read from the base
    asyncio.run(client.service.catch_up())
    other.catch_up()
    assert same(client.service.replica, other)
    assert client.service.fold("shop").learner.n_observed == 4
