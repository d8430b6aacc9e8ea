"""A toy API for the tests of the HTTP toolkit: shelves of things. It knows nothing of bandits."""

import asyncio
import itertools
import socket
import threading
from contextlib import contextmanager
from typing import Annotated, Any

import httpx2
import msgspec
import uvicorn
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.responses import PlainTextResponse, StreamingResponse

from belated.ledger.events import KeyChange
from belated.ledger.protocol import StoreUnavailableError
from belated.service.http import access_log as logs
from belated.service.http.access import KeyRing, new_key
from belated.service.http.api import Answer, Api, Call
from belated.service.http.openapi import Link
from belated.service.http.problems import Problem, ProblemDocument, ProblemType

UNKNOWN_THING = ProblemType(404, "unknown-thing", "There is no such thing")
Name = Annotated[str, Meta(pattern="^[a-z]+$", max_length=20)]
MAX_BYTES = 20_000  # more than schemathesis thinks of: to it, 413 is no refusal of bad data
Id = Annotated[int, Meta(ge=0, le=2**53)]


class Shelf(Struct, forbid_unknown_fields=True):
    name: Name


class OnShelf(Struct, forbid_unknown_fields=True):
    name: Name
    id: Id


class Page(Struct, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=100)] = 10
    above: float = 0.0


class Part(Struct, forbid_unknown_fields=True):
    weight: Annotated[float, Meta(ge=0.0, le=1e6)]


class NewThing(Struct, forbid_unknown_fields=True):
    label: Annotated[str, Meta(max_length=50)]
    parts: Annotated[list[Part], Meta(max_length=5)] = []
    sizes: dict[str, Annotated[int, Meta(ge=0, le=9)]] = {}


class Thing(Struct):
    id: int
    label: str
    parts: list[Part]


class Anything(Struct, forbid_unknown_fields=True):
    value: Any
    raw: msgspec.Raw | UnsetType = UNSET


def toy(admit=None, keep_deleted=False):
    """Shelves of things; ``keep_deleted`` is a mistake for schemathesis to find."""
    api = Api("Shelves", "1.0", admit, max_body=MAX_BYTES)
    things: dict[tuple[str, int], Thing] = {}
    ids = itertools.count()

    @api.route(
        "POST",
        "/shelves/{name}/things",
        answers={201: Thing},
        needs="decide",
        links=[
            Link("read_thing", {"name": "$request.path.name", "id": "$response.body#/id"}),
            Link("delete_thing", {"name": "$request.path.name", "id": "$response.body#/id"}),
        ],
    )
    async def make_thing(path: Shelf, body: NewThing, call: Call) -> Answer:
        """Put a thing on a shelf.

        It gets an id of its own.
        """
        thing = Thing(next(ids), body.label, body.parts)
        things[path.name, thing.id] = thing
        call.state[logs.DECISION] = str(thing.id)
        return Answer(thing, 201, {"Location": f"/shelves/{path.name}/things/{thing.id}"})

    @api.route("GET", "/shelves/{name}/things", answers={200: list[Thing]}, needs="read")
    async def list_things(path: Shelf, query: Page) -> list[Thing]:
        """Things on a shelf."""
        here = [t for (name, _), t in things.items() if name == path.name and t.id > query.above]
        return here[: query.limit]

    one = "/shelves/{name}/things/{id}"

    @api.route("GET", one, answers={200: Thing}, needs="read", problems=[UNKNOWN_THING])
    async def read_thing(path: OnShelf) -> Thing:
        """One thing."""
        if (path.name, path.id) not in things:
            raise Problem(UNKNOWN_THING, f"No {path.id} here.", members={"shelf": path.name})
        return things[path.name, path.id]

    @api.route("DELETE", one, answers={204: None}, needs="reward", problems=[UNKNOWN_THING])
    async def delete_thing(path: OnShelf) -> None:
        """Take a thing away."""
        await read_thing(path)
        if not keep_deleted:
            del things[path.name, path.id]

    @api.route("GET", "/alive", answers={200: "text/plain"}, needs=None)
    async def alive() -> PlainTextResponse:
        """Whether the service is alive."""
        return PlainTextResponse("yes")

    return api


def odd():
    """Operations that go wrong, and one that takes anything."""
    api = Api("Odd", "1.0")

    @api.route("POST", "/anything", answers={200: Any}, needs=None)
    async def anything(body: Anything) -> Any:
        """What was sent."""
        return body.value

    @api.route("GET", "/mistake", answers={200: None}, needs=None)
    async def mistake() -> None:
        """Divides by zero."""
        raise ZeroDivisionError("password=hunter2")

    @api.route("GET", "/full", answers={200: None}, needs=None)
    async def full() -> None:
        """Has no disk left."""
        raise StoreUnavailableError("/secret/path: disk full")

    @api.route("GET", "/broken-stream", answers={200: "text/plain"}, needs=None)
    async def broken_stream() -> StreamingResponse:
        """Breaks when its answer has begun."""

        async def lines():
            yield "one"
            raise ZeroDivisionError

        return StreamingResponse(lines())

    @api.route("POST", "/many", answers={200: int}, needs="reward", checks_bandit=True)
    async def many(body: list[int]) -> int:
        """A body that is no object."""
        return sum(body)

    return api


def ask(app, method, url, raises=False, **more) -> httpx2.Response:
    async def one():
        transport = httpx2.ASGITransport(app, raise_app_exceptions=raises)
        async with httpx2.AsyncClient(transport=transport, base_url="http://toy") as client:
            return await client.request(method, url, **more)

    return asyncio.run(one())


def check_problem(answer, status, type) -> dict:
    assert (answer.status_code, answer.headers["content-type"]) == (
        status,
        "application/problem+json",
    )
    document = answer.json()
    assert document["status"] == status
    assert document["type"] == f"/problems/{type}"
    msgspec.convert(document, ProblemDocument)
    return document


TOY, ODD = toy().app(), odd().app()
THINGS = "/shelves/a/things"


def post(app, path, content):
    return ask(app, "POST", path, content=content, headers={"content-type": "application/json"})


def receiving(*chunks):
    messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    return iter(messages)


def serve_once(app, messages, headers=()):
    """One POST as ASGI messages; the answers, and how many messages were left."""
    sent = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": THINGS,
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), *headers],
    }

    async def receive():
        return next(messages)

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent


def ring_with(*keys):
    ring, texts = KeyRing(), []
    for bandit, scopes in keys:
        text, id, secret_hash = new_key()
        ring.put(KeyChange(id, "test", secret_hash, bandit, scopes))
        texts.append(text)
    return ring, texts


@contextmanager
def served(app):
    """The address of the app on a server of its own."""
    config = uvicorn.Config(app, port=0, log_level="warning", ws="none", lifespan="on")
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
