"""Several processes on one ledger: rewards reach every one of them, early, late or unknown (P8)."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count

import msgspec
import numpy as np
import pytest

from belated.ledger import open_ledger
from belated.ledger.events import Decided, Draft, Kind, Position
from belated.ledger.ids import Ids, to_text
from belated.ledger.replica import Replica, system_clock
from belated.service.keys import make_key, revoke
from belated.service.settings import spec_of
from belated.wire import BanditSettings
from support.live_server import Caller, LiveServer
from support.postgres_server import foreign_transactions

SETTINGS = {"family": "bernoulli", "dim": 2, "window": 600.0, "late": "keep"}
ACTIONS = {"a": [1.0, 0.0], "b": [0.0, 1.0]}
names = (f"replicas_{k}" for k in count())


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    return request.getfixturevalue("postgres").new_database(next(names))


@pytest.fixture
def replicas(url):
    with LiveServer(url) as one, LiveServer(url) as two:
        yield one, two


def make_shop(server, name="shop", **settings):
    assert server.call("PUT", f"/v1/bandits/{name}", SETTINGS | settings).status == 201
    assert server.call("PATCH", f"/v1/bandits/{name}/actions", {"put": ACTIONS}).status == 200


def decide(server, name="shop", **body):
    answer = server.call("POST", f"/v1/bandits/{name}/decisions", body)
    assert answer.status == 200, answer
    return answer.body["decision_id"]


def reward(server, *pairs):
    rewards = [{"decision_id": id, "reward": value} for id, value in pairs]
    answer = server.call("POST", "/v1/rewards", {"rewards": rewards})
    assert answer.status == 200, answer
    return answer.body["statuses"]


def settled(*servers):
    """The digests that all servers have, once they have seen the end of the log."""
    ledger = open_ledger(servers[0].settings.ledger)
    try:
        for _ in range(200):
            states = [server.digests() for server in servers]
            end = ledger.behind(Position(*states[0][0])) == 0
            if end and all(state == states[0] for state in states):
                return states[0]
            time.sleep(0.02)
    finally:
        ledger.close()
    raise AssertionError(states)


def metric(server, start):
    page = server.call("GET", "/metrics").body
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(start))


def test_decisions_here_and_rewards_there_give_the_same_model(replicas, url):
    one, two = replicas
    make_shop(one)
    settled(one, two)
    rng, open_ids, expected = random.Random(1), [], 0
    for k in range(60):
        open_ids.append(decide(replicas[k % 2]))
        if k % 3:
            id = open_ids.pop(rng.randrange(len(open_ids)))
            assert reward(replicas[(k + 1) % 2], (id, float(k % 2))) == ["accepted"]
            expected += 1
    position, digests = settled(one, two)
    for server in replicas:
        state = server.call("GET", "/v1/bandits/shop").body
        assert (state["n_decided"], state["n_observed"]) == (60, expected)
        assert state["n_pending"] == 60 - expected
    ledger = open_ledger(url)
    fresh = Replica(ledger)
    fresh.catch_up()
    assert [*fresh.position] == position
    assert fresh.folds["shop"].digest() == digests["shop"]
    ledger.close()


def test_a_bandit_that_is_new_at_the_other_replica_can_be_rewarded_there(replicas):
    """Before it has looked at the log again. It must not answer that the store is down."""
    one, two = replicas
    for k in range(10):
        make_shop(one, f"shop{k}")
        assert reward(two, (decide(one, f"shop{k}"), 1.0)) == ["accepted"]
    assert metric(two, "belated_store_errors_total") == 0
    settled(one, two)


def test_one_request_at_two_replicas_gets_one_decision(replicas):
    one, two = replicas
    make_shop(one)
    settled(one, two)
    for k in range(10):
        assert decide(one, request_id=f"r{k}") == decide(two, request_id=f"r{k}")
    changed = {"request_id": "r0", "eligible": ["a"]}
    assert two.call("POST", "/v1/bandits/shop/decisions", changed).status == 409


def test_what_a_store_cannot_hold_is_refused_alike_by_all(replicas):
    one, _ = replicas
    make_shop(one)
    for body in ({"request_id": "a\0b"}, {"subject": "\0"}):
        assert one.call("POST", "/v1/bandits/shop/decisions", body).status == 422
    decide(one, request_id="\n\U0001f642\u202e", subject="\x01")


def test_one_bandit_made_at_two_replicas_at_once_is_one_bandit(url):
    """Whichever comes first in the log counts, for all."""
    one, two = (Replica(open_ledger(url)) for _ in range(2))
    specs = [spec_of(BanditSettings(family="bernoulli", dim=dim)) for dim in (2, 3)]
    drafts = [
        replica.settings_draft("shop", s) for replica, s in zip((one, two), specs, strict=True)
    ]
    for replica, draft in zip((one, two), drafts, strict=True):
        replica.commit([draft])
    for replica in (one, two):
        replica.catch_up()
        fold = replica.folds["shop"]
        assert (fold.spec.dim, fold.learner.dim, fold.actions.dim) == (2, 2, 2)
        replica.ledger.close()


def test_early_unknown_and_late_rewards_are_answered_listed_and_counted(replicas, url):
    one, two = replicas
    make_shop(one)
    settled(one, two)
    early = Ids(system_clock)()
    old = Ids(lambda: system_clock() - 3_600_000_000)()
    assert reward(two, (to_text(early), 1.0), (to_text(old), 1.0), ("?", 1.0)) == [
        "parked",
        "unknown",
        "unknown",
    ]
    assert reward(one, (to_text(early), 1.0), (to_text(early), 0.0)) == ["duplicate", "conflict"]
    for server in replicas:
        (parked,) = server.call("GET", "/v1/parked").body["parked"]
        assert (parked["decision_id"], parked["reward"]) == (to_text(early), 1.0)
    for server, status, n in ((two, "parked", 1), (two, "unknown", 2), (one, "conflict", 1)):
        assert metric(server, f'belated_rewards_total{{bandit="",status="{status}"}}') == n
    # the decision becomes visible: the reward that waited is taken in everywhere
    x = np.array([1.0, 0.0]).tobytes()
    body = msgspec.msgpack.encode(Decided(x, "a", 0, 1.0, 1, "greedy", 0.0, 0.0, 0.0))
    now = system_clock()
    ledger = open_ledger(url)
    ledger.commit([Draft(Kind.DECIDED, "shop", early, now, due=now + 10**9, body=body)])
    ledger.close()
    settled(one, two)
    for server in replicas:
        assert server.call("GET", "/v1/parked").body["parked"] == []
        state = server.call("GET", "/v1/bandits/shop").body
        assert (state["n_decided"], state["n_observed"]) == (1, 1)


def test_a_late_reward_is_kept_counted_and_told(replicas):
    one, two = replicas
    make_shop(one, window=0.05)
    settled(one, two)
    ids = [decide(one) for _ in range(3)]
    time.sleep(0.1)
    assert reward(two, *((id, 1.0) for id in ids)) == ["expired"] * 3
    assert reward(one, *((id, 1.0) for id in ids)) == ["duplicate"] * 3
    settled(one, two)
    for server in replicas:
        state = server.call("GET", "/v1/bandits/shop").body
        assert (state["n_late"], state["n_observed"]) == (3, 0)
        story = server.call("GET", f"/v1/decisions/{ids[0]}").body
        assert story["status"] == "late"
        assert {"decided", "rewarded"} <= {event["kind"] for event in story["events"]}


def test_a_changed_key_holds_at_once_on_every_replica(url):
    """Also on one that has not looked at the log by itself since it started."""
    with LiveServer(url) as one, LiveServer(url, follow_every=3600.0) as two:
        assert two.call("GET", "/v1/bandits").status == 200
        body = {"name": "me", "scopes": ["admin", "read"]}
        admin = one.call("POST", "/v1/keys", body).body["key"]
        assert two.call("GET", "/v1/bandits").status == 401  # the first key closes the door

        def make_and_revoke(_):
            make, use = Caller(one.port, admin), []
            for _ in range(10):
                key = make("POST", "/v1/keys", body).body
                use.append(Caller(two.port, key["key"]))
                assert use[-1]("GET", "/v1/bandits").status == 200
                assert make("DELETE", f"/v1/keys/{key['id']}").status == 204
                assert use[-1]("GET", "/v1/bandits").status == 401
            for caller in (make, *use):
                caller.close()

        with ThreadPoolExecutor(10) as pool:
            list(pool.map(make_and_revoke, range(10)))


def test_a_key_that_a_command_made_or_revoked_holds_at_once(url):
    with LiveServer(url, follow_every=3600.0) as server:
        assert server.call("GET", "/v1/bandits").status == 200
        ledger = open_ledger(url)
        key = make_key(ledger, "me", ["read"])
        use = Caller(server.port, key.text)
        assert server.call("GET", "/v1/bandits").status == 401
        assert use("GET", "/v1/bandits").status == 200
        revoke(ledger, key.id)
        assert use("GET", "/v1/bandits").status == 401
        use.close()
        ledger.close()


def test_transactions_of_somebody_else_hold_no_replica_back(postgres):
    url = postgres.new_database(next(names))
    elsewhere = postgres.new_database(next(names))
    with LiveServer(url) as one, LiveServer(url) as two, foreign_transactions(url, elsewhere):
        make_shop(one)
        settled(one, two)
        ids = [decide(server) for server in (one, two)]
        assert reward(two, (ids[0], 1.0), (ids[1], 0.0)) == ["accepted"] * 2
        settled(one, two)
        for server in (one, two):
            assert server.call("GET", "/v1/bandits/shop").body["n_observed"] == 2
            assert server.call("GET", "/readyz").body["status"] == "ok"
            assert metric(server, "belated_model_staleness_rounds") == 0
            assert metric(server, "belated_model_staleness_seconds") < 5
        scopes = ["admin", "read"]
        key = one.call("POST", "/v1/keys", {"name": "me", "scopes": scopes})
        assert key.status == 201
        assert two.call("GET", "/v1/bandits").status == 401
        here, there = (Caller(server.port, key.body["key"]) for server in (one, two))
        with closing(here), closing(there):
            assert there("GET", "/v1/bandits").status == 200
            assert here("DELETE", f"/v1/keys/{key.body['id']}").status == 204
            assert there("GET", "/v1/bandits").status == 401


def test_without_the_store_keys_are_not_trusted(postgres):
    """A revocation cannot be known of: only decisions go on, with their fallback."""
    url = postgres.new_database(next(names))
    with LiveServer(url) as server:
        make_shop(server, fallback="a")
        scopes = ["admin", "read", "decide", "reward"]
        key = server.call("POST", "/v1/keys", {"name": "me", "scopes": scopes}).body
        use = Caller(server.port, key["key"])
        assert use("GET", "/v1/bandits").status == 200
        postgres.stop()
        try:
            time.sleep(0.5)
            for method, path in (("GET", "/v1/bandits"), ("GET", "/v1/dashboard")):
                answer = use(method, path)
                assert (answer.status, answer.body["type"]) == (503, "/problems/store-unavailable")
            answer = use("POST", "/v1/bandits/shop/decisions", {})
            assert (answer.status, answer.body["logged"]) == (200, False)
            assert server.call("GET", "/readyz").body["status"] == "store unavailable"
            page = server.call("GET", "/metrics").body
            assert "belated_model_staleness_rounds NaN" in page
            assert metric(server, "belated_model_staleness_seconds") > 0.4
        finally:
            postgres.start()
        for _ in range(500):
            if use("GET", "/v1/bandits").status == 200:
                break
            time.sleep(0.02)
        else:
            raise AssertionError("it never came back")
        use.close()


def test_parked_rewards_come_in_pages(replicas):
    one, two = replicas
    ids = sorted(to_text(Ids(system_clock)()) for _ in range(5))
    assert reward(one, *((id, 1.0) for id in ids)) == ["parked"] * 5
    path, seen = "/v1/parked?limit=2", []
    while path is not None:
        page = two.call("GET", path).body
        seen += [parked["decision_id"] for parked in page["parked"]]
        path = page["next"] and f"/v1/parked?limit=2&after={page['next']}"
    assert seen == ids
    for query in ("limit=0", "before=1"):
        assert two.call("GET", f"/v1/parked?{query}").status == 422
    assert two.call("GET", "/v1/parked?after=?").status == 404
