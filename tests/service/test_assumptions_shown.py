"""A bandit whose assumptions are broken says so over HTTP, in /metrics and on the dashboard."""

import asyncio
import threading

from belated.learner import assumptions
from belated.learner.assumptions import FIRST_LOOK
from belated.ledger import snapshots
from belated.ledger.replica import Replica
from belated.service.metrics import Metrics
from support.event_loop import decision, in_process, reward
from support.service_client import ACTIONS, Client, alarms

WORDS = "m1 = 1, so mean rewards lie between 0.269 and 0.731; the mean of 100 rewards is 0."


def used(share, **settings):
    """A client of a service whose only bandit got 120 rewards, this share of them 1."""
    client = Client()
    client.bandit(**settings)
    client("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS})
    client.reward(*[(client.decide()["decision_id"], float(k < share * 120)) for k in range(120)])
    return client


def gauges(client):
    page, _ = asyncio.run(Metrics(client.service).page())
    lines = page.decode().splitlines()
    return [line for line in lines if line.startswith("belated_assumption_broken{")]


def test_broken_assumptions_are_shown():
    client = used(0.0, policy="delayed-ofu-glm")
    words = client("GET", "/v1/bandits/shop")["broken_assumptions"]["m1"]
    assert WORDS in words
    assert "Use the default policy" in words
    assert alarms(client)["assumption-m1"] == words
    assert gauges(client) == ['belated_assumption_broken{assumption="m1",bandit="shop"} 1.0']


def test_a_bandit_with_sound_assumptions_is_quiet():
    client = used(0.5, max_norm=2.0)
    assert client("GET", "/v1/bandits/shop")["broken_assumptions"] == {}
    assert not any(key.startswith("assumption") for key in alarms(client))
    assert gauges(client) == []


def test_the_event_loop_never_looks_at_the_rewards_itself(monkeypatch):
    """A look passes over all rewards, and anybody may ask for /metrics."""
    lookers, judge = [], assumptions.broken_assumptions

    def noting(learner):
        lookers.append(threading.current_thread().name)
        return judge(learner)

    monkeypatch.setattr("belated.learner.learner.broken_assumptions", noting)

    async def ask(http, service):
        for _ in range(FIRST_LOOK):
            await reward(http, await decision(http), 0.0)
        for path in ("/metrics", "/v1/bandits/shop", "/v1/dashboard"):
            assert (await http.get(path)).status_code == 200

    in_process(ask)
    assert [name.split("_")[0] for name in lookers] == ["state"]


def test_a_look_is_taken_at_what_a_snapshot_holds(tmp_path):
    client = used(0.0, policy="delayed-ofu-glm")
    replica = client.service.replica
    snapshots.save(replica, tmp_path)
    restored = Replica(replica.ledger)
    snapshots.load(restored, tmp_path)
    assert restored.position == replica.position  # nothing is left to take in
    assert "the mean of 120 rewards is 0." in restored.fold("shop").broken_assumptions()["m1"]
