"""A loop that learns from silence says what open decisions count for, and when it holds them."""

import asyncio

import pytest

from belated.ledger.events import START, Kind
from belated.service.metrics import Metrics
from support.service_client import SECOND, Client, alarms

MINUTE = 60 * SECOND
ACTIONS = {"a": [1.0, 0.0], "b": [0.0, 1.0]}


def shop(**settings):
    """A client whose bandit decided every two minutes of 40, within a window of an hour."""
    client = Client()
    client.bandit(policy=None, loop="conversion", window=3600.0, **settings)
    client("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS})
    return client, [step(client, k) for k in range(20)]


def step(client, k):
    client.now += 2 * MINUTE
    id = client.decide()["decision_id"]
    if k % 3 == 0:
        client.now += MINUTE
        client.reward((id, 1.0))
    return id


def gauge(client, name):
    page, _ = asyncio.run(Metrics(client.service).page())
    (line,) = [line for line in page.decode().splitlines() if line.startswith(f"{name}{{")]
    return float(line.split()[-1])


def test_what_open_decisions_count_for_is_shown():
    client, ids = shop()
    state = client("GET", "/v1/bandits/shop")
    assert state["settings"]["open"] == "silence"
    assert state["n_observed"] == 7
    n, failures = state["n_silent"], state["silent_failures"]
    assert n == 12  # not the one that began the last tick, nor those that converted
    assert 0.0 < failures < n
    assert (gauge(client, "belated_silent"), gauge(client, "belated_silent_failures")) == (
        n,
        failures,
    )
    stories = [client("GET", f"/v1/decisions/{id}") for id in ids]
    silences = [story["silence"] for story in stories]
    assert silences[0] is None  # it has converted
    assert silences[1] > silences[-3] > silences[-1] == 0.0  # the older, the more like a failure
    assert sum(silence or 0.0 for silence in silences) == pytest.approx(failures, rel=1e-12)
    said = "7 decisions whose reward is known; 12 silent ones count for "
    client.now += 2 * SECOND  # a view is kept for a second
    note = client("GET", "/v1/dashboard")["bandit"]["best"]["note"]
    assert f"Learnt from {said}" in note
    assert "closed without a conversion counts as a reward" in note
    known = client("GET", f"/v1/decisions/{ids[-1]}", explain=True)["explanation"]
    assert known["heard"].startswith("learnt from ")


def test_a_loop_that_holds_says_nothing_of_silence():
    client, ids = shop(open="hold")
    state = client("GET", "/v1/bandits/shop")
    assert (state["n_silent"], state["silent_failures"]) == (0, 0.0)
    assert gauge(client, "belated_silent") == 0.0
    story = client("GET", f"/v1/decisions/{ids[1]}", explain=True)
    assert (story["silence"], story["explanation"]["heard"]) == (None, "")


def test_a_doubt_is_an_alarm():
    client, _ = shop()
    assert client("GET", "/v1/bandits/shop")["broken_assumptions"] == {}
    doubts = client.service.replica.folds["shop"].hearing.doubts
    doubts.drifts, doubts.since, doubts.looked = "later", client.now, client.now
    for k in range(16):
        step(client, k)
    state = client("GET", "/v1/bandits/shop")
    words = state["broken_assumptions"]["delay-drift"]
    assert "come later than those before. Open decisions count for nothing" in words
    assert alarms(client)["assumption-delay-drift"] == words
    assert gauge(client, "belated_assumption_broken") == 1.0
    assert (state["silent_failures"], gauge(client, "belated_silent_failures")) == (0.0, 0.0)
    note = client("GET", "/v1/dashboard")["bandit"]["best"]["note"]
    assert "silent ones count for nothing" in note


def test_time_passes_where_nobody_decides():
    client, _ = shop()
    before = client("GET", "/v1/bandits/shop")["silent_failures"]
    client.now += 8 * MINUTE  # no window closes
    asyncio.run(client.service.expire())
    asyncio.run(client.service.expire())  # nothing is due any more
    assert client("GET", "/v1/bandits/shop")["silent_failures"] > before
    events = client.service.ledger.follow(START)[0]
    assert sum(event.kind == Kind.QUIET for event in events) == 1


def test_a_window_that_is_too_short_is_an_alarm():
    client, ids = shop()
    client.now += 90 * MINUTE
    asyncio.run(client.service.expire())
    assert "rewards-late" not in alarms(client)
    for _ in range(3):
        ids += [client.decide()["decision_id"] for _ in range(10)]
        client.now += 61 * MINUTE
        client.reward(*((id, 1.0) for id in ids[-10:]))
    assert alarms(client)["rewards-late"].startswith("81 % of all rewards came after their window")
