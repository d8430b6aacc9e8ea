"""A store that is slow, or lost right after a commit: nobody else waits, no answer is stale."""

import asyncio
import threading

import httpx2
import pytest

from belated.ledger.protocol import StoreUnavailableError
from belated.ledger.stores.memory import MemoryLedger
from belated.service import routes
from belated.service.app import new_app
from belated.service.service import Service

SETTINGS = {"family": "bernoulli", "dim": 2}
ACTIONS = {"a": [1.0, 0.0], "b": [0.0, 1.0]}
RANK = {"actions": [{"id": "a"}], "eventId": "e"}
PATIENCE = 10.0  # seconds for which a slow store waits to be let go on


class SlowLedger(MemoryLedger):
    """Answers no question before it is let go on."""

    def __init__(self):
        super().__init__()
        self.is_slow = False
        self.asked, self.go_on = threading.Event(), threading.Event()
        self.in_time = []  # whether it was let go on, question by question

    def _wait(self):
        if self.is_slow:
            self.asked.set()
            self.in_time.append(self.go_on.wait(PATIENCE))

    def story(self, id):
        self._wait()
        return super().story(id)

    def requested(self, bandit, request):
        self._wait()
        return super().requested(bandit, request)

    def forget(self, bandit, subject, time):
        self._wait()
        return super().forget(bandit, subject, time)

    def parked(self, limit=1000, after=b""):
        self._wait()
        return super().parked(limit, after)

    def behind(self, after):
        self._wait()
        return super().behind(after)

    def rare(self, kind, after):
        self._wait()
        return super().rare(kind, after)


def remote(ledger, **options):
    """A service that takes this ledger for one on another machine."""
    service = Service("memory://", ledger=ledger, **options)
    service.writer.in_thread = True
    service.read_log()
    return service


def client_of(service):
    transport = httpx2.ASGITransport(new_app(service, personalizer="pages"))
    return httpx2.AsyncClient(transport=transport, base_url="http://test")


async def make_bandits(http):
    await http.put("/v1/bandits/shop", json=SETTINGS)
    await http.patch("/v1/bandits/shop/actions", json={"put": ACTIONS})
    pages = {"family": "bernoulli", "features": {"hashed": {"id": 2}}}
    await http.put("/v1/bandits/pages", json=pages)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/metrics", None),
        ("GET", "/v1/dashboard", None),
        ("GET", "/v1/parked", None),
        ("GET", "/v1/decisions/{id}", None),
        ("DELETE", "/v1/bandits/shop/subjects/somebody", None),
        ("POST", "/personalizer/v1.0/events/e/reward", {"value": 1.0}),
        ("POST", "/personalizer/v1.0/events/e/activate", None),
    ],
)
def test_nobody_else_waits_for_a_slow_store(tmp_path, method, path, body):
    ledger = SlowLedger()

    async def ask_and_look():
        async with client_of(remote(ledger, snapshot_folder=tmp_path)) as http:
            await make_bandits(http)
            decision = await http.post("/v1/bandits/shop/decisions", json={"subject": "somebody"})
            await http.post("/personalizer/v1.0/rank", json=RANK)
            ledger.is_slow = True
            address = path.format(id=decision.json()["decision_id"])
            slow = asyncio.create_task(http.request(method, address, json=body))
            while not ledger.asked.is_set():
                await asyncio.sleep(0.001)
            health = await http.get("/healthz")
            ledger.go_on.set()
            return health, await slow

    health, answer = asyncio.run(ask_and_look())
    assert health.status_code == 200
    assert answer.status_code in (200, 204), answer.text
    assert ledger.in_time
    assert all(ledger.in_time)


class LostLedger(MemoryLedger):
    """Is lost right after every commit, for one question or for more."""

    def __init__(self):
        super().__init__()
        self.lost_for, self.fails = 1, 0

    def commit(self, drafts, accepts=None):
        self.fails = self.lost_for
        return super().commit(drafts, accepts)

    def follow(self, after, limit=100_000):
        if self.fails:
            self.fails -= 1
            raise StoreUnavailableError("lost")
        return super().follow(after, limit)


def lost(act):
    """What ``act`` returns of a service on a ledger that is lost after every commit."""

    async def with_client():
        service = remote(LostLedger())
        async with client_of(service) as http:
            await make_bandits(http)
            return await act(http, service)

    return asyncio.run(with_client())


def test_changed_settings_are_answered_as_they_are_now():
    async def change(http, service):
        first = (await http.put("/v1/bandits/shop", json=SETTINGS | {"exploration": 0.1})).json()
        other = (await http.put("/v1/bandits/shop", json=SETTINGS)).json()
        return first["settings"]["exploration"], other["settings"]["exploration"]

    assert lost(change) == (0.1, 0.0)


def test_changed_actions_are_answered_as_they_are_now():
    async def change(http, service):
        address = "/v1/bandits/shop/actions"
        bodies = [
            {"put": {"c": [0.5, 0.5]}},
            {"put": {"c": [0.5, 0.0]}, "drop": ["a"]},
            {"put": {"b": [0.0, 0.5]}, "drop": ["b", "nobody"]},  # put after it was dropped
            {"put": {"b": [0.0, 0.5]}},  # as it was
        ]
        return [(await http.patch(address, json=body)).json()["actions"] for body in bodies]

    assert lost(change) == [
        {"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [0.5, 0.5]},
        {"b": [0.0, 1.0], "c": [0.5, 0.0]},
        {"b": [0.0, 0.5], "c": [0.5, 0.0]},
        {"b": [0.0, 0.5], "c": [0.5, 0.0]},
    ]


def test_who_is_forgotten_is_gone_when_that_is_answered():
    async def forget(http, service):
        await http.post("/v1/bandits/shop/decisions", json={"subject": "somebody"})
        before = [await service.follow() or n_decided(service) for _ in range(3)]
        service.ledger.lost_for = 0
        await http.delete("/v1/bandits/shop/subjects/somebody")
        return before[-1], n_decided(service)

    def n_decided(service):
        return service.replica.folds["shop"].learner.n_decided

    assert lost(forget) == (1, 0)


def test_the_first_key_closes_the_door_before_it_is_answered():
    async def make_and_revoke(http, service):
        key = (await http.post("/v1/keys", json={"name": "me", "scopes": ["admin"]})).json()
        without = await http.get("/v1/keys")
        headers = {"X-API-Key": key["key"]}
        revoked = await http.delete(f"/v1/keys/{key['id']}", headers=headers)
        after = await http.get("/v1/keys", headers=headers)
        return without.status_code, revoked.status_code, after.status_code

    assert lost(make_and_revoke) == (401, 204, 401)


def test_what_cannot_be_read_back_is_not_answered_as_it_was():
    async def change(http, service):
        service.ledger.lost_for = 10
        first = await http.patch("/v1/bandits/shop/actions", json={"drop": ["a"]})
        service.ledger.lost_for = service.ledger.fails = 0
        again = await http.patch("/v1/bandits/shop/actions", json={"drop": ["a"]})
        return first.status_code, again.json()["actions"]

    assert lost(change) == (503, {"b": [0.0, 1.0]})


def test_staleness_counts_from_the_last_time_that_the_log_was_seen():
    async def lose(http, service):
        await service.catch_up()
        seen = service.staleness
        service.ledger.lost_for = 10
        await http.post("/v1/bandits/shop/decisions", json={})  # written, and not read back
        page = (await http.get("/metrics")).text
        staleness = {
            line.split()[0]: float(line.split()[1])
            for line in page.splitlines()
            if line.startswith("belated_model_staleness")
        }
        model = service.replica.folds["shop"].learner.n_decided
        return staleness["belated_model_staleness_seconds"] > seen, staleness, model

    older, staleness, decided = lost(lose)
    assert older
    assert staleness["belated_model_staleness_rounds"] == 1.0
    assert decided == 0


def test_a_replica_that_cannot_follow_is_not_ready(monkeypatch):
    monkeypatch.setattr(routes, "BEHIND_AFTER", 0.05)

    async def look(http, service):
        await service.catch_up()
        first = await http.get("/readyz")
        await asyncio.sleep(0.1)
        return first.json()["status"], (await http.get("/readyz")).json()["status"]

    assert lost(look) == ("ok", "behind the log")
