"""A running service: the bandits of a ledger, who may use them, and what happens by itself."""

import asyncio
import gc
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from belated.ledger import open_ledger, snapshots
from belated.ledger.events import Draft, Kind, Outcome, Status
from belated.ledger.ids import Clock
from belated.ledger.loop import LONGEST_WAIT_MS, Loop, system_clock
from belated.ledger.protocol import Ledger, NewBanditError, StoreUnavailableError
from belated.service.access import Key, KeyRing
from belated.service.explaining import Explaining
from belated.service.problems import Problem, ProblemType
from belated.service.rebuilding import Rebuilding
from belated.service.writer import Writer

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.ledger.fold import Fold

T = TypeVar("T")

log = logging.getLogger("belated.service")

NOT_READY = ProblemType(503, "not-ready", "The log is still being read")
NO_BANDIT = ProblemType(404, "unknown-bandit", "There is no bandit of this name")
HOUR = 3_600_000_000  # microseconds
FOLLOW_EVERY = 0.05  # seconds between looks for what other processes wrote
EXPIRE_EVERY = 1.0  # seconds between looks for windows that have closed
FAILED_FOR = 2_000_000  # microseconds without another failed write: a full disk can still be read
READ_AGAIN_AFTER = 0.5  # seconds, where the log could not be read at the start
GC_THRESHOLD = (20_000, 20, 50)  # requests leave no cycles behind: look for them less often
LEEWAY = 5_000_000  # microseconds for which another machine may still be writing a reward in time
MOST_ABANDONED = 10_000  # remembered while the store is down
MOST_EXPIRED = 250  # at once: requests must not wait for long
AT_ONCE = 500  # events that are taken in before other requests have their turn


@dataclass
class Tally:
    """What was counted since the process started."""

    decisions: Counter[str] = field(default_factory=Counter)  # by bandit
    not_logged: Counter[str] = field(default_factory=Counter)
    rewards: Counter[tuple[str, Status]] = field(default_factory=Counter)
    store_errors: int = 0
    refused: deque[tuple[int, Status]] = field(default_factory=lambda: deque(maxlen=10_000))

    def reward(self, bandit: str, status: Status, now: int, count: int = 1) -> None:
        """Rewards were handed in."""
        self.rewards[bandit, status] += count
        if status in (Status.UNKNOWN, Status.CONFLICT):
            self.refused.extend([(now, status)] * count)

    def refused_lately(self, status: Status, now: int) -> int:
        """How many rewards of the last hour were unknown, or conflicting."""
        return sum(s == status and now - time < HOUR for time, s in self.refused)


class Service:
    """See the module.

    Parameters
    ----------
    url
        Of the ledger.
    snapshot_folder
        Where snapshots lie, if there are any.
    ledger
        Instead of a URL: one that is open.
    clock, seed
        For runs that must repeat exactly.
    """

    def __init__(
        self,
        url: str,
        *,
        snapshot_folder: Path | None = None,
        ledger: Ledger | None = None,
        clock: Clock = system_clock,
        seed: int | None = None,
    ) -> None:
        self.url = url
        self.ledger = open_ledger(url, waits=False) if ledger is None else ledger
        # for threads: what one of them does with a SQLite file must not hold up the event loop
        own = ledger is None and url.startswith("sqlite:")
        self.beside = open_ledger(url) if own else self.ledger
        self.loop = Loop(self.ledger, clock=clock, seed=seed)
        self.loop.at_once = AT_ONCE
        self.writer = Writer(self.loop, url.startswith("postgres"), self._followed)
        self.ring = KeyRing()
        self.tally = Tally()
        self.snapshot_folder = snapshot_folder
        self.ready = self.draining = False
        self.store_is_down = False
        self._write_failed_at = 0
        self.followed_at = 0  # when the end of the log was last seen
        # decisions that failed, or so it seemed, and that nobody will ask for again: their bandits
        self.abandoned: dict[bytes, str] = {}
        shared = None if ledger is not None or url.startswith("memory:") else url
        self.rebuilding = Rebuilding(self.loop, self.beside, shared, snapshot_folder)
        self.explaining = Explaining(self.beside, snapshot_folder, shared)
        self._tasks: list[asyncio.Task[None]] = []

    # ------------------------------------------------------------------------- start and stop

    def read_log(self) -> None:
        """Take in the whole log; nothing is served before."""
        if self.snapshot_folder is not None:
            snapshots.load(self.loop, self.snapshot_folder)
        self.loop.catch_up()
        for fold in self.loop.folds.values():
            fold.spec.learner().warm_up()
        self._followed()
        gc.collect()
        gc.freeze()  # what is known by now stays: looking at it again and again costs
        gc.set_threshold(*GC_THRESHOLD)
        self.loop.rebuilds_beside = True
        self.ready = True

    async def start(self) -> None:
        """Read the log beside the event loop, then keep up with it."""
        self._tasks = [asyncio.create_task(self._live())]

    async def _live(self) -> None:
        while not self.ready:
            try:
                await asyncio.to_thread(self.read_log)
            except Exception:
                log.exception("the log cannot be read; this is tried again")
                await asyncio.sleep(READ_AGAIN_AFTER)
        # the first bandit must not have to wait for it
        await asyncio.to_thread(import_module, "belated.ledger.fold")
        await asyncio.gather(
            _forever(FOLLOW_EVERY, self.follow),
            _forever(EXPIRE_EVERY, self.expire),
            _forever(EXPIRE_EVERY, self.cancel_abandoned),
        )

    async def stop(self) -> None:
        """Answer what is under way, then let go of the store."""
        self.draining = True
        await self.writer.drain()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.rebuilding.stop()
        self.explaining.stop()
        self.beside.close()
        self.ledger.close()

    # --------------------------------------------------------------------- what happens by itself

    async def follow(self) -> None:
        """Take in what other processes wrote, and let requests have their turn in between."""
        if self.writer.works_in_thread and not self.writer.in_thread:
            return  # the thread takes in what is new itself
        try:
            while await self._take_in_some():
                await asyncio.sleep(0)
        except StoreUnavailableError as error:
            self._store_failed(error)
            return
        self._followed()

    async def _take_in_some(self) -> bool:
        """Whether there may be more."""
        if self.writer.in_thread:
            await self.writer.write([])  # in turn with the commits
            return self.writer.left_some
        return self.loop.take_in_next() >= self.loop.at_once

    async def expire(self) -> None:
        """Close the windows that are over."""
        now = self.loop.clock()
        over = now - LEEWAY if self.writer.in_thread else now
        for name in list(self.loop.folds):
            while due := self.loop.folds[name].due(over, MOST_EXPIRED):
                try:
                    outcomes = await self.write([Draft(Kind.EXPIRED, name, id, now) for id in due])
                except StoreUnavailableError:
                    return  # they stay due
                if not any(outcome.status is Status.ACCEPTED for outcome in outcomes):
                    break  # they stay due, too, as long as nothing is heard of their end

    def abandon(self, bandit: str, id: bytes) -> None:
        """A decision could not be written, and nobody will ask for it again.

        A connection that is lost during a commit leaves open whether it took place. If it did, the
        log holds a decision that nobody carries out, until ``cancel_abandoned``.
        """
        if len(self.abandoned) < MOST_ABANDONED:
            self.abandoned[id] = bandit

    async def cancel_abandoned(self) -> None:
        """Cancel what was abandoned, as far as the log holds it."""
        abandoned, now = dict(self.abandoned), self.loop.clock()
        if abandoned:
            with suppress(StoreUnavailableError):  # tried again
                drafts = [
                    Draft(Kind.CANCELLED, bandit, id, now) for id, bandit in abandoned.items()
                ]
                await self.write(drafts)
                for id in abandoned:
                    del self.abandoned[id]

    def _followed(self, wrote: bool = False) -> None:
        self.followed_at = now = self.loop.clock()
        if wrote or abs(now - self._write_failed_at) > FAILED_FOR:
            self.store_is_down = False
        if self.loop.keys_changed:
            self.loop.keys_changed = False
            self._renew_keys()
        if self.loop.rebuilding:
            self.rebuilding.look()

    def _renew_keys(self) -> None:
        for change in self.loop.keys.values():
            self.ring.put(
                Key(change.id, change.name, change.secret_hash, change.bandit, change.scopes),
                revoked=change.revoked,
            )

    # ------------------------------------------------------------------------------ for handlers

    async def write(self, drafts: Sequence[Draft]) -> list[Outcome]:
        """Durable when this returns."""
        try:
            return await self.writer.write(drafts)
        except NewBanditError as error:  # nothing was written
            name = error.bandit
            await self.until(lambda: name in self.loop.folds)
            return await self.writer.write(drafts)
        except StoreUnavailableError as error:
            self._write_failed_at = self.loop.clock()
            self._store_failed(error)
            raise

    def _store_failed(self, error: StoreUnavailableError) -> None:
        self.tally.store_errors += 1
        if not self.store_is_down:
            log.warning("the store cannot be used: %s", error)
        self.store_is_down = True

    async def from_store(self, ask: Callable[[Ledger], T]) -> T:
        """What the store says to a quick question.

        One on another machine may be slow, and so may a disk: then only who asks waits for it.
        """
        if self.writer.in_thread or self.writer.works_in_thread:
            return await self.from_slow_store(ask)
        return ask(self.ledger)

    async def from_slow_store(self, ask: Callable[[Ledger], T]) -> T:
        """What the store says to a question that may take it long."""
        return await asyncio.to_thread(ask, self.beside)

    async def events_behind(self) -> int:
        """Events in the log that the model has not taken in; 0 while the store is down."""
        position = self.loop.position
        try:
            return await self.from_store(lambda ledger: ledger.behind(position))
        except StoreUnavailableError:
            return 0

    def check_ready(self) -> None:
        """Raise where nothing can be served yet, or no longer."""
        if not self.ready:
            raise Problem(NOT_READY, "Try again in a moment.", retry_after=1.0)

    async def until(self, visible: Callable[[], bool]) -> None:
        """Wait for what was just written: with PostgreSQL, others may hold the log back.

        Not for ever: it is in the log, whenever that can be read.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_WAIT_MS / 1e3):
                while not visible():
                    await asyncio.sleep(0.001)
                    await self.follow()

    def fold(self, name: str) -> "Fold":
        """The bandit of this name."""
        self.check_ready()
        fold = self.loop.folds.get(name)
        if fold is None:
            raise Problem(NO_BANDIT, f"There is no bandit {name!r}. PUT /v1/bandits/{name} first.")
        return fold


async def _forever(seconds: float, act: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await act()
        except Exception:
            log.exception("this is tried again in %g s", seconds)
        await asyncio.sleep(seconds)
