"""HTTP/1.1 for strangers: limits on what a request may cost, and an answer in one write.

Uvicorn reads a head of any length for as long as its client likes, and writes an answer's head
and its body with a call of the system each, which both wake the reader.
"""

import asyncio
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from belated.service.http.connections import Connections, OnlyHealth
from belated.service.http.problems import (
    ADDRESS_TOO_LONG,
    HEADERS_TOO_LARGE,
    Problem,
    ProblemType,
)
from belated.service.http.request_ids import HEADER, request_id

NOT_HTTP = ProblemType(400, "malformed-request", "The request is not HTTP/1.1")
TIMED_OUT = ProblemType(408, "request-timeout", "The request did not come in time")
WASTEFUL_BODY = ProblemType(400, "wasteful-body", "The chunks of the body are too small")
TOO_MANY_PIPELINED = ProblemType(503, "too-many-pipelined", "Too many requests wait for answers")
MOST_PIPELINED = 100  # requests of one connection that wait for the answer to an earlier one
LINGER = 1.0  # seconds to read on after a refusal: closed sooner, a client would never read it
AT_ONCE = 16_384  # bytes for the parser in one turn of the event loop: a millisecond or two at most
LINE_BYTES = 4  # of a header beside its name and value: a colon, a space and the end of the line
MOST_DISCARDED = 1_000_000  # bytes meanwhile, or of a body that goes on after its answer
CONTENT_PER_FRAMING = 4  # bytes of a body for each byte of framing, beyond what headers may have


class JoiningTransport:
    """A transport that joins what is written until the event loop comes round."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing  # asked several times in each request
        self._call_soon = asyncio.get_running_loop().call_soon
        self._held: list[bytes] = []
        self._is_behind = False  # what has been read is not parsed yet

    def fall_behind(self) -> None:
        """Read no more before ``catch_up``, whatever ``resume_reading`` asks for meanwhile."""
        self._is_behind = True
        self._transport.pause_reading()

    def catch_up(self, reads_on: bool) -> None:
        """Read as much as ``resume_reading`` asks for again, and read on if that is wanted now."""
        self._is_behind = False
        if reads_on:
            self._transport.resume_reading()

    def resume_reading(self) -> None:
        """Read on, if what has been read is parsed."""
        if not self._is_behind:
            self._transport.resume_reading()

    def write(self, data: bytes) -> None:
        """Write soon."""
        if not self._held:
            self._call_soon(self._flush)
        self._held.append(data)

    def write_eof(self) -> None:
        """Write what is held, then close this direction; TLS can close only both."""
        self._flush()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def close(self) -> None:
        """Write what is held, then close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, []
            if not self.is_closing():  # nor aborted meanwhile
                self._transport.write(b"".join(held))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class GuardedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol with limits, on such a transport.

    Uvicorn does not promise to keep what is used here: ``choosing_protocol.py`` tries it out first.

    Parameters
    ----------
    connections
        Those of the process.
    config, server_state, app_state
        From uvicorn.
    """

    def __init__(
        self,
        *,
        connections: Connections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._all, self._limits = connections, connections.limits
        self._is_extra = False  # beyond the limit: one answer, and only on the health
        self.url = b""  # before the first request, uvicorn has none
        self._rest = b""  # bytes that came, for the next turns of the event loop
        self._unused = 0  # bytes of a head, or of a body beyond what its content may need
        self._part = 0  # bytes that the parser was given last, ...
        self._begun = 0  # ... and when the request that is being read began
        self._discarded = 0  # bytes that came after the answer
        self._in_head = self._in_body = False  # of the request that is being read
        self._is_refused = False
        self._turn_since = self._written_at = self.loop.time()

    # ----------------------------------------------------------------------- the connection

    def connection_made(self, transport: Any) -> None:
        """A client has connected."""
        self._joining = JoiningTransport(transport)
        super().connection_made(self._joining)  # type: ignore[arg-type]
        self._is_extra = not self._all.add(self)
        if self._is_extra:
            self.app = OnlyHealth(self.app)
        self._look_whose_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._all.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes came. A turn of the event loop reads megabytes where they are there: too many."""
        if not self._rest and len(data) <= AT_ONCE:
            self._take(data)
            return
        is_under_way = self._rest != b""
        self._rest += data
        if not is_under_way:
            self._joining.fall_behind()
            self._take_turns()

    def _take_turns(self) -> None:
        """Take a part of what came, and the rest after the turns of other connections."""
        part, self._rest = self._rest[:AT_ONCE], self._rest[AT_ONCE:]
        self._take(part)
        if self.transport.is_closing():
            self._rest = b""
        elif self._rest:
            self.loop.call_soon(self._take_turns)
        else:
            self._joining.catch_up(not self.flow.read_paused)

    def _take(self, data: bytes) -> None:
        self._part = len(data)
        self._unused += self._part
        is_answered = self._in_body and self.cycle.response_complete
        if is_answered or self._is_refused:
            self._discarded += self._part
            if self._discarded > MOST_DISCARDED:
                self._all.cut["that went on after the answer"] += 1
                self.abort()
        if not self._is_refused and not self.transport.is_closing():
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        """Parse it. Uvicorn's own method would write a line into the log for each bad request."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # an offer of another protocol, which HTTP allows to ignore
        except httptools.HttpParserError as error:
            cause = error.__context__  # what a method below has raised
            self._refuse(cause if isinstance(cause, Problem) else Problem(NOT_HTTP, f"{error}."))
            return
        if self._unused > self._limits.max_request_line + self._limits.max_header_bytes:
            self._refuse(self._wasteful() if self._in_body else self._too_large())

    def pause_writing(self) -> None:
        """Called when the client reads too slowly: from now on it is the client's turn."""
        super().pause_writing()
        self._all.wait_for(self)

    def resume_writing(self) -> None:
        """Called when the client reads again: looks whose turn it is now."""
        super().resume_writing()
        self._look_whose_turn()

    # ------------------------------------------------------------ what the parser makes of it

    def on_message_begin(self) -> None:
        """The first byte of a request has come."""
        super().on_message_begin()
        self._in_head, self._begun = True, self._part
        self._turn_since = self.loop.time()

    def on_headers_complete(self) -> None:
        """A request can be begun, or wait for the answers to those before it."""
        self._check_head()
        super().on_headers_complete()
        # This names the request in the head of its answer, for which an app would wrap ``send``.
        name = HEADER, request_id(self.scope).encode()  # type: ignore[arg-type]
        self.cycle.default_headers = [*self.cycle.default_headers, name]
        self.headers = []  # for trailers, which nobody looks at: a request has got its headers
        self._unused, self._discarded, self._in_head, self._in_body = 0, 0, False, True
        if len(self.pipeline) > MOST_PIPELINED:
            raise Problem(TOO_MANY_PIPELINED, f"At most {MOST_PIPELINED} may wait.")
        if self._is_extra:
            self.cycle.keep_alive = False
        self._turn_since = self.loop.time()

    def _check_head(self) -> None:
        limits = self._limits
        size = 0
        if self._begun + self._unused > limits.max_header_bytes:  # else it cannot be too large
            size = sum(len(name) + len(value) + LINE_BYTES for name, value in self.headers)
        if (
            size > limits.max_header_bytes
            or len(self.headers) > limits.max_headers
            or len(self.url) > limits.max_request_line
        ):
            raise self._too_large()

    def on_body(self, body: bytes) -> None:
        """A part of a body has come."""
        self._unused -= len(body) + len(body) // CONTENT_PER_FRAMING
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request has come whole."""
        super().on_message_complete()
        self._unused, self._in_body = 0, False
        self._look_whose_turn()

    def on_response_complete(self) -> None:
        """A request has been answered.

        Uvicorn's own method would set a timer, too. Here ``check`` ends what is idle.
        """
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
        self._look_whose_turn()

    # -------------------------------------------------------------------------- whose turn it is

    def _is_clients_turn(self) -> bool:
        """Returns whether nothing can happen before the client sends something."""
        if self.pipeline:
            return False
        return self._in_body or self.cycle is None or self.cycle.response_complete

    def _look_whose_turn(self) -> None:
        if self._is_clients_turn():
            self._turn_since = self.loop.time()
            self._all.wait_for(self)
        else:
            self._all.waiting.pop(self, None)

    def check(self, now: float) -> None:
        """Close the connection if its client has taken too long."""
        if self.transport.get_write_buffer_size() == 0:
            self._written_at = now
        elif now - self._written_at > self._limits.body_seconds:
            self._all.cut["that did not take an answer in time"] += 1
            self.abort()
        if not self._is_clients_turn() or now - self._turn_since <= self._patience():
            return
        if self._is_refused:
            self.abort()
        elif self._in_head or self._in_body:
            part = "body" if self._in_body else "headers"
            self._refuse(Problem(TIMED_OUT, f"The {part} may take {self._patience():g} s."))
        else:
            self.transport.close()

    def _patience(self) -> float:
        """Returns the seconds that a client may take for its present step."""
        if self._is_refused:
            return LINGER
        if self._in_body:
            return self._limits.body_seconds
        is_first = self.cycle is None
        return (
            self._limits.header_seconds if self._in_head or is_first else self._limits.idle_seconds
        )

    # ------------------------------------------------------------------------------- the end

    def _too_large(self) -> Problem:
        limits = self._limits
        if len(self.url) > limits.max_request_line:
            return Problem(
                ADDRESS_TOO_LONG, f"An address may have {limits.max_request_line} bytes."
            )
        most = f"{limits.max_headers} headers of {limits.max_header_bytes} bytes"
        return Problem(HEADERS_TOO_LARGE, f"A request may have {most} together.")

    def _wasteful(self) -> Problem:
        most = self._limits.max_request_line + self._limits.max_header_bytes
        also = f"one for each {CONTENT_PER_FRAMING} of its content"
        return Problem(
            WASTEFUL_BODY,
            f"Chunks and trailers of a body may have {most} bytes beside its content, and {also}.",
        )

    def _refuse(self, problem: Problem) -> None:
        """Answer if no other answer is due or under way, and close."""
        self._all.cut[f"answered with {problem.type.status}"] += 1
        if not self._is_clients_turn() or (self._in_body and self.cycle.response_started):
            self.transport.close()
            return
        scope: dict[str, Any] = self.scope if self._in_head or self._in_body else {}  # type: ignore[assignment]
        self.transport.write(_written(problem, request_id(scope)))
        if self._in_body:  # a handler waits for the rest
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write_eof()
        self._is_refused = True
        self._look_whose_turn()

    def abort(self) -> None:
        """Close at once, whatever is still to be written."""
        self.transport.abort()


def _written(problem: Problem, x_request_id: str) -> bytes:
    """An answer as bytes, after which the connection is closed."""
    response = problem.response(x_request_id)
    status = HTTPStatus(response.status_code)
    lines = [b"HTTP/1.1 %d %s" % (status, status.phrase.encode()), b"connection: close"]
    lines.append(HEADER + b": " + x_request_id.encode())
    lines += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(response.body)])
