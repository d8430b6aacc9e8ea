"""Health is answered within moments, whatever the service works on: told by the order of events."""

import asyncio
import random
import sys
import threading

from belated.ledger.proposing import NOTHING_SAID
from belated.ledger.replica import Replica
from belated.ledger.stores.memory import MemoryLedger
from belated.service import routes, writer
from belated.service import service as service_module
from belated.service.http import decoding
from belated.service.http.limits import MAX_BODY, Limits
from belated.service.routes import new_api
from support.event_loop import (
    ACTIONS,
    SETTINGS,
    decision,
    digest_of_log,
    in_process,
    make_shop,
    reward,
)
from support.live_server import LiveServer

JSON = {"Content-Type": "application/json"}


def test_a_body_that_would_hold_up_everybody_is_refused(tmp_path):
    async def send(http, service):
        limits = {operation.max_bytes for operation in new_api(service).operations}
        body = b'{"rewards": [' + b" " * MAX_BODY + b"]}"
        answer = await http.post("/v1/rewards", content=body, headers=JSON)
        return limits, answer.status_code, answer.json()["detail"]

    limits, status, detail = in_process(send)
    assert limits == {MAX_BODY}
    assert (status, detail) == (413, "A body may have 1000000 bytes here: send several.")
    limits = Limits(max_body=2_000)
    with LiveServer(f"sqlite:///{tmp_path}/shop.db", limits=limits) as server:
        make_shop(server)
        actions = {f"a{k}": [0.1, 0.1] for k in range(200)}
        refused = server.call("PATCH", "/v1/bandits/shop/actions", {"put": actions})
        assert (refused.status, "2000 bytes" in refused.body["detail"]) == (413, True)


def test_a_body_of_many_tiny_objects_is_refused_before_they_are_made(monkeypatch):
    """300,000 decisions were made, of which 100 are allowed."""
    made, answers = [], []

    async def send(http, service):
        monkeypatch.setattr(decoding, "_decoded", lambda *given: made.append(1))
        for path, list in (("bandits/shop/decisions/batch", "decisions"), ("outcomes", "outcomes")):
            body = b'{"%b":[' % list.encode() + b"{}," * 30_000 + b"{}]}"
            answers.append(await http.post(f"/v1/{path}", content=body, headers=JSON))
        return [(answer.status_code, answer.json()["detail"]) for answer in answers]

    for status, detail in in_process(send):
        assert status == 422
        assert "may have one object or list for each 10" in detail
    assert not made


def test_a_large_body_of_a_wrong_type_is_not_decoded_again(monkeypatch):
    """Looking for 3.0 where 3 was meant took 3 seconds for 31 MB."""
    looked = []
    again = decoding._with_whole_numbers
    monkeypatch.setattr(
        decoding, "_with_whole_numbers", lambda value: looked.append(1) or again(value)
    )

    async def send(http, service):
        statuses = []
        for numbers in (10, 50_000):
            body = b'{"matrix": [[' + b",".join([b"0.5"] * numbers) + b']], "request_id": 1.5}'
            answer = await http.post("/v1/bandits/shop/decisions", content=body, headers=JSON)
            statuses.append((answer.status_code, bool(looked)))
            looked.clear()
        return statuses

    assert in_process(send) == [(422, True), (422, False)]


class Blocked:
    """A function that waits, wherever it is called, until it may go on."""

    def __init__(self, function, only=lambda: True):
        self.function, self.only = function, only
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, *arguments):
        if self.only():
            self.begun.set()
            assert self.go_on.wait(60.0)
        return self.function(*arguments)

    async def until_begun(self):
        while not self.begun.is_set():
            await asyncio.sleep(0.001)


STATE = ["/v1/bandits/shop", "/metrics", "/v1/dashboard", "/v1/bandits/shop/actions"]


async def check_only_health_is_answered(http, blocked):
    """Returns what those got who had to wait."""
    await blocked.until_begun()
    waiting = [asyncio.create_task(http.get(path)) for path in STATE]
    waiting.append(asyncio.create_task(http.post("/v1/bandits/shop/decisions", json={})))
    waiting.append(asyncio.create_task(http.post("/v1/bandits/shop/ranking", json={})))
    for path in ["/healthz", "/readyz", "/openapi.json", "/"] * 5:
        assert (await http.get(path)).status_code == 200
    assert not any(task.done() for task in waiting)
    blocked.go_on.set()
    answers = [await task for task in waiting]
    assert [answer.status_code for answer in answers] == [200] * 6
    return answers


def test_health_is_answered_while_a_bandit_learns():
    """Such as when an estimate passes over all its data."""

    async def learn(http, service):
        id = await decision(http)
        fold = service.fold("shop")
        fold.apply = blocked = Blocked(fold.apply)
        rewarded = asyncio.create_task(reward(http, id))
        answers = await check_only_health_is_answered(http, blocked)
        assert await rewarded == ["accepted"]
        assert answers[0].json()["n_observed"] == 1  # who had to wait sees what was learnt
        assert service.fold("shop").digest() == digest_of_log(service)

    in_process(learn)


def test_health_is_answered_while_what_others_wrote_is_taken_in():
    """An import, say, or features that grow."""

    async def follow(http, service):
        other = Replica(service.ledger, seed=1)
        other.catch_up()
        fold = service.fold("shop")
        fold.apply = blocked = Blocked(fold.apply)
        other.commit([other.propose("shop", NOTHING_SAID).draft for _ in range(3)])
        following = asyncio.create_task(service.follow())
        answers = await check_only_health_is_answered(http, blocked)
        await following
        assert answers[0].json()["n_decided"] == 3
        assert service.fold("shop").digest() == digest_of_log(service)

    in_process(follow)


def test_health_is_answered_while_a_bandit_that_was_held_reads_its_log():
    """On PostgreSQL, that is the network."""
    ledger = MemoryLedger()
    in_state = lambda: threading.current_thread().name.startswith("state")  # noqa: E731

    async def release(http, service):
        service.replica.prepare = lambda fold: False
        assert (await http.put("/v1/bandits/new", json=SETTINGS)).status_code == 202
        other = Replica(ledger, seed=1)
        other.catch_up()
        other.register("new", ACTIONS)
        other.commit([other.propose("new", NOTHING_SAID).draft for _ in range(3)])
        await service.follow()
        ledger.follow = blocked = Blocked(ledger.follow, only=in_state)
        service.replica.release("new")
        following = asyncio.create_task(service.follow())
        await check_only_health_is_answered(http, blocked)
        await following
        assert service.fold("new").learner.n_decided == 3
        assert service.fold("new").digest() == other.fold("new").digest()

    in_process(release, ledger=ledger)


def test_health_is_answered_during_the_first_commit_on_a_disk_that_has_become_slow():
    ledger = MemoryLedger()

    async def commit(http, service):
        ledger.commit = blocked = Blocked(ledger.commit)
        slow = asyncio.create_task(decision(http))
        await blocked.until_begun()
        for path in ["/healthz", "/readyz", *STATE]:  # nobody works on the bandits meanwhile
            assert (await http.get(path)).status_code == 200
        assert not slow.done()
        blocked.go_on.set()
        assert await slow

    in_process(commit, ledger=ledger)


def test_health_is_answered_while_thousands_of_actions_are_looked_at(monkeypatch):
    """They may come with a request, or be the registered ones of a request with an empty body."""
    rows = [{"id": f"{k:09}", "features": [0.1, 0.2]} for k in range(1000)]
    put = {row["id"]: row["features"] for row in rows}
    registered = {str(k): [float(j == k) for j in range(100)] for k in range(100)}

    async def ask(http, service):
        url, wide, replica = "/v1/bandits/shop", "/v1/bandits/wide", service.replica
        await http.put(wide, json=SETTINGS | {"dim": 100})
        await http.patch(f"{wide}/actions", json={"put": registered})
        for where, name, send in (
            (replica, "propose", lambda: http.post(f"{url}/decisions", json={"actions": rows})),
            (replica, "actions_draft", lambda: http.patch(f"{url}/actions", json={"put": put})),
            (replica, "propose", lambda: http.post(f"{wide}/decisions", json={})),
            (routes, "rank", lambda: http.post(f"{wide}/ranking", json={})),
        ):
            blocked = Blocked(getattr(where, name))
            monkeypatch.setattr(where, name, blocked)
            large = asyncio.create_task(send())
            await check_only_health_is_answered(http, blocked)
            assert (await large).status_code == 200
            monkeypatch.undo()
        assert service.fold("shop").digest() == digest_of_log(service)

    in_process(ask)


def test_the_state_is_what_the_log_says_though_the_event_loop_never_waits(monkeypatch):
    """Every piece of work overlaps with requests, and threads change places all the time."""
    monkeypatch.setattr(writer, "WAIT", 0.0)
    monkeypatch.setattr(service_module, "WAIT", 0.0)
    monkeypatch.setattr(service_module, "LARGE", 100)
    interval = sys.getswitchinterval()
    rng = random.Random(1)
    looked, erasing = 0, []

    async def load(http, service, n):
        for k in range(n):
            subject = rng.choice(["me", "you", None])
            rows = [{"id": f"r{k}", "features": [0.1, 0.2]}] * (k % 7 == 0)
            body = {"actions": rows} if rows else {}
            made = await http.post("/v1/bandits/shop/decisions", json=body | {"subject": subject})
            await reward(http, made.json()["decision_id"], float(rng.random() < 0.5))
            if k % 10 == 0:
                put = {f"a{rng.randrange(5)}": [rng.random(), 0.1] for _ in range(20)}
                await http.patch("/v1/bandits/shop/actions", json={"put": put})

    async def look(http, service, over):
        nonlocal looked
        while not over.is_set():
            assert (await http.get(rng.choice(STATE))).status_code == 200
            await service.settled()
            fold, position = service.fold("shop"), service.replica.position
            if not erasing:  # what is erased is gone from the log before a bandit hears of it
                assert Replica(service.ledger).replayed("shop", position).digest() == fold.digest()
                looked += 1
            await service.expire()

    async def play(http, service):
        over = asyncio.Event()
        looking = asyncio.create_task(look(http, service, over))
        for subject in ("me", "you"):
            await asyncio.gather(*(load(http, service, 8) for _ in range(3)))
            erasing.append(subject)
            erasure = http.delete(f"/v1/bandits/shop/subjects/{subject}")
            await asyncio.gather(*(load(http, service, 8) for _ in range(3)), erasure)
            erasing.clear()
        over.set()
        await looking
        await service.catch_up()
        assert service.fold("shop").digest() == digest_of_log(service)

    try:
        sys.setswitchinterval(1e-5)
        in_process(play)
    finally:
        sys.setswitchinterval(interval)
    assert looked > 5
