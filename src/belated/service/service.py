"""A running service: the bandits of a ledger, who may use them, and what happens by itself."""

import asyncio
import gc
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from belated.core.events import Status
from belated.ledger import open_ledger, snapshots
from belated.ledger.events import Draft, Kind, Outcome
from belated.ledger.ids import Clock
from belated.ledger.protocol import Ledger, NewBanditError, StoreUnavailableError
from belated.ledger.replica import Approve, Replica, system_clock
from belated.monitoring.histogram import AGES, Histogram
from belated.service.compiling import Compiling, compiling_problem
from belated.service.explaining import Explaining
from belated.service.http.access import FRESH, KeyRing
from belated.service.http.problems import Problem, ProblemType
from belated.service.outage import Outage, Use
from belated.service.rebuilding import Rebuilding
from belated.service.threads import WAIT
from belated.service.writer import Writer

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.ledger.fold import Fold

T = TypeVar("T")

log = logging.getLogger("belated.service")

NOT_READY = ProblemType(503, "not-ready", "The log is still being read")
NO_BANDIT = ProblemType(404, "unknown-bandit", "There is no bandit of this name here")
HOUR = 3_600_000_000  # microseconds
FOLLOW_EVERY = 0.05  # seconds between looks for what other processes wrote
EXPIRE_EVERY = 1.0  # seconds between looks for windows that have closed
END_PARKED_EVERY = 10.0  # seconds between looks for rewards whose decision never came
ASK_AGAIN_AFTER = 0.5  # seconds: where the log could not be read, it cannot be the next moment
READ_AGAIN_AFTER = 0.5  # seconds, where the log could not be read at the start
GC_THRESHOLD = (20_000, 20, 50)  # requests leave no cycles behind: look for them less often
LEEWAY = 5_000_000  # microseconds for which another machine may still be writing a reward in time
MOST_ABANDONED = 10_000  # remembered while the store is down
MOST_EXPIRED = 250  # at once: requests must not wait for long
LARGE = 20_000  # bytes of a request: hundreds of actions
MUCH_WORK = 10_000  # see ``worked_out``: the default policy takes about a millisecond for it
AT_ONCE = 500  # events that are taken in before other requests have their turn


class ElsewhereError(ValueError):
    """A draft is about a bandit that another process serves."""


@dataclass
class Tally:
    """Counts since the process started."""

    decisions: Counter[str] = field(default_factory=Counter)  # by bandit
    not_logged: Counter[str] = field(default_factory=Counter)
    rewards: Counter[tuple[str, Status]] = field(default_factory=Counter)
    model_ages: dict[str, Histogram] = field(default_factory=dict)  # of decisions made elsewhere
    parked_ended: int = 0
    refused: deque[tuple[int, Status]] = field(default_factory=lambda: deque(maxlen=10_000))

    def reward(self, bandit: str, status: Status, now: int, count: int = 1) -> None:
        """Rewards were handed in."""
        self.rewards[bandit, status] += count
        if status in (Status.UNKNOWN, Status.CONFLICT):
            self.refused.extend([(now, status)] * count)

    def made_elsewhere(self, bandit: str, age: float) -> None:
        """Count a decision made elsewhere; ``age``: of its model document then, in seconds."""
        self.model_ages.setdefault(bandit, Histogram(AGES)).add(age)

    def end_parked(self, count: int, now: int) -> None:
        """Parked rewards turned out to be for decisions that nobody knows."""
        self.parked_ended += count
        self.refused.extend([(now, Status.UNKNOWN)] * count)

    def refused_lately(self, status: Status, now: int) -> int:
        """Returns how many rewards of the last hour were unknown, or conflicting."""
        return sum(s == status and now - time < HOUR for time, s in self.refused)


class Service:
    """The bandits of one ledger in a process that serves requests.

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
    only
        Names of the bandits to serve; all of the ledger by default.
    """

    def __init__(
        self,
        url: str,
        *,
        only: Set[str] | None = None,
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
        self.only = only
        self.replica = Replica(self.ledger, only=only, clock=clock, seed=seed)
        self.replica.at_once = AT_ONCE
        self.writer = Writer(self.replica, url.startswith("postgres"), self._followed)
        self.ring = KeyRing()
        self.compiling = Compiling(self.replica.release)  # ``follow`` does the rest
        self.tally = Tally()
        self.snapshot_folder = snapshot_folder
        self.ready = self.draining = False
        self.on_write: Callable[[], None] = lambda: None  # called after every commit
        self.on_followed: Callable[[], None] = lambda: None  # called after every look at the log
        # returns when no worker of this service knows anything that was erased
        self.others_rebuilt: Callable[[], Awaitable[None]] = nothing_to_wait_for
        self.outage = Outage(clock)
        # of ``monotonic``: what was committed by then was taken in; the last try that failed
        self._seen_at = self._not_seen_at = -inf
        # decisions that failed, or so it seemed, and that nobody will ask for again: their bandits
        self.abandoned: dict[bytes, str] = {}
        shared = None if ledger is not None or url.startswith("memory:") else url
        self.rebuilding = Rebuilding(
            self.replica,
            self.beside,
            shared,
            snapshot_folder,
            self.settled,
            self.compiling.prepare_now,
        )
        self.explaining = Explaining(self.beside, snapshot_folder, shared)
        self.one_file = asyncio.Lock()  # of rewards at a time: each takes a hundred times its size
        self._tasks: list[asyncio.Task[None]] = []

    # ------------------------------------------------------------------------- start and stop

    def read_log(self) -> None:
        """Take in the whole log; nothing is served before."""
        self.replica.prepare = self.compiling.prepare_now
        snapshots.load(self.replica, self.snapshot_folder)
        before = monotonic()
        self.replica.catch_up()
        for fold in self.replica.folds.values():
            self.compiling.prepare_now(fold)
            fold.spec.learner().warm_up()  # loads what is on disk
        for name in sorted((self.only or set()) - self.replica.folds.keys()):
            log.warning("bandits: %r is to be served, and this ledger has none of that name", name)
        self.replica.prepare = self.compiling.prepare
        self._followed(False, before)
        gc.collect()
        gc.freeze()  # what is known by now stays: looking at it again and again costs
        gc.set_threshold(*GC_THRESHOLD)
        self.replica.rebuilds_beside = True
        self.ready = True

    async def start(self) -> None:
        """Read the log beside the event loop, then keep up with it."""
        self._tasks = [asyncio.create_task(self._live())]

    async def _live(self) -> None:
        while not self.ready:
            try:
                await asyncio.to_thread(self.read_log)
            except StoreUnavailableError as error:
                self.outage.failed(Use.FOLLOWING, error)
                await asyncio.sleep(READ_AGAIN_AFTER)
            except Exception:
                log.exception("the log cannot be read; this is tried again")
                await asyncio.sleep(READ_AGAIN_AFTER)
        await asyncio.gather(
            _forever(FOLLOW_EVERY, self.follow),
            _forever(EXPIRE_EVERY, self.expire),
            _forever(EXPIRE_EVERY, self.cancel_abandoned),
            _forever(END_PARKED_EVERY, self.end_parked),
        )

    async def stop(self) -> None:
        """Answer what is under way, then let go of the store."""
        self.draining = True
        await self.writer.drain()
        await self.compiling.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.rebuilding.stop()
        self.explaining.stop()
        self.beside.close()
        self.ledger.close()

    # --------------------------------------------------------------------- what happens by itself

    async def follow(self) -> None:
        """Take in what other processes wrote, if the store can be used."""
        with suppress(StoreUnavailableError):  # tried again
            await self.catch_up()

    async def expire(self) -> None:
        """Close the windows that are over, and let time pass for the decisions that are open."""
        now = self.replica.clock()
        over = now - LEEWAY if self.writer.in_thread else now
        await self.settled()
        for name in list(self.replica.folds):
            while due := self.replica.folds[name].pending.due(over, MOST_EXPIRED):
                try:
                    outcomes = await self.write([Draft(Kind.EXPIRED, name, id, now) for id in due])
                except StoreUnavailableError:
                    return  # they stay due
                if not any(outcome.status is Status.ACCEPTED for outcome in outcomes):
                    break  # they stay due, too, as long as nothing is heard of their end
                await self.settled()
        quiet = self.replica.quiet_drafts(over)
        if quiet:
            with suppress(StoreUnavailableError):  # tried again
                await self.write(quiet)

    async def end_parked(self) -> None:
        """Drop parked rewards that have waited longer than ``park_for`` for their decision."""
        now = self.replica.clock()
        with suppress(StoreUnavailableError):  # tried again
            ended = await self.from_slow_store(
                lambda ledger: ledger.end_parked(now - ledger.park_for)
            )
            self.tally.end_parked(ended, now)

    def abandon(self, bandit: str, id: bytes) -> None:
        """A decision could not be written, and nobody will ask for it again.

        A connection that is lost during a commit leaves open whether it took place. If it did, the
        log holds a decision that nobody carries out, until ``cancel_abandoned``.
        """
        if len(self.abandoned) < MOST_ABANDONED:
            self.abandoned[id] = bandit

    async def cancel_abandoned(self) -> None:
        """Cancel what was abandoned, as far as the log holds it."""
        abandoned, now = dict(self.abandoned), self.replica.clock()
        if abandoned:
            with suppress(StoreUnavailableError):  # tried again
                drafts = [
                    Draft(Kind.CANCELLED, bandit, id, now) for id, bandit in abandoned.items()
                ]
                await self.write(drafts)
                for id in abandoned:
                    del self.abandoned[id]

    def _followed(self, wrote: bool, seen_at: float | None) -> None:
        if self.replica.keys_changed:
            self.replica.keys_changed = False
            for key in self.replica.keys.values():
                self.ring.put(key)
        if wrote:
            self.on_write()
            self.outage.worked(Use.WRITING)
        if seen_at is not None:
            self._seen_at = seen_at
            self.outage.worked(Use.FOLLOWING)
        if self.replica.rebuilding:
            self.rebuilding.look()
        self.compiling.look()
        self.on_followed()

    # ------------------------------------------------------------------------------ for handlers

    async def settled(self) -> None:
        """Returns when no thread works on the bandits: until the caller awaits, they stay the same.

        To be awaited before bandits are looked at. Health does not, and is answered meanwhile.
        """
        await self.writer.state.idle()

    async def worked_out(
        self, size: int, function: Callable[..., T], *arguments: Any, work: int = 0
    ) -> T:
        """Returns what a function makes of the bandits, for a request of ``size`` bytes.

        ``work`` is the number of actions that it compares, times that of their features where these
        are fewer, else squared. Where it may take long, a thread calls it, and the bandits are not
        ``settled`` meanwhile.
        """
        if size < LARGE and work < MUCH_WORK:
            return function(*arguments)
        return await self.writer.state.run(WAIT, function, *arguments)

    async def write(self, drafts: Sequence[Draft], approve: Approve | None = None) -> list[Outcome]:
        """Durable when this returns; see ``Writer.write``."""
        if approve is None and self.only is not None:
            approve = self._check_outcomes
        try:
            return await self.writer.write(drafts, approve)
        except ElsewhereError as error:
            raise self._elsewhere(str(error)) from None
        except NewBanditError:  # nothing was written; what made the bandit is in the log
            await self.catch_up()
            return await self.writer.write(drafts, approve)
        except StoreUnavailableError as error:
            self.outage.failed(Use.WRITING, error)
            raise

    def _check_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:  # of an unknown decision, no bandit is known
            if outcome.bandit and not self.replica.follows(outcome.bandit):
                raise ElsewhereError(outcome.bandit)

    def _elsewhere(self, name: str) -> Problem:
        here = ", ".join(sorted(self.only or ()))
        said = f"The bandit {name!r} is not served by this process, only {here}: ask another one."
        return Problem(NO_BANDIT, said)

    def check_serves(self, name: str) -> None:
        """Raises where a bandit of this name is for another process to serve."""
        if not self.replica.follows(name):
            raise self._elsewhere(name)

    async def catch_up(self) -> None:
        """Take in all that is committed by now; raises ``StoreUnavailableError``.

        Other requests have their turn in between. The bandits are ``settled`` afterwards.
        """
        asked_at = monotonic()
        try:
            while self._seen_at < asked_at:
                await self.writer.write([])  # in turn with the commits
            await self.settled()
        except StoreUnavailableError as error:
            self._not_seen_at = monotonic()
            self.outage.failed(Use.FOLLOWING, error)
            raise

    async def know_keys(self) -> None:
        """Take in changes of API keys that were answered by now, also by other processes.

        Whoever changes a key answers when FRESH has passed since the commit, so it is enough to
        have seen the end of the log within that time: see ``access``.
        """
        now = monotonic()
        if now - self._seen_at < FRESH:
            return
        if now - self._not_seen_at < ASK_AGAIN_AFTER:
            raise StoreUnavailableError("the log could not be read a moment ago")
        await self.catch_up()

    async def from_store(self, ask: Callable[[Ledger], T], *, quick: bool = True) -> T:
        """Returns what the store says.

        One on another machine may be slow, and so may a disk or a question that is not ``quick``:
        then only who asks waits for it.
        """
        here = quick and not (self.writer.in_thread or self.writer.is_busy)
        try:
            if here:
                answer = await self.writer.store.run(WAIT, ask, self.ledger)
            else:
                answer = await asyncio.to_thread(ask, self.beside)
        except StoreUnavailableError as error:
            self.outage.failed(Use.ASKING, error)
            raise
        self.outage.worked(Use.ASKING)
        return answer

    async def from_slow_store(self, ask: Callable[[Ledger], T]) -> T:
        """Returns the answer of the store to a question that may take it long."""
        return await self.from_store(ask, quick=False)

    @property
    def staleness(self) -> float:
        """Seconds since the end of the log was seen: all that was committed before is taken in."""
        return monotonic() - self._seen_at

    async def events_behind(self) -> int | None:
        """Events in the log that the model has not taken in; None where the store does not say."""
        position = self.replica.position
        try:
            return await self.from_store(lambda ledger: ledger.behind(position))
        except StoreUnavailableError:
            return None

    def check_ready(self) -> None:
        """Raises where nothing can be served yet, or no longer."""
        if self.ready:
            return
        if self.compiling.names:
            raise compiling_problem("The kernels of the bandits are being compiled")
        raise Problem(NOT_READY, "Try again in a moment.", retry_after=1.0)

    def fold(self, name: str) -> "Fold":
        """The bandit of this name. Its settings and actions can be used, see ``usable_fold``."""
        self.check_ready()
        fold = self.replica.folds.get(name)
        if fold is None:
            self.check_serves(name)
            raise Problem(NO_BANDIT, f"There is no bandit {name!r}. PUT /v1/bandits/{name} first.")
        return fold

    def usable_fold(self, name: str) -> "Fold":
        """The bandit of this name, once it can decide: it may have to wait before it learns."""
        fold = self.fold(name)
        if name in self.replica.held and name not in self.compiling.choosing:
            raise compiling_problem(f"The kernels of bandit {name!r} are being compiled")
        return fold


async def nothing_to_wait_for() -> None:
    """Returns at once."""


async def _forever(seconds: float, act: Callable[[], Awaitable[None]]) -> None:
    told = ""
    while True:
        try:
            await act()
            told = ""
        except Exception as error:
            if repr(error) != told:  # once, and not at every try
                log.exception("this is tried again every %g s", seconds)
            told = repr(error)
        await asyncio.sleep(seconds)
