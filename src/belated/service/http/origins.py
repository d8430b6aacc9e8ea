"""Refuses what web pages of other origins send to a service without keys.

A browser lets every page post to any address, this machine's among them, as long as the request
needs no permission: the page cannot read the answer, but what it asked for is done. A body must be
sent as application/json, which needs permission; a request without a body needs none. The browser
says where such a request comes from, and pages cannot change that.
"""

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.types import Scope

from belated.core.arguments import shown
from belated.service.http.problems import Problem, ProblemType

OTHER_ORIGIN = ProblemType(
    403, "other-origin", "The request was sent by a web page of another origin"
)
CHANGES_NOTHING = ("GET", "HEAD", "OPTIONS")
OWN_SITE = (b"same-origin", b"none")  # none: typed into the browser by its user


def other_origin(scope: Scope, allowed: Collection[str]) -> Problem | None:
    """Returns the refusal of a change that a page of another origin asks for; None if none does.

    Programs that are no browsers send neither of the two headers, and pass.
    """
    if scope["method"] in CHANGES_NOTHING:
        return None
    foreign = foreign_origin(dict(scope["headers"]), allowed)
    if foreign is None:
        return None
    return Problem(
        OTHER_ORIGIN,
        f"Origin = {shown(foreign)}: expected a page of this service, or no web "
        "page, as long as there are no API keys. Make one with `belated keys "
        "create` and send it with the request.",
    )


def foreign_origin(headers: dict[bytes, bytes], allowed: Collection[str] = ()) -> str | None:
    """Returns the origin of the page that sent a request; None if it is the service's own.

    >>> foreign_origin({b"host": b"localhost:8787", b"origin": b"http://evil.example"})
    'http://evil.example'
    >>> foreign_origin({b"host": b"localhost:8787", b"origin": b"http://localhost:8787"})
    >>> foreign_origin({b"host": b"localhost:8787"})
    """
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site in OWN_SITE or (site is None and origin is None):
        return None
    text = (origin or b"").decode("latin-1")
    try:
        page = urlsplit(text.lower())
        own = page.netloc == headers.get(b"host", b"").decode("latin-1").lower()
        is_own = bool(page.netloc) and (own or page.hostname in allowed)
    except ValueError:  # such as an address with half a bracket
        is_own = False
    return None if is_own else text
