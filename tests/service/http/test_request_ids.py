"""Every answer names its request, and so does every line that is logged of it."""

import asyncio
import io
import json
import logging
from functools import partial

import httpx2
import pytest
from test_guarded_protocol import exchanged

from belated.service.app import new_app
from belated.service.http.connections import Connections
from belated.service.http.guarded_protocol import GuardedProtocol
from belated.service.http.json_log import JsonLines
from belated.service.http.limits import Limits
from belated.service.service import Service

SENT = {"X-Request-ID": "shop-17"}


def ask(path, method="GET", headers=SENT, url="http://localhost"):
    """The answer of a service, in this process; it fails where a bandit is called ``broken``."""

    async def send():
        service = Service("memory://")
        service.read_log()
        service.replica.folds["broken"] = object()  # whoever looks at it makes a mistake
        transport = httpx2.ASGITransport(new_app(service, allowed_hosts=()))
        async with httpx2.AsyncClient(transport=transport, base_url=url) as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(send())


@pytest.mark.parametrize(
    ("path", "status"), [("/healthz", 200), ("/nowhere", 404), ("/v1/bandits/broken", 500)]
)
def test_the_id_of_a_request_comes_back(path, status):
    answer = ask(path)
    assert answer.status_code == status
    assert answer.headers.get_list("X-Request-ID") == ["shop-17"]
    assert answer.json().get("x_request_id") == (None if status == 200 else "shop-17")


def test_who_is_refused_at_once_has_an_id_too():
    answer = ask("/healthz", url="http://evil.example")
    assert answer.status_code == 421
    assert answer.headers["X-Request-ID"] == answer.json()["x_request_id"] == "shop-17"


@pytest.mark.parametrize("sent", ["", "two words", "x" * 129, "ü", "a\tb"])
def test_an_id_that_does_not_fit_into_a_line_is_replaced(sent):
    made = {ask("/", headers=[(b"X-Request-ID", sent.encode())]).headers["X-Request-ID"]}
    made |= {ask("/", headers={}).headers["X-Request-ID"]}
    assert len(made) == 2
    assert {len(id) for id in made} == {32}


def test_what_the_protocol_refuses_has_the_id_as_far_as_it_was_read():
    protocol = partial(GuardedProtocol, connections=Connections(Limits(max_headers=4)))
    head = b"GET / HTTP/1.1\r\nx-request-id: shop-17\r\n"
    many = b"x: y\r\n" * 9 + b"\r\n"
    for sent, status, id in (
        (head + many, b"431", "shop-17"),
        (head + b"x: y\r\nno header\r\n\r\n", b"400", "shop-17"),
        (b"no HTTP\r\n\r\n", b"400", None),
    ):
        refused = asyncio.run(exchanged(protocol, sent, []))
        headers, _, body = refused.partition(b"\r\n\r\n")
        assert headers.startswith(b"HTTP/1.1 " + status)
        named = json.loads(body)["x_request_id"]
        assert b"\r\nx-request-id: " + named.encode() in headers
        assert named == id or (id is None and len(named) == 32), (sent, named)


def test_beyond_the_limit_on_connections_answers_are_named_once():
    connections = Connections(Limits(max_connections=1))
    connections.open.add(None)  # one that is being answered
    protocol = partial(GuardedProtocol, connections=connections)
    sent = b"GET / HTTP/1.1\r\nhost: localhost\r\nx-request-id: shop-17\r\n\r\n"
    refused = asyncio.run(exchanged(protocol, sent, []))
    assert refused.startswith(b"HTTP/1.1 503")
    assert refused.count(b"x-request-id: shop-17") == 1


def test_a_mistake_is_a_line_of_json_with_the_request_and_the_error():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("belated.service")
    logger.addHandler(handler)
    try:
        ask("/v1/bandits/broken")
        logger.warning("it goes on")
    finally:
        logger.removeHandler(handler)
    failed, other = (json.loads(line) for line in stream.getvalue().splitlines())
    assert failed["event"] == "GET /v1/bandits/broken, request shop-17"
    assert (failed["level"], failed["x_request_id"]) == ("error", "shop-17")
    assert (failed["error"], failed["logger"]) == ("AttributeError", "belated.service")
    assert failed["traceback"].startswith("Traceback")
    assert failed["detail"] in failed["traceback"]
    assert {"time", "level", "logger", "event"} == other.keys()
