"""The client for programs with an event loop."""

import asyncio
from typing import Self, TypeVar

import httpx2

from belated.client import calls
from belated.client.operations import Operations

T = TypeVar("T")


class AsyncClient(Operations):
    """A client with the methods of ``Client``, to be awaited. One object may serve many tasks."""

    def __init__(
        self,
        base_url: str,
        key: str | None = None,
        *,
        timeout: float = 5.0,
        retries: int = 5,
        transport: httpx2.AsyncBaseTransport | None = None,
        ca_file: str | None = None,
    ) -> None:
        self._retries = calls.checked_retries(retries)
        options = calls.http_options(base_url, key, timeout, transport, ca_file)
        self._http = httpx2.AsyncClient(**options)

    async def close(self) -> None:
        """Closes the connection."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _send(self, call: calls.Call[T]) -> T:
        attempts = calls.Attempts(self._retries)
        while True:
            response = failure = None
            try:
                response = await self._http.send(call.request(self._http))
            except httpx2.TransportError as error:
                failure = error
            pause = attempts.pause(response)
            if pause is None:
                return calls.outcome(call, response, failure)
            await asyncio.sleep(pause)
