"""The access log: a line of JSON for each request, and nothing in it that must stay secret."""

import logging
import time
from collections.abc import Callable
from typing import TextIO

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from belated.service.http.request_ids import request_id

KEY, DECISION = "key", "decision"  # where scope["state"] holds what a line tells

logger = logging.getLogger("belated.access")


class Line(msgspec.Struct, frozen=True):
    """One line of the access log. Headers, query and body may hold secrets and are left out."""

    time: float  # seconds since 1970, when the answer was complete
    method: str
    path: str
    status: int | None  # None: the client left before an answer
    ms: float
    key: str | None  # public id
    decision: str | None
    x_request_id: str


def public_path(scope: Scope) -> str:
    """Returns the path of a request without the name of a subject, who may be erased later."""
    path = str(scope["path"])
    subject = scope.get("path_params", {}).get("subject")
    return path if subject is None else path.removesuffix(subject) + "..."


class AccessLog:
    """An ASGI app around another one that logs its requests at level INFO.

    Off unless that level is switched on (see ``write_access_log``): a line costs about as much as
    the rest of the handling of a small request.
    """

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.time) -> None:
        self.app = app
        self.clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not logger.isEnabledFor(logging.INFO):
            return await self.app(scope, receive, send)
        started = self.clock()
        status = None

        async def noting_send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, noting_send)
        finally:
            ended = self.clock()
            state = scope.get("state", {})
            line = Line(
                ended,
                scope["method"],
                public_path(scope),
                status,
                round((ended - started) * 1e3, 3),
                state.get(KEY),
                state.get(DECISION),
                request_id(scope),
            )
            logger.info(msgspec.json.encode(line).decode())


def write_access_log(stream: TextIO) -> logging.Handler:
    """Switch the access log on, its lines bare, and return what ``logger.removeHandler`` takes."""
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False  # the root's format would spoil the JSON
    return handler
