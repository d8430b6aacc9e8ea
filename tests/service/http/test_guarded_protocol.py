"""Answers in one write: the same bytes as uvicorn's own, in fewer calls of the system."""

import asyncio
import re
from functools import partial

import pytest
import uvicorn

from belated.service.http.connections import Connections
from belated.service.http.guarded_protocol import GuardedProtocol, JoiningTransport
from belated.service.http.limits import Limits

BIG = bytes(range(256)) * 20_000  # more than a socket takes at once


async def app(scope, receive, send):
    path = scope["path"]
    body = BIG if path == "/big" else path.encode()
    headers = [(b"content-length", b"%d" % len(body))] if path != "/chunked" else []
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for start in range(0, len(body), 100_000):
        more = start + 100_000 < len(body)
        part = body[start : start + 100_000]
        await send({"type": "http.response.body", "body": part, "more_body": more})


async def exchanged(protocol, sent, writes):
    """What a server of this protocol answers, until it closes the connection."""
    config = uvicorn.Config(
        app, http=protocol, port=0, lifespan="off", log_level="error", date_header=False
    )
    server = uvicorn.Server(config)
    config.load()
    config.http_protocol_class = counting(config.http_protocol_class, writes)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.001)
    port = server.servers[0].sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    answer = await reader.read(-1)
    writer.close()
    server.should_exit = True
    await task
    return answer


def counting(protocol, writes):
    class Counted:
        def __init__(self, transport):
            self.transport = transport

        def write(self, data):
            writes.append(len(data))
            self.transport.write(data)

        def __getattr__(self, name):
            return getattr(self.transport, name)

    def new(**given):
        made = protocol(**given)
        connect = made.connection_made
        made.connection_made = lambda transport: connect(Counted(transport))
        return made

    return new


NAMED = re.compile(rb"x-request-id: [0-9a-f]{32}\r\n")


def request(path, method="GET", close=False):
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n"
    return (head + ("connection: close\r\n" if close else "") + "\r\n").encode()


@pytest.mark.parametrize(
    "sent",
    [
        request("/a", close=True),
        request("/a") + request("/b") + request("/c", close=True),  # pipelined
        request("/a", "HEAD") + request("/chunked") + request("/c", close=True),
        request("/big") + request("/big", close=True),
    ],
)
def test_the_same_bytes_in_fewer_writes(sent):
    ours, usual = [], []
    expected = asyncio.run(exchanged("httptools", sent, usual))
    guarded = partial(GuardedProtocol, connections=Connections(Limits()))
    answers, n_named = NAMED.subn(b"", asyncio.run(exchanged(guarded, sent, ours)))
    assert answers == expected
    assert n_named == expected.count(b"HTTP/1.1 "), "each has its id"
    assert len(ours) < len(usual)


def test_what_is_held_is_written_before_the_connection_is_closed():
    calls = []

    class Transport:
        def write(self, data):
            calls.append(data)

        def close(self):
            calls.append("closed")

        def is_closing(self):
            return "closed" in calls

    async def use():
        transport = JoiningTransport(Transport())
        transport.write(b"a")
        transport.write(b"b")
        assert calls == []
        await asyncio.sleep(0)
        assert calls == [b"ab"]
        transport.write(b"c")
        transport.close()
        await asyncio.sleep(0)
        assert transport.is_closing()

    asyncio.run(use())
    assert calls == [b"ab", b"c", "closed"]
