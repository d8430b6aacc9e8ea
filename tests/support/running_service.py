"""A service on a free port, in a thread of the test; and httpx2 transports that fail on purpose."""

import socket
import threading
import time
from contextlib import contextmanager

import httpx2
import uvicorn

from belated.ledger.replica import system_clock
from belated.service.app import new_app
from belated.service.service import Service


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def served(url="memory://", clock=system_clock, **options):
    """The base URL of a service that is ready, and the service."""
    service = Service(url, clock=clock)
    port = free_port()
    config = uvicorn.Config(
        new_app(service, **options), port=port, log_level="error", ws="none", lifespan="on"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)  # a failed page must not hang
    thread.start()
    try:
        while not (server.started and service.ready):
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}", service
    finally:
        server.should_exit = True
        thread.join()


class Flaky(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """Passes requests on to the network, but first fails in the ways it is told.

    ``lose``: the request is carried out and its answer lost; an int: this status is answered;
    an exception: it is raised before anything is sent.
    """

    def __init__(self, *failures):
        self.failures = list(failures)
        self.sent = []

    def _failure(self, request):
        self.sent.append(request)
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, Exception):
            raise failure
        return failure

    def handle_request(self, request):
        failure = self._failure(request)
        if isinstance(failure, httpx2.Response):
            return failure
        with httpx2.HTTPTransport() as network:
            response = network.handle_request(request)
            content = response.read()
        if failure == "lose":
            raise httpx2.ReadError("the answer was lost")
        return httpx2.Response(response.status_code, headers=response.headers, content=content)

    async def handle_async_request(self, request):
        failure = self._failure(request)
        if isinstance(failure, httpx2.Response):
            return failure
        async with httpx2.AsyncHTTPTransport() as network:
            response = await network.handle_async_request(request)
            content = await response.aread()
        if failure == "lose":
            raise httpx2.ReadError("the answer was lost")
        return httpx2.Response(response.status_code, headers=response.headers, content=content)
