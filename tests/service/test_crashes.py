"""A server that is killed, or told to stop, under load: nothing acknowledged is lost (P1, P5, P7,
P12).

BELATED_KILLS=1000 for the long run, which ``benchmarks/reliability.py`` does.
"""

import os
import socket
import sys
import time

import pytest

from belated.ledger.events import Kind
from belated.ledger.ids import from_text
from belated.ledger.stores.sqlite import SQLiteLedger
from support.crashing import (
    CLIENTS,
    SETTINGS,
    Acknowledged,
    Client,
    check_acknowledged,
    crash,
    wait_for_decisions,
    whole,
)
from support.live_server import LiveServer

pytestmark = pytest.mark.slow

SENT = (Kind.REWARDED, Kind.REVISED)  # by a client; the end of a window has a value, too

KILLS = int(os.environ.get("BELATED_KILLS", "5"))


def test_a_server_killed_under_load_has_all_that_it_acknowledged():
    report = crash(KILLS, 1, lambda n: n % 50 or print(f"{n} kills so far", file=sys.stderr))
    print(report)
    assert report.kills == KILLS
    assert report.lost == 0
    assert report.decisions > 20 * KILLS
    assert report.rewards > KILLS
    assert report.committed_unanswered > 0  # or no kill fell between commit and answer


def test_told_to_stop_under_load_it_answers_what_it_began_and_loses_nothing(tmp_path):
    path = tmp_path / "ledger.db"
    with LiveServer(f"sqlite:///{path}") as server:
        for name, settings in SETTINGS.items():
            server.call("PUT", f"/v1/bandits/{name}", settings)
            server.call("PATCH", f"/v1/bandits/{name}/actions", {"put": {"a": [1.0, 0.0, 0.0]}})
        clients = [Client(server.port, seed, []) for seed in range(CLIENTS)]
        for client in clients:
            client.start()
        wait_for_decisions(clients, 60)
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 2.0
        told = Acknowledged()
        for client in clients:
            client.join()
            assert client.error is None
            told.add(client.told)
    ledger = SQLiteLedger(path)
    events = whole(ledger)
    assert check_acknowledged(events, told) == 0
    assert len(told.decisions) > 50
    for client in clients:  # what was not answered was not begun
        for bandit, request in client.told.open_decisions:
            assert ledger.requested(bandit, request) is None
        for id, value in client.told.open_rewards:
            story = ledger.story(from_text(id))
            values = [event.value for event in story if event.kind in SENT]
            assert value not in values or (id, value) in client.told.answered, story
    ledger.close()


def test_a_request_half_sent_when_told_to_stop_is_answered(tmp_path):
    path, body = tmp_path / "ledger.db", b'{"request_id": "slow"}'
    with LiveServer(f"sqlite:///{path}") as server:
        server.call("PUT", "/v1/bandits/sales", SETTINGS["sales"])
        server.call("PATCH", "/v1/bandits/sales/actions", {"put": {"a": [1.0, 0.0, 0.0]}})
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(
                b"POST /v1/bandits/sales/decisions HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            )
            connection.sendall(body[:5])
            time.sleep(0.2)
            server.process.terminate()
            time.sleep(0.3)
            connection.sendall(body[5:])
            answer = connection.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 200")
        assert server.stop() == 0
    ledger = SQLiteLedger(path)
    assert ledger.requested("sales", "slow") is not None
    ledger.close()
