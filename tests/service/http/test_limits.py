"""What strangers may cost a service: every limit, over real sockets."""

import asyncio
import inspect
import json
import logging
import socket
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from functools import partial

import httpx2
import pytest
import uvicorn

from belated.commands.service import serve
from belated.ledger.stores.memory import MemoryLedger
from belated.service.app import new_app
from belated.service.http import accepting
from belated.service.http import choosing_protocol as protocol
from belated.service.http.connections import EXTRA, Connections
from belated.service.http.guarded_protocol import AT_ONCE, MOST_PIPELINED, GuardedProtocol
from belated.service.http.limits import Limits, make_room
from belated.service.service import Service
from support.live_server import LiveServer

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/rewards HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
TINY = b"1\r\n \r\n"  # a chunk of one byte
BIG = bytes(20_000_000)  # more than sockets hold


@pytest.fixture(scope="module")
def live():
    """The service as ``belated serve`` starts it, with the default limits."""
    with LiveServer("memory://") as server:
        yield server


def connected(port):
    return socket.create_connection(("127.0.0.1", port), timeout=30.0)


def everything(connection):
    """What comes until the other end closes, and b"" where it aborts."""
    parts = []
    try:
        while part := connection.recv(1_000_000):
            parts.append(part)
    except ConnectionError:
        return b""
    return b"".join(parts)


def answer_to(port, *parts):
    with connected(port) as connection:
        for part in parts:
            connection.sendall(part)
        return everything(connection)


def status(answer):
    return int(answer.split(b" ", 2)[1]) if answer else None


def is_well(port):
    answer = answer_to(port, GET + b"Connection: close\r\n\r\n")
    return status(answer) == 200


# ------------------------------------------------------------------- at the defaults, as served


@pytest.mark.parametrize(
    ("begun", "repeated"),
    [
        (GET + b"X: ", b"a"),
        (GET, b"a"),  # the name of a header
        (b"GET /", b"a"),
        (b"", b"\r\n"),
        (CHUNKED + b"0\r\nX: ", b"a"),  # a trailer
        (CHUNKED + b"1;", b"a"),  # an extension of a chunk
        (CHUNKED, b"1;" + b"a" * 10_000 + b"\r\n \r\n"),  # many of them
        (CHUNKED, TINY),
        (CHUNKED, b"10000\r\n" + b" " * 65_536 + b"\r\n"),  # goes on after the answer 413
        (POST + b"Content-Length: 99999999999\r\n\r\n", b" "),  # likewise
        (GET + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", b"a"),
    ],
)
def test_what_never_ends_is_cut(live, begun, repeated):
    """Memory and time went into it without limit: 100 MB took the whole service 4 to 6 seconds."""
    part, accepted = repeated * (500_000 // len(repeated)), 0
    with connected(live.port) as connection:
        connection.sendall(begun)
        try:
            while accepted < 60_000_000:
                connection.sendall(part)
                accepted += len(part)
        except ConnectionError:
            pass
    assert accepted < 30_000_000, "no more than the system holds for a connection"
    assert is_well(live.port)


@pytest.mark.parametrize(
    ("sent", "code", "kind"),
    [
        (b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\n\r\n", 414, "address-too-long"),
        (GET + b"X: " + b"a" * 20_000 + b"\r\n\r\n", 431, "headers-too-large"),
        (GET + b"X: " + b"a" * 30_000, 431, "headers-too-large"),
        (GET + b"X: a\r\n" * 100 + b"\r\n", 431, "headers-too-large"),
        (GET + b"a: b\r\n" * 40_000, 431, "headers-too-large"),
        (b"no HTTP\r\n\r\n", 400, "malformed-request"),
        (CHUNKED + b"no chunk\r\n", 400, "malformed-request"),
        (CHUNKED + TINY * 100_000 + b"0\r\n\r\n", 400, "wasteful-body"),
    ],
)
def test_what_is_beyond_a_limit_is_told_so(live, sent, code, kind):
    head, _, body = answer_to(live.port, sent).partition(b"\r\n\r\n")
    assert status(head) == code
    assert b"\r\ncontent-type: application/problem+json" in head
    assert b"\r\nconnection: close" in head
    problem = json.loads(body)
    assert problem["type"] == f"/problems/{kind}"
    assert problem["status"] == code
    assert is_well(live.port)


def test_what_is_within_the_limits_is_served(live):
    close = b"Connection: close\r\n"
    many = b"".join(b"X-%d: a\r\n" % n for n in range(90))
    assert status(answer_to(live.port, GET, many, close, b"\r\n")) == 200
    assert (
        status(answer_to(live.port, GET + b"X: " + b"a" * 16_000 + b"\r\n", close, b"\r\n")) == 200
    )
    body = b'{"rewards": [{"decision_id": "?", "reward": 1}]}'
    chunks = b"%x\r\n%b\r\n0\r\nX-Trailer: a\r\n\r\n" % (len(body), body)
    chunked = POST + close + b"Transfer-Encoding: chunked\r\n\r\n"
    answer = answer_to(live.port, chunked, chunks)
    assert answer.endswith(b'{"statuses":["unknown"]}')
    spaces = b"1e\r\n" + b" " * 30 + b"\r\n"  # a line of a file in each chunk
    answer = answer_to(live.port, chunked, spaces * 30_000, chunks)
    assert answer.endswith(b'{"statuses":["unknown"]}')
    upgrade = (
        b"Connection: upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    assert status(answer_to(live.port, GET + upgrade + b"no longer HTTP")) == 200


def test_requests_in_a_row_are_answered_in_turn(live):
    last = GET + b"Connection: close\r\n\r\n"
    answers = answer_to(live.port, (GET + b"\r\n") * 60 + last)
    assert answers.count(b"HTTP/1.1 200 OK\r\n") == 61
    slowly = [bytes([byte]) for byte in GET + b"\r\n" + last]  # a byte a packet, or nearly so
    assert answer_to(live.port, *slowly).count(b"HTTP/1.1 200 OK\r\n") == 2


def test_a_later_request_has_the_same_limits(live):
    """Also where it came in one piece with the ones before."""
    large = GET + b"X: " + b"a" * 20_000 + b"\r\n\r\n"
    answers = answer_to(live.port, GET + b"\r\n" + large)
    said = [line for line in answers.splitlines() if line.startswith(b"HTTP/1.1 ")]
    assert list(map(status, said)) == [200, 431][: len(said)], "no answer out of turn"
    with connected(live.port) as connection:
        connection.sendall(GET + b"\r\n")
        assert status(connection.recv(1000)) == 200
        connection.sendall(large)
        assert status(everything(connection)) == 431


def test_half_sent_requests_are_closed():
    """401 of 401 were still open after 15 s."""
    limits = Limits(header_seconds=1.0, body_seconds=1.0)
    halves = [GET + b"X: a", POST + b"Content-Length: 100\r\n\r\n{"] * 200
    with LiveServer("memory://", limits=limits) as server, ExitStack() as stack:
        connections = [stack.enter_context(connected(server.port)) for _ in halves]
        for connection, half in zip(connections, halves, strict=True):
            connection.sendall(half)
        assert is_well(server.port)
        answers = [everything(connection) for connection in connections]  # returns: all are closed
    assert {status(answer) for answer in answers} == {408}
    assert all(b"/problems/request-timeout" in answer for answer in answers)


def test_a_half_sent_request_is_not_waited_for():
    """It counted as open, and every commit waited 2 ms for it."""
    service = Service("memory://", ledger=MemoryLedger())
    service.read_log()
    app, seen = new_app(service), []
    rest = b'{"decision_id": "unknown", "reward": 1}]}'

    async def use():
        came = asyncio.Event()

        async def receive():
            if not seen:
                seen.append(service.writer.open_requests)
                return {"type": "http.request", "body": b'{"rewards": [', "more_body": True}
            await came.wait()
            return {"type": "http.request", "body": rest, "more_body": False}

        async def send(message):
            seen.append(service.writer.open_requests)

        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/rewards", "headers": headers}
        request = asyncio.create_task(app({**scope, "query_string": b""}, receive, send))
        for _ in range(5):
            await asyncio.sleep(0)
        assert seen == [0]
        assert service.writer.open_requests == 0
        came.set()
        await request
        assert set(seen[1:]) == {1}, "and is open once it has come whole"
        assert service.writer.open_requests == 0

    asyncio.run(use())


# ---------------------------------------------------------------- on an app that does as it is told


class Told:
    """Answers at once, at /slow when it is told to, at /big with more than sockets hold."""

    def __init__(self):
        self.go, self.begun = threading.Event(), 0

    async def __call__(self, scope, receive, send):
        if scope["path"] == "/slow":
            self.begun += 1
            while not self.go.is_set():
                await asyncio.sleep(0.01)
        body = BIG if scope["path"] == "/big" else b"told"
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@contextmanager
def guarded(loop="auto", options=None, **limits):
    """The app on a server, its port, and the connections there."""
    app, connections = Told(), Connections(Limits(**limits))
    options = options or {"http": partial(GuardedProtocol, connections=connections)}
    config = uvicorn.Config(
        app, loop=loop, log_level="error", lifespan="off", **({"ws": "none"} | options)
    )
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield app, listener.getsockname()[1], connections
    finally:
        app.go.set()
        server.should_exit = True
        thread.join()
        listener.close()


def request(path, *headers):
    return b"\r\n".join([b"GET %b HTTP/1.1" % path, *headers, b"", b""])


def until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_others_are_served_between_the_parts_of_what_came_at_once(loop):
    """A turn of the event loop read up to 8 MB, and parsed all of it."""
    with guarded(loop) as (app, port, connections), connected(port) as connection:
        connection.sendall(request(b"/slow") + b"\r\n" * 10)
        until(lambda: app.begun)
        (protocol,) = connections.open
        taken = []
        protocol._feed = lambda data: taken.append((len(data), turn[0]))
        turn, over = [0], threading.Event()

        def count():
            turn[0] += 1
            if not over.is_set():
                protocol.loop.call_soon(count)

        protocol.loop.call_soon_threadsafe(count)
        connection.sendall(bytes(1_000_000))
        until(lambda: sum(length for length, _ in taken) == 1_000_000)
        over.set()
        by_turn = Counter()
        for length, when in taken:
            by_turn[when] += length
        assert max(by_turn.values()) <= 2 * AT_ONCE, "the end of one read, and the next one"


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_who_stops_while_much_is_still_to_be_parsed_is_forgotten(loop):
    with guarded(loop) as (_, port, connections):
        with connected(port) as connection:
            connection.sendall(
                request(b"/") * 10
                + b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
                + (b"4000\r\n" + bytes(0x4000) + b"\r\n") * 50
            )
        until(lambda: not connections.open)
        assert answer_to(port, request(b"/", b"connection: close")).endswith(b"told")


def test_a_connection_is_read_again_after_pipelined_requests():
    with guarded() as (app, port, _), connected(port) as connection:
        connection.sendall(request(b"/slow") + request(b"/a"))  # which waits: no more is read
        until(lambda: app.begun)
        connection.sendall(request(b"/b", b"connection: close"))
        app.go.set()
        assert everything(connection).count(b"told") == 3


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_new_connection_takes_the_place_of_the_one_that_waited_longest(loop):
    with guarded(loop, max_connections=3) as (app, port, connections), ExitStack() as stack:
        busy, silent, half = (stack.enter_context(connected(port)) for _ in range(3))
        busy.sendall(request(b"/slow"))
        until(lambda: app.begun == 1)
        half.sendall(GET)
        until(lambda: len(connections.open) == 3)
        for evicted in (silent, half):
            assert status(answer_to(port, request(b"/", b"connection: close"))) == 200
            assert everything(evicted) == b""
            newcomer = stack.enter_context(connected(port))  # takes the place that is free again
            newcomer.sendall(request(b"/"))
            assert status(newcomer.recv(1000)) == 200
        app.go.set()
        assert status(busy.recv(1000)) == 200, "what was being answered is answered"


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_the_health_is_told_when_all_connections_are_busy(loop):
    with guarded(loop, max_connections=3) as (app, port, connections), ExitStack() as stack:
        busy = [stack.enter_context(connected(port)) for _ in range(3)]
        for connection in busy:
            connection.sendall(request(b"/slow"))
        until(lambda: app.begun == 3)
        assert answer_to(port, request(b"/healthz")).endswith(b"told")  # and closes by itself
        refused = answer_to(port, request(b"/"))
        assert status(refused) == 503
        assert b"retry-after: 1\r\n" in refused
        assert b"/problems/too-many-connections" in refused
        for _ in range(2 * EXTRA):  # those that say nothing keep out nobody
            stack.enter_context(connected(port))
        assert answer_to(port, request(b"/healthz")).endswith(b"told")
        assert len(connections.open) <= 3 + EXTRA
        app.go.set()
        assert [status(connection.recv(1000)) for connection in busy] == [200] * 3
        assert status(answer_to(port, request(b"/", b"connection: close"))) == 200


def test_too_many_requests_that_wait_for_an_answer():
    many = request(b"/") * (MOST_PIPELINED - 1) + request(b"/", b"connection: close")
    with guarded() as (app, port, _), connected(port) as connection:
        connection.sendall(request(b"/slow") + many)
        until(lambda: app.begun == 1)
        with connected(port) as other:
            other.sendall(request(b"/slow") + request(b"/") + many)
            assert everything(other) == b""
        app.go.set()
        assert everything(connection).count(b"told") == MOST_PIPELINED + 1


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_who_does_not_take_an_answer_is_cut(loop):
    with guarded(loop, body_seconds=1.0) as (_, port, connections), connected(port) as connection:
        connection.sendall(request(b"/big"))
        until(lambda: connections.open)
        until(lambda: not connections.open)
        with connected(port) as other:  # in time
            other.sendall(request(b"/big", b"connection: close"))
            assert len(everything(other)) > len(BIG)


def test_silence_is_closed_without_a_word():
    with guarded(header_seconds=1.0, idle_seconds=1.0) as (_, port, _), ExitStack() as stack:
        silent, idle = (stack.enter_context(connected(port)) for _ in range(2))
        idle.sendall(request(b"/"))
        assert everything(silent) == b""
        answer = everything(idle)
        assert answer.endswith(b"told")
        assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (GET + b"X: ", 408),
        (POST + b"Content-Length: 9999\r\n\r\n", 408),
        (POST + b"Content-Encoding: gzip\r\nContent-Length: 9999\r\n\r\n", 415),  # not read
    ],
)
def test_a_byte_now_and_then_does_not_help(first, code):
    limits = Limits(header_seconds=1.0, body_seconds=1.0)
    with LiveServer("memory://", limits=limits) as server, connected(server.port) as connection:
        connection.sendall(first)
        connection.settimeout(0.1)
        answer, is_open, tried = b"", True, 0
        while is_open:
            tried += 1
            assert tried < 300
            try:
                connection.sendall(b"a")
                part = connection.recv(1000)
                answer, is_open = answer + part, part != b""
            except TimeoutError:
                continue
            except ConnectionError:
                break
    assert status(answer) == code
    assert answer.count(b"HTTP/1.1") == 1


def test_an_answer_that_takes_long_is_nobodys_fault():
    """Only the client's time is limited, also while it has sent half of its next request."""
    limits = {"header_seconds": 0.5, "body_seconds": 0.5, "idle_seconds": 0.5}
    with guarded(**limits) as (app, port, _), connected(port) as connection:
        connection.sendall(request(b"/slow") + b"GET / HT")
        time.sleep(2.5)
        app.go.set()
        assert connection.recv(1000).endswith(b"told")
        connection.sendall(b"TP/1.1\r\nconnection: close\r\n\r\n")
        assert everything(connection).endswith(b"told")


def test_what_was_cut_is_logged_once_a_minute(caplog):
    connections = Connections(Limits())

    async def use():
        connections.cut["answered with 431"] += 2
        connections._sweep()
        connections.cut["answered with 408"] += 1
        connections._sweep()

    with caplog.at_level(logging.WARNING):
        asyncio.run(use())
    assert [record.getMessage() for record in caplog.records] == [
        "connections that went beyond the limits: 2 answered with 431"
    ]
    assert connections.cut == {"answered with 408": 1}


# ---------------------------------------------------------------------- self-test and fall-back


def test_our_protocol_passes_its_self_test(monkeypatch, caplog):
    monkeypatch.setenv(protocol.LIMITS, "")  # is put back afterwards
    chosen = protocol.http_options(Limits(idle_seconds=1.5))
    assert chosen["http"] == "belated.service.http.choosing_protocol:new_protocol"
    assert chosen["timeout_keep_alive"] == 2
    assert chosen["backlog"] == protocol.BACKLOG
    assert ("loop" in chosen) == accepting.IS_POSSIBLE
    assert not caplog.records


@pytest.mark.parametrize(
    "changed",
    [
        "data_received",
        "_take_turns",
        "_feed",
        "on_headers_complete",
        "_check_head",
        "on_body",
        "check",
        "_refuse",
    ],
)
def test_a_changed_uvicorn_is_noticed(monkeypatch, caplog, changed):
    """Whichever part of it no longer does what is expected, uvicorn's own protocol serves."""
    monkeypatch.setattr(GuardedProtocol, changed, lambda *_: None)
    monkeypatch.setattr(protocol, "TEST_SECONDS", 0.3)
    limits = Limits(max_request_line=1_000, max_header_bytes=1_000)
    with caplog.at_level(logging.WARNING):
        options = protocol.http_options(limits)
    (warning,) = caplog.records
    assert "Its own protocol is used" in warning.getMessage()
    assert options["http"] == "h11"
    with guarded(options=options) as (_, port, _):
        assert answer_to(port, request(b"/", b"host: a", b"connection: close")).endswith(b"told")
        assert status(answer_to(port, b"GET / HTTP/1.1\r\nx: " + b"a" * 100_000)) in (400, None)


@pytest.mark.skipif(not accepting.IS_POSSIBLE, reason="there are doors on Linux only")
def test_an_uvicorn_that_opens_servers_in_another_way_is_noticed(monkeypatch, caplog):
    """Our protocol still serves, on another event loop."""

    async def fails(*address, **options):
        raise KeyError("backlog")

    monkeypatch.setattr(accepting.DoorLoop, "create_server", fails)
    monkeypatch.setenv(protocol.LIMITS, "")  # is put back afterwards
    with caplog.at_level(logging.WARNING):
        options = protocol.http_options(Limits())
    assert "does not serve by our event loop" in caplog.text
    assert options["http"] == "belated.service.http.choosing_protocol:new_protocol"
    assert "loop" not in options


def test_an_uvicorn_without_that_module_is_noticed(monkeypatch, caplog):
    monkeypatch.setitem(__import__("sys").modules, "belated.service.http.guarded_protocol", None)
    with caplog.at_level(logging.WARNING):
        assert protocol.http_options(Limits())["http"] == "h11"
    assert "ModuleNotFoundError" in caplog.text or "ImportError" in caplog.text


# ------------------------------------------------------------------------------- what is asked for


def test_the_defaults_of_the_command_are_those_of_the_limits():
    defaults = {name: p.default for name, p in inspect.signature(serve).parameters.items()}
    limits = Limits()
    assert {name: defaults[name] for name in limits.__struct_fields__} == {
        name: getattr(limits, name) for name in limits.__struct_fields__
    }


@pytest.mark.parametrize("name", Limits.__struct_fields__)
def test_a_limit_under_which_nothing_can_be_served_is_refused(name):
    with pytest.raises(ValueError, match=f"^{name.replace('_', '-')} = 0"):
        Limits(**{name: 0}).check()


def test_more_connections_than_files_are_refused():
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    make_room(Limits(max_connections=1))
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
    with pytest.raises(ValueError, match=r"max-connections = 100000000: expected \d+ at most"):
        make_room(Limits(max_connections=100_000_000))


def test_the_client_reads_what_is_refused(live):
    answer = httpx2.get(f"http://127.0.0.1:{live.port}/healthz", headers={"x": "a" * 200_000})
    assert answer.status_code == 431
