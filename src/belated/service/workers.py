"""The worker processes of one service: what they tell each other, and what ties them together."""

import asyncio
import logging
import mmap
import multiprocessing
import os
import signal
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from belated.service.service import FOLLOW_EVERY, Service

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("belated.service")

SLOTS = 128  # workers at a time, and those that take over from them
SLOT = struct.Struct("=Q")
COUNTS = SLOTS * SLOT.size  # bytes: how often each worker has committed; what they rebuilt follows
FROM_THE_LOG = ("/v1/", "/personalizer/")  # paths that are answered from what the log says
REBUILT_AFTER = 60.0  # seconds that an erasure waits for other workers, which rebuild meanwhile
END_AFTER = 10.0  # seconds for a worker without a parent to answer what is under way


@contextmanager
def new_board() -> Iterator[str]:
    """Yield the path of a board for the workers of this process; it is gone afterwards."""
    number, path = tempfile.mkstemp(prefix="belated-workers-")
    try:
        os.truncate(number, 2 * COUNTS)
        os.close(number)
        yield path
    finally:
        Path(path).unlink(missing_ok=True)


class Board:
    """A file in shared memory in which each worker writes what the others must know.

    That is how often it has committed, and up to which transaction its bandits hold nothing that
    was erased. Each worker has a slot that nobody else writes to, so that no count is lost. The
    slot of a worker that has ended is free for the next one: the system lets go of its lock.

    Parameters
    ----------
    path
        From ``new_board``.
    """

    def __init__(self, path: str) -> None:
        self._file = open(path, "r+b")  # noqa: SIM115 - to close it would give up the slot
        self._memory = mmap.mmap(self._file.fileno(), 2 * COUNTS)
        self._start = self._claimed() * SLOT.size
        self._end = self._start + SLOT.size
        self.tell_rebuilt(0)
        self.is_first = self._start == 0 and self._count() == 0  # worker of this service ever
        self.tell()

    def tell(self) -> None:
        """Let the others know that something was written into the log."""
        SLOT.pack_into(self._memory, self._start, self._count() + 1)

    def others(self) -> tuple[bytes, bytes]:
        """Returns what the others have counted: it changes whenever one of them has written."""
        return self._memory[: self._start], self._memory[self._end : COUNTS]

    def tell_rebuilt(self, tx: int) -> None:
        """Let the others know up to which transaction nothing that was erased is known here."""
        SLOT.pack_into(self._memory, COUNTS + self._start, tx)

    def others_rebuilt(self, tx: int) -> bool:
        """Returns whether no other worker knows anything that was erased up to a transaction."""
        slots = range(0, COUNTS, SLOT.size)
        return all(self._at(COUNTS + slot) >= tx or not self._is_used(slot) for slot in slots)

    def leads(self) -> bool:
        """Returns whether this worker has the first used slot: it does what is done once."""
        return not any(self._is_used(slot) for slot in range(0, self._start, SLOT.size))

    def close(self) -> None:
        """Give up the slot."""
        self._memory.close()
        self._file.close()

    def _count(self) -> int:
        return self._at(self._start)

    def _at(self, place: int) -> int:
        return int(SLOT.unpack_from(self._memory, place)[0])

    def _is_used(self, start: int) -> bool:
        """Returns whether a slot is that of another worker, which lives as far as can be told."""
        if start == self._start or self._at(start) == 0:
            return False
        if fcntl is not None:
            with suppress(OSError):
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, start // SLOT.size)
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, start // SLOT.size)
                return False
        return True

    def _claimed(self) -> int:
        slot = os.getpid() // 4 % SLOTS  # Windows counts in fours, and has no such locks
        if fcntl is not None:
            slot = self._locked()
        return slot

    def _locked(self) -> int:
        """Returns the first slot that no living worker has."""
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
        service.on_followed = self._tell_rebuilt
        service.others_rebuilt = self._others_rebuilt

    def _tell_rebuilt(self) -> None:
        if not self.service.replica.rebuilding:
            self.board.tell_rebuilt(self.service.replica.position.tx)

    async def _others_rebuilt(self) -> None:
        """Wait until no other worker knows what is erased by now; each decides on meanwhile."""
        tx, end = self.service.replica.position.tx, time.monotonic() + REBUILT_AFTER
        while not self.board.others_rebuilt(tx):
            if time.monotonic() > end:
                log.warning("a worker has not rebuilt its bandits in %g s", REBUILT_AFTER)
                return
            await asyncio.sleep(FOLLOW_EVERY / 2)

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
