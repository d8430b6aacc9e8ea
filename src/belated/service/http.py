"""HTTP/1.1 that writes an answer at once: uvicorn writes its head, and then its body.

Each write is a call of the system, and wakes the reader.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class JoiningTransport:
    """A transport that joins what is written until the event loop comes round."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._call_soon = asyncio.get_running_loop().call_soon
        self._held: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Write soon."""
        if not self._held:
            self._call_soon(self._flush)
        self._held.append(data)

    def close(self) -> None:
        """Write what is held, then close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, []
            self._transport.write(b"".join(held))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class OneWriteProtocol(HttpToolsProtocol):
    """Uvicorn's protocol on such a transport."""

    def connection_made(self, transport: Any) -> None:
        """A client has connected."""
        super().connection_made(JoiningTransport(transport))  # type: ignore[arg-type]
