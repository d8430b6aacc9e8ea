"""Nothing long is done on the event loop: whatever happens, the service goes on answering."""

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from belated.client import AsyncClient, Client
from belated.core.events import Status
from belated.ledger.events import Draft, KeyChange, Kind, Outcome
from belated.ledger.hearing import Hearing
from belated.ledger.pending import Block, OpenDecisions
from belated.ledger.protocol import StoreBusyError
from belated.ledger.replica import Replica
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.service import service as running
from belated.service import serving, writer
from belated.service.writer import Writer
from support.event_loop import (
    ACTIONS,
    HOLDER,
    SETTINGS,
    Bandits,
    decide,
    in_process,
    make_shop,
    reward,
)
from support.live_server import Caller, LiveServer
from support.running_service import served

SERVED = """
import sys
from belated.service.serving import app_from_environment
assert "numba" not in sys.modules
app_from_environment()
assert "belated.ledger.fold" in sys.modules
"""
KEY = msgspec.msgpack.encode(KeyChange("id", "me", "hash", "", ("read",)))
DRAFT = Draft(Kind.KEYS, "", b"", 1, body=KEY)


def test_everything_is_imported_before_anybody_can_connect():
    """A thread that imported Numba while requests came held them up for 60 ms at a time."""
    settings = msgspec.json.encode(serving.ServeSettings(ledger="memory://")).decode()
    environment = {**os.environ, serving.ENVIRONMENT: settings}
    subprocess.run([sys.executable, "-c", SERVED], env=environment, check=True)


def test_health_is_answered_while_another_process_holds_the_store(tmp_path):
    with LiveServer(f"sqlite:///{tmp_path}/shop.db") as server, ThreadPoolExecutor(1) as thread:
        make_shop(server)
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path / "shop.db")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with holder:
            assert holder.stdout.readline() == b"held\n"
            decision = thread.submit(decide, server)
            caller = Caller(server.port)
            for path in ["/healthz", "/metrics", "/v1/bandits/shop"] * 5:
                assert caller("GET", path).status == 200
            caller.close()
            assert not decision.done()
            holder.communicate(b"\n")
        assert decision.result().status == 200


def test_who_waits_too_long_for_another_process_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "LONGEST_WAIT", 0.05)
    mine = SQLiteLedger(tmp_path / "shop.db", waits=False)
    other = SQLiteLedger(tmp_path / "shop.db")

    async def write():
        writes = Writer(Replica(mine))
        with other._writing():
            written = writes.write([DRAFT])
            while not written.done():
                await writes.write([])  # the log can be read meanwhile
                await asyncio.sleep(0.001)
        with pytest.raises(StoreBusyError):
            await written
        return await writes.write([DRAFT])

    assert asyncio.run(write()) == [Outcome(Status.ACCEPTED)]


def test_a_slow_disk_is_not_waited_for_until_it_is_quick(monkeypatch):
    monkeypatch.setattr(writer, "WAIT", 1.0)
    monkeypatch.setattr(writer, "QUICK_AGAIN", 3)
    waits, slow = [], threading.Event()

    class Disk(MemoryLedger):
        def commit(self, drafts, follower=None):
            if slow.is_set():
                threading.Event().wait(1.1)
            return super().commit(drafts, follower)

    async def write():
        writes = Writer(Replica(Disk()))
        run = writes.store.run
        writes.store.run = lambda wait, *work: waits.append(wait) or run(wait, *work)
        for is_slow in (False, True, True, False, False, False, False):
            slow.set() if is_slow else slow.clear()
            await writes.write([DRAFT])

    asyncio.run(write())
    assert waits == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]


def test_a_decision_does_not_wait_for_thousands_of_rewards(monkeypatch):
    monkeypatch.setattr(writer, "MOST_ALONE", 4)
    monkeypatch.setattr(writer, "SMALL", 1)
    bandits = Bandits()

    async def write():
        writes = Writer(bandits)
        requests = [range(10), range(20, 23), range(30, 33), range(40, 41)]
        drafts = [[Draft(Kind.KEYS, "", b"", time) for time in times] for times in requests]
        answers = await asyncio.gather(*map(writes.write, drafts))
        assert [[int(o.bandit) for o in outcomes] for outcomes in answers] == [
            list(times) for times in requests
        ]

    asyncio.run(write())
    assert bandits.commits == [
        [0, 1, 2, 3, 40],
        [4, 5, 6, 7],
        [8, 9],
        [20, 21, 22],
        [30, 31, 32],
    ]


def test_what_others_wrote_is_taken_in_a_little_at_a_time(monkeypatch):
    monkeypatch.setattr(running, "AT_ONCE", 10)

    async def follow(http, service):
        turns, spare = [], service.replica.position
        other = Replica(service.ledger, seed=1)
        other.catch_up()
        for _ in range(100):
            other.commit([DRAFT])

        async def count():
            while service.replica.position < other.position:
                turns.append(service.replica.position)
                await asyncio.sleep(0)

        await asyncio.gather(service.follow(), count())
        assert service.replica.position == other.position > spare
        return turns

    assert len(set(in_process(follow))) >= 9


def test_windows_are_closed_a_few_at_a_time(monkeypatch):
    monkeypatch.setattr(running, "MOST_EXPIRED", 10)
    now = [1_700_000_000_000_000]

    async def expire(http, service):
        await http.put("/v1/bandits/shop", json=SETTINGS | {"window": 10.0})
        for _ in range(25):
            await http.post("/v1/bandits/shop/decisions", json={})
        now[0] += 11_000_000
        written = []
        write = service.writer.write
        service.writer.write = lambda drafts, *how: (
            written.append(len(drafts)) or write(drafts, *how)
        )
        await service.expire()
        return written, service.fold("shop").counts.expired

    assert in_process(expire, clock=lambda: now[0]) == ([10, 10, 5], 25)


# -- metrics
SILENT = {"family": "bernoulli", "dim": 2, "loop": "conversion", "window": 3600.0}


@pytest.mark.parametrize("settings", [SETTINGS, SILENT], ids=["explicit", "silent"])
def test_metrics_and_dashboard_do_not_look_through_what_is_pending(settings, monkeypatch):
    """They ask each block of 4,096 rows what it has counted, and no decision."""

    def fail(*what):
        raise AssertionError("looked through")

    async def scrape(http, service):
        await http.put("/v1/bandits/ads", json=settings)
        await http.patch("/v1/bandits/ads/actions", json={"put": ACTIONS})
        made = [(await http.post("/v1/bandits/ads/decisions", json={})).json() for _ in range(4)]
        assert await reward(http, made[0]["decision_id"]) == ["accepted"]
        monkeypatch.setattr(OpenDecisions, "items", fail)
        monkeypatch.setattr(Block, "arrays", fail)
        monkeypatch.setattr(Hearing, "take_in", fail)
        page = (await http.get("/metrics")).text
        shown = (await http.get("/v1/dashboard?bandit=ads")).json()["bandit"]
        assert shown["missing"] == 3
        hears = service.fold("ads").hearing is not None
        assert hears == (settings is SILENT)
        return page.splitlines()

    lines = in_process(scrape)
    assert 'belated_pending{bandit="ads",le="+Inf"} 3.0' in lines
    assert 'belated_pending{bandit="ads",le="60.0"} 3.0' in lines


def test_waiting_means_the_same_in_state_explanation_and_metric():
    """The metric left out what was held, the others did not."""

    async def look(http, service):
        settings = SETTINGS | {"loop": "conversion", "window": 3600.0}
        await http.put("/v1/bandits/ads", json=settings)
        await http.patch("/v1/bandits/ads/actions", json={"put": ACTIONS})
        made = [(await http.post("/v1/bandits/ads/decisions", json={})).json() for _ in range(3)]
        assert await reward(http, made[0]["decision_id"]) == ["accepted"]
        last = (await http.post("/v1/bandits/ads/decisions", json={})).json()["decision_id"]
        story = (await http.get(f"/v1/decisions/{last}?explain=true")).json()
        state = (await http.get("/v1/bandits/ads")).json()
        metrics = (await http.get("/metrics")).text.splitlines()
        shown = (await http.get("/v1/dashboard?bandit=ads")).json()["bandit"]["missing"]
        return (
            story["explanation"]["n_pending"],
            state["n_pending"],
            state["n_held"],
            shown,
            metrics,
        )

    explained, pending, held, shown, metrics = in_process(look)
    assert (explained, pending, held, shown) == (2, 3, 1, 3)
    assert 'belated_pending{bandit="ads",le="+Inf"} 3.0' in metrics


# -- pages
def test_lists_have_pages():
    async def turn(http, service):
        names = [f"a{k}" for k in range(2500)]
        await http.patch(
            "/v1/bandits/shop/actions", json={"put": {name: [0.1, 0.1] for name in names}}
        )
        seen, page = [], (await http.get("/v1/bandits/shop/actions")).json()
        sizes = []
        while True:
            seen += page["actions"]
            sizes.append(len(page["actions"]))
            if page["next"] is None:
                break
            params = {"after": page["next"]}
            page = (await http.get("/v1/bandits/shop/actions", params=params)).json()
        assert seen == ["a", "b", *names]
        assert sizes == [1000, 1000, 502]
        for path in ("/v1/bandits", "/v1/keys", "/v1/bandits/shop/actions"):
            for query, status in (("limit=1", 200), ("limit=0", 422), ("after=%3F", 404)):
                assert (await http.get(f"{path}?{query}")).status_code == status, (path, query)
        for k in range(3):
            await http.put(f"/v1/bandits/b{k}", json=SETTINGS)
        two = (await http.get("/v1/bandits?limit=2&after=shop")).json()
        assert two == {"bandits": ["b0", "b1"], "next": "b1"}
        keys = [
            (await http.post("/v1/keys", json={"name": f"k{k}", "scopes": ["admin"]})).json()
            for k in range(1)
        ]
        http.headers["X-API-Key"] = keys[0]["key"]
        for k in range(1, 3):
            made = await http.post("/v1/keys", json={"name": f"k{k}", "scopes": ["admin"]})
            keys.append(made.json())
        await http.delete(f"/v1/keys/{keys[1]['id']}")
        page = (await http.get("/v1/keys?limit=2")).json()
        assert [key["name"] for key in page["keys"]] == ["k0"]  # the other one is revoked
        rest = (await http.get(f"/v1/keys?after={page['next']}")).json()
        assert ([key["name"] for key in rest["keys"]], rest["next"]) == (["k2"], None)

    in_process(turn)


def test_the_client_turns_the_pages():
    with served() as (url, service), Client(url) as client:
        client.put_bandit("shop", SETTINGS)
        actions = {f"a{k}": [0.1, 0.1] for k in range(1200)}
        assert client.change_actions("shop", actions) == actions
        assert client.actions("shop") == actions
        service.replica.folds |= {f"b{k}": service.replica.folds["shop"] for k in range(1100)}
        assert client.bandits() == ["shop", *(f"b{k}" for k in range(1100))]

        async def of_async_client():
            async with AsyncClient(url) as other:
                return await other.bandits(), await other.actions("shop")

        assert asyncio.run(of_async_client()) == (client.bandits(), actions)
