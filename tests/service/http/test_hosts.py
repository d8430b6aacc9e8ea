"""A service of this machine alone answers to its own names alone: no page can rebind to it."""

import asyncio

import httpx2
import pytest

from belated.service.app import new_app
from belated.service.service import Service
from belated.service.serving import ServeSettings, serve
from support.live_server import LiveServer


def answered(service, *hosts, allowed=(), path="/v1/bandits"):
    """The answer to a request with these Host headers."""
    transport = httpx2.ASGITransport(new_app(service, allowed_hosts=allowed))

    async def ask():
        async with httpx2.AsyncClient(transport=transport, base_url="http://x") as http:
            request = http.build_request("GET", path)
            rest = [(k, v) for k, v in request.headers.raw if k.lower() != b"host"]
            request.headers = httpx2.Headers([*rest, *((b"host", host) for host in hosts)])
            return await http.send(request)

    return asyncio.run(ask())


@pytest.fixture
def service():
    made = Service("memory://")
    made.read_log()
    return made


@pytest.mark.parametrize(
    "host",
    [b"localhost", b"LOCALHOST:8787", b"127.0.0.1:8787", b"127.1.2.3", b"[::1]:8787", b"[::1]"],
)
def test_its_own_names_are_answered(service, host):
    assert answered(service, host).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        b"evil.example:8787",
        b"localhost.evil.example",
        b"evil-localhost",
        b"127.0.0.1.evil.example",
        b"[::1].evil.example",
        b"::1",  # without brackets it is no host and port
        b"0.0.0.0:8787",  # which some systems take for this machine
        b"192.168.0.7",
        b"[2001:db8::1]",
        b"127.0.0.1:8787@evil.example",
        b"\xff",
        b"",
    ],
)
@pytest.mark.parametrize("path", ["/v1/bandits", "/", "/metrics", "/healthz", "/nothing"])
def test_other_names_are_refused(service, host, path):
    answer = answered(service, host, path=path)
    assert answer.status_code == 421
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "/problems/other-host"
    assert "--allow-host" in answer.json()["detail"]


def test_no_host_and_two_hosts_are_refused(service):
    assert answered(service).status_code == 421
    assert answered(service, b"localhost", b"evil.example").status_code == 421
    assert answered(service, b"evil.example", b"localhost").status_code == 421


def test_names_that_are_allowed(service):
    allowed = ["Shop.example"]
    assert answered(service, b"shop.EXAMPLE:8787", allowed=allowed).status_code == 200
    assert answered(service, b"localhost", allowed=allowed).status_code == 200
    assert answered(service, b"www.shop.example", allowed=allowed).status_code == 421
    assert answered(service, b"evil.example", allowed=None).status_code == 200


def test_with_keys_the_host_does_not_matter_and_before_the_log_is_read_nothing_is_told():
    starting = Service("memory://")
    assert answered(starting, b"evil.example", path="/healthz").status_code == 200
    assert answered(starting, b"evil.example").status_code == 503
    starting.read_log()
    assert answered(starting, b"evil.example", path="/healthz").status_code == 421
    body = {"name": "me", "scopes": ["read"]}
    transport = httpx2.ASGITransport(new_app(starting, allowed_hosts=()))

    async def make_key():
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.post("/v1/keys", json=body)

    assert asyncio.run(make_key()).status_code == 201
    assert answered(starting, b"shop.example").status_code == 401
    assert answered(starting, b"shop.example", path="/healthz").status_code == 200


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 421),
        ({"allowed_hosts": ["shop.example"]}, 200),
        ({"host": "0.0.0.0", "without_keys": True}, 200),
    ],
)
def test_serve_looks_at_the_host_where_only_this_machine_can_reach_it(settings, expected):
    with LiveServer("memory://", **settings) as server:
        url = f"http://127.0.0.1:{server.port}/v1/bandits"
        assert httpx2.get(url).status_code == 200
        assert httpx2.get(url, headers={"Host": "shop.example"}).status_code == expected


@pytest.mark.parametrize(
    ("name", "host", "expected"),
    [
        ("http://shop.example", "127.0.0.1", "without scheme and port"),
        ("shop.example:80", "127.0.0.1", "without scheme and port"),
        ("shop.example", "0.0.0.0", "every host is answered"),
    ],
)
def test_a_host_that_cannot_be_allowed_is_refused_at_the_start(name, host, expected):
    settings = ServeSettings(ledger="memory://", port=0, host=host, allowed_hosts=(name,))
    with pytest.raises(ValueError, match=f"allow-host = '{name}': expected .*{expected}"):
        serve(settings)
