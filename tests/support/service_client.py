"""A client that calls the app of a service in this process."""

import asyncio

import httpx2

from belated.ledger.protocol import StoreUnavailableError
from belated.ledger.stores.memory import MemoryLedger
from belated.service.app import new_app
from belated.service.service import Service

SECOND = 1_000_000
ACTIONS = {"a": [0.6, 0.0], "b": [0.0, 0.8], "c": [0.3, 0.3]}


class BrokenLedger(MemoryLedger):
    """Fails when told to."""

    broken = False

    def commit(self, drafts, accepts=None):
        if self.broken:
            raise StoreUnavailableError("no space left")
        return super().commit(drafts, accepts)


class Client:
    """Calls the app in this process, one request after the other."""

    def __init__(self, ledger=None, seed=1, personalizer=None, only=None):
        self.now = 1_700_000_000 * SECOND
        self.service = Service(
            "memory://",
            ledger=ledger or BrokenLedger(),
            clock=lambda: self.now,
            seed=seed,
            only=only,
        )
        self.service.read_log()
        self._transport = httpx2.ASGITransport(new_app(self.service, personalizer=personalizer))
        self.key = None

    def __call__(self, method, path, body=None, status=200, **params):
        async def send():
            headers = {} if self.key is None else {"X-API-Key": self.key}
            async with httpx2.AsyncClient(
                transport=self._transport, base_url="http://test", headers=headers
            ) as client:
                return await client.request(method, path, json=body, params=params)

        answer = asyncio.run(send())
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def bandit(self, name="shop", **settings):
        settings = {"family": "bernoulli", "policy": "delayed-ofu-glm", "dim": 2} | settings
        self("PUT", f"/v1/bandits/{name}", settings, 201)

    def decide(self, name="shop", status=200, **body):
        return self("POST", f"/v1/bandits/{name}/decisions", body, status)

    def reward(self, *pairs):
        items = [{"decision_id": id, "reward": reward} for id, reward in pairs]
        return self("POST", "/v1/rewards", {"rewards": items})["statuses"]


def alarms(client):
    """Alarms on the dashboard of the client's only bandit: their sentences by key."""
    client.now += 2 * SECOND  # a view is kept for a second
    shown = client("GET", "/v1/dashboard")["bandit"]["alarms"]
    return {alarm["key"]: alarm["sentence"] for alarm in shown}
