"""Two replicas of a simulated service on one log, and all that can happen to them."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from hashlib import sha256
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from belated.ledger import StoreUnavailableError, snapshots
from belated.ledger.protocol import Ledger
from belated.ledger.replica import Replica
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.stores.sqlite import SQLiteLedger
from support.power_loss import Disk

SECOND = 1_000_000
BEGINNING = 1_700_000_000 * SECOND


class Faulty:
    """A ledger whose commits fail, some of them after they took effect."""

    def __init__(self, ledger: Ledger, world: "Machines") -> None:
        self.real, self.world = ledger, world

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def _failing(self, act: Callable[[], Any], p: float) -> Any:
        if self.world.fails(p):
            self.world.note("failed before")
            raise StoreUnavailableError("before it took effect")
        result = act()
        if self.world.fails(p):
            self.world.note("failed after")
            raise StoreUnavailableError("after it took effect")
        return result

    def commit(self, drafts: Any, accepts: Any = None) -> Any:
        return self._failing(lambda: self.real.commit(drafts, accepts), 0.04)

    def forget(self, bandit: str, subject: str, time: int) -> int:
        return self._failing(lambda: self.real.forget(bandit, subject, time), 0.1)

    def follow(self, after: Any, limit: int = 100_000) -> Any:
        if self.world.fails(0.01):
            self.world.note("failed to read")
            raise StoreUnavailableError("cannot be read")
        return self.real.follow(after, limit)


class Machines:
    """Odd seeds write to a disk that loses its power, even ones to memory."""

    def __init__(self, seed: int, stack: ExitStack) -> None:
        self.rng = random.Random(seed)
        self.now = BEGINNING
        self.has_faults = True
        self.disk = stack.enter_context(Disk(seed)) if seed % 2 else None
        self.memory = MemoryLedger()
        self.folder = Path(stack.enter_context(TemporaryDirectory()))
        self.happened: Counter[str] = Counter()
        self.trace = sha256()
        self.replicas = [self.new_replica(), self.new_replica()]

    def clock(self) -> int:
        return self.now

    def fails(self, p: float) -> bool:
        return self.has_faults and self.rng.random() < p

    def note(self, what: str, *more: Any) -> None:
        self.happened[what] += 1
        self.trace.update(repr((self.now, what, more)).encode())

    def new_replica(self) -> Replica:
        real = self.memory
        if self.disk is not None:
            real = SQLiteLedger(self.disk.path, vfs=self.disk.name)
        ledger: Any = Faulty(real, self)
        return Replica(ledger, clock=self.clock, seed=self.rng.getrandbits(62))

    def restart(self, k: int) -> None:
        """A process dies and another one takes its place."""
        if self.disk is not None:
            self.replicas[k].ledger.close()
        self.replicas[k] = self.new_replica()
        if self.rng.random() < 0.5:
            found = snapshots.load(self.replicas[k], self.folder)
            self.note("restart from snapshot", found)
        else:
            self.note("restart from log")

    def cut_power(self) -> None:
        assert self.disk is not None
        self.disk.cut()
        self.note("power cut")
        self.replicas = [self.new_replica(), self.new_replica()]

    def until_answered(self, act: Callable[[Replica], Any]) -> Any:
        """What a client gets that tries until it is answered, each time at any replica."""
        while True:
            k = self.rng.randrange(2)
            if self.disk is not None and self.fails(0.01):
                self.disk.cut_at(self.rng.randrange(1, 8))
            try:
                result = act(self.replicas[k])
            except StoreUnavailableError:
                if self.disk is not None and self.disk.is_off:
                    self.cut_power()
                elif self.rng.random() < 0.2:
                    self.restart(k)
                self.now += self.rng.randrange(10 * SECOND)
                self.keep_up()
                continue
            if self.disk is not None:
                self.disk.cut_at(inf)
            return result

    def keep_up(self) -> None:
        """Replicas look at the log now and then; until then they are behind."""
        for replica in self.replicas:
            with suppress(StoreUnavailableError):
                replica.catch_up()
