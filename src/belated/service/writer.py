"""Group commit: what many requests want to write goes into one transaction.

A thread writes into the store, and another one lets the bandits take in what was written. The event
loop waits for each of them for a moment, in which most commits are done; for a store on another
machine, and for a disk that has become slow, it does not wait. While another process holds the
store, the commit is tried again a little later.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from belated.core.events import Status
from belated.ledger.events import Draft, Event, Kind, Outcome, Position
from belated.ledger.protocol import (
    CompactedError,
    Follower,
    NewBanditError,
    StoreBusyError,
    StoreUnavailableError,
)
from belated.ledger.replica import Approve, Replica
from belated.monitoring.histogram import Histogram
from belated.service.threads import WAIT, WorkThread

if TYPE_CHECKING:  # an extra
    from belated.service.tracing import Tracing

log = logging.getLogger("belated.service")

WINDOW = 0.002  # seconds to wait for requests that are on their way
MOST_DRAFTS = 100  # in one transaction: a decision that comes just after it begins waits for it
MOST_ALONE = 400  # the same while nobody decides; all of them are taken in at once
LATELY = 10.0  # seconds after a decision in which the next one is expected
SMALL = 10  # drafts of a request that is put into any transaction, however full
LONGEST_WAIT = 10.0  # seconds for another process to let go of the store
TRY_AGAIN = 0.005  # seconds until then
QUICK_AGAIN = 20  # commits in a row that were quick, after a slow one: the event loop waits again
COMMITS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)  # seconds
KEPT = (Status.ACCEPTED, Status.EXPIRED, Status.PARKED)  # others leave no trace in the store


@dataclass(slots=True, eq=False)
class Request:
    """The drafts of one request, and the outcomes of those already written."""

    drafts: Sequence[Draft]
    part: Sequence[Draft]  # that come next: all, unless one transaction cannot hold them
    future: "asyncio.Future[list[Outcome]]"
    approve: Approve | None = None
    mark: Any = None  # of its span, where there are traces
    outcomes: list[Outcome] = field(default_factory=list)


def _approve(batch: list[Request], outcomes: Sequence[Outcome]) -> None:
    """Ask the requests of a batch that want to be asked whether their outcomes may be written."""
    start = 0
    for request in batch:
        end = start + len(request.part)
        if request.approve is not None:
            request.approve(outcomes[start:end])
        start = end


class Commit(NamedTuple):
    """The outcomes of a batch, and the events that were read from the log afterwards."""

    outcomes: list[Outcome]
    events: Sequence[Event] | None  # None: the next ones were dropped, the log begins later
    position: Position
    seen_at: float | None  # of ``monotonic``: all that was committed by then was read


class Writer:
    """Writes drafts of concurrent requests, then lets the bandits take them in.

    Parameters
    ----------
    replica
        The bandits and their ledger.
    in_thread
        Whether the store is on another machine: the event loop never waits for it.
    told
        Is told of every commit whether it wrote anything, and by when the end of the log was seen:
        a time of ``monotonic``, or None where it was not.
    """

    def __init__(
        self,
        replica: Replica,
        in_thread: bool = False,
        told: Callable[[bool, float | None], None] = lambda wrote, seen_at: None,
    ) -> None:
        self.replica, self._told = replica, told
        self.in_thread = in_thread
        self.open_requests = 0  # whose bodies have been read, whether they will write or not
        self.commit_seconds = Histogram(COMMITS)
        self._queue: list[Request] = []
        self._timer: asyncio.TimerHandle | None = None
        self._looking = False
        self._seen = 0  # requests in the queue when it was last looked at
        self._task: asyncio.Task[None] | None = None
        self._refused_at: float | None = None  # when another process was first found writing
        self._quick = QUICK_AGAIN  # commits since the last slow one
        self._decided_at = -inf  # of ``monotonic``: the last request that decided
        self.tracing: Tracing | None = None
        self.store = WorkThread("store")
        self.state = WorkThread("state")  # while it is busy, the bandits must not be looked at

    @property
    def is_busy(self) -> bool:
        """True while a thread works on the store for longer than the event loop waits."""
        return self.store.is_busy or self.state.is_busy

    def write(
        self, drafts: Sequence[Draft], approve: Approve | None = None
    ) -> "asyncio.Future[list[Outcome]]":
        """Done when the drafts are durable and taken in; raises what the ledger raises.

        Up to ``MOST_DRAFTS`` drafts are written all or not at all. More are cut: where the store
        fails, the first of them may be there. ``approve`` is called with the outcomes of drafts
        that are about to be written together; if it raises a ``ValueError``, they are not.
        """
        future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        if drafts and drafts[0].kind == Kind.DECIDED:
            self._decided_at = monotonic()
        mark = self.tracing and self.tracing.mark()
        request = Request(drafts, drafts[: self._most()], future, approve, mark)
        if drafts or self._task is not None:
            self._queue.append(request)
            self._look_soon()
        else:  # it only looks for news, and need not wait for what others want to write
            self._begin([request])
        return future

    async def drain(self) -> None:
        """Wait until nothing is left to write."""
        while self._queue or self._task is not None:
            self._start()
            await asyncio.sleep(0.001)

    def _look_soon(self) -> None:
        if not self._looking:
            self._looking = True
            # after the requests that have just come in
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Commit if every request waits for it and no more come, else wait a little."""
        self._looking = False
        if not self._queue or self._task is not None:
            return
        grown, self._seen = len(self._queue) > self._seen, len(self._queue)
        if not grown and (self._seen >= self.open_requests or self._is_full()):
            self._start()
            return
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WINDOW, self._start)
        if grown:  # some may have been read that were not begun: begin them first
            self._look_soon()

    def _most(self) -> int:
        """Returns how many drafts one transaction holds: few where decisions would wait for it."""
        return MOST_DRAFTS if monotonic() - self._decided_at < LATELY else MOST_ALONE

    def _is_full(self) -> bool:
        return sum(len(request.part) for request in self._queue) >= self._most()

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._queue or self._task is not None:
            return
        self._begin(self._next_batch())

    def _begin(self, batch: list[Request]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._commit(batch))

    def _next_batch(self) -> list[Request]:
        """Take the oldest request and the smallest others, as many as go into one transaction.

        So a decision does not wait for thousands of rewards, nor do they wait for ever.
        """
        self._seen = 0
        most, (oldest, *others) = self._most(), self._queue
        oldest.part = oldest.part[:most]  # it may have been cut while nobody decided
        batch, room = [oldest], most - len(oldest.part)
        for request in sorted(others, key=lambda request: len(request.part)):
            room -= len(request.part)
            if room < 0 and len(request.part) > SMALL:
                break
            batch.append(request)
        taken = set(batch)
        self._queue = [request for request in others if request not in taken]
        return batch

    async def _commit(self, batch: list[Request]) -> None:
        try:
            await self._commit_parts(batch)
        except Exception:
            log.exception("what was committed could not be told")
        finally:
            self._task = None
            if self._queue and self._timer is None:
                self._look_soon()

    async def _commit_parts(self, batch: list[Request]) -> None:
        drafts = [draft for request in batch for draft in request.part]
        wait = 0.0 if self.in_thread or self._quick < QUICK_AGAIN else WAIT
        started = perf_counter()
        try:
            commit = await self.store.run(wait, self._commit_and_read, drafts, batch)
        except Exception as error:
            if not isinstance(error, StoreBusyError):  # which is tried again hundreds of times
                self._trace(batch, drafts, started, perf_counter() - started, error=error)
            for part in self._fail(batch, error):
                await self._commit_parts(part)
            return
        seconds = perf_counter() - started
        if commit.events is None or commit.events or self.replica.released:
            try:
                await self.state.run(WAIT, self._take_in, commit)
            except Exception as error:
                if not (drafts and isinstance(error, StoreUnavailableError)):
                    self._refuse(batch, error)
                    return
                commit = commit._replace(seen_at=None)  # written is written
        self._trace(batch, drafts, started, seconds, len(commit.events or ()))
        self._done(batch, commit, seconds)

    def _trace(
        self,
        batch: list[Request],
        drafts: list[Draft],
        started: float,
        store_seconds: float,
        n_events: int = 0,
        error: Exception | None = None,
    ) -> None:
        if self.tracing is not None:
            marks, seconds = (request.mark for request in batch), perf_counter() - started
            self.tracing.committed(marks, len(drafts), n_events, store_seconds, seconds, error)

    def _commit_and_read(self, drafts: list[Draft], batch: list[Request]) -> Commit:
        ledger, position, at_once = self.replica.ledger, self.replica.position, self.replica.at_once
        follower: Follower = self.replica
        if any(request.approve is not None for request in batch):
            follower = self.replica.approving(partial(_approve, batch))
        # without drafts this only looks for news: that must not cost the store a transaction
        outcomes = ledger.commit(drafts, follower) if drafts else []
        before = monotonic()
        try:
            events, position = ledger.follow(position, at_once)
        except CompactedError:
            return Commit(outcomes, None, position, None)
        except StoreUnavailableError:
            if not drafts:
                raise
            return Commit(outcomes, [], position, None)  # written is written
        return Commit(outcomes, events, position, before if len(events) < at_once else None)

    def _take_in(self, commit: Commit) -> None:
        if commit.events is None:
            self.replica.begin()
        else:
            self.replica.take_in(commit.events, commit.position)

    def _done(self, batch: list[Request], commit: Commit, seconds: float) -> None:
        if commit.outcomes:
            self._refused_at = None
            self.commit_seconds.add(seconds)
            self._quick = 0 if seconds > WAIT else self._quick + 1
        start, unfinished, most = 0, [], self._most()
        for request in batch:
            end = start + len(request.part)
            request.outcomes += commit.outcomes[start:end]
            start, done = end, len(request.outcomes)
            if done < len(request.drafts):
                request.part = request.drafts[done : done + most]
                unfinished.append(request)
            elif not request.future.done():  # the client may have left
                request.future.set_result(request.outcomes)
        self._queue = unfinished + self._queue
        # A full disk takes a commit that has nothing to write.
        wrote = any(outcome.status in KEPT for outcome in commit.outcomes)
        self._told(wrote, commit.seen_at)  # last, as it may fail; those who wait go on after it

    def _fail(self, batch: list[Request], error: Exception) -> list[list[Request]]:
        """Tell those who wait; or return them one by one, where only one of them can be at fault.

        A ``ValueError`` is about something that the store cannot hold or that one of them does not
        approve of, a ``NewBanditError`` about a bandit that one of them rewards and that is not
        known here yet. Where another process is writing, those that write wait for it a little
        longer; the others read the log meanwhile.
        """
        if isinstance(error, (ValueError, NewBanditError)) and len(batch) > 1:
            return [[request] for request in batch]
        reading = [request for request in batch if not request.part]
        writing = [request for request in batch if request.part]
        if isinstance(error, StoreBusyError) and writing and self._may_wait():
            self._queue = writing + self._queue
            self._timer = asyncio.get_running_loop().call_later(TRY_AGAIN, self._start)
        elif isinstance(error, StoreBusyError) and writing:
            self._refused_at = None
            self._refuse(writing, error)
        else:
            self._refused_at = None
            self._refuse(batch, error)
            return []
        return [reading] if reading else []

    def _refuse(self, batch: list[Request], error: Exception) -> None:
        for request in batch:
            if not request.future.done():
                request.future.set_exception(error)

    def _may_wait(self) -> bool:
        now = perf_counter()
        self._refused_at = now if self._refused_at is None else self._refused_at
        return now - self._refused_at < LONGEST_WAIT
