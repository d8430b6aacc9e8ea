"""Chooses the HTTP protocol and the event loop: our own if they pass a self-test, else uvicorn's.

Our protocol is a subclass of one of uvicorn's classes, and our event loop (``accepting.py``)
expects of uvicorn how it opens a server; uvicorn promises nothing of either. Another version of
uvicorn may break them, and must then not break the service.
"""

import asyncio
import logging
import math
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache, partial
from typing import Any

import msgspec
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from belated.service.http import accepting
from belated.service.http.connections import Connections
from belated.service.http.limits import Limits
from belated.service.http.request_ids import HEADER

BACKLOG = 1_024  # connections in the queue of the system: the last one waits 50 ms for the others
LIMITS = "BELATED_LIMITS"  # how worker processes learn of them
TEST_SECONDS = 10.0  # a tenth of a second, where the machine is not busy
TEST_REQUESTS = (
    b"GET /one HTTP/1.1\r\nhost: test\r\n\r\n"
    b"POST /two HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
)

# more bytes than are parsed in one turn
LONG_BODY = bytes(300_000)
TINY_CHUNKS = b"1\r\n \r\n" * 50_000

log = logging.getLogger("belated.service")


def http_options(limits: Limits) -> dict[str, Any]:
    """Options for ``uvicorn.run``: a protocol, and those limits that uvicorn itself looks at."""
    shared = {
        "ws": "none",
        "backlog": BACKLOG,
        "timeout_keep_alive": math.ceil(limits.idle_seconds),
    }
    try:
        asyncio.run(self_test(limits))
    except Exception as error:
        log.warning(
            "uvicorn %s is not one that the limits on requests were written for (%r). Its own "
            "protocol is used: a slow client may hold its connection for as long as it likes, "
            "while %d do, all requests are answered with 503, and a body in tiny chunks holds up "
            "everybody. Put a proxy in front, or install "
            "another version of uvicorn.",
            uvicorn.__version__,
            error,
            limits.max_connections,
        )
        return {
            **shared,
            "http": "h11",
            "h11_max_incomplete_event_size": limits.max_request_line + limits.max_header_bytes,
            "limit_concurrency": limits.max_connections + 1,  # it counts the one that asks
        }
    os.environ[LIMITS] = msgspec.json.encode(limits).decode()
    named = {"http": f"{__name__}:{new_protocol.__name__}"}
    if accepting.IS_POSSIBLE and _doors_open(limits):
        named["loop"] = f"{__name__}:{new_loop.__name__}"
    return {**shared, **named}


def _doors_open(limits: Limits) -> bool:
    """Returns whether uvicorn serves by our event loop; says so where it does not."""
    connections = Connections(limits)
    try:
        with asyncio.Runner(loop_factory=partial(accepting.DoorLoop, connections)) as runner:
            runner.run(_test_door(connections))
    except Exception as error:
        log.warning(
            "uvicorn %s does not serve by our event loop (%r). Another one is used: a crowd of "
            "connections that say nothing may hold up requests.",
            uvicorn.__version__,
            error,
        )
        return False
    return True


def new_protocol(
    config: uvicorn.Config,
    server_state: ServerState,
    app_state: dict[str, Any],
    _loop: asyncio.AbstractEventLoop | None = None,
) -> asyncio.Protocol:
    """Make the protocol of a new connection; called by uvicorn, which knows it by its name.

    What a worker process gets from its parent in another way, it would have to import before it
    can say that it is alive.
    """
    return _guarded(connections_here())(
        config=config, server_state=server_state, app_state=app_state, _loop=_loop
    )


def new_loop() -> asyncio.AbstractEventLoop:
    """Make the event loop of a process; called by uvicorn, which knows it by its name."""
    return accepting.DoorLoop(connections_here())


@cache
def connections_here() -> Connections:
    """Returns the connections of this process, where our protocol serves them."""
    return Connections(msgspec.json.decode(os.environ[LIMITS], type=Limits))


def _guarded(connections: Connections) -> Callable[..., asyncio.Protocol]:
    from belated.service.http.guarded_protocol import (
        GuardedProtocol,  # an older or newer uvicorn may not have it
    )

    return partial(GuardedProtocol, connections=connections)


async def self_test(limits: Limits) -> None:
    """Speak the protocol over a pair of sockets; raises what is wrong with it."""
    async with asyncio.timeout(TEST_SECONDS):
        small = msgspec.structs.replace(
            limits, max_request_line=1_000, max_header_bytes=1_000, max_headers=100
        )
        await _test_answers(Connections(small))
        await _test_long_body(Connections(small))
        for sent, status in (
            (b"GET /" + b"a" * 2_000, b"414"),
            (b"GET / HTTP/1.1\r\nx: " + b"a" * 3_000, b"431"),  # and never ends
            (b"GET / HTTP/1.1\r\nx: " + b"a" * 1_500 + b"\r\n\r\n", b"431"),
            (b"GET / HTTP/1.1\r\n" + b"x: a\r\n" * 101 + b"\r\n", b"431"),
            (b"no HTTP\r\n\r\n", b"400"),
            (b"GET / HTTP/1.1\r\n", b"408"),
            (b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nbody", b"408"),
            (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + TINY_CHUNKS, b"400"),
        ):
            await _test_refusal(Connections(small), sent, status)


async def _test_answers(connections: Connections) -> None:
    """Two requests at once are answered in turn, and then the connection waits for the next."""
    async with _connected(connections) as (reader, writer):
        writer.write(TEST_REQUESTS)
        for answer in (b"GET /one ", b"POST /two body"):
            _expect(True, HEADER in await reader.readuntil(answer))  # raises where it does not come
        (connection,) = connections.open
        _expect(True, connection in connections.waiting)
        connections.sweep(asyncio.get_running_loop().time() + 1e6)
        _expect(b"", await reader.read())
    _expect(set(), connections.open)


async def _test_long_body(connections: Connections) -> None:
    """A body that is parsed in several turns comes whole."""
    async with _connected(connections) as (reader, writer):
        head = b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % len(LONG_BODY) + LONG_BODY)
        await reader.readuntil(b"POST / ")
        _expect(LONG_BODY, await reader.readexactly(len(LONG_BODY)))


async def _test_refusal(connections: Connections, sent: bytes, status: bytes) -> None:
    """A request beyond a limit is answered with a status, and the connection is closed."""
    async with _connected(connections) as (reader, writer):
        writer.write(sent)
        if status == b"408":
            await asyncio.sleep(0.01)  # until the other end has read it
            connections.sweep(asyncio.get_running_loop().time() + 1e6)
        _expect(b"HTTP/1.1 " + status, (await reader.read())[:12])
    _expect(set(), connections.open)


async def _test_door(connections: Connections) -> None:
    """A server of uvicorn, on this event loop, lets in who sends something, and closes."""
    async with asyncio.timeout(TEST_SECONDS):
        config = _echoing(http=_guarded(connections))
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            await server.startup(sockets=[listener])
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            try:
                while not connections.open:
                    await asyncio.sleep(0.001)
                _expect([accepting.Visitor], [type(one) for one in connections.open])
                writer.write(TEST_REQUESTS)
                await reader.readuntil(b"POST /two body")
                await server.shutdown(sockets=[listener])
            finally:  # uvloop waits for ever for sockets that are still watched
                writer.close()
                for opened in server.servers:
                    opened.close()


def _echoing(**options: Any) -> uvicorn.Config:
    """The settings of a server whose app echoes."""
    config = uvicorn.Config(_echo, ws="none", lifespan="off", log_config=None, **options)
    config.load()
    return config


@asynccontextmanager
async def _connected(
    connections: Connections,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client's end of a connection to an app that echoes."""
    new_protocol = partial(
        _guarded(connections), config=_echoing(), server_state=ServerState(), app_state={}
    )
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_accepted_socket(new_protocol, theirs)
    try:
        yield reader, writer
    finally:
        transport.abort()
        writer.close()
        await asyncio.sleep(0)  # both ends learn of it


async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    with suppress(ClientDisconnect):
        body = await Request(scope, receive).body()
        content = f"{scope['method']} {scope['path']} ".encode() + body
        await Response(content)(scope, receive, send)


def _expect(expected: object, found: object) -> None:
    if found != expected:
        raise RuntimeError(f"expected {expected!r}, got {found!r}")
