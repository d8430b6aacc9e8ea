"""Batches of decisions and rankings without repetition over HTTP: one transaction, idempotent."""

import asyncio

import httpx2
import pytest

from belated import wire
from belated.ledger.events import START, Kind
from belated.ledger.proposing import NOTHING_SAID
from belated.service.app import new_app
from belated.service.writer import MOST_DRAFTS
from support.service_client import ACTIONS, BrokenLedger, Client

BATCH, TOP = "/v1/bandits/shop/decisions/batch", "/v1/bandits/shop/decisions/top"
ROWS = [{"id": name, "features": x} for name, x in ACTIONS.items()]


def new_client(ledger=None, **settings):
    made = Client(ledger)
    made.bandit(**settings)
    made("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS})
    return made


@pytest.fixture
def client():
    return new_client()


@pytest.fixture(params=[None, "delayed-ofu-glm"])
def any_client(request):
    """A bandit of the default, which draws, or of a policy that does not."""
    return new_client(policy=request.param)


def batch(client, *requests, status=200):
    answer = client("POST", BATCH, {"decisions": list(requests)}, status)
    return answer["decisions"] if status == 200 else answer


def top(client, n, status=200, **body):
    answer = client("POST", TOP, {"top": n, **body}, status)
    return answer["decisions"] if status == 200 else answer


def ids(decisions):
    return [decision["decision_id"] for decision in decisions]


def decided(client):
    events, _ = client.service.ledger.follow(START, 10_000)
    return [event for event in events if event.kind is Kind.DECIDED]


def test_a_batch_is_its_decisions_in_one_transaction(client):
    requests = [
        {},
        {"eligible": ["c", "a"]},
        {"actions": ROWS, "subject": "anna"},
        {"matrix": list(ACTIONS.values()), "probabilities": True},
    ]
    made = batch(client, *requests)
    alone = [new_client().decide(**request) for request in requests]
    different = ("decision_id", "model_version")
    for one, other in zip(made, alone, strict=True):
        facts = {key: value for key, value in one.items() if key not in different}
        assert facts == {key: value for key, value in other.items() if key not in different}
    assert [one["action"] for one in made] == ["b", "a", "b", "1"]
    log = decided(client)
    assert len(log) == len(set(ids(made))) == 4
    assert len({event.tx for event in log}) == 1
    assert client.service.tally.decisions["shop"] == 4
    assert client.reward(*((id, 1.0) for id in ids(made))) == ["accepted"] * 4


def test_a_transaction_holds_what_a_request_may_ask_for(any_client):
    assert wire.MOST_DECISIONS <= MOST_DRAFTS  # more drafts would be cut
    made = batch(any_client, *[{}] * wire.MOST_DECISIONS)
    assert len(set(ids(made))) == wire.MOST_DECISIONS
    assert all(0.0 < one["propensity"] <= 1.0 for one in made)
    assert len({event.tx for event in decided(any_client)}) == 1


def test_the_default_draws_each_decision_of_a_batch():
    made = batch(new_client(policy=None), *[{}] * wire.MOST_DECISIONS)
    assert {one["action"] for one in made} == set(ACTIONS)
    assert all(one["propensity"] < 1.0 for one in made)


@pytest.mark.parametrize("policy", [None, "delayed-ofu-glm"])
def test_a_batch_may_be_sent_again(policy):
    ledger = BrokenLedger()
    client = new_client(ledger, policy=policy)
    requests = [{"request_id": f"mail-{k}"} for k in range(3)]
    first = batch(client, *requests)
    restarted = Client(ledger, seed=2)
    again = batch(restarted, *requests, {"request_id": "mail-3"}, {"request_id": "mail-0"})
    assert again[:3] == [one | {"retried": True} for one in first]
    assert again[4] == again[0]
    assert [one["retried"] for one in again] == [True, True, True, False, True]
    assert len(decided(client)) == 4
    assert restarted.service.tally.decisions["shop"] == 1
    twice = batch(restarted, {"request_id": "same"}, {"request_id": "same"})
    assert twice[0]["decision_id"] == twice[1]["decision_id"]


def test_a_batch_is_given_again_though_it_could_not_be_made_now(client):
    (first,) = batch(client, {"eligible": ["c"], "request_id": "r"})
    client("PATCH", "/v1/bandits/shop/actions", {"drop": ["c"]})
    new, again = batch(client, {}, {"eligible": ["c"], "request_id": "r"})
    assert (again["decision_id"], again["retried"]) == (first["decision_id"], True)
    assert (new["action"], new["retried"]) == ("b", False)
    problem = batch(client, {}, {"eligible": ["c"], "request_id": "other"}, status=422)
    assert problem["detail"].startswith("decisions[1]: eligible = 'c'")


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        ([], "length >= 1"),
        ([{}] * 101, "length <= 100"),
        ([{}, {"matrix": [[3.0, 4.0]]}], "decisions[1]: actions[0] has norm 5"),
        ([{}, {}, {"matrix": [[0.1, 0.2], [0.1]]}], "decisions[2]: matrix"),
        ([{}, {"eligible": ["z"]}], "decisions[1]: eligible = 'z'"),
        ([{}, {"top": 2}], "unknown field"),
        ([{}, {"played": "a"}], "decisions[1]: played = 'a'"),
    ],
)
def test_a_bad_batch_changes_nothing(client, requests, said):
    before = client.service.replica.folds["shop"].digest()
    assert said in batch(client, *requests, status=422)["detail"]
    assert client.service.replica.folds["shop"].digest() == before
    assert decided(client) == []


def test_a_reused_request_id_refuses_the_batch_alone(client):
    """Requests of the same moment are written in one transaction, and are not refused with it."""
    client.decide(request_id="r")
    wrong = {"decisions": [{}, {"request_id": "new"}, {"request_id": "r", "eligible": ["a"]}]}

    async def at_once():
        app = httpx2.ASGITransport(new_app(client.service))
        async with httpx2.AsyncClient(transport=app, base_url="http://test") as http:
            bodies = [{"decisions": [{}, {}]}, wrong, {"decisions": [{"request_id": "other"}]}]
            return await asyncio.gather(*(http.post(BATCH, json=body) for body in bodies))

    before, refused, after = asyncio.run(at_once())
    assert [before.status_code, refused.status_code, after.status_code] == [200, 409, 200]
    assert refused.json()["type"] == "/problems/request-id-reused"
    assert "request_id = 'r'" in refused.json()["detail"]
    assert len(decided(client)) == 1 + 2 + 1
    assert client.service.abandoned == {}
    assert client.service.tally.decisions["shop"] == 4


def test_requests_that_are_written_together_approve_of_their_own_outcomes(client):
    writer, replica, seen = client.service.writer, client.service.replica, []

    async def at_once():
        sizes = ((1, None), (2, seen.append), (3, seen.append))
        drafts = [[replica.propose("shop", NOTHING_SAID).draft] * n for n, _ in sizes]
        return await asyncio.gather(
            *(writer.write(few, how) for few, (_, how) in zip(drafts, sizes, strict=True))
        )

    written = asyncio.run(at_once())
    assert seen == written[1:]
    assert len({event.tx for event in decided(client)}) == 1


def test_a_store_that_fails_makes_no_decision():
    client = new_client(fallback="a")
    client.service.ledger.broken = True
    for problem in (batch(client, {}, {"request_id": "r"}, status=503), top(client, 2, 503)):
        assert problem["type"] == "/problems/store-unavailable"
    assert len(client.service.abandoned) == 3  # those that nobody can ask for again
    client.service.ledger.broken = False
    assert [one["retried"] for one in batch(client, {"request_id": "r"})] == [False]
    assert len(decided(client)) == 1


def test_nobody_decides_for_an_unknown_bandit(client):
    for path, body in ((BATCH, {"decisions": [{}]}), (TOP, {"top": 1})):
        client("POST", path.replace("shop", "nobody"), body, 404)


# --------------------------------------------------------------------------- without repetition


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"eligible": ["a", "b", "c"]},
        {"actions": ROWS},
        {"matrix": list(ACTIONS.values())},
    ],
)
def test_a_ranking_in_every_form(client, form):
    ranked = top(client, 3, probabilities=True, **form)
    assert [one["index"] for one in ranked] == [1, 0, 2]  # the longest first: nothing is known
    names = ["1", "0", "2"] if "matrix" in form else ["b", "a", "c"]
    assert [one["action"] for one in ranked] == names
    assert [one["probabilities"] for one in ranked] == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
    log = decided(client)
    assert len({event.tx for event in log}) == 1
    stories = [client("GET", f"/v1/decisions/{id}") for id in ids(ranked)]
    assert [story["n_actions"] for story in stories] == [3, 2, 1]
    assert [story["features"] for story in stories] == [ACTIONS[name] for name in "bac"]
    if "actions" not in form and "matrix" not in form:  # the log knows what was left
        why = client("GET", f"/v1/decisions/{ids(ranked)[1]}", explain=True)["explanation"]
        assert [view["action"] for view in why["actions"]] == ["a", "c"]
    assert client.reward(*((id, 1.0) for id in ids(ranked))) == ["accepted"] * 3


def test_propensities_are_those_given_the_choices_before():
    client = new_client(policy="delayed-ofu-glm", exploration=0.6)
    for _ in range(10):
        left = 3
        for one in top(client, 3, probabilities=True):
            assert one["propensity"] == one["probabilities"][one["index"]]
            assert sum(one["probabilities"]) == pytest.approx(1.0)
            low, high = 0.6 / left, 0.6 / left + 0.4
            assert any(one["propensity"] == pytest.approx(p) for p in (low, high))
            assert sum(p > 0.0 for p in one["probabilities"]) == left
            left -= 1


def test_a_ranking_of_the_default_has_no_repetition():
    client = new_client(policy=None)
    for _ in range(10):
        ranked = top(client, 3, probabilities=True)
        assert {one["action"] for one in ranked} == set(ACTIONS)
        assert ranked[2]["propensity"] == 1.0  # the only one left
        for one in ranked:
            assert one["propensity"] == one["probabilities"][one["index"]] > 0.0
            assert sum(one["probabilities"]) == pytest.approx(1.0)
    assert len({event.tx for event in decided(client)}) == 10


def test_a_ranking_may_be_sent_again(any_client):
    client = any_client
    first = top(client, 2, request_id="page", probabilities=True)
    again = top(client, 2, request_id="page", probabilities=True)
    assert again == [one | {"retried": True} for one in first]
    client("PATCH", "/v1/bandits/shop/actions", {"drop": ["b", "c"]})
    assert top(client, 2, request_id="page", probabilities=True) == again
    assert len(decided(client)) == 2
    for changed in ({"n": 1}, {"n": 2, "eligible": ["a"]}):
        problem = top(client, status=409, request_id="page", **changed)
        assert problem["type"] == "/problems/request-id-reused"
    story = client("GET", f"/v1/decisions/{first[1]['decision_id']}")
    assert story["request_id"] == "page (rank 2)"
    client.decide(request_id="list (rank 2)", eligible=["a"])
    top(client, 1, request_id="other")
    before = len(decided(client))
    client("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS})
    top(client, 2, 409, request_id="list")
    assert len(decided(client)) == before


@pytest.mark.parametrize(
    ("n", "body", "said"),
    [
        (0, {}, ">= 1"),
        (101, {}, "<= 100"),
        (4, {}, "top = 4: expected at most 3, the number of actions"),
        (2, {"eligible": ["a"]}, "top = 2: expected at most 1"),
        (3, {"matrix": [[0.1, 0.1]] * 2}, "top = 3: expected at most 2"),
        (1, {"played": "a"}, "played = 'a'"),
        (1, {"eligible": ["a"], "matrix": [[0.1, 0.1]]}, "one of eligible, actions and matrix"),
        (2, {"matrix": [[0.1, 0.1], [3.0, 4.0]]}, "norm 5"),
    ],
)
def test_a_bad_ranking_changes_nothing(client, n, body, said):
    assert said in top(client, n, 422, **body)["detail"]
    assert decided(client) == []


def test_there_is_no_ranking_in_shadow_mode():
    client = new_client(mode="shadow", baseline="a")
    assert "top = 2: expected a bandit that is not in" in top(client, 2, 422)["detail"]
    assert [one["action"] for one in batch(client, {}, {"played": "c"})] == ["a", "c"]
