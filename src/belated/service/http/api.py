"""HTTP operations declared once: checked, decoded, admitted, encoded and documented from that.

A handler is an async function. Its parameters ``path``, ``query`` and ``body`` get what their
annotations say, ``call`` gets the rest of the request; those it does not have are not allowed in
the request, or not read.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import getdoc, iscoroutinefunction, signature
from types import NoneType
from typing import Any, NamedTuple, Protocol, TypeVar, get_type_hints
from urllib.parse import quote, unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from belated.core.arguments import wrong
from belated.ledger.events import KeyChange
from belated.service.http.access import SCOPES, Headers
from belated.service.http.access_log import KEY
from belated.service.http.decoding import (
    check_media_type,
    decoded,
    file_type,
    parameters,
    query_of,
    read,
)
from belated.service.http.limits import MAX_BODY
from belated.service.http.openapi import Link, Operation, document
from belated.service.http.problems import (
    METHOD_NOT_ALLOWED,
    STARTED,
    ErrorsAsProblems,
    Problem,
    ProblemType,
)

MOST_PATHS = 1000  # remembered: the same few come again and again
PARAMETERS = ("path", "query", "body", "call")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
JSON = (b"content-type", b"application/json")

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])
Admit = Callable[[Headers, str, str | None], Awaitable[KeyChange | None]]  # such as access.Gate
Settled = Callable[[], Awaitable[None]]

_encode = msgspec.json.Encoder().encode


NO_HEADERS: Mapping[str, str] = {}


class Answer(NamedTuple):
    """An answer with another status than the first declared one, or with headers."""

    value: Any
    status: int
    headers: Mapping[str, str] = NO_HEADERS


class Call(NamedTuple):
    """The facts of a call beyond path, query and body: its key and its headers."""

    scope: Scope
    key: KeyChange | None  # None: the service has no keys
    raw: bytes  # the body as it came
    media_type: str = ""  # of a body that is a file

    @property
    def state(self) -> dict[str, Any]:
        """Notes on this request that outlive the handler, for the access log."""
        return self.scope.setdefault("state", {})


async def _at_once() -> None:
    """Returns at once: the default of ``settled``."""


class Count(Protocol):
    """Somebody that wants to know how many requests are open.

    A request is open once its body has been read. While a client is still sending, nobody knows
    for how long, and nobody may wait for it.
    """

    open_requests: int


class NobodyCounts:
    """The default of ``count``."""

    open_requests = 0


class Api:
    """Operations, and the ASGI app that serves them.

    Parameters
    ----------
    admit
        Lets a caller in, or raises; None: everybody is let in.
    settled
        Is awaited before the handler of an operation that not everybody may use: returns when the
        state can be looked at.
    max_body
        Bytes that a body may have.
    problems
        What any operation may raise that not everybody may use.
    count
        Is told how many requests with a body are open.
    """

    def __init__(
        self,
        title: str,
        version: str,
        admit: Admit | None = None,
        settled: Settled = _at_once,
        max_body: int = MAX_BODY,
        problems: Sequence[ProblemType] = (),
        count: Count | None = None,
    ) -> None:
        self.title = title
        self.version = version
        self.admit = admit
        self.settled = settled
        self.max_body = max_body
        self.problems = problems
        self.count = count or NobodyCounts()
        self.operations: list[Operation] = []
        self._resources: dict[str, Resource] = {}

    def route(
        self,
        method: str,
        path: str,
        *,
        needs: str | None,
        answers: Mapping[int, Any] | None = None,
        problems: Sequence[ProblemType] = (),
        links: Sequence[Link] = (),
        checks_bandit: bool = False,
        takes: Sequence[str] = (),
    ) -> Callable[[Handler], Handler]:
        """Declare the decorated function the handler of a method of a path.

        Parameters
        ----------
        needs
            Scope that a key must have. None: the operation is for everybody.
        answers
            Types by status; the first is that of a plain return value. None: no body. A str: a
            media type, for handlers that return a Starlette response. By default, 200 and what the
            handler says that it returns, or 204 where that is None.
        problems
            What the handler raises. Those of the toolkit and of the API are documented by
            themselves.
        links
            What can be done with the answer.
        checks_bandit
            The handler looks itself at the bandit of ``call.key``. Otherwise that is the path
            parameter ``name``; and where there is none, only keys for all bandits are let in.
        takes
            Media types of a body that is a file. The handler finds it in ``call.raw``.
        """

        def declare(handler: Handler) -> Handler:
            hints = get_type_hints(handler, include_extras=True)
            returned = hints.pop("return", None)
            usual = {204: None} if returned in (None, NoneType) else {200: returned}
            summary, _, description = (getdoc(handler) or "").partition("\n\n")
            operation = Operation(
                id=handler.__name__,
                summary=" ".join(summary.split()),
                description=description,
                method=method,
                path=path,
                path_type=hints.get("path"),
                query_type=hints.get("query"),
                body_type=hints.get("body"),
                answers=usual if answers is None else answers,
                problems=(*problems, *(self.problems if needs is not None else ())),
                needs=needs,
                max_bytes=self.max_body,
                links=tuple(links),
                takes=tuple(takes),
            )
            _check(operation, handler, hints)
            if any(operation.id == other.id for other in self.operations):
                raise wrong("handler", operation.id, "a name that no other handler has")
            resource = self._resources.setdefault(path, Resource(path))
            endpoint = Endpoint(
                operation, handler, self.admit, self.settled, self.count, checks_bandit
            )
            resource.add(method, endpoint)
            self.operations.append(operation)
            return handler

        return declare

    def app(self, more: Sequence[BaseRoute] = (), lifespan: Lifespan[Any] | None = None) -> ASGIApp:
        """The ASGI app, with the document at /openapi.json and ``more`` Starlette routes."""
        secured = self.admit is not None
        described = _encode(document(self.title, self.version, self.operations, secured))

        async def describe(_: Request) -> Response:
            return Response(described, media_type="application/json")

        routes = [Route("/openapi.json", describe), *more]
        others = Router(routes, redirect_slashes=False, lifespan=lifespan)
        return ErrorsAsProblems(Resources(self._resources, others))


def _check(
    operation: Operation, handler: Callable[..., Any], parameters: Mapping[str, Any]
) -> None:
    """Raises for mistakes when the module is imported, not when the operation is used.

    ``parameters`` are the types that the handler's annotations ask for, by name.
    """
    if not iscoroutinefunction(handler) or not operation.summary:
        raise wrong("handler", handler, "an async function with a docstring")
    if operation.method not in METHODS:
        raise wrong("method", operation.method, f"one of {', '.join(METHODS)}")
    if operation.needs is not None and operation.needs not in SCOPES:
        raise wrong("needs", operation.needs, f"one of {', '.join(SCOPES)}, or None")
    if not operation.answers:
        raise wrong("answers", operation.answers, "types by status, one at least")
    for name, type in parameters.items():
        if name not in PARAMETERS:
            raise wrong("parameter", name, f"one of {', '.join(PARAMETERS)}")
        config = getattr(type, "__struct_config__", None)
        if name in ("path", "query") and config is None:
            raise wrong(name, type, "a msgspec.Struct")
        if name != "call" and config is not None and not config.forbid_unknown_fields:
            raise wrong(name, type, "a Struct with forbid_unknown_fields=True")
    fields = getattr(operation.path_type, "__struct_encode_fields__", ())
    if set(re.findall("{(.*?)}", operation.path)) != set(fields):
        raise wrong("path", operation.path, f"these in braces: {', '.join(fields) or 'none'}")


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query of an operation that has none."""


class Resources:
    """Finds the resource of a path by looking it up, not by trying one pattern after the other."""

    def __init__(self, resources: Mapping[str, "Resource"], others: ASGIApp) -> None:
        self._others = others
        self._known: dict[bytes, tuple[Resource, dict[str, str]]] = {}
        self._by_length: dict[int, list[tuple[list[str], Resource]]] = {}
        for path, resource in resources.items():
            parts = path.split("/")
            self._by_length.setdefault(len(parts), []).append((parts, resource))
            if "{" not in path:
                self._known[path.encode()] = resource, {}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        if scope["type"] == "http":
            # as it was sent, if the server tells: once decoded, a/b and a%2Fb are the same
            path = scope.get("raw_path") or quote(scope["path"]).encode()
            found = self._known.get(path) or self._find(path)
            if found is not None:
                resource, scope["path_params"] = found
                scope["route"] = resource
                return resource(scope, receive, send)
        return self._others(scope, receive, send)

    def _find(self, path: bytes) -> tuple["Resource", dict[str, str]] | None:
        parts = [unquote(part) for part in path.decode("latin-1").split("/")]
        for names, resource in self._by_length.get(len(parts), ()):
            parameters = _matched(names, parts)
            if parameters is not None:
                if _comes_again(parameters) and len(self._known) < MOST_PATHS:
                    self._known[path] = resource, parameters
                return resource, parameters
        return None


def _matched(names: list[str], parts: list[str]) -> dict[str, str] | None:
    """The parameters of a path, where it fits."""
    found = {}
    for name, part in zip(names, parts, strict=True):
        if name.startswith("{") and part:
            found[name[1:-1]] = part
        elif name != part:
            return None
    return found


def _comes_again(parameters: Mapping[str, str]) -> bool:
    """Returns whether to remember a path: of bandits, but not of decisions or subjects."""
    return [*parameters] == ["name"] and len(parameters["name"]) <= 100


class Resource:
    """The methods of one path, as an ASGI app."""

    def __init__(self, path: str) -> None:
        self.path = path  # with its parameters in braces
        self._endpoints: dict[str, Endpoint] = {}

    def add(self, method: str, endpoint: "Endpoint") -> None:
        """Serve ``method`` with ``endpoint``; HEAD is what GET would answer, less the body."""
        if method in self._endpoints:
            raise wrong("method", method, f"one that {endpoint.operation.path} has not yet")
        self._endpoints[method] = endpoint
        if method == "GET":
            self._endpoints["HEAD"] = endpoint

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        endpoint = self._endpoints.get(scope["method"])
        if endpoint is not None:
            return endpoint(scope, receive, send)
        allow = {"Allow": ", ".join(sorted([*self._endpoints, "OPTIONS"]))}
        if scope["method"] == "OPTIONS":
            return Response(None, 204, allow)(scope, receive, send)
        raise Problem(METHOD_NOT_ALLOWED, f"Here are {allow['Allow']}.", headers=allow)


class Endpoint:
    """One operation as an ASGI app.

    It is no function of a Starlette ``Request``: to make one for each request, and to catch its
    errors once more, costs as much as all that is done here.
    """

    def __init__(
        self,
        operation: Operation,
        handler: Callable[..., Awaitable[Any]],
        admit: Admit | None,
        settled: Settled,
        count: Count,
        checks_bandit: bool,
    ) -> None:
        self.operation = operation
        self._handler = handler
        self._admit = admit
        self._settled = _at_once if operation.needs is None else settled
        self._count = count
        self._checks_bandit = checks_bandit
        self._wants_call = "call" in signature(handler).parameters
        self._paths: dict[tuple[str, ...], Any] = {}
        self._status = next(iter(operation.answers))
        self._decoder = (
            None if operation.body_type is None else msgspec.json.Decoder(operation.body_type)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        headers = dict(scope["headers"])
        key = await self._admitted(headers, scope)
        arguments = self._parameters(scope)
        raw, media_type, takes = b"", "", self.operation.takes
        has_body = bool(takes) or self._decoder is not None
        if has_body:
            if takes:
                media_type = file_type(headers, takes)
            else:
                check_media_type(headers)
            received = await read(receive, headers, self.operation.max_bytes)
            if received is None:
                return  # nobody is left to be answered
            raw = received
        self._count.open_requests += has_body
        try:
            if self._decoder is not None:
                arguments["body"] = decoded(self._decoder, raw)
            if self._wants_call:
                arguments["call"] = Call(scope, key, raw, media_type)
            await self._settled()
            result = await self._handler(**arguments)
            scope[STARTED] = True
            if isinstance(result, Response):
                await result(scope, receive, send)
            elif isinstance(result, Answer):
                await self._send(send, *result)
            else:
                await self._send(send, result, self._status)
        finally:
            self._count.open_requests -= has_body

    async def _admitted(self, headers: Headers, scope: Scope) -> KeyChange | None:
        needs = self.operation.needs
        if self._admit is None or needs is None:
            return None
        bandit = None if self._checks_bandit else scope["path_params"].get("name", "")
        key = await self._admit(headers, needs, bandit)
        if key is not None:
            scope.setdefault("state", {})[KEY] = key.id
        return key

    def _parameters(self, scope: Scope) -> dict[str, Any]:
        arguments = {}
        path_type, query_type = self.operation.path_type, self.operation.query_type
        if path_type is not None:
            arguments["path"] = self._path(scope["path_params"], path_type)
        if query_type is not None:
            arguments["query"] = parameters(query_of(scope["query_string"]), query_type)
        elif scope["query_string"]:
            parameters(query_of(scope["query_string"]), NoQuery)
        return arguments

    def _path(self, texts: dict[str, str], type: Any) -> Any:
        """The parameters of a path; the same few paths come again and again."""
        key = tuple(texts.values())
        path = self._paths.get(key)
        if path is None:
            path = parameters(texts, type)
            if _comes_again(texts) and len(self._paths) < MOST_PATHS:
                self._paths[key] = path
        return path

    async def _send(
        self, send: Send, value: Any, status: int, more: Mapping[str, str] = NO_HEADERS
    ) -> None:
        headers, body = [], b""
        if more:
            headers = [(name.lower().encode(), text.encode()) for name, text in more.items()]
        if self.operation.answers[status] is not None:
            body = _encode(value)
            headers += [JSON, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
