"""A store that is slow, or shows late what was written: nobody else waits, no answer is stale."""

import asyncio
import threading

import httpx
import pytest

from belated.ledger.memory import MemoryLedger
from belated.service.app import new_app
from belated.service.running import Service

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

    def parked(self):
        self._wait()
        return super().parked()

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
    transport = httpx.ASGITransport(new_app(service, personalizer="pages"))
    return httpx.AsyncClient(transport=transport, base_url="http://test")


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
