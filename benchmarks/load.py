"""A load generator: many connections, each sending its next request when the last is answered."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice

import uvloop


@dataclass
class Load:
    """What came of it."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    failures: int = 0
    cpu: float = 0.0  # seconds that the server worked

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.latencies) / self.seconds


def request(path: str, body: bytes, method: str = "POST") -> bytes:
    """An HTTP/1.1 request."""
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def drive(
    ports: Sequence[int], requests: Iterator[bytes], connections: int, seconds: float
) -> Load:
    """Send ``requests`` until time or they are over; connections go to the ports in turn."""
    return uvloop.run(_drive(ports, requests, connections, seconds))


async def _drive(
    ports: Sequence[int], requests: Iterator[bytes], connections: int, seconds: float
) -> Load:
    load, started = Load(), time.perf_counter()
    to = islice(cycle(ports), connections)
    await asyncio.gather(*(_connection(port, requests, started + seconds, load) for port in to))
    load.seconds = time.perf_counter() - started
    return load


async def _connection(port: int, requests: Iterator[bytes], end: float, load: Load) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for message in requests:
        sent = time.perf_counter()
        if sent > end:
            break
        writer.write(message)
        head = await reader.readuntil(b"\r\n\r\n")
        at = head.lower().index(b"content-length:") + 15
        await reader.readexactly(int(head[at : head.index(b"\r", at)]))
        load.latencies.append(time.perf_counter() - sent)
        load.failures += not head.startswith(b"HTTP/1.1 20")
    writer.close()
