"""Without keys, no page of another origin can change anything: not even without a body."""

import asyncio
from types import SimpleNamespace

import httpx2
import pytest

from belated.service.app import new_app
from belated.service.service import Service

OWN = "http://localhost:8787"
SETTINGS = {"family": "gaussian", "policy": "delayed-ofu-glm", "dim": 2}


def sent(service, method, path, headers=None, allowed=(), **more):
    """The answer to a request of a page of this service's own address."""
    transport = httpx2.ASGITransport(new_app(service, allowed_hosts=allowed))

    async def ask():
        async with httpx2.AsyncClient(transport=transport, base_url=OWN) as http:
            return await http.request(method, path, headers=headers, **more)

    return asyncio.run(ask())


@pytest.fixture
def shop():
    """A service with a bandit and the path at which its one decision is cancelled."""
    service = Service("memory://")
    service.read_log()
    assert sent(service, "PUT", "/v1/bandits/shop", json=SETTINGS).status_code == 201
    body = {"matrix": [[1.0, 0.0]]}
    decision = sent(service, "POST", "/v1/bandits/shop/decisions", json=body).json()
    cancel = f"/v1/decisions/{decision['decision_id']}/cancel"
    return SimpleNamespace(service=service, cancel=cancel, id=decision["decision_id"])


FOREIGN = [
    {"Origin": "http://evil.example"},
    {"Origin": "https://localhost:8787.evil.example"},
    {"Origin": "http://localhost:3000"},  # another program of this machine, another origin
    {"Origin": "null"},  # a page in a sandbox, or a file
    {"Origin": ""},
    {"Origin": "http://[::1"},
    {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site"},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_a_page_of_another_origin_cannot_cancel(shop, headers):
    answer = sent(shop.service, "POST", shop.cancel, headers)
    assert answer.status_code == 403
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "/problems/other-origin"
    assert "belated keys" in answer.json()["detail"]
    story = sent(shop.service, "GET", f"/v1/decisions/{shop.id}").json()
    assert story["status"] == "pending"


@pytest.mark.parametrize(
    "headers",
    [
        {},  # no browser
        {"Origin": OWN},
        {"Origin": OWN.upper()},
        {"Origin": OWN, "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://shop.example", "Sec-Fetch-Site": "same-origin"},  # behind a proxy
    ],
)
def test_its_own_pages_and_programs_can(shop, headers):
    answer = sent(shop.service, "POST", shop.cancel, headers)
    assert answer.json() == {"status": "accepted"}


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "POST"])
def test_no_method_that_changes_something_is_open_to_other_origins(shop, method):
    answer = sent(shop.service, method, "/v1/bandits/shop", FOREIGN[0], json=SETTINGS)
    assert answer.status_code == 403
    assert sent(shop.service, "GET", "/v1/bandits", FOREIGN[0]).status_code == 200


def test_the_page_of_an_allowed_host_may_post(shop):
    headers = {"Origin": "https://shop.example"}  # an old browser behind a proxy
    assert sent(shop.service, "POST", shop.cancel, headers).status_code == 403
    answer = sent(shop.service, "POST", shop.cancel, headers, allowed=["Shop.example"])
    assert answer.status_code == 200


def test_a_service_that_every_host_may_ask_refuses_other_origins_too(shop):
    assert sent(shop.service, "POST", shop.cancel, FOREIGN[0], allowed=None).status_code == 403


def test_with_a_key_the_origin_does_not_matter(shop):
    key = sent(shop.service, "POST", "/v1/keys", json={"name": "me", "scopes": ["reward"]}).json()
    assert sent(shop.service, "POST", shop.cancel, FOREIGN[0]).status_code == 401
    answer = sent(shop.service, "POST", shop.cancel, {**FOREIGN[0], "X-API-Key": key["key"]})
    assert answer.json() == {"status": "accepted"}
