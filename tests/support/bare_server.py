"""A server that does nothing but answer: what it takes is what the machine adds to every answer."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SCRIPT = """
import asyncio

ANSWER = b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n"

async def answer(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(ANSWER)
    await writer.drain()
    writer.close()

async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


@contextmanager
def bare_server() -> Iterator[int]:
    """Yields the port of such a server, in a process of its own."""
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()
