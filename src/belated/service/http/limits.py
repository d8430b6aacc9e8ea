"""Limits on the bytes, seconds and connections that a client may cost before it has shown a key."""

from typing import Annotated

import msgspec
from msgspec import Meta

from belated.core.arguments import positive, whole, wrong

try:
    import resource
except ImportError:  # Windows, where sockets are not counted as files
    resource = None  # type: ignore[assignment]

MAX_BODY = 1_000_000  # bytes
OWN_FILES = 100  # beside connections: the store, pipes, libraries, what asks for the health


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of each process of a service; ``belated serve`` has an option for each."""

    max_request_line: Annotated[int, Meta(description="Bytes of a request's address.")] = 8_192
    max_header_bytes: Annotated[int, Meta(description="Bytes of a request's headers.")] = 16_384
    max_headers: Annotated[int, Meta(description="Headers of a request.")] = 100
    header_seconds: Annotated[float, Meta(description="Longest to send all headers.")] = 10.0
    body_seconds: Annotated[
        float, Meta(description="Longest to send a body, and to take an answer.")
    ] = 30.0
    # load balancers wait for 60 seconds by default
    idle_seconds: Annotated[float, Meta(description="Longest between two requests.")] = 75.0
    max_connections: Annotated[int, Meta(description="Open at a time, for each worker.")] = 1_000
    # a body is decoded in one go
    max_body: Annotated[
        int, Meta(description="Bytes of a body; everybody waits up to 20 ms for each megabyte.")
    ] = MAX_BODY

    def check(self) -> None:
        """Raises ``ValueError`` for a limit under which nothing could be served."""
        whole("max-request-line", self.max_request_line, 64)
        whole("max-header-bytes", self.max_header_bytes, 256)
        whole("max-headers", self.max_headers, 4)
        positive("header-seconds", self.header_seconds)
        positive("body-seconds", self.body_seconds)
        positive("idle-seconds", self.idle_seconds)
        whole("max-connections", self.max_connections)
        whole("max-body", self.max_body, 1_000)


def make_room(limits: Limits) -> None:
    """Let this process, and those it starts, have as many files open as there may be connections.

    The usual limit is 1024 files (macOS: 256), and a program may raise it up to a hard one. Raises
    ``ValueError`` where that is too low.
    """
    if resource is not None:
        needed, unlimited = limits.max_connections + OWN_FILES, resource.RLIM_INFINITY
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != unlimited and soft < needed:
            if hard != unlimited and hard < needed:
                most = f"{hard - OWN_FILES} at most: the system allows {hard} open files"
                raise wrong("max-connections", limits.max_connections, f"{most} (ulimit -Hn)")
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
