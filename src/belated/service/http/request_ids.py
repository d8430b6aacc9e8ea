"""An id for every request, in its answer, in the lines that are logged of it and in its trace.

It is the ``X-Request-ID`` of the request where that is short and printable, so that the ids of a
proxy or of a caller reach as far as here. Otherwise it is drawn.
"""

import re
from collections.abc import Awaitable, MutableMapping
from random import getrandbits
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = b"x-request-id"
ID = "x_request_id"  # its name in a scope, in a log record and in every document
_fits = re.compile(rb"[!-~]{1,128}").fullmatch


def request_id(scope: MutableMapping[str, Any]) -> str:
    """Returns the id of a request, which is the same as long as its scope lives.

    >>> request_id({"headers": [(b"x-request-id", b"order-77")]})
    'order-77'
    >>> len(request_id({"headers": [(b"x-request-id", b"two words")]}))
    32
    """
    if ID not in scope:
        for name, sent in scope.get("headers", ()):
            if name == HEADER and _fits(sent):
                scope[ID] = sent.decode()
                break
        else:
            scope[ID] = f"{getrandbits(128):032x}"
    return str(scope[ID])


class RequestIds:
    """An ASGI app around another one: names the request in the headers of its answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or ID in scope:  # the answer is named further out
            await self.app(scope, receive, send)
            return
        header = HEADER, request_id(scope).encode()

        def naming_send(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), header]
            return send(message)

        await self.app(scope, receive, naming_send)
