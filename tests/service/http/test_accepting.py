"""The door: who says nothing costs an accept and a close, and holds up nobody."""

import asyncio
import errno
import select
import socket
from contextlib import ExitStack

import pytest

from belated.service.http import accepting, choosing_protocol
from belated.service.http.connections import Connections
from belated.service.http.limits import Limits
from support.live_server import LiveServer

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="there is no door here")

LOOPS = {"asyncio": asyncio.SelectorEventLoop, "uvloop": accepting.Loop}
CROWD = 200


class Echo(asyncio.Protocol):
    """Sends back what comes; the list has all that were made."""

    made = ()  # a list in each test

    def connection_made(self, transport):
        self.transport = transport
        self.made.append(self)

    def data_received(self, data):
        self.transport.write(data)


@pytest.fixture(params=LOOPS)
def loop(request, monkeypatch):
    monkeypatch.setattr(Echo, "made", [])
    return LOOPS[request.param]()


async def opened(limits=Limits(), listener=None):  # noqa: B008 - it is frozen
    listener = listener or socket.create_server(("127.0.0.1", 0), backlog=CROWD)
    listener.setblocking(False)
    connections = Connections(limits)
    entrance = accepting.Door(asyncio.get_running_loop(), listener, Echo, connections)
    return entrance, listener.getsockname(), connections


async def received(connection, size):
    connection.setblocking(False)
    return await asyncio.get_running_loop().sock_recv(connection, size)


async def until(condition):
    async with asyncio.timeout(30.0):
        while not condition():
            await asyncio.sleep(0.001)


def run(loop, coroutine):
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(coroutine)


def test_only_who_sends_something_gets_a_protocol(loop):
    async def use():
        entrance, address, connections = await opened()
        with ExitStack() as stack:
            crowd = [stack.enter_context(socket.create_connection(address)) for _ in range(CROWD)]
            await until(lambda: len(connections.open) == CROWD)
            assert Echo.made == []
            crowd[7].sendall(b"hello")
            assert await received(crowd[7], 5) == b"hello"
            assert len(Echo.made) == 1
            assert len(connections.open) == CROWD - 1  # an echo does not count itself
            entrance.close()

    run(loop, use())


def test_a_turn_of_the_event_loop_accepts_some(loop):
    async def use():
        entrance, address, connections = await opened()
        with ExitStack() as stack:
            for _ in range(3 * accepting.AT_ONCE):
                stack.enter_context(socket.create_connection(address))
            entrance._accept()
            assert len(connections.open) == accepting.AT_ONCE
            entrance.close()

    run(loop, use())


def test_visitors_have_the_limits_of_all_connections(loop):
    async def use():
        entrance, address, connections = await opened(Limits(max_connections=3, header_seconds=5))
        with ExitStack() as stack:
            crowd = [stack.enter_context(socket.create_connection(address)) for _ in range(10)]
            for silent in crowd[:7]:  # in favour of those who came later
                assert await received(silent, 1) == b""
            assert len(connections.open) == len(connections.waiting) == 3
            connections.sweep(loop.time() + 4)
            assert len(connections.open) == 3
            connections.sweep(loop.time() + 6)
            assert not connections.open
            for silent in crowd[7:]:
                assert await received(silent, 1) == b""
            assert connections.cut == {"closed in favour of new connections": 7}
            entrance.close()

    run(loop, use())


def test_who_hangs_up_without_a_word_gets_no_protocol(loop):
    async def use():
        entrance, address, connections = await opened()
        for _ in range(5):
            socket.create_connection(address).close()
        rude = socket.create_connection(address)
        rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        rude.close()  # with a reset
        with socket.create_connection(address) as last:
            await until(lambda: len(connections.open) == 1)
            last.sendall(b"a word")
            last.shutdown(socket.SHUT_WR)  # which is no end before it was read
            assert await received(last, 10) == b"a word"
        assert len(Echo.made) == 1
        entrance.close()

    run(loop, use())


def test_a_closed_door(loop):
    async def use():
        entrance, address, connections = await opened()
        with socket.create_connection(address) as visitor, socket.create_connection(address) as in_:
            in_.sendall(b"hello")
            await until(lambda: Echo.made and len(connections.open) == 1)
            entrance.close()
            assert visitor.recv(1) == b""
            with pytest.raises(ConnectionError):
                socket.create_connection(address)
            assert await received(in_, 5) == b"hello"  # it was inside already
        assert not connections.open

    run(loop, use())


class Failing(socket.socket):
    """A listening socket whose first connections cannot be had."""

    failures = ()

    def accept(self):
        if self.failures:
            raise self.failures.pop(0)
        return super().accept()


def test_an_accept_that_fails(loop, monkeypatch):
    """Who has gone is passed over; without files the door is shut for a while, and says so."""
    monkeypatch.setattr(accepting, "ACCEPT_AGAIN", 0.05)

    async def use():
        said = []
        loop.set_exception_handler(lambda _, what: said.append(what["message"]))
        listener = Failing()
        listener.bind(("127.0.0.1", 0))
        listener.listen(CROWD)
        listener.failures = [ConnectionAbortedError(), OSError(errno.EMFILE, "too many files")]
        entrance, address, connections = await opened(listener=listener)
        with socket.create_connection(address):
            await until(lambda: len(connections.open) == 1)
            assert said == ["no connection is accepted for 0.05 s"]
            listener.failures = [OSError(errno.EMFILE, "too many files")]
            with socket.create_connection(address):
                await until(lambda: len(said) == 2)
                entrance.close()
                await asyncio.sleep(0.1)  # and it stays closed

    run(loop, use())


def test_the_service_has_one(monkeypatch):
    monkeypatch.setenv(choosing_protocol.LIMITS, "")  # is put back afterwards
    chosen = choosing_protocol.http_options(Limits())
    assert chosen["loop"] == "belated.service.http.choosing_protocol:new_loop"
    with LiveServer("memory://", limits=Limits(header_seconds=1.0)) as server, ExitStack() as stack:
        address = ("127.0.0.1", server.port)
        crowd = [stack.enter_context(socket.create_connection(address)) for _ in range(CROWD)]
        assert server.call("GET", "/healthz").status == 200
        assert {one.recv(1) for one in crowd} == {b""}  # when the time for headers was over
        assert server.stop() == 0


def test_where_there_can_be_none_the_event_loop_accepts(monkeypatch):
    monkeypatch.setenv(choosing_protocol.LIMITS, "")
    monkeypatch.setattr(accepting, "IS_POSSIBLE", False)
    assert "loop" not in choosing_protocol.http_options(Limits())
