"""Long work is done in processes of its own, for which the event loop does not wait."""

import asyncio
import os
import sys

import pytest

from belated.ledger import open_ledger
from belated.service import background_process
from belated.service.background_process import (
    BackgroundProcess,
    BackgroundProcessError,
    TooManyCallsError,
)
from support.event_loop import decide, decision, in_process, make_shop
from support.live_server import LiveServer


# -- explanations
def test_an_explanation_is_worked_out_in_a_process_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    url = f"sqlite:///{tmp_path}/shop.db"
    with LiveServer(url) as server:
        make_shop(server)
        ids = [decide(server).body["decision_id"] for _ in range(3)]
        story = server.call("GET", f"/v1/decisions/{ids[2]}?explain=true").body
    ledger = open_ledger(url)

    async def explain(http, service):
        return (await http.get(f"/v1/decisions/{ids[2]}?explain=true")).json()

    assert in_process(explain, ledger=ledger) == story  # there in a thread
    assert story["explanation"]["n_decided"] == 2
    ledger.close()


def test_one_explanation_for_all_who_ask_and_not_too_many():
    async def explain(http, service):
        ids = [await decision(http) for _ in range(3)]
        service.explaining._url = "sqlite:///nowhere"
        gate, asked = asyncio.Event(), []

        async def call(function, *arguments):
            asked.append(arguments[-1])
            if len(asked) > 2:
                raise TooManyCallsError
            await gate.wait()
            return {
                "n_decided": 0,
                "n_observed": 0,
                "n_pending": 0,
                "theta": [],
                "actions": [],
                "complete": True,
            }

        service.explaining._background.call = call
        paths = [f"/v1/decisions/{id}?explain=true" for id in (ids[0], ids[0], ids[1])]
        waiting = [asyncio.create_task(http.get(path)) for path in paths]
        while len(asked) < 2:
            await asyncio.sleep(0)
        refused = await http.get(f"/v1/decisions/{ids[2]}?explain=true")
        assert refused.json()["type"] == "/problems/too-many-explanations"
        assert refused.status_code == 503
        gate.set()
        return [(await task).status_code for task in waiting], len(asked)

    assert in_process(explain) == ([200] * 3, 3)


def test_a_process_beside_ends_when_idle_and_comes_back(monkeypatch):
    monkeypatch.setattr(background_process, "MOST_WAITING", 1)

    async def use():
        process = BackgroundProcess()
        try:
            pid, _ = await process.call(with_pid)
            assert await process.call(with_pid, "ends") == [pid, ["ends"]]
            process._process.wait()
            assert (await process.call(with_pid, 1))[1] == [1]
            with pytest.raises(BackgroundProcessError, match="ValueError: no"):
                await process.call(fails)
            process._process.kill()
            with pytest.raises(BackgroundProcessError, match="ended with code -9"):
                await process.call(with_pid)
            both = await asyncio.gather(
                process.call(with_pid), process.call(with_pid), return_exceptions=True
            )
            assert isinstance(both[1], TooManyCallsError)
        finally:
            process.stop()

    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    asyncio.run(use())


def with_pid(*arguments):
    print("no answer")
    if arguments == ("ends",):
        sys.modules["__main__"].IDLE = 0.0
    return os.getpid(), arguments


def fails():
    raise ValueError("no")
