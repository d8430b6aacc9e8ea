"""Services whose event loop must not wait, in this process and in their own."""

import asyncio

import httpx2

from belated.core.events import Status
from belated.ledger import open_ledger
from belated.ledger.events import START, Outcome
from belated.ledger.replica import Replica
from belated.ledger.stores.memory import MemoryLedger
from belated.service.app import new_app
from belated.service.service import Service

SETTINGS = {"family": "bernoulli", "dim": 2}  # and the default policy
ACTIONS = {"a": [1.0, 0.0], "b": [0.0, 1.0]}


def make_shop(server):
    assert server.call("PUT", "/v1/bandits/shop", SETTINGS).status == 201
    assert server.call("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS}).status == 200


def decide(server, **body):
    return server.call("POST", "/v1/bandits/shop/decisions", body)


def replayed(url):
    replica = Replica(open_ledger(url))
    replica.catch_up()
    replica.ledger.close()
    return {name: fold.digest() for name, fold in replica.folds.items()}


# -- another process writes
HOLDER = """
import apsw, sys
db = apsw.Connection(sys.argv[1])
db.execute("begin immediate")
print("held", flush=True)
sys.stdin.readline()
db.execute("rollback")
"""


# -- large requests
class Bandits:
    """Remembers what was committed together."""

    position, at_once, released = START, 500, ()

    def __init__(self):
        self.commits = []
        self.ledger = self

    def follow(self, position, at_once):
        return [], position

    def commit(self, drafts, follower):
        self.commits.append([draft.time for draft in drafts])
        return [Outcome(Status.ACCEPTED, str(draft.time)) for draft in drafts]


def in_process(act, ledger=None, **settings):
    """What ``act`` returns, called with a client and a service in this process."""

    async def with_client():
        service = Service("memory://", ledger=ledger or MemoryLedger(), **settings)
        service.read_log()
        transport = httpx2.ASGITransport(new_app(service))
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as http:
            await http.put("/v1/bandits/shop", json=SETTINGS)
            await http.patch("/v1/bandits/shop/actions", json={"put": ACTIONS})
            try:
                return await act(http, service)
            finally:
                service.rebuilding.stop()
                service.explaining.stop()

    return asyncio.run(with_client())


# -- erasure
def gated(service):
    """Rebuilds wait to be let go on."""
    gate, begun, replay = asyncio.Event(), asyncio.Event(), service.rebuilding._replayed

    async def wait(name, end):
        begun.set()
        await gate.wait()
        return await replay(name, end)

    service.rebuilding._replayed = wait
    return begun, gate


async def decision(http, **body):
    return (await http.post("/v1/bandits/shop/decisions", json=body)).json()["decision_id"]


async def reward(http, id, value=1.0):
    body = {"rewards": [{"decision_id": id, "reward": value}]}
    return (await http.post("/v1/rewards", json=body)).json()["statuses"]


def digest_of_log(service):
    replica = Replica(service.ledger)
    replica.catch_up()
    return replica.folds["shop"].digest()
