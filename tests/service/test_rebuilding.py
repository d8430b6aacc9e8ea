"""An erasure is rebuilt beside the live bandit, which goes on deciding."""

import asyncio
import gc
import threading
import weakref

from belated.ledger.replica import Replica
from support.event_loop import (
    decide,
    decision,
    digest_of_log,
    gated,
    in_process,
    make_shop,
    replayed,
    reward,
)
from support.live_server import LiveServer


def test_decisions_go_on_while_somebody_is_erased():
    async def erase(http, service):
        mine = await decision(http, subject="me")
        pending = await decision(http, subject="me")
        yours = await decision(http, subject="you")
        await reward(http, mine)
        begun, gate = gated(service)
        erasure = asyncio.create_task(http.delete("/v1/bandits/shop/subjects/me"))
        await begun.wait()
        later = [await decision(http) for _ in range(5)]
        assert await reward(http, yours) == ["accepted"]
        assert await reward(http, later[0], 0.0) == ["accepted"]
        assert await reward(http, pending) == ["parked"]  # it is no decision any more
        assert await reward(http, mine) == ["parked"]
        assert service.fold("shop").learner.n_decided == 8
        assert not erasure.done()
        gate.set()
        assert (await erasure).json() == {"decisions": 2}
        fold = service.fold("shop")
        assert (fold.learner.n_decided, fold.learner.n_observed) == (6, 2)
        assert fold.digest() == digest_of_log(service)
        await reward(http, later[1])  # and goes on from there
        assert service.fold("shop").digest() == digest_of_log(service)

    in_process(erase)


def test_nothing_of_what_was_erased_stays_in_memory():
    """Not even until cycles are looked for, which does not happen to what was there at the start.

    A fold that held itself would stay with its whole history.
    """

    async def erase(http, service):
        await reward(http, await decision(http, subject="me"))
        old = weakref.ref(service.fold("shop"))
        gc.disable()
        try:
            assert (await http.delete("/v1/bandits/shop/subjects/me")).json() == {"decisions": 1}
            assert old() is None
        finally:
            gc.enable()

    in_process(erase)


def test_an_erasure_during_another_one_is_rebuilt_with_it():
    async def erase(http, service):
        for subject in ("me", "you", "them"):
            await reward(http, await decision(http, subject=subject))
        begun, gate = gated(service)
        first = asyncio.create_task(http.delete("/v1/bandits/shop/subjects/me"))
        await begun.wait()
        second = asyncio.create_task(http.delete("/v1/bandits/shop/subjects/you"))
        # by another process, which waits for nobody
        service.ledger.forget("shop", "them", service.replica.clock())
        await service.follow()
        await decision(http)
        gate.set()
        assert [(await task).json() for task in (first, second)] == [{"decisions": 1}] * 2
        fold = service.fold("shop")
        assert fold.learner.n_decided == 1
        assert fold.digest() == digest_of_log(service)

    in_process(erase)


def test_a_rebuild_that_fails_is_tried_again(monkeypatch, caplog):
    monkeypatch.setattr("belated.service.rebuilding.AFTER_FAILURE", 0.0)

    async def erase(http, service):
        await decision(http, subject="me")
        replay, failures = service.rebuilding._replayed, [OSError("no memory")]

        async def fail(name, end):
            if failures:
                raise failures.pop()
            return await replay(name, end)

        service.rebuilding._replayed = fail
        await http.delete("/v1/bandits/shop/subjects/me")
        assert service.fold("shop").digest() == digest_of_log(service)

    in_process(erase)
    assert "no memory" in caplog.text


def test_nothing_is_rebuilt_where_nothing_was_erased():
    async def erase(http, service):
        await decision(http, subject="you")
        fold = service.fold("shop")
        await http.delete("/v1/bandits/shop/subjects/me")
        assert service.fold("shop") is fold
        assert fold.digest() == digest_of_log(service)

    in_process(erase)


def test_a_log_is_read_once_whatever_was_erased_from_it():
    async def erase(http, service):
        await decision(http, subject="me")
        await http.delete("/v1/bandits/shop/subjects/me")
        fresh = Replica(service.ledger)
        fresh.replayed = None  # would be called
        fresh.catch_up()
        assert fresh.folds["shop"].digest() == service.fold("shop").digest()

    in_process(erase)


def test_erasure_in_a_process_of_its_own_reaches_all_replicas(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    url = f"sqlite:///{tmp_path}/shop.db"
    with LiveServer(url) as one, LiveServer(url) as two:
        make_shop(one)
        ids = [decide(one, subject=f"s{k % 3}").body["decision_id"] for k in range(30)]
        items = [{"decision_id": id, "reward": 1.0} for id in ids[:20]]
        assert one.call("POST", "/v1/rewards", {"rewards": items}).status == 200
        assert one.call("DELETE", "/v1/bandits/shop/subjects/s1").body == {"decisions": 10}
        expected = replayed(url)
        assert one.digests()[1] == expected
        while two.digests()[1] != expected:
            threading.Event().wait(0.05)
        assert two.call("GET", "/v1/bandits/shop").body["n_decided"] == 20
