"""The clients: against a real service over HTTP, and against connections that fail."""

import asyncio
import inspect
import json
import subprocess
import sys
from datetime import UTC, datetime

import httpx2
import numpy as np
import pandas as pd
import pytest

from belated.client import AsyncClient, Client, ServiceError, calls
from belated.client.calls import Attempts
from belated.core.events import Status
from support.running_service import Flaky, free_port, served

SHOP = {"family": "bernoulli", "dim": 2}
ARMS = {"a": [1.0, 0.0], "b": [0.0, 1.0]}
FEATURES = {"numeric": {"price": [0, 10]}, "categorical": {"country": ["de", "fr"]}}
NOBODY = "00000000-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
def url():
    with served() as (url, _), Client(url) as client:
        client.put_bandit("shop", SHOP)
        client.change_actions("shop", ARMS)
        client.put_bandit("pages", {"family": "bernoulli", "features": FEATURES})
        yield url


@pytest.fixture
def client(url):
    with Client(url) as client:
        yield client


@pytest.fixture
def pauses(monkeypatch):
    """The pauses that were made, without making them."""
    made = []
    monkeypatch.setattr("time.sleep", made.append)
    return made


def test_import_needs_neither_numpy_nor_numba_nor_a_web_framework():
    code = (
        "import sys, belated.client\n"
        "assert not {'numba', 'numpy', 'starlette', 'uvicorn', 'apsw'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_both_clients_can_do_the_same():
    """The operations are written once; each client has all of them."""

    def methods(kind):
        return {
            name: [(p.name, p.default, p.annotation) for p in signature.parameters.values()]
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
            for signature in [inspect.signature(method)]
        }

    assert methods(Client) == methods(AsyncClient)
    assert len(methods(Client)) >= 11


# The whole loop


def test_decide_and_reward(client):
    answer = client.decide("shop", subject="anna")
    assert (answer.action in ARMS, answer.logged, answer.retried) == (True, True, False)
    before = client.bandit("shop")
    assert client.reward(answer.decision_id, 1.0) == Status.ACCEPTED
    assert client.reward(answer.decision_id, 1.0) == Status.DUPLICATE
    assert client.reward(answer.decision_id, 0.0) == Status.CONFLICT
    assert client.reward(answer.decision_id, 0.0, revise=True) == Status.ACCEPTED
    after = client.bandit("shop")
    assert after.n_observed == before.n_observed + 1
    assert after.n_pending == before.n_pending - 1
    story = client.story(answer.decision_id, explain=True)
    assert [event.kind for event in story.events] == ["decided", "rewarded", "revised"]
    assert [event.reward for event in story.events] == [None, 1.0, 0.0]
    assert [view.action for view in story.explanation.actions] == ["a", "b"]
    assert client.story(answer.decision_id).explanation is None
    assert client.forget("shop", "anna") == 1
    with pytest.raises(ServiceError) as caught:
        client.story(answer.decision_id)
    assert caught.value.problem.type == "/problems/unknown-decision"


def test_outcomes_and_lift(client):
    made = client.decide_many("shop", [{}] * 3)
    ids = [one.decision_id for one in made]
    assert client.outcome(ids[0], "calls", 2, event_id="monday") == Status.ACCEPTED
    many = [
        (ids[0], "calls", 2.0, None, "monday"),
        (ids[1], "calls", np.float32(1.0)),
        (NOBODY, "x", 1),
    ]
    assert client.outcomes(many) == [Status.DUPLICATE, Status.ACCEPTED, Status.UNKNOWN]
    assert client.outcomes([]) == []
    with pytest.raises(ValueError, match=r"'calls' of .*= nan: expected a finite number"):
        client.outcome(ids[2], "calls", float("nan"))
    view = client.lift("shop")
    assert view.sentence.startswith("Nobody is held out")
    assert [group.name for group in view.groups] == ["bandit", "holdout"]
    assert [guardrail.name for guardrail in view.guardrails] == ["calls"]
    with pytest.raises(ServiceError):
        client.lift("none")


def test_every_form_of_actions(client):
    only = client.decide("shop", eligible=["b"])
    assert (only.action, only.index) == ("b", 0)
    matrix = np.array([[0.1, 0.2], [0.3, -0.4], [0.0, 1 / 3]])
    row = client.decide("shop", matrix=matrix)
    features = client.story(row.decision_id).features
    assert features == matrix[row.index].tolist(), "bit for bit"
    as_lists = client.decide("shop", matrix=matrix.tolist(), request_id="lists").decision_id
    for same in (matrix, np.asfortranarray(matrix), list(matrix), pd.DataFrame(matrix)):
        assert client.decide("shop", matrix=same, request_id="lists").decision_id == as_lists
    pages = {"cheap": {"price": np.int64(1)}, "dear": {"price": np.float32(9.5)}}
    answer = client.decide("pages", actions=pages, context={"country": "fr"})
    assert answer.action in pages
    story = client.story(answer.decision_id)
    assert story.context == {"country": "fr"}


def test_cancel(client):
    answer = client.decide("shop")
    assert client.cancel(answer.decision_id) == Status.ACCEPTED
    assert client.cancel(answer.decision_id) == Status.DUPLICATE
    assert client.reward(answer.decision_id, 1.0) == Status.CONFLICT
    assert client.cancel("what") == Status.UNKNOWN


def test_bandits_and_actions(client):
    assert client.bandits() == ["shop", "pages"]
    assert client.actions("shop") == ARMS
    assert client.change_actions("shop", {"c": [0.5, 0.5]}, drop=["a"]) == {
        "b": ARMS["b"],
        "c": [0.5, 0.5],
    }
    client.change_actions("shop", ARMS, drop=["b", "c"])
    state = client.put_bandit("shop", {**SHOP, "exploration": 0.1})
    assert state.settings["exploration"] == 0.1
    client.put_bandit("shop", SHOP)
    with pytest.raises(ServiceError, match=r"409 .* family = "):
        client.put_bandit("shop", {**SHOP, "family": "gaussian"})


def test_shadow_mode(client):
    client.put_bandit("shadow", {**SHOP, "mode": "shadow"})
    client.change_actions("shadow", ARMS)
    answer = client.decide("shadow", played="b", propensity=0.25)
    assert (answer.action, answer.propensity) == ("b", 0.25)
    assert answer.proposal in ARMS


def test_propensities(client):
    client.put_bandit("drawing", {**SHOP, "policy": "thompson"})
    client.change_actions("drawing", ARMS)
    answer = client.decide("drawing")
    assert 0.0 < answer.propensity < 1.0
    assert answer.probabilities is None
    asked = client.decide("drawing", request_id="all", probabilities=True)
    assert asked.probabilities[asked.index] == asked.propensity
    assert sum(asked.probabilities) == pytest.approx(1.0)
    story = client.story(asked.decision_id)
    assert (story.propensity, story.probabilities) == (asked.propensity, asked.probabilities)
    assert story.n_actions == len(ARMS)
    again = client.decide("drawing", request_id="all", probabilities=True)
    assert (again.retried, again.probabilities) == (True, asked.probabilities)


def test_why_rewards_are_invalid_is_logged(client, caplog):
    ids = [client.decide("shop").decision_id for _ in range(11)]
    assert client.reward(ids[0], 3.0) is Status.INVALID
    assert client.rewards([(id, 0.5) for id in ids[1:]]) == [Status.INVALID] * 10
    expected = "expected a whole number from 0 to 1 (bernoulli)"
    assert [record.getMessage() for record in caplog.records] == [
        f"invalid: reward = 3.0: {expected}",
        f"invalid: reward = 0.5: {expected}, and 9 more",
    ]


def test_rewards_say_when_they_happened(client):
    ids = [client.decide("shop").decision_id for _ in range(4)]
    now = datetime.now(UTC)
    assert client.reward(ids[0], 1.0, at=now) is Status.ACCEPTED
    pairs = [(ids[1], 1.0, now.isoformat()), (ids[2], 1.0, now.timestamp()), (ids[3], 1.0)]
    assert client.rewards(pairs) == [Status.ACCEPTED] * 3
    times = [client.story(id).events[-1].time for id in ids[:3]]
    assert times == [now.isoformat().replace("+00:00", "Z")] * 3
    with pytest.raises(ValueError, match=r"at = 'soon': expected an ISO time"):
        client.reward(ids[0], 1.0, at="soon")
    with pytest.raises(ValueError, match=r"at = .*: expected .*with its zone"):
        client.reward(ids[0], 1.0, at=now.replace(tzinfo=None))


def test_many_rewards_go_in_batches(url):
    flaky = Flaky()
    with Client(url, transport=flaky) as client:
        ids = [client.decide("shop").decision_id for _ in range(3)]
        flaky.sent.clear()
        pairs = [(NOBODY, 0.0)] * 1_500 + [(id, 1.0) for id in ids]
        statuses = client.rewards(pairs)
    assert [len(json.loads(r.content)["rewards"]) for r in flaky.sent] == [1_000, 503]
    assert statuses == [Status.UNKNOWN] * 1_500 + [Status.ACCEPTED] * 3
    with Client(url) as client:
        assert client.rewards([]) == []


def test_many_decisions_go_in_batches(url):
    flaky = Flaky()
    requests = [{"request_id": f"mail-{k}", "eligible": ["ab"[k % 2]]} for k in range(230)]
    with Client(url, transport=flaky) as client:
        before = client.bandit("shop").n_decided
        flaky.sent.clear()
        made = client.decide_many("shop", iter(requests))
        assert [len(json.loads(r.content)["decisions"]) for r in flaky.sent] == [100, 100, 30]
        assert [one.action for one in made] == ["a", "b"] * 115
        assert len({one.decision_id for one in made}) == 230
        again = client.decide_many("shop", requests)
        assert [one.decision_id for one in again] == [one.decision_id for one in made]
        assert all(one.retried for one in again)
        assert client.bandit("shop").n_decided == before + 230


def test_a_ranking_without_repetition(client):
    ranked = client.decide_top("shop", 2, request_id="page", probabilities=True)
    assert sorted(one.action for one in ranked) == ["a", "b"]
    assert sorted(one.index for one in ranked) == [0, 1]
    assert ranked[1].probabilities[ranked[0].index] == 0.0
    again = client.decide_top("shop", 2, request_id="page", probabilities=True)
    assert [one.decision_id for one in again] == [one.decision_id for one in ranked]
    matrix = np.array([[0.1, 0.2], [0.3, -0.4], [0.0, 1 / 3]])
    for one in client.decide_top("shop", 3, matrix=matrix):
        assert client.story(one.decision_id).features == matrix[one.index].tolist()
    with pytest.raises(ServiceError, match="top = 3: expected at most 2"):
        client.decide_top("shop", 3)


def test_the_same_with_await(url):
    async def main():
        async with AsyncClient(url) as client:
            answers = await asyncio.gather(*(client.decide("shop") for _ in range(20)))
            ids = [answer.decision_id for answer in answers]
            assert len(set(ids)) == 20
            assert await client.rewards((id, 1.0) for id in ids) == [Status.ACCEPTED] * 20
            assert await client.reward(ids[0], 1.0) == Status.DUPLICATE
            assert await client.cancel(ids[0]) == Status.CONFLICT
            assert (await client.story(ids[0])).status == "rewarded"
            assert "shop" in await client.bandits()
            assert (await client.bandit("shop")).name == "shop"
            assert list(await client.actions("shop")) == list(
                await client.change_actions("shop", ARMS)
            )
            assert (await client.put_bandit("shop", SHOP)).name == "shop"
            assert await client.forget("shop", "nobody") == 0
            assert len(await client.decide_many("shop", [{}] * 3)) == 3
            assert len(await client.decide_top("shop", 2)) == 2
            with pytest.raises(ServiceError, match="404"):
                await client.decide("none")

    asyncio.run(main())


# Failures


def busy(status, retry_after=None):
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return httpx2.Response(status, headers=headers, content=b"<h1>busy</h1>")


def test_a_lost_answer_makes_no_second_decision(url, pauses):
    flaky = Flaky("lose", "lose")
    with Client(url, transport=flaky) as client:
        before = client.bandit("shop").n_decided
        flaky.failures = ["lose", "lose"]
        flaky.sent.clear()
        answer = client.decide("shop")
        assert (answer.retried, client.bandit("shop").n_decided) == (True, before + 1)
    first, second, third = (request.content for request in flaky.sent[:3])
    assert first == second == third
    assert len(json.loads(first)["request_id"]) == 36
    assert len(pauses) == 4


def test_lost_answers_make_no_second_decisions(url, pauses):
    flaky = Flaky()
    with Client(url, transport=flaky) as client:
        before = client.bandit("shop").n_decided
        flaky.failures = ["lose"]
        assert all(one.retried for one in client.decide_many("shop", [{}, {}, {}]))
        flaky.failures = ["lose"]
        assert all(one.retried for one in client.decide_top("shop", 2))
        assert client.bandit("shop").n_decided == before + 5


def test_a_lost_answer_makes_no_second_decision_with_await(url, monkeypatch):
    monkeypatch.setattr(calls, "FIRST_PAUSE", 0.001)

    async def main():
        flaky = Flaky("lose", httpx2.ConnectError("no"), busy(503))
        async with AsyncClient(url, transport=flaky) as client:
            assert (await client.decide("shop")).retried
        assert len({request.content for request in flaky.sent}) == 1
        assert len(flaky.sent) == 4

    asyncio.run(main())


def test_retries_wait_longer_each_time_and_as_long_as_they_are_told(url, pauses):
    refused = httpx2.ConnectError("refused")
    flaky = Flaky(refused, refused, busy(429, "7"), busy(503), busy(502))
    with Client(url, transport=flaky) as client:
        client.decide("shop")
    assert len(pauses) == 5
    for pause, longest in zip(pauses, (0.1, 0.2, None, 0.8, 1.6), strict=True):
        if longest is None:
            assert pause == 7.0
        else:
            assert 0.5 * longest <= pause <= longest


def test_the_last_failure_is_raised(url, pauses):
    for failure, error in (
        (httpx2.ConnectError("refused"), pytest.raises(ConnectionError, match="refused")),
        (busy(503), pytest.raises(ServiceError, match="503 Service Unavailable: <h1>busy")),
    ):
        flaky = Flaky(*[failure] * 3)
        with Client(url, transport=flaky, retries=2) as client, error:
            client.decide("shop")
        assert len(flaky.sent) == 3


def test_nobody_there(pauses):
    silence = pytest.raises(ConnectionError, match="POST /v1/rewards: no answer")
    with Client(f"http://127.0.0.1:{free_port()}", retries=1) as client, silence:
        client.reward(NOBODY, 1.0)


def test_what_was_refused_is_not_tried_again(url, pauses):
    flaky = Flaky()
    with Client(url, transport=flaky) as client:
        with pytest.raises(ServiceError) as caught:
            client.decide("shop", context={"price": {"from": 1}})
        assert len(flaky.sent) == 1
        client.decide("shop", request_id="once")
        with pytest.raises(ServiceError, match="request_id"):
            client.decide("shop", request_id="once", eligible=["a"])
    problem = caught.value.problem
    assert (problem.status, problem.type) == (422, "/problems/invalid-request")
    assert problem.errors[0].pointer == "#/context"
    assert pauses == []


def test_whole_numbers_that_a_log_cannot_hold(client):
    for send in (
        lambda: client.decide("pages", actions={"a": {"price": 10**30}}),
        lambda: client.decide("pages", actions={"a": {"price": 1}}, context={"x": -(10**30)}),
        lambda: client.change_actions("pages", {"a": {"price": 10**30}}),
        lambda: client.put_bandit(
            "n", {**SHOP, "dim": None, "features": {"categorical": {"a": [10**30]}}}
        ),
    ):
        with pytest.raises(ServiceError, match=r"422 .*Expected `int`"):
            send()
    assert client.decide("pages", actions={"a": {"price": 2**53}}).logged


def test_pauses_are_limited():
    attempts = Attempts(40)
    longest = [attempts.pause(None) for _ in range(40)]
    assert max(longest) <= calls.LONGEST_PAUSE
    assert attempts.pause(None) is None
    assert Attempts(1).pause(busy(503, "86400")) == 60.0
    assert Attempts(1).pause(busy(503, "Wed, 21 Oct 2015 07:28:00 GMT")) <= 0.1


def test_names_are_quoted(url):
    flaky = Flaky()
    with Client(url, transport=flaky) as client, pytest.raises(ServiceError, match="422"):
        client.forget("shop/../x", "a/b?c=ü")
    assert flaky.sent[0].url.raw_path == b"/v1/bandits/shop%2F..%2Fx/subjects/a%2Fb%3Fc%3D%C3%BC"


def test_keys():
    with served() as (url, _):
        with Client(url) as client:
            client.put_bandit("shop", SHOP)
            client.change_actions("shop", ARMS)
        made = httpx2.post(f"{url}/v1/keys", json={"name": "web", "scopes": ["decide"]}).json()
        with Client(url, key=made["key"]) as client:
            decision = client.decide("shop")
            with pytest.raises(ServiceError, match="403"):
                client.reward(decision.decision_id, 1.0)
        with Client(url) as client, pytest.raises(ServiceError, match="401"):
            client.decide("shop")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.reward("x", float("nan")), "reward of 'x' = nan: expected a finite number"),
        (lambda c: c.rewards([("x", "much")]), "reward of 'x' = 'much': expected a finite number"),
        (lambda c: c.decide("shop", matrix=np.ones(2)), r"matrix has shape \(2,\)"),
        (lambda c: c.decide("shop", matrix=[1.0, 2.0]), r"matrix = \[1.0, 2.0\]: expected a row"),
        (lambda c: c.decide("shop", matrix=[[1.0], [1.0, 2.0]]), "all rows of one length"),
        (lambda c: c.decide("shop", matrix=[[1.0, None]]), "expected a row of numbers"),
        (lambda c: c.decide("shop", matrix=[[]]), "expected a row of numbers"),
        (lambda c: c.decide("shop", matrix=[]), "expected a row of numbers"),
        (lambda c: c.decide("", context={}), "name = '': expected text"),
        (lambda c: c.decide_many("shop", []), r"requests = \[\]: expected one at least"),
        (lambda c: c.decide_many("shop", [{}, {"matrix": []}]), r"requests\[1\]: matrix = \[\]"),
        (lambda c: c.decide_many("shop", [{}, {"contxt": {}}]), r"requests\[1\]: .*'contxt'"),
        (lambda c: c.decide_many("shop", [{}, 3]), r"requests\[1\] = 3: expected a dict"),
        (lambda c: c.decide("shop", context={"a": object()}), "expected what JSON can hold"),
    ],
)
def test_what_cannot_be_sent(call, message, pauses):
    flaky = Flaky()
    client = Client("http://127.0.0.1:1", transport=flaky)
    with pytest.raises((TypeError, ValueError), match=message):
        call(client)
    assert flaky.sent == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"base_url": "127.0.0.1:8787"}, "base_url = '127.0.0.1:8787': expected"),
        ({"base_url": "http://x", "timeout": 0.0}, "timeout = 0.0"),
        ({"base_url": "http://x", "retries": -1}, "retries = -1"),
    ],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_bad_settings(kind, arguments, message):
    with pytest.raises(ValueError, match=message):
        kind(**arguments)
