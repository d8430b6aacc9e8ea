"""The worker processes of one service: what they tell each other, and what ties them together."""

import asyncio
import mmap
import multiprocessing
import os
import signal
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from belated.service.service import Service

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

SLOTS = 128  # workers at a time, and those that take over from them
SLOT = struct.Struct("=Q")
FROM_THE_LOG = ("/v1/", "/personalizer/")  # paths that are answered from what the log says
END_AFTER = 10.0  # seconds for a worker without a parent to answer what is under way


@contextmanager
def new_board() -> Iterator[str]:
    """Yield the path of a board for the workers of this process; it is gone afterwards."""
    number, path = tempfile.mkstemp(prefix="belated-workers-")
    try:
        os.truncate(number, SLOTS * SLOT.size)
        os.close(number)
        yield path
    finally:
        Path(path).unlink(missing_ok=True)


class Board:
    """A file in shared memory in which each worker counts its commits, for the others to see.

    Each worker has a slot that nobody else writes to, so that no count is lost. The slot of a
    worker that has ended is free for the next one: the system lets go of its lock.

    Parameters
    ----------
    path
        From ``new_board``.
    """

    def __init__(self, path: str) -> None:
        self._file = open(path, "r+b")  # noqa: SIM115 - to close it would give up the slot
        self._memory = mmap.mmap(self._file.fileno(), SLOTS * SLOT.size)
        self._start = self._claimed() * SLOT.size
        self._end = self._start + SLOT.size
        self.is_first = self._start == 0 and self._count() == 0  # worker of this service ever
        self.tell()

    def tell(self) -> None:
        """Let the others know that something was written into the log."""
        SLOT.pack_into(self._memory, self._start, self._count() + 1)

    def others(self) -> tuple[bytes, bytes]:
        """Return what the others have counted: it changes whenever one of them has written."""
        return self._memory[: self._start], self._memory[self._end :]

    def close(self) -> None:
        """Give up the slot."""
        self._memory.close()
        self._file.close()

    def _count(self) -> int:
        return int(SLOT.unpack_from(self._memory, self._start)[0])

    def _claimed(self) -> int:
        slot = os.getpid() // 4 % SLOTS  # Windows counts in fours, and has no such locks
        if fcntl is not None:
            slot = self._locked()
        return slot

    def _locked(self) -> int:
        """Return the first slot that no living worker has."""
        for slot in range(SLOTS):
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
            except OSError:
                continue
            return slot
        raise RuntimeError(f"there are more than {SLOTS} workers")


class UpToDate:
    """An ASGI app around another one: takes in what other workers wrote before it is asked.

    A client that had something acknowledged by one worker sees it at the next one, too.
    """

    def __init__(self, app: ASGIApp, service: Service, board: Board) -> None:
        self.app, self.service, self.board = app, service, board
        self._seen = board.others()
        service.on_write = board.tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["path"].startswith(FROM_THE_LOG):
            others = self.board.others()
            if others != self._seen and self.service.ready:
                await self.service.follow()
                self._seen = others
        await self.app(scope, receive, send)


async def until_ready(service: Service) -> None:
    """Wait until the log has been read; a process that is told to stop meanwhile ends at once.

    It has nothing to finish, and uvicorn would wait for the end of the start.
    """
    handlers = {
        number: signal.signal(number, lambda *_: os._exit(0))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        while not service.ready:
            await asyncio.sleep(0.02)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def end_with_parent(board: str) -> None:
    """Stop this worker when the process that started it is gone, however that ended.

    Nobody else would: it would hold the port and the store, and be replaced by no one.
    """
    threading.Thread(target=_end_with_parent, args=[board], name="parent", daemon=True).start()


def _end_with_parent(board: str) -> None:
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    parent.join()
    Path(board).unlink(missing_ok=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(END_AFTER)
    os._exit(1)
