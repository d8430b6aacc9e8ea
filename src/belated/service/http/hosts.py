"""Checks the Host header. A service that listens on loopback only answers to loopback names.

A page on the web can let its own name lead to 127.0.0.1 once a browser has loaded it (DNS
rebinding). The browser then takes this service for the page's own and lets it ask for anything.
But it names in Host whom it takes us for.
"""

import ipaddress
import re
from collections.abc import Collection
from functools import lru_cache

from starlette.types import Scope

from belated.core.arguments import shown
from belated.service.http.problems import Problem, ProblemType

OTHER_HOST = ProblemType(421, "other-host", "The request was meant for another host")
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::\d*)?")  # and a port


@lru_cache(maxsize=100)  # the same few come again and again
def is_loopback(name: str) -> bool:
    """Returns whether this is the machine itself.

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


def other_host(scope: Scope, allowed: Collection[str]) -> Problem | None:
    """Returns the refusal of a request that was meant for another host; None if it was for us."""
    names = [value for name, value in scope["headers"] if name == b"host"]
    name = host_name(names[0]) if len(names) == 1 else ""
    if is_loopback(name) or name in allowed:
        return None
    return Problem(
        OTHER_HOST,
        f"Host = {shown(name)}: expected localhost or an address of this machine, as "
        "long as there are no API keys. `belated serve --allow-host` adds a name.",
    )
