"""The open connections of a process: how many there may be, and which of them are cut."""

import asyncio
import logging
from collections import Counter, OrderedDict
from typing import Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from belated.service.http.limits import Limits
from belated.service.http.problems import Problem, ProblemType
from belated.service.http.request_ids import request_id

TOO_MANY_CONNECTIONS = ProblemType(503, "too-many-connections", "All connections are in use")
SWEEP_EVERY = 1.0  # seconds: one look at all connections is cheaper than a timer for each request
AT_ONCE = 100  # connections looked at in one turn of the event loop: 5 ms if all are refused
REPORT_EVERY = 60.0  # seconds between lines on what was cut: strangers must not fill the disk
EXTRA = 10  # connections beyond the limit, on which only the health is told
HEALTH = ("/healthz", "/readyz")

log = logging.getLogger("belated.service")


class Connection(Protocol):
    """The methods of a connection that are used here."""

    def abort(self) -> None:
        """Close it at once, whatever is still to be written."""

    def check(self, now: float) -> None:
        """Close it if its client has taken too long."""


class Connections:
    """The open connections of a process.

    When all are in use, the one that has waited longest for its client is cut in favour of a new
    one. Whoever holds connections open therefore keeps nobody out: a request that comes in one
    piece is answered before its turn to be cut comes. Only where every connection is busy with an
    answer, a new one is beyond the limit.

    Parameters
    ----------
    limits
        How many there may be; the connections themselves look at the rest.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.open: set[Connection] = set()
        # it is the client's turn: to send the rest of a request or the next one, to take an answer
        self.waiting: OrderedDict[Connection, None] = OrderedDict()
        self.cut: Counter[str] = Counter()  # how many, by the reason, since the last report
        self._sweeping = False
        self._reported = -REPORT_EVERY

    def add(self, connection: Connection) -> bool:
        """Count a new connection; returns whether it is within the limit."""
        if len(self.open) >= self.limits.max_connections and self.waiting:
            self._cut(next(iter(self.waiting)), "closed in favour of new connections")
        within = len(self.open) < self.limits.max_connections
        self.open.add(connection)
        if len(self.open) > self.limits.max_connections + EXTRA:
            self._cut(connection, "refused: all connections in use")
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(SWEEP_EVERY, self._sweep)
        return within

    def remove(self, connection: Connection) -> None:
        """Count a connection no more; it may have been removed before."""
        self.open.discard(connection)
        self.waiting.pop(connection, None)

    def wait_for(self, connection: Connection) -> None:
        """Note that it is now the turn of this connection's client."""
        if connection in self.open:
            self.waiting[connection] = None
            self.waiting.move_to_end(connection)

    def sweep(self, now: float) -> None:
        """Close the connections whose clients have taken too long, some in each turn."""
        self._check(list(self.open), now)

    def _check(self, connections: list[Connection], now: float) -> None:
        if len(connections) > AT_ONCE:  # first, because an error must not end it
            asyncio.get_running_loop().call_soon(self._check, connections[AT_ONCE:], now)
        for connection in connections[:AT_ONCE]:
            if connection in self.open:
                connection.check(now)

    def _report(self, now: float) -> None:
        if self.cut and now - self._reported >= REPORT_EVERY:
            counts = (f"{count} {reason}" for reason, count in self.cut.items())
            log.warning("connections that went beyond the limits: %s", ", ".join(counts))
            self.cut.clear()
            self._reported = now

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeping = bool(self.open or self.cut)
        if self._sweeping:  # first, because an error must not end it
            loop.call_later(SWEEP_EVERY, self._sweep)
        self.sweep(loop.time())
        self._report(loop.time())

    def _cut(self, connection: Connection, reason: str) -> None:
        self.cut[reason] += 1
        self.remove(connection)
        connection.abort()


class OnlyHealth:
    """An ASGI app around another one: tells the health, and answers everything else with 503."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["path"] not in HEALTH:
            problem = Problem(TOO_MANY_CONNECTIONS, "Try again in a moment.", retry_after=1.0)
            await problem.response(request_id(scope))(scope, receive, send)
        else:
            await self.app(scope, receive, send)
