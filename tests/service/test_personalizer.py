"""The Personalizer endpoints, with bodies such as programs written for that service send."""

import time

import httpx2
import pytest

from belated.client import Client
from belated.core.events import Status
from belated.ledger.ids import to_text
from belated.ledger.protocol import StoreUnavailableError
from belated.service.personalizer import RankableAction, RankRequest, columns, decision_request
from support.running_service import served
from support.service_client import Client as ServiceClient

RANK = "/personalizer/v1.0/rank"
SETTINGS = {
    "family": "bounded",
    "features": {
        "hashed": {"id": 8, "type": 8, "timeOfDay": 4, "user.profile": 4},
        "interactions": [["type", "timeOfDay"]],
    },
    "loop": "conversion",
    "window": 600.0,
    "exploration": 0.2,
}
BODY = {
    "contextFeatures": [{"timeOfDay": "Morning"}, {"user": {"profile": "guest", "age": 30}}],
    "actions": [
        {"id": "News", "features": [{"type": "text"}, {"length": {"words": 500}}]},
        {"id": "Sports", "features": [{"type": "video"}]},
        {"id": "Film", "features": []},
    ],
    "excludedActions": ["Sports"],
    "eventId": "75269AD0",
    "deferActivation": False,
}


@pytest.fixture(scope="module")
def running():
    with served(personalizer="pages") as (url, service), Client(url) as client:
        client.put_bandit("pages", SETTINGS)
        yield url, service, client


@pytest.fixture
def http(running):
    with httpx2.Client(base_url=running[0]) as http:
        yield http


def rank(http, event_id, **changes):
    return http.post(RANK, json={**BODY, "eventId": event_id, **changes})


def decision_of(service, event_id):
    event, _ = service.ledger.requested("pages", event_id)
    return event


def test_rank_and_reward(running, http):
    _, service, client = running
    answer = http.post(RANK, json=BODY)
    assert answer.status_code == 201
    document = answer.json()
    assert set(document) == {"ranking", "eventId", "rewardActionId"}
    assert document["eventId"] == "75269AD0"
    chosen = document["rewardActionId"]
    assert chosen in ("News", "Film")
    probability = {row["id"]: row["probability"] for row in document["ranking"]}
    assert [row["id"] for row in document["ranking"]] == [
        chosen,
        "Sports",  # excluded actions keep their place
        "Film" if chosen == "News" else "News",
    ]
    assert probability["Sports"] == 0.0
    assert sum(probability.values()) == pytest.approx(1.0)
    assert probability[chosen] == 0.5  # nothing has been learnt yet: both are drawn alike
    reward = http.post("/personalizer/v1.0/events/75269AD0/reward", json={"value": 0.5})
    assert (reward.status_code, reward.content) == (204, b"")
    story = client.story(client_id(service, "75269AD0"))
    assert (story.action, story.propensity) == (chosen, probability[chosen])
    assert story.context == {"timeOfDay": "Morning", "user.profile": "guest", "user.age": 30}
    assert [event.reward for event in story.events] == [None, 0.5]


def client_id(service, event_id):
    id = decision_of(service, event_id).id.hex()
    return f"{id[:8]}-{id[8:12]}-{id[12:16]}-{id[16:20]}-{id[20:]}"


def test_the_same_event_gets_the_same_answer(running, http):
    _, service, _ = running
    first = rank(http, "twice").json()
    decided = service.fold("pages").learner.n_decided
    for _ in range(10):  # one draw in ten would be another one
        assert rank(http, "twice").json() == first
    assert service.fold("pages").learner.n_decided == decided
    other = rank(http, "twice", excludedActions=[])
    assert (other.status_code, other.json()["type"]) == (409, "/problems/request-id-reused")
    assert rank(http, "twice", deferActivation=True).status_code == 409


def test_an_event_without_an_id_gets_one(running, http):
    ids = {rank(http, None).json()["eventId"] for _ in range(3)}
    assert len(ids) == 3
    assert all(len(id) == 36 for id in ids)
    least = {"actions": [{"id": "only"}]}
    document = http.post(RANK, json=least).json()
    assert document["rewardActionId"] == "only"
    assert document["ranking"] == [{"id": "only", "probability": 1.0}]


def test_rewards_that_cannot_be_used(running, http):
    rank(http, "r")

    def reward(event_id, value):
        answer = http.post(f"/personalizer/v1.0/events/{event_id}/reward", json={"value": value})
        return answer.status_code, answer.json()["type"] if answer.content else None

    assert reward("never-ranked", 1.0) == (404, "/problems/unknown-event")
    assert reward("r", 7.0) == (422, "/problems/invalid-request")
    assert reward("r", 1.0) == (204, None)
    assert reward("r", 1.0) == (204, None)
    assert reward("r", 0.0) == (409, "/problems/other-reward")
    assert reward("r", None) == (422, "/problems/invalid-request")
    assert http.post("/personalizer/v1.0/events/none/activate").status_code == 404


@pytest.mark.parametrize(("combine", "learnt"), [("first", 0.25), ("sum", 0.75)])
def test_several_rewards_of_an_event(combine, learnt):
    """Personalizer's Earliest and Sum; the same value again counts again, as it did there."""
    with served(personalizer="pages") as (url, service), Client(url) as client:
        client.put_bandit("pages", {**SETTINGS, "combine": combine})
        with httpx2.Client(base_url=url) as http:
            rank(http, "e")
            for value in (0.25, 0.25, 0.25):
                answer = http.post("/personalizer/v1.0/events/e/reward", json={"value": value})
                assert answer.status_code == 204
        ((_, pending),) = service.replica.folds["pages"].pending.items()
        assert pending.held == learnt


def test_a_deferred_event_counts_once_it_is_activated(running, http):
    _, service, _ = running
    fold = service.fold("pages")
    rewarded = {"json": {"value": 1.0}}
    first = rank(http, "later", deferActivation=True)
    assert first.status_code == 201
    assert fold.pending.get(decision_of(service, "later").id) is None
    too_soon = http.post("/personalizer/v1.0/events/later/reward", **rewarded)
    assert (too_soon.status_code, too_soon.json()["type"]) == (
        409,
        "/problems/event-not-activated",
    )
    pending = len(fold.pending)
    for _ in range(2):
        assert http.post("/personalizer/v1.0/events/later/activate").status_code == 204
    assert len(fold.pending) == pending + 1, "activated once"
    active = decision_of(service, "belated:activated:later")
    deferred = decision_of(service, "later")
    played = [*fold.statistics.actions.by_name][fold.played[fold.pending.get(active.id).row]]
    assert played == first.json()["rewardActionId"]
    assert active.due - active.time == 600_000_000, "the window opens when it is shown"
    assert active.time > deferred.time
    assert rank(http, "later", deferActivation=True).json() == first.json()
    assert http.post("/personalizer/v1.0/events/later/reward", **rewarded).status_code == 204
    assert fold.pending.get(active.id).held == 1.0
    # one that was not deferred is active already
    rank(http, "now")
    pending = len(fold.pending)
    assert http.post("/personalizer/v1.0/events/now/activate").status_code == 204
    assert len(fold.pending) == pending


def test_what_is_never_activated_is_never_learnt():
    """A clock that runs ahead closes all windows: of three decisions, two learn the default."""
    now = [1_800_000_000_000_000]
    with served(personalizer="pages", clock=lambda: now[0]) as (url, service):
        with Client(url) as client:
            client.put_bandit("pages", SETTINGS)
        with httpx2.Client(base_url=url) as http:
            rank(http, "shown")
            rank(http, "deferred", deferActivation=True)
            rank(http, "activated", deferActivation=True)
            http.post("/personalizer/v1.0/events/activated/activate")
            learner = service.fold("pages").learner
            now[0] += 601_000_000
            deadline = 600
            while learner.n_observed < 2 and deadline:
                deadline -= 1
                http.get("/healthz")
                time.sleep(0.05)
            assert learner.n_observed == 2
            assert service.fold("pages").counts.expired == 2
            assert not service.fold("pages").pending


def test_apprentice_mode_plays_the_first_action(running, http):
    _, service, client = running
    client.put_bandit("pages", {**SETTINGS, "mode": "shadow"})
    try:
        for k in range(5):
            document = rank(http, f"apprentice-{k}").json()
            assert document["rewardActionId"] == "News"
            assert document["ranking"][0] == {"id": "News", "probability": 1.0}
        story = client.story(client_id(service, "apprentice-0"))
        assert story.proposal in ("News", "Film")
    finally:
        client.put_bandit("pages", SETTINGS)


DRAWS = {"policy": "thompson", "exploration": 0.0, "loop": "explicit"}


def test_a_policy_that_draws_says_its_probabilities():
    with served(personalizer="pages") as (url, service):
        with Client(url) as client:
            client.put_bandit("pages", {**SETTINGS, **DRAWS})
        with httpx2.Client(base_url=url) as http:
            document = rank(http, "x").json()
            again = rank(http, "x").json()
        with Client(url) as client:
            story = client.story(client_id(service, "x"))
    said = {row["id"]: row["probability"] for row in document["ranking"]}
    assert again == document
    assert said["Sports"] == 0.0
    assert sum(said.values()) == pytest.approx(1.0)
    assert min(said["News"], said["Film"]) > 0.0
    assert story.propensity == said[document["rewardActionId"]]
    assert story.probabilities == [said["News"], said["Film"]]


def test_while_the_store_is_down_the_fallback_is_answered():
    def fails(drafts, accepts=None):
        raise StoreUnavailableError("no space left")

    with served(personalizer="pages") as (url, service), httpx2.Client(base_url=url) as http:
        with Client(url) as client:
            client.put_bandit("pages", {**SETTINGS, "fallback": "Film"})
        service.ledger.commit = fails
        document = rank(http, "down").json()
        assert document == {
            "ranking": [
                {"id": "Film", "probability": None},
                {"id": "Sports", "probability": 0.0},
                {"id": "News", "probability": None},
            ],
            "eventId": "down",
            "rewardActionId": "Film",
            "logged": False,
        }
        assert len(rank(http, None).json()["eventId"]) == 36
        assert service.tally.not_logged == {"pages": 2}
        assert len(service.abandoned) == 2, "a commit that took place after all is cancelled"
        # one that may not be chosen is no fallback: who gave an id can ask again with it
        refused = rank(http, "excluded", excludedActions=["Film"])
        assert (refused.status_code, refused.json()["type"]) == (503, "/problems/store-unavailable")
        assert len(service.abandoned) == 2
        assert rank(http, None, excludedActions=["Film"]).status_code == 503
        assert len(service.abandoned) == 3
        del service.ledger.commit
        assert (
            http.post("/personalizer/v1.0/events/down/reward", json={"value": 1.0}).status_code
            == 404
        )
        assert "logged" not in rank(http, "up").json()


# What is refused


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"actions": []}, "length >= 1"),
        ({"excludedActions": ["News", "Sports", "Film"]}, "one action at least left"),
        ({"actions": [{"id": "a"}, {"id": "a"}]}, "every id once"),
        ({"contextFeatures": [{"a": 1}, {"a": 2}]}, "contextFeatures: 'a' is there twice"),
        ({"contextFeatures": [{"type": "x"}]}, "in actions and context"),
        ({"contextFeatures": {"a": 1}}, "Expected `array"),
        ({"actions": [{"id": "a", "features": [3]}]}, "Expected `object`"),
        ({"eventId": ""}, "length >= 1"),
        ({"contextFeatures": [{"a": 10**30}]}, "can't serialize ints"),
        ({"contextFeatures": [{"a": -(10**30)}]}, "can't serialize ints"),
        ({"slots": []}, "unknown field `slots`"),
    ],
)
def test_bad_requests_change_nothing(running, http, changes, detail):
    _, service, _ = running
    version = service.fold("pages").version
    answer = rank(http, "bad", **changes)
    assert (answer.status_code, answer.headers["content-type"]) == (
        422,
        "application/problem+json",
    )
    assert detail in answer.json()["detail"]
    assert service.fold("pages").version == version


def test_deep_objects_are_refused(http):
    deep = "x"
    for _ in range(300):
        deep = {"a": deep}
    answer = rank(http, "deep", contextFeatures=[deep])
    assert (answer.status_code, "8 deep at most" in answer.json()["detail"]) == (422, True)
    body = '{"actions": [{"id": "a", "features": [' + '{"a":' * 5_000 + "1"
    answer = http.post(RANK, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400


def test_the_header_of_that_service_carries_the_key():
    with served(personalizer="pages") as (url, _), httpx2.Client(base_url=url) as http:
        with Client(url) as client:
            client.put_bandit("pages", SETTINGS)
        admin = http.post("/v1/keys", json={"name": "admin", "scopes": ["admin"]}).json()["key"]
        made = {"admin": admin}
        for name, scopes, bandit in (
            ("all", ["decide", "reward"], None),
            ("own", ["decide", "reward"], "pages"),
            ("other", ["decide", "reward"], "shop"),
            ("reading", ["read"], None),
        ):
            body = {"name": name, "scopes": scopes, "bandit": bandit}
            answer = http.post("/v1/keys", json=body, headers={"X-API-Key": admin})
            made[name] = answer.json()["key"]
        codes = {}
        for name, key in made.items():
            headers = {"Ocp-Apim-Subscription-Key": key}
            answer = http.post(RANK, json={**BODY, "eventId": name}, headers=headers)
            codes[name] = answer.status_code
        assert codes == {"admin": 403, "all": 201, "own": 201, "other": 403, "reading": 403}
        assert http.post(RANK, json=BODY).status_code == 401
        path = "/personalizer/v1.0/events/own/reward"
        headers = {"Ocp-Apim-Subscription-Key": made["other"]}
        assert http.post(path, json={"value": 1.0}, headers=headers).status_code == 403


def test_without_the_option_there_is_nothing():
    with served() as (url, _):
        assert httpx2.post(f"{url}{RANK}", json=BODY).status_code == 404
        assert RANK not in httpx2.get(f"{url}/openapi.json").json()["paths"]


def test_the_document_describes_them(http):
    paths = http.get("/openapi.json").json()["paths"]
    assert "201" in paths[RANK]["post"]["responses"]
    assert "/personalizer/v1.0/events/{eventId}/activate" in paths


def test_without_the_bandit(running):
    with served(personalizer="none") as (url, _):
        answer = httpx2.post(f"{url}{RANK}", json=BODY)
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/unknown-bandit")


def test_columns():
    found = columns("x", [{"a": {"b": [1, {"c": None}]}, "d": True}, {"e": {}}, {}])
    assert found == {"a.b.0": 1, "a.b.1.c": None, "d": True}
    assert columns("x", None) == {}
    request = decision_request(RankRequest([RankableAction("n", None)], None, None, "e"))
    assert (request.context, request.request_id) == (None, "e")
    assert request.actions[0].features == {"id": "n"}


def test_a_list_is_kept_where_a_column_of_tags_is_for_it():
    client = ServiceClient(personalizer="shop")
    features = {"categorical": {"id": ["n", "m"]}, "tags": {"user.likes": ["sea", "snow", "sun"]}}
    client.bandit(dim=None, policy=None, features=features)
    context = [{"user": {"likes": ["sea", "sun"]}}]
    body = {"contextFeatures": context, "actions": [{"id": "n"}], "eventId": "e"}
    client("POST", RANK, body, 201)
    event, _ = client.service.ledger.requested("shop", "e")
    direct = client.decide(
        context={"user.likes": ["sea", "sun"]}, actions=[{"id": "n", "features": {"id": "n"}}]
    )
    ranked, asked = (
        client("GET", f"/v1/decisions/{id}")["features"]
        for id in (to_text(event.id), direct["decision_id"])
    )
    assert ranked == asked
    names = client.service.replica.folds["shop"].actions.features.names
    there = {name for name, value in zip(names, ranked, strict=True) if value}
    assert there == {"id=n", "user.likes=sea", "user.likes=sun", "intercept"}


def test_replies_to_both_apis_are_about_the_same_decision(running, http):
    """A reward may come by the other door."""
    _, service, client = running
    rank(http, "mixed")
    assert client.reward(client_id(service, "mixed"), 1.0) == Status.ACCEPTED
    path = "/personalizer/v1.0/events/mixed/reward"
    assert http.post(path, json={"value": 0.0}).status_code == 409


def test_rank_here_and_reward_there(postgres):
    """Two machines on one PostgreSQL: an event is known to both."""
    url = postgres.new_database("personalizer")
    with (
        served(url, personalizer="pages") as (here, one),
        served(url, personalizer="pages") as (there, other),
        httpx2.Client() as http,
    ):
        with Client(here) as client:
            client.put_bandit("pages", SETTINGS)
        while "pages" not in other.replica.folds:
            time.sleep(0.01)
        first = http.post(f"{here}{RANK}", json={**BODY, "deferActivation": True}).json()
        again = http.post(f"{there}{RANK}", json={**BODY, "deferActivation": True}).json()
        assert again == first
        path = "/personalizer/v1.0/events/75269AD0"
        assert http.post(f"{there}{path}/activate").status_code == 204
        assert http.post(f"{here}{path}/reward", json={"value": 1.0}).status_code == 204
        assert http.post(f"{there}{path}/reward", json={"value": 1.0}).status_code == 204
        assert http.post(f"{there}{path}/reward", json={"value": 0.5}).status_code == 409
        while other.replica.position != one.replica.position:
            time.sleep(0.01)
        assert one.fold("pages").digest() == other.fold("pages").digest()
