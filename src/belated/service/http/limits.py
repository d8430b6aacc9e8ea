"""What a client may cost a service before it has shown a key: bytes, seconds and connections."""

import msgspec

from belated.core.arguments import positive, whole, wrong

try:
    import resource
except ImportError:  # Windows, where sockets are not counted as files
    resource = None  # type: ignore[assignment]

MAX_BODY = 1_000_000  # bytes
OWN_FILES = 100  # beside connections: the store, pipes, libraries, what asks for the health


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of each process of a service, options of ``belated serve`` by the same names."""

    max_request_line: int = 8_192  # bytes of the address in a request
    max_header_bytes: int = 16_384  # of all headers of a request together
    max_headers: int = 100  # in a request
    header_seconds: float = 10.0  # from the first byte of a request to the end of its headers
    body_seconds: float = 30.0  # to send a body, and to take an answer
    idle_seconds: float = 75.0  # between requests; load balancers wait for 60 by default
    max_connections: int = 1_000
    # of a body in bytes. It is decoded in one go, for up to 20 ms a megabyte: everybody waits
    max_body: int = MAX_BODY

    def check(self) -> None:
        """Raise ``ValueError`` for a limit under which nothing could be served."""
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
