"""Checks the Host header. A service that listens on loopback only answers to loopback names.

A page on the web can let its own name lead to 127.0.0.1 once a browser has loaded it (DNS
rebinding). The browser then takes this service for the page's own and lets it ask for anything.
But it names in Host whom it takes us for.
"""

import ipaddress
import re
from collections.abc import Awaitable, Collection
from functools import lru_cache

from starlette.types import ASGIApp, Receive, Scope, Send

from belated.core.arguments import shown
from belated.service.http.problems import Problem, ProblemType
from belated.service.service import Service

OTHER_HOST = ProblemType(421, "other-host", "The request was meant for another host")
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::\d*)?")  # and a port


@lru_cache(maxsize=100)  # the same few come again and again
def is_loopback(name: str) -> bool:
    """Return whether this is the machine itself.

    >>> [is_loopback(name) for name in ("127.0.0.1", "::1", "localhost", "shop.example")]
    [True, True, True, False]
    """
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


@lru_cache(maxsize=100)
def host_name(header: bytes) -> str:
    """The name in a Host header, without its port; "" where it is none.

    >>> host_name(b"LocalHost:8787"), host_name(b"[::1]:8787"), host_name(b"[::1].example")
    ('localhost', '::1', '')
    """
    found = _HOST.fullmatch(header.decode("latin-1").lower())
    return "" if found is None else found[1] or found[2]


class OwnHosts:
    """An ASGI app around another one: refuses what was meant for another host.

    Only as long as there are no keys: a page that leads here does not know them. Before the log
    is read, that cannot be told, and nothing is served that a page could use.
    """

    def __init__(self, app: ASGIApp, service: Service, allowed: Collection[str]) -> None:
        self.app, self.service = app, service
        self.allowed = {name.lower() for name in allowed}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        service = self.service
        if scope["type"] == "http" and service.ready and service.ring.is_open:
            name = _name(scope)
            if not (is_loopback(name) or name in self.allowed):
                problem = Problem(
                    OTHER_HOST,
                    f"Host = {shown(name)}: expected localhost or an address of this machine, as "
                    "long as there are no API keys. `belated serve --allow-host` adds a name.",
                )
                return problem.response()(scope, receive, send)
        return self.app(scope, receive, send)


def _name(scope: Scope) -> str:
    names = [value for name, value in scope["headers"] if name == b"host"]
    return host_name(names[0]) if len(names) == 1 else ""
