"""A store that fails for many requests is told of once, and so is its return."""

import asyncio
import logging

import httpx2
import pytest

from belated.ledger.protocol import StoreUnavailableError
from belated.ledger.stores.memory import MemoryLedger
from belated.service import service as running
from belated.service.app import new_app
from belated.service.outage import FAILED_FOR, Outage, Use
from belated.service.service import Service

LOST, BACK = "the store cannot be used: away", "the store can be used again"
AWAY = StoreUnavailableError("away")


class Breakable(MemoryLedger):
    """Fails to write, to be read, or both."""

    fails_to_write = fails_to_read = False

    def commit(self, drafts, follower=None):
        if self.fails_to_write:
            raise AWAY
        return super().commit(drafts, follower)

    def follow(self, after, limit=100_000):
        if self.fails_to_read:
            raise AWAY
        return super().follow(after, limit)

    def parked(self, limit=1000, after=b""):
        if self.fails_to_read:
            raise AWAY
        return super().parked(limit, after)


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("reading", [False, True])
def test_an_outage_is_two_lines_however_many_requests_meet_it(caplog, in_thread, reading):
    async def live():
        ledger = Breakable()
        service = Service("memory://", ledger=ledger)
        service.writer.in_thread = in_thread
        transport = httpx2.ASGITransport(new_app(service))
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as http:
            service.read_log()
            await http.put("/v1/bandits/shop", json={"family": "bernoulli", "dim": 2})
            await http.patch("/v1/bandits/shop/actions", json={"put": {"a": [1.0, 0.0]}})
            ledger.fails_to_write, ledger.fails_to_read = True, reading
            statuses = set()
            for _ in range(20):
                await service.follow()
                statuses.add((await http.post("/v1/bandits/shop/decisions", json={})).status_code)
                answer = await http.get("/v1/parked")
                assert answer.status_code == (503 if reading else 200)
            ledger.fails_to_write = ledger.fails_to_read = False
            for _ in range(3):
                await service.follow()
                statuses.add((await http.post("/v1/bandits/shop/decisions", json={})).status_code)
            return statuses

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(live()) == {503, 200}
    assert caplog.messages == [LOST, BACK]


def test_a_commit_that_had_nothing_to_write_does_not_end_an_outage():
    """Such as the cancellation of a decision that never came into the log."""

    async def live():
        service = Service("memory://", ledger=MemoryLedger())
        service.read_log()
        service.outage.failed(Use.WRITING, AWAY)
        service.abandon("shop", bytes(16))
        await service.cancel_abandoned()
        return service.outage.is_on, service.abandoned

    assert asyncio.run(live()) == (True, {})


def test_a_store_that_is_away_at_the_start_is_told_of_once(caplog, monkeypatch):
    monkeypatch.setattr(running, "READ_AGAIN_AFTER", 0.001)

    async def start():
        ledger = Breakable()
        ledger.fails_to_read = True
        service = Service("memory://", ledger=ledger)
        await service.start()
        while service.outage.errors < 5:
            await asyncio.sleep(0.001)
        ledger.fails_to_read = False
        while not service.ready:
            await asyncio.sleep(0.001)
        await service.stop()

    asyncio.run(start())
    assert caplog.messages == [LOST, BACK]


def test_what_fails_by_itself_again_and_again_is_told_of_once(caplog):
    async def act():
        calls.append(1)
        if len(calls) not in (4, 5):
            raise ZeroDivisionError("a mistake")

    async def live():
        task = asyncio.create_task(running._forever(0.0, act))
        while len(calls) < 10:
            await asyncio.sleep(0)
        task.cancel()

    calls = []
    asyncio.run(live())
    assert caplog.messages == ["this is tried again every 0 s"] * 2


def test_a_full_disk_is_down_for_a_while_and_told_of_until_a_write_works(caplog):
    now = 10 * FAILED_FOR
    outage = Outage(lambda: now)
    outage.failed(Use.WRITING, AWAY)
    outage.worked(Use.FOLLOWING)
    assert outage.is_on
    now += FAILED_FOR + 1
    assert not outage.is_on  # somebody has to try
    outage.failed(Use.WRITING, AWAY)
    assert outage.is_on
    outage.worked(Use.WRITING)
    assert not outage.is_on
    assert caplog.messages == [LOST, BACK]
    assert outage.errors == 2
