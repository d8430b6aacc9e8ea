"""The door of the service: a connection that has sent nothing yet is a bare socket.

An event loop makes a transport and a protocol for each connection that it accepts, while those who
came later wait in the queue of the system. Here a connection gets them when it has sent something,
so that a crowd which opens connections and says nothing holds up the others less. With TLS, a
handshake comes in between, and is counted and cut like all that waits for a client.
"""

import asyncio
import select
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

from belated.service.http.connections import Connections

try:
    from uvloop import Loop
except ImportError:
    from asyncio import SelectorEventLoop as Loop  # type: ignore[assignment]

IS_POSSIBLE = hasattr(select, "epoll")  # Linux
AT_ONCE = 20  # connections in one turn of the event loop: a millisecond
HANDSHAKES_AT_ONCE = 4  # a signature takes up to a millisecond
CLOSE_SECONDS = 1.0  # for a client to say that it has heard of the end of a TLS connection
ACCEPT_AGAIN = 1.0  # seconds after the system had no file or memory left for a connection


class Visitor:
    """A connection that has sent nothing yet.

    Parameters
    ----------
    door
        The door at which it waits.
    accepted
        Its socket.
    """

    def __init__(self, door: "Door", accepted: socket.socket) -> None:
        self.socket, self._door, self._came = accepted, door, door.loop.time()

    def has_hung_up(self) -> bool:
        """Returns whether all that came is the end of the connection."""
        try:
            return not self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError:
            return True

    def check(self, now: float) -> None:
        """Close it if the time for the headers is over."""
        if now - self._came > self._door.connections.limits.header_seconds:
            self.abort()

    def abort(self) -> None:
        """Close it."""
        self._door.forget(self)
        self.socket.close()


class Handshake(asyncio.Protocol):
    """A connection whose TLS handshake is under way, and which then gets its protocol.

    Parameters
    ----------
    door
        The door by which it came.
    accepted
        Its socket.
    context
        Holds the certificate.
    """

    def __init__(self, door: "Door", accepted: socket.socket, context: ssl.SSLContext) -> None:
        self._door = door
        entering = door.loop.connect_accepted_socket(
            lambda: self,
            accepted,
            ssl=context,
            ssl_handshake_timeout=door.connections.limits.header_seconds,
            ssl_shutdown_timeout=CLOSE_SECONDS,
        )
        self._task = door.keep(entering)
        self._task.add_done_callback(self._ended)
        door.connections.add(self)
        door.connections.wait_for(self)

    def connection_made(self, transport: Any) -> None:
        """The handshake is over: from here on, the connection is that of its protocol."""
        self._door.connections.remove(self)
        protocol = self._door.new_protocol()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

    def check(self, now: float) -> None:
        """Do nothing: the event loop ends a handshake that takes too long."""

    def abort(self) -> None:
        """Close it."""
        self._task.cancel()

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._door.connections.remove(self)
        if not task.cancelled() and task.exception() is not None:
            self._door.connections.cut["whose TLS handshake failed"] += 1


class Door:
    """Accepts the connections of a listening socket, and lets in those that send something.

    Parameters
    ----------
    loop
        The event loop.
    listener
        The listening socket, which the door closes in the end.
    new_protocol
        Makes the protocol of a connection that is let in.
    connections
        The connections of the process. Visitors are among them, and are cut by the same rules.
    tls
        Holds the certificate for the next connections; None: without TLS.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: socket.socket,
        new_protocol: Callable[[], asyncio.BaseProtocol],
        connections: Connections,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.loop, self.connections, self.tls = loop, connections, tls
        self._listener, self.new_protocol = listener, new_protocol
        self._visitors: dict[int, Visitor] = {}
        # One for all of them: the event loop itself would take far longer to watch each.
        self._senders = select.epoll()
        self._tasks: set[asyncio.Task[Any]] = set()  # the event loop does not hold on to them
        loop.add_reader(self._senders.fileno(), self._let_in)
        self._open()

    def close(self) -> None:
        """Accept nobody any more, and send the visitors away."""
        self.loop.remove_reader(self._listener)
        self.loop.remove_reader(self._senders.fileno())
        self._listener.close()
        for visitor in [*self._visitors.values()]:
            visitor.abort()
        self._senders.close()

    def forget(self, visitor: Visitor) -> None:
        """Count a visitor no more."""
        number = visitor.socket.fileno()
        del self._visitors[number]
        self._senders.unregister(number)
        self.connections.remove(visitor)

    def keep(self, entering: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Let a connection in, in a task of its own."""
        task = self.loop.create_task(entering)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _open(self) -> None:
        if self._listener.fileno() >= 0:  # it may have been closed meanwhile
            self.loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # the client has gone already
                continue
            except OSError as error:
                self.loop.remove_reader(self._listener)  # which would call again at once
                self.loop.call_later(ACCEPT_AGAIN, self._open)
                message = f"no connection is accepted for {ACCEPT_AGAIN:g} s"
                self.loop.call_exception_handler({"message": message, "exception": error})
                return
            self._receive(accepted)

    def _receive(self, accepted: socket.socket) -> None:
        visitor = Visitor(self, accepted)
        self._visitors[accepted.fileno()] = visitor
        self._senders.register(accepted, select.EPOLLIN)
        self.connections.add(visitor)
        self.connections.wait_for(visitor)

    def _let_in(self) -> None:
        for number, _ in self._senders.poll(0, HANDSHAKES_AT_ONCE if self.tls else AT_ONCE):
            visitor = self._visitors[number]
            if visitor.has_hung_up():
                visitor.abort()
                continue
            self.forget(visitor)
            visitor.socket.setblocking(False)
            if self.tls is None:
                entering = self.loop.connect_accepted_socket(self.new_protocol, visitor.socket)
                self.keep(entering)
            else:
                Handshake(self, visitor.socket, self.tls)


class Doors:
    """The doors in place of an event loop's own server, with the methods that uvicorn calls.

    Parameters
    ----------
    server
        The event loop's own, which has bound its sockets and does not listen.
    doors
        One for each of its sockets.
    """

    def __init__(self, server: Any, doors: list[Door]) -> None:
        self._server, self._doors = server, doors
        self.sockets = server.sockets

    def close(self) -> None:
        """Accept nobody any more; connections that were let in stay open."""
        while self._doors:
            self._doors.pop().close()
        self._server.close()

    async def wait_closed(self) -> None:
        """Wait for nothing: all is closed by then."""


class DoorLoop(Loop):
    """An event loop whose servers have doors.

    Parameters
    ----------
    connections
        The connections of the process.
    """

    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self._connections = connections
        self.doors: list[Door] = []

    async def create_server(self, protocol_factory: Any, *address: Any, **options: Any) -> Any:
        """Make a server, as every event loop does."""
        tls = options.pop("ssl", None)
        server: Any = await super().create_server(
            protocol_factory, *address, **options, start_serving=False
        )
        opened = []
        for bound in server.sockets:
            listener = bound.dup()  # the server closes its own
            listener.setblocking(False)
            listener.listen(options["backlog"])
            opened.append(Door(self, listener, protocol_factory, self._connections, tls))
        self.doors += opened
        return Doors(server, opened)
