"""Group commit: what many requests want to write goes into one transaction.

No thread by default: handing work over costs more than the commit, and while the disk flushes,
nothing could be answered anyway. A store on another machine is written to from a thread.
"""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic, perf_counter
from typing import NamedTuple

from belated.ledger.events import Draft, Event, Outcome, Position, Status
from belated.ledger.loop import AT_ONCE, Loop
from belated.ledger.protocol import NewBanditError, StoreUnavailableError
from belated.logs.histogram import Histogram

WINDOW = 0.002  # seconds to wait for requests that are on their way
MOST_DRAFTS = 20_000  # in one transaction
COMMITS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)  # seconds
KEPT = (Status.ACCEPTED, Status.EXPIRED, Status.PARKED)  # others leave no trace in the store
Batch = list[tuple[Sequence[Draft], "asyncio.Future[list[Outcome]]"]]  # of several requests


class Commit(NamedTuple):
    """What became of a batch, and what was read of the log afterwards."""

    outcomes: list[Outcome]
    events: Sequence[Event]
    position: Position
    seen_at: float | None  # of ``monotonic``: all that was committed by then was read


class Writer:
    """Writes drafts of concurrent requests, then lets the bandits take them in.

    Parameters
    ----------
    loop
        The bandits and their ledger.
    in_thread
        Whether to leave the event loop free while the store works.
    told
        Is told of every commit whether it wrote anything, and by when the end of the log was seen:
        a time of ``monotonic``, or None where it was not.
    """

    def __init__(
        self,
        loop: Loop,
        in_thread: bool = False,
        told: Callable[[bool, float | None], None] = lambda wrote, seen_at: None,
    ) -> None:
        self.loop, self._told = loop, told
        self.in_thread = in_thread
        self.open_requests = 0  # being served, whether they will write or not
        self.commit_seconds = Histogram(COMMITS)
        self._queue: Batch = []
        self._timer: asyncio.TimerHandle | None = None
        self._looking = False
        self._seen = 0  # requests in the queue when it was last looked at
        self._task: asyncio.Task[None] | None = None

    def write(self, drafts: Sequence[Draft]) -> "asyncio.Future[list[Outcome]]":
        """Done when the drafts are durable and taken in; raises what the ledger raises."""
        here = asyncio.get_running_loop()
        future: asyncio.Future[list[Outcome]] = here.create_future()
        self._queue.append((drafts, future))
        if not self._looking:
            self._looking = True
            here.call_soon(self._look)  # after the requests that have just come in
        return future

    async def drain(self) -> None:
        """Wait until nothing is left to write."""
        while self._queue or self._task is not None:
            self._start()
            await asyncio.sleep(0.001)

    def _look(self) -> None:
        """Commit if every request waits for it and no more come, else wait a little."""
        self._looking = False
        if not self._queue or self._task is not None:
            return
        here, grown = asyncio.get_running_loop(), len(self._queue) > self._seen
        self._seen = len(self._queue)
        full = sum(len(drafts) for drafts, _ in self._queue) >= MOST_DRAFTS
        if full or (not grown and self._seen >= self.open_requests):
            self._start()
            return
        if self._timer is None:
            self._timer = here.call_later(WINDOW, self._start)
        if grown:  # some may have been read that were not begun: begin them first
            self._looking = True
            here.call_soon(self._look)

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._queue or self._task is not None:
            return
        batch, self._queue, self._seen = self._queue, [], 0
        if self.in_thread:
            self._task = asyncio.get_running_loop().create_task(self._commit_in_thread(batch))
        else:
            self._commit_here(batch)

    def _commit_here(self, batch: Batch) -> None:
        drafts = [draft for drafts, _ in batch for draft in drafts]
        started = perf_counter()
        try:
            outcomes = self.loop.commit(drafts)
        except Exception as error:
            for part in self._fail(batch, error):
                self._commit_here(part)
        else:
            self._done(batch, outcomes, perf_counter() - started, None)

    async def _commit_in_thread(self, batch: Batch) -> None:
        try:
            await self._commit_there(batch)
        finally:
            self._task = None
            self._look()

    async def _commit_there(self, batch: Batch) -> None:
        drafts = [draft for drafts, _ in batch for draft in drafts]
        started = perf_counter()
        try:
            commit = await asyncio.to_thread(self._commit_and_read, drafts)
            self.loop.take_in(commit.events, commit.position)
        except Exception as error:
            for part in self._fail(batch, error):
                await self._commit_there(part)
        else:
            self._done(batch, commit.outcomes, perf_counter() - started, commit.seen_at)

    def _commit_and_read(self, drafts: list[Draft]) -> Commit:
        ledger, position = self.loop.ledger, self.loop.position
        # without drafts this only looks for news: that must not cost the store a transaction
        outcomes = ledger.commit(drafts, self.loop) if drafts else []
        before = monotonic()
        try:
            events, position = ledger.follow(position, AT_ONCE)
        except StoreUnavailableError:
            if not drafts:
                raise
            return Commit(outcomes, [], position, None)  # written is written; see ``Loop.commit``
        return Commit(outcomes, events, position, before if len(events) < AT_ONCE else None)

    def _done(
        self, batch: Batch, outcomes: list[Outcome], seconds: float, seen_at: float | None
    ) -> None:
        if outcomes:
            self.commit_seconds.add(seconds)
        # a full disk takes a commit that has nothing to write
        wrote = any(outcome.status in KEPT for outcome in outcomes)
        self._told(wrote, seen_at)
        start = 0
        for drafts, future in batch:
            if not future.done():  # the client may have left
                future.set_result(outcomes[start : start + len(drafts)])
            start += len(drafts)

    def _fail(self, batch: Batch, error: Exception) -> list[Batch]:
        """Tell those who wait; or return them one by one, where only one of them can be at fault.

        A ``ValueError`` is about something that the store cannot hold, a ``NewBanditError`` about a
        bandit that one of them rewards and that is not known here yet.
        """
        if isinstance(error, (ValueError, NewBanditError)) and len(batch) > 1:
            return [[request] for request in batch]
        for _, future in batch:
            if not future.done():
                future.set_exception(error)
        return []
