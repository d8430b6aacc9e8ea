"""What the service answers: decisions in every form, rewards, stories, keys, erasure."""

import asyncio
import base64
import math
import os
import subprocess
import sys

import httpx2
import numpy as np
import pytest

from belated.core.events import Status
from belated.ledger.events import START
from belated.service.metrics import Metrics
from support.service_client import ACTIONS, SECOND, Client


@pytest.fixture
def client():
    made = Client()
    made.bandit()
    made("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS})
    return made


def test_the_whole_loop(client):
    decision = client.decide()
    assert decision["action"] == "b"  # the longest: nothing is known yet
    assert decision["logged"] is True
    assert (decision["propensity"], decision["model_version"]) == (1.0, 2)
    id = decision["decision_id"]
    assert client.reward((id, 1.0), (id, 1.0), (id, 0.0)) == ["accepted", "duplicate", "conflict"]
    state = client("GET", "/v1/bandits/shop")
    assert (state["n_decided"], state["n_observed"], state["n_pending"]) == (1, 1, 0)
    assert state["theta"][1] > 0.0
    story = client("GET", f"/v1/decisions/{id}")
    assert story["status"] == "rewarded"
    assert [event["kind"] for event in story["events"]] == ["decided", "rewarded"]
    assert story["events"][1]["reward"] == 1.0
    assert story["features"] == [0.0, 0.8]


def test_every_form_of_actions_gives_the_same_decision(client):
    explicit = [{"id": name, "features": x} for name, x in ACTIONS.items()]
    matrix = list(ACTIONS.values())
    packed = base64.b64encode(np.array(matrix).tobytes()).decode()
    forms = [
        {},
        {"eligible": ["a", "b", "c"]},
        {"actions": explicit},
        {"matrix": matrix},
        {"matrix": {"rows": 3, "base64": packed}},
    ]
    answers = [client.decide(**form) for form in forms]
    assert [answer["index"] for answer in answers] == [1] * 5
    assert [answer["action"] for answer in answers] == ["b", "b", "b", "1", "1"]
    assert len({answer["score"] for answer in answers}) == 1
    assert client.decide(eligible=["c", "a"])["action"] == "a"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"eligible": ["z"]}, "eligible = 'z'"),
        ({"matrix": [[1.0, 2.0, 3.0]]}, "expected (K, 2)"),
        ({"matrix": [[0.1, 0.2], [0.1]]}, "matrix"),
        ({"matrix": {"rows": 3, "base64": "AAAA"}}, "matrix.base64"),
        ({"matrix": {"rows": 3, "base64": "?"}}, "matrix.base64"),
        ({"matrix": [[3.0, 4.0]]}, "norm 5"),
        ({"context": {"age": 3}}, "without features"),
        ({"eligible": ["a"], "matrix": [[0.0, 0.1]]}, "one of eligible, actions and matrix"),
        ({"actions": [{"id": "a", "features": [0.1, 0.1]}] * 2}, "every id once"),
        ({"actions": [{"id": "a", "features": {"x": 1}}]}, "actions"),
        ({"played": "a"}, "not in shadow mode"),
        ({"unknown": 1}, "unknown field"),
        ({"request_id": ""}, "length >= 1"),
    ],
)
def test_bad_requests_change_nothing(client, body, said):
    before = client.service.replica.folds["shop"].digest()
    problem = client.decide(status=422, **body)
    assert said in problem["detail"]
    assert client.service.replica.folds["shop"].digest() == before


def test_features_and_contexts():
    client = Client()
    features = {
        "numeric": {"age": [0, 100]},
        "categorical": {"ad": ["x", "y"]},
        "interactions": [["age", "ad"]],
    }
    client.bandit(family="gaussian:sd=1", features=features, dim=None)
    client("PATCH", "/v1/bandits/shop/actions", {"put": {"1": {"ad": "x"}, "2": {"ad": "y"}}})
    decision = client.decide(context={"age": 30})
    story = client("GET", f"/v1/decisions/{decision['decision_id']}", explain=True)
    assert story["context"] == {"age": 30}
    half = 1 / math.sqrt(4)
    assert story["features"] == pytest.approx([-0.4 * half, half, 0, -0.4 * half, 0, half])
    views = story["explanation"]["actions"]
    assert [view["action"] for view in views] == ["1", "2"]
    assert views[1]["features"] == pytest.approx([-0.4 * half, 0, half, 0, -0.4 * half, half])
    assert "column 'age' = None" in client.decide(status=422)["detail"]
    assert "age" in client.decide(status=422, context={"age": "old"})["detail"]
    assert (
        "in actions and context"
        in client.decide(status=422, context={"age": 1, "ad": "x"})["detail"]
    )


def test_explanations_tell_what_was_known_then(client):
    first = client.decide()["decision_id"]
    client.reward((first, 1.0))
    second = client.decide()
    for _ in range(5):
        client.reward((client.decide()["decision_id"], 0.0))
    then = client("GET", f"/v1/decisions/{first}", explain=True)["explanation"]
    assert (then["n_decided"], then["n_observed"], then["theta"]) == (0, 0, [0.0, 0.0])
    story = client("GET", f"/v1/decisions/{second['decision_id']}", explain=True)
    known = story["explanation"]
    assert (known["n_decided"], known["n_observed"], known["n_pending"]) == (1, 1, 0)
    assert known["complete"] is True
    scores = {v["action"]: v["estimate"] + v["bonus"] for v in known["actions"]}
    assert max(scores, key=scores.get) == second["action"]
    assert scores[second["action"]] == pytest.approx(second["score"])
    for view in known["actions"]:
        assert view["mean"] == pytest.approx(1 / (1 + math.exp(-view["estimate"])))


def test_actions_of_a_request_are_explained_where_they_are_logged(client):
    matrix = [[0.1, 0.2], [0.3, 0.1]]
    id = client.decide(matrix=matrix)["decision_id"]
    short = client("GET", f"/v1/decisions/{id}", explain=True)["explanation"]
    assert (len(short["actions"]), short["complete"]) == (1, False)
    client("PUT", "/v1/bandits/shop", {"family": "bernoulli", "dim": 2, "log_actions": True})
    id = client.decide(matrix=matrix)["decision_id"]
    full = client("GET", f"/v1/decisions/{id}", explain=True)["explanation"]
    assert ([view["features"] for view in full["actions"]], full["complete"]) == (matrix, True)


def test_requests_may_be_sent_again(client):
    first = client.decide(request_id="r1", subject="me")
    again = client.decide(subject="me", request_id="r1")  # another order of the keys
    assert again == first | {"retried": True}
    problem = client.decide(status=409, request_id="r1", subject="you")
    assert problem["type"] == "/problems/request-id-reused"
    assert client("GET", "/v1/bandits/shop")["n_decided"] == 1


def test_conversions_and_cancellations():
    client = Client()
    client.bandit(loop="conversion", window=60)
    client("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS})
    ids = [client.decide()["decision_id"] for _ in range(3)]
    assert client("POST", f"/v1/decisions/{ids[2]}/cancel")["status"] == "accepted"
    assert client("POST", f"/v1/decisions/{ids[2]}/cancel")["status"] == "duplicate"
    assert client.reward((ids[0], 1.0)) == ["accepted"]
    client.now += 61 * SECOND
    asyncio.run(client.service.expire())
    state = client("GET", "/v1/bandits/shop")
    assert (state["n_observed"], state["n_pending"], state["n_cancelled"]) == (2, 0, 1)
    assert client.reward((ids[1], 1.0)) == ["expired"]
    states = [client("GET", f"/v1/decisions/{id}")["status"] for id in ids]
    assert states == ["rewarded", "late", "cancelled"]


def test_windows_are_closed_later_where_another_machine_may_be_writing():
    """What came in time there must not find its window closed from here."""
    client = Client()
    client.service.writer.in_thread = True  # as with PostgreSQL
    client.bandit(loop="conversion", window=60)
    client("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS})
    client.decide()
    for seconds, pending in ((61, 1), (3, 1), (2, 0)):
        client.now += seconds * SECOND
        asyncio.run(client.service.expire())
        assert client("GET", "/v1/bandits/shop")["n_pending"] == pending


def test_revisions(client):
    id = client.decide()["decision_id"]
    client.reward((id, 1.0))
    item = {"decision_id": id, "reward": 0.0, "revise": True}
    assert client("POST", "/v1/rewards", {"rewards": [item]})["statuses"] == ["accepted"]
    assert client.service.replica.folds["shop"].learner.history.y[0] == 0.0
    client.bandit("one-pass", policy="gloc")
    id = client.decide("one-pass", matrix=[[0.1, 0.1]])["decision_id"]
    client.reward((id, 1.0))
    item["decision_id"] = id
    answer = client("POST", "/v1/rewards", {"rewards": [item]})
    assert answer["statuses"] == ["invalid"]
    assert answer["reasons"] == [
        "revise = True: GLOC learns in one pass and cannot take a reward back"
    ]


def test_an_invalid_reward_is_answered_with_the_reason(client):
    ids = [client.decide()["decision_id"] for _ in range(2)]
    items = [{"decision_id": ids[0], "reward": 3}, {"decision_id": ids[1], "reward": 1}]
    answer = client("POST", "/v1/rewards", {"rewards": items})
    assert answer["statuses"] == ["invalid", "accepted"]
    reason = "reward = 3.0: expected a whole number from 0 to 1 (bernoulli)"
    assert answer["reasons"] == [reason, ""]
    assert client("POST", "/v1/rewards", {"rewards": items[1:]}) == {"statuses": ["duplicate"]}


def test_rewards_say_when_they_happened():
    client = Client()
    client.bandit(window=60, grace=30)
    client("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS})
    ids = [client.decide()["decision_id"] for _ in range(5)]
    made = client.now / SECOND
    client.now += 80 * SECOND
    times = [made + 60.0, "2023-11-14t22:14:20z", made - 61.0, "tomorrow", made + 141.0]
    items = [{"decision_id": id, "reward": 1, "at": at} for id, at in zip(ids, times, strict=True)]
    answer = client("POST", "/v1/rewards", {"rewards": items})
    assert answer["statuses"] == ["accepted", "accepted", "invalid", "invalid", "invalid"]
    assert answer["reasons"] == [
        "",
        "",
        "at = 2023-11-14T22:12:19.000000Z: expected no time before the decision, "
        "2023-11-14T22:13:20.000000Z",
        "at = 'tomorrow': expected an ISO time such as 2026-03-31T12:00:00Z, or seconds since 1970",
        "at = 2023-11-14T22:15:41.000000Z: expected no time after now, 2023-11-14T22:14:40.000000Z",
    ]
    story = client("GET", f"/v1/decisions/{ids[0]}")
    assert story["status"] == "rewarded"
    assert story["window_closes"] == "2023-11-14T22:14:20.000000Z"
    assert story["grace_ends"] == "2023-11-14T22:14:50.000000Z"
    assert story["events"][1] == {
        "kind": "rewarded",
        "time": "2023-11-14T22:14:20.000000Z",
        "reward": 1.0,
        "received": "2023-11-14T22:14:40.000000Z",
        "event_id": None,
        "part": None,
        "outcome": None,
        "value": None,
    }
    assert client("POST", "/v1/rewards", {"rewards": [items[0] | {"at": True}]}, 422)
    answer = client("POST", "/v1/rewards", {"rewards": [items[2] | {"at": "2023-11-14T22:14:20"}]})
    assert answer["statuses"] == ["invalid"]
    assert answer["reasons"][0].endswith("or seconds since 1970, with its zone")
    client.now += 11 * SECOND
    assert client("POST", "/v1/rewards", {"rewards": [items[2] | {"at": made}]}) == {
        "statuses": ["expired"]
    }


def test_several_rewards_of_a_decision():
    client = Client()
    client.bandit(family="gaussian", combine="sum")
    client("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS})
    id = client.decide()["decision_id"]
    items = [{"decision_id": id, "reward": k, "event_id": f"order {k}"} for k in (1, 2, 1)]
    answer = client("POST", "/v1/rewards", {"rewards": items})
    assert answer["statuses"] == ["accepted", "accepted", "duplicate"]
    item = {"decision_id": id, "reward": 5, "revise": True}
    answer = client("POST", "/v1/rewards", {"rewards": [item]})
    assert answer["statuses"] == ["invalid"]
    assert answer["reasons"] == ["revise = True: expected no revision, rewards are combined (sum)"]
    _, first, second = client("GET", f"/v1/decisions/{id}")["events"]
    assert (first["reward"], first["event_id"], first["part"]) == (1.0, "order 1", None)
    assert (second["reward"], second["event_id"], second["part"]) == (3.0, "order 2", 2.0)
    assert client.service.replica.folds["shop"].learner.history.y[0] == 3.0


def test_a_second_event_needs_combine(client):
    item = {"decision_id": client.decide()["decision_id"], "reward": 1, "event_id": "order 1"}
    items = [item, item, item | {"event_id": "order 2"}, item | {"reward": 0}]
    answer = client("POST", "/v1/rewards", {"rewards": items})
    assert answer["statuses"] == ["accepted", "duplicate", "conflict", "conflict"]
    assert answer["reasons"][2].startswith(
        "event_id = 'order 2': expected 'order 1', since combine"
    )
    assert answer["reasons"][:2] + answer["reasons"][3:] == ["", "", ""]
    assert client("POST", "/v1/rewards", {"rewards": items[3:]}) == {"statuses": ["conflict"]}


def test_rewards_that_cannot_be_or_belong_nowhere(client):
    id = client.decide()["decision_id"]
    assert client.reward((id, 0.5), ("nonsense", 1.0)) == ["invalid", "unknown"]
    other = Client(seed=2)
    other.bandit()
    elsewhere = other.decide(matrix=[[0.1, 0.1]])["decision_id"]
    assert client.reward((elsewhere, 1.0)) == ["parked"]
    (parked,) = client("GET", "/v1/parked")["parked"]
    assert (parked["decision_id"], parked["reward"]) == (elsewhere, 1.0)
    client.now += 3600 * SECOND
    assert client.reward((other.decide(matrix=[[0.1, 0.1]])["decision_id"], 1.0)) == ["unknown"]


def test_parked_rewards_end_when_their_decision_would_be_unknown(client):
    other = Client(seed=2)
    other.bandit()
    id = other.decide(matrix=[[0.1, 0.1]])["decision_id"]
    assert client.reward((id, 1.0)) == ["parked"]
    for seconds, left in ((120, 1), (1, 0)):  # two minutes, and not longer
        client.now += seconds * SECOND
        asyncio.run(client.service.end_parked())
        assert len(client("GET", "/v1/parked")["parked"]) == left
    assert client.reward((id, 1.0)) == ["unknown"]
    page = asyncio.run(Metrics(client.service).page())[0].decode()
    assert "belated_parked_ended_total 1.0" in page
    assert client.service.tally.refused_lately(Status.UNKNOWN, client.now) == 2


def test_a_store_that_fails(client):
    client.service.ledger.broken = True
    before = client.service.replica.folds["shop"].digest()
    problem = client.decide(status=503)
    assert problem["type"] == "/problems/store-unavailable"
    assert client("GET", "/readyz", status=503)["status"] == "store unavailable"
    client.service.ledger.broken = False
    settings = {"family": "bernoulli", "dim": 2, "fallback": "c"}
    client("PUT", "/v1/bandits/shop", settings)
    client.service.ledger.broken = True
    answer = client.decide()
    assert (answer["action"], answer["index"], answer["logged"]) == ("c", 2, False)
    assert answer["decision_id"] is None
    client.decide(status=503, eligible=["a", "b"])  # the fallback is not allowed here
    client.service.ledger.broken = False
    assert client.decide()["logged"] is True
    assert client("GET", "/readyz")["status"] == "ok"
    assert client.service.replica.folds["shop"].digest() != before
    assert client.service.tally.not_logged["shop"] == 1


def test_erasing_a_subject(client):
    mine = client.decide(subject="me", request_id="r")["decision_id"]
    client.reward((mine, 1.0))
    other = client.decide(subject="you")["decision_id"]
    assert client("DELETE", "/v1/bandits/shop/subjects/me")["decisions"] == 1
    client("GET", f"/v1/decisions/{mine}", status=404)
    assert client("GET", f"/v1/decisions/{other}")["subject"] == "you"
    state = client("GET", "/v1/bandits/shop")
    assert (state["n_decided"], state["n_observed"], state["theta"]) == (1, 0, [0.0, 0.0])
    assert client.decide(subject="me", request_id="r")["retried"] is False


def test_settings(client):
    assert client("GET", "/v1/bandits")["bandits"] == ["shop"]
    client.decide("nobody", status=404)
    same = {"family": "bernoulli", "dim": 2, "exploration": 0.25}
    assert client("PUT", "/v1/bandits/shop", same)["settings"]["exploration"] == 0.25
    problem = client("PUT", "/v1/bandits/shop", {"family": "gaussian", "dim": 2}, 409)
    assert "family" in problem["detail"]
    for wrong, said in [
        ({"family": "bernouli", "dim": 2}, "did you mean bernoulli?"),
        ({"family": "bernoulli"}, "dim = None"),
        ({"family": "bernoulli", "dim": 2, "policy": "thomson"}, "did you mean thompson"),
        ({"family": "bernoulli", "dim": 2, "policy": "qpm-d"}, "policy"),
        ({"family": "bernoulli", "dim": 2, "policy": "polya-gamma"}, "policy"),
        ({"family": "bernoulli", "dim": 2, "loop": "conversion"}, "window = None"),
        ({"family": "bernoulli", "features": {"numeric": {"a": [2, 1]}}}, "[lowest, highest]"),
    ]:
        assert said in client("PUT", "/v1/bandits/new", wrong, 422)["detail"]
    client("PATCH", "/v1/bandits/shop/actions", {"put": {"d": [1.0, 1.0]}}, 422)
    changed = client("PATCH", "/v1/bandits/shop/actions", {"put": {"d": [0.1, 0]}, "drop": ["a"]})
    assert list(changed["actions"]) == ["b", "c", "d"]


def test_shadow_mode(client):
    client(
        "PUT",
        "/v1/bandits/shop",
        {"family": "bernoulli", "dim": 2, "mode": "shadow", "baseline": "a"},
    )
    answer = client.decide()
    assert (answer["action"], answer["proposal"], answer["propensity"]) == ("a", "b", None)
    answer = client.decide(played="c", propensity=0.5)
    assert (answer["action"], answer["proposal"], answer["propensity"]) == ("c", "b", 0.5)
    story = client("GET", f"/v1/decisions/{answer['decision_id']}")
    assert story["features"] == [0.3, 0.3]


def test_keys(client):
    client.bandit("other")
    admin = client("POST", "/v1/keys", {"name": "boss", "scopes": ["admin", "read"]}, 201)
    client("GET", "/v1/bandits", status=401)
    client.key = admin["key"]
    ours = client(
        "POST", "/v1/keys", {"name": "web", "scopes": ["decide", "reward"], "bandit": "shop"}, 201
    )
    theirs = client(
        "POST",
        "/v1/keys",
        {"name": "web2", "scopes": ["decide", "reward", "read"], "bandit": "other"},
        201,
    )
    client.decide(status=403)
    listed = client("GET", "/v1/keys")["keys"]
    assert [key["name"] for key in listed] == ["boss", "web", "web2"]
    assert "secret" not in str(listed)
    client.key = ours["key"]
    id = client.decide()["decision_id"]
    client.decide("other", status=403, matrix=[[0.1, 0.1]])
    client("GET", f"/v1/decisions/{id}", status=403)
    client.key = theirs["key"]
    assert client.reward((id, 1.0)) == ["unknown"]
    client("GET", f"/v1/decisions/{id}", status=404)
    assert client("GET", "/v1/dashboard")["bandits"] == ["other"]
    client("GET", "/v1/dashboard", status=404, bandit="shop")
    client.key = ours["key"]
    assert client.reward((id, 1.0)) == ["accepted"]
    client.key = admin["key"]
    client("DELETE", f"/v1/keys/{ours['id']}", status=204)
    client("DELETE", f"/v1/keys/{ours['id']}", status=404)
    client.key = ours["key"]
    client.decide(status=401)
    # no secret is in the log, and a process that reads it knows the same keys
    log = b"".join(event.body for event in client.service.ledger.follow(START)[0])
    for key in (ours, admin):
        assert key["id"].encode() in log
        assert key["key"].removeprefix(f"bel_{key['id']}_").encode() not in log
    fresh = Client(client.service.ledger)
    fresh.key = admin["key"]
    assert [key["name"] for key in fresh("GET", "/v1/keys")["keys"]] == ["boss", "web2"]


def test_metrics_and_dashboard(client):
    for _ in range(3):
        client.reward((client.decide()["decision_id"], 1.0))
    client.decide()
    client.reward(("nonsense", 1.0))
    client.now += 5 * SECOND

    async def get(path):
        async with httpx2.AsyncClient(transport=client._transport, base_url="http://test") as http:
            return await http.get(path)

    text = asyncio.run(get("/metrics")).text
    for line in [
        'belated_decisions_total{bandit="shop"} 4.0',
        'belated_rewards_total{bandit="shop",status="accepted"} 3.0',
        'belated_rewards_total{bandit="",status="unknown"} 1.0',
        'belated_pending{bandit="shop",le="1.0"} 0.0',
        'belated_pending{bandit="shop",le="10.0"} 1.0',
        'belated_delay_seconds_count{bandit="shop"} 3.0',
        "belated_ready 1.0",
        "belated_model_staleness_rounds 0.0",
        f'belated_worker_info{{pid="{os.getpid()}"}} 1.0',
    ]:
        assert line in text.splitlines(), line
    data = client("GET", "/v1/dashboard")["bandit"]
    assert (data["decisions"], data["rewards"], data["missing"]) == (4, 3, 1)
    page = asyncio.run(get("/"))
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_nothing_is_served_before_the_log_is_read():
    client = Client()
    client.service.ready = False
    assert client("GET", "/readyz", status=503)["status"] == "starting"
    assert client("GET", "/healthz")["status"] == "ok"
    assert client.decide(status=503)["type"] == "/problems/not-ready"


def test_a_service_without_bandits_does_not_wait_for_numba():
    script = "import sys, belated.service.serving; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
