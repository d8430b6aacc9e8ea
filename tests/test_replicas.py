"""Several processes on one ledger: rewards reach every one of them, early, late or unknown (R8)."""

import random
import time
from itertools import count

import msgspec
import numpy as np
import pytest

from belated.ledger import open_ledger
from belated.ledger.events import Decided, Draft, Kind, Position
from belated.ledger.ids import Ids, to_text
from belated.ledger.loop import Loop, system_clock
from belated.service.messages import BanditSettings
from belated.service.settings import spec_of
from live_server import LiveServer
from postgres_server import postgres as postgres  # a fixture

SETTINGS = {"family": "bernoulli", "dim": 2, "window": 600.0, "late": "keep"}
ACTIONS = {"a": [1.0, 0.0], "b": [0.0, 1.0]}
names = (f"replicas_{k}" for k in count())


@pytest.fixture(params=["sqlite", "postgresql"])
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
    fresh = Loop(ledger)
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
    one, two = (Loop(open_ledger(url)) for _ in range(2))
    specs = [spec_of(BanditSettings(family="bernoulli", dim=dim)) for dim in (2, 3)]
    drafts = [loop.settings_draft("shop", s) for loop, s in zip((one, two), specs, strict=True)]
    for loop, draft in zip((one, two), drafts, strict=True):
        loop.commit([draft])
    for loop in (one, two):
        loop.catch_up()
        fold = loop.folds["shop"]
        assert (fold.spec.dim, fold.learner.dim, fold.actions.dim) == (2, 2, 2)
        loop.ledger.close()


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
