"""Errors as RFC 9457 problem documents: every answer from 400 up is one."""

import logging
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from belated.ledger.protocol import StoreUnavailableError
from belated.service.http.access_log import public_path
from belated.service.http.request_ids import ID, request_id
from belated.wire import Fault as Fault
from belated.wire import ProblemDocument as ProblemDocument

MEDIA_TYPE = "application/problem+json"
STARTED = "belated.started"  # in the scope of a request whose answer is being sent
STORE_RETRY_AFTER = 1.0  # seconds: a lost connection or a full disk rarely mends sooner

logger = logging.getLogger("belated.service")


class ProblemType(NamedTuple):
    """A kind of error. Clients compare its URI, so a name once published stays."""

    status: int
    name: str
    title: str

    @property
    def uri(self) -> str:
        """The member ``type`` of a problem document."""
        return f"/problems/{self.name}"


MALFORMED = ProblemType(400, "malformed-body", "The body is not JSON")
NO_KEY = ProblemType(401, "no-valid-key", "A valid API key is needed")
FORBIDDEN = ProblemType(403, "forbidden", "The API key does not allow this")
NOT_FOUND = ProblemType(404, "not-found", "There is nothing at this address")
METHOD_NOT_ALLOWED = ProblemType(405, "method-not-allowed", "The address has no such method")
BODY_TOO_LARGE = ProblemType(413, "body-too-large", "The body is too large")
ADDRESS_TOO_LONG = ProblemType(414, "address-too-long", "The address is too long")
NOT_JSON = ProblemType(415, "unsupported-media-type", "The body must be sent as application/json")
NO_FILE = ProblemType(415, "unsupported-file-type", "The body must be a file of another type")
INVALID = ProblemType(422, "invalid-request", "The request is not what is expected here")
TOO_MANY_REQUESTS = ProblemType(429, "too-many-requests", "Too many requests with this API key")
HEADERS_TOO_LARGE = ProblemType(431, "headers-too-large", "The headers are too large")
INTERNAL = ProblemType(500, "internal-error", "The service made a mistake")
STORE_UNAVAILABLE = ProblemType(503, "store-unavailable", "The store cannot be used now")

OF_STARLETTE = {404: NOT_FOUND, 405: METHOD_NOT_ALLOWED}


class Problem(Exception):  # noqa: N818 - it is named for what the caller gets
    """Raises it anywhere in a handler: the caller gets it as a document.

    >>> problem = Problem(STORE_UNAVAILABLE, "The disk is full.", retry_after=0.2)
    >>> problem.response().headers["retry-after"]
    '1'
    """

    def __init__(
        self,
        type: ProblemType,
        detail: str,
        *,
        errors: Sequence[Fault] = (),
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.type = type
        self.headers = dict(headers or {})
        self.members = members or {}
        seconds = None if retry_after is None else max(1, math.ceil(retry_after))
        if seconds is not None:
            self.headers["Retry-After"] = str(seconds)
        status, _, title = type
        self.document = ProblemDocument(type.uri, title, status, detail, errors, seconds)

    def response(self, x_request_id: str = "") -> Response:
        """The answer to send to the request of this id."""
        named = msgspec.structs.replace(self.document, x_request_id=x_request_id)
        content = msgspec.json.encode({**self.members, **msgspec.to_builtins(named)})
        return Response(content, self.type.status, self.headers, MEDIA_TYPE)


def problem_of(error: Exception) -> Problem:
    """The problem that the caller is told of. Of an error nobody foresaw, nothing is told."""
    match error:
        case Problem():
            return error
        case HTTPException(status_code=status, detail=detail, headers=headers):  # of Starlette
            phrase = HTTPStatus(status).phrase
            other = ProblemType(status, phrase.lower().replace(" ", "-"), phrase)
            return Problem(OF_STARLETTE.get(status, other), detail, headers=headers)
        case StoreUnavailableError():
            return Problem(
                STORE_UNAVAILABLE,
                # where the connection broke in a commit, nobody knows whether it took place
                "Send the request again: rewards, and decisions with a request_id, count once.",
                retry_after=STORE_RETRY_AFTER,
            )
    return Problem(INTERNAL, "The error is in the log of the service, not in the request.")


class ErrorsAsProblems:
    """An ASGI app around another one: whatever that one raises is answered with a document.

    It takes the place of Starlette's two middlewares for errors. They cost more, and hand an
    unforeseen error on to the server after having answered it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        scope["app"] = self  # tells Starlette's router to raise its 404 instead of answering it
        try:
            await self.app(scope, receive, send)
        except Exception as error:
            problem = problem_of(error)
            if problem.type is INTERNAL:
                id = request_id(scope)
                said = "%s %s, request %s", scope["method"], public_path(scope), id
                logger.error(*said, exc_info=error, extra={ID: id})
            if STARTED in scope:  # too late for another answer: the server must cut the connection
                raise
            await problem.response(request_id(scope))(scope, receive, send)
