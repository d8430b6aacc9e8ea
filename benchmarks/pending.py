"""What open decisions cost: memory, seconds to start with a million of them, and time per event.

    python benchmarks/pending.py                        # all
    python benchmarks/pending.py million                # memory, starts, and what looks at all
    OPEN=20000 python benchmarks/pending.py events      # time per event, with fewer of them

prints the section "Open decisions" of docs/performance.md. Progress goes to standard error.
"""

import os
import subprocess
import sys
import tempfile
import time
import timeit
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from parts import asked_parts

from belated import Bernoulli
from belated.ledger import snapshots
from belated.ledger.events import Draft, Kind
from belated.ledger.fold import Fold
from belated.ledger.pending import OpenDecisions
from belated.ledger.proposing import Ask
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.policies import AdaptiveThompson
from service import free_port, wait_until_ready

MILLION = int(os.environ.get("MILLION", "1000000"))
OPEN = int(os.environ.get("OPEN", "100000"))
DIM, K = 20, 10  # features and actions
DAY_US = 86_400_000_000
WINDOW_US = 4 * DAY_US
RATE = 0.02  # of conversions
PART = 100  # decisions and rewards that are timed together
PARTS = OPEN // 8 // PART  # several ticks of a loop that learns from silence
BYTES = "bytes per open decision, besides its id and the model"
BYTES_AFTER = "the same after every second one was closed"
START = "seconds from the start of `belated serve` to ready, from a snapshot"
ASKED = {BYTES: "at most 64", BYTES_AFTER: "at most 64", START: "under 3"}


def told(what: str) -> None:
    print(f"pending: {what} ...", file=sys.stderr, flush=True)


class Clock:
    """Goes on by one step for each decision, so that a window holds ``n`` of them."""

    def __init__(self, n: int) -> None:
        self.step = WINDOW_US // n
        self.now = int(time.time() * 1e6) - WINDOW_US // 2

    def __call__(self) -> int:
        return self.now

    def go_on(self) -> int:
        self.now += self.step
        return self.now


def new_replica(ledger: MemoryLedger | SQLiteLedger, open: str, clock: Clock) -> Replica:
    spec = Spec.of(
        DIM, Bernoulli(), AdaptiveThompson(), loop="conversion", window=WINDOW_US / 1e6, open=open
    )
    replica = Replica(ledger, clock=clock, seed=1)
    replica.configure("shop", spec)
    return replica


def asks() -> Iterator[Ask]:
    """Yields the same sets of actions again and again."""
    x = np.random.default_rng(1).normal(size=(64, K, DIM)) / DIM**0.5
    x[:, :, 0] = 1.0  # the constant, without which conversions cannot be rare
    while True:
        for matrix in x:
            yield Ask(matrix=matrix)


def fill(replica: Replica, clock: Clock, n: int, convert: bool = True) -> None:
    """Write decisions whose vectors repeat, and the conversions that came by the end."""
    ask, rng = asks(), np.random.default_rng(3)
    bodies = [replica.propose("shop", next(ask)).draft.body for _ in range(64)]
    decided: list[Draft] = []
    for start in range(0, n, 10_000):
        part = []
        for k in range(start, min(start + 10_000, n)):
            now = clock.go_on()
            due = now + WINDOW_US
            part.append(Draft(Kind.DECIDED, "shop", replica.ids(), now, None, due, bodies[k % 64]))
        replica.commit(part)
        decided += part
    rewards = [
        Draft(Kind.REWARDED, "shop", draft.id, draft.time + int(rng.exponential(DAY_US)), 1.0)
        for draft in decided
        if convert and rng.random() < RATE
    ]
    replica.commit([draft for draft in rewards if draft.time <= clock()])


# ---------------------------------------------------------------------------- time per event


class Case:
    """A bandit with this many decisions behind it, all of them open or closed."""

    def __init__(self, open: str, n: int, closed: bool) -> None:
        told(f"{open}: {n:,} decisions, {'closed' if closed else 'open'}")
        self.clock = Clock(OPEN)
        self.replica = new_replica(MemoryLedger(), open, self.clock)
        fill(self.replica, self.clock, n)
        self.asks, self.rng = asks(), np.random.default_rng(2)
        self.n, self.closed = n, closed
        self.decided: list[float] = []  # seconds of each part
        self.rewarded: list[float] = []
        self.ticks: list[float] = []  # seconds of decisions that began a tick
        self.close()

    def close(self) -> None:
        """Close the windows that are over: of all decisions, if none is to be open."""
        if self.closed:
            self.clock.now += WINDOW_US + 1
        self.replica.expire()

    def play(self) -> None:
        """Decide and reward for a while; the time for closing windows is not counted."""
        replica, ids = self.replica, []
        hearing = replica.folds["shop"].hearing
        started = time.perf_counter()
        for _ in range(PART):
            self.clock.go_on()
            begun = time.perf_counter()
            draft = replica.propose("shop", next(self.asks)).draft
            replica.commit([draft])
            ids.append(draft.id)
            if hearing is not None and hearing.since == 1:
                self.ticks.append(time.perf_counter() - begun)
        self.decided.append(time.perf_counter() - started)
        rewards = (self.rng.random(PART) < RATE).astype(float).tolist()
        started = time.perf_counter()
        for id, y in zip(ids, rewards, strict=True):
            replica.reward([(id, y)])
        self.rewarded.append(time.perf_counter() - started)
        self.close()


def events() -> None:
    """Prints what a decision and a reward cost, by the number of open decisions."""
    print(f"""
## Open decisions: a decision and a reward

Printed by `python benchmarks/pending.py events`: {DIM} features, {K} actions, the default policy, a ledger in
memory, a window of four days. Means in microseconds over {PARTS * PART:,} decisions and as many rewards, in turns of
{PART} between the rows of each half. To close windows is part of neither. The ratio is that of the row to the first one.
The last column is the median of the decisions that begin a tick, in milliseconds.

| until its window closes, a decision is | decisions before | of them open | a decision | ratio (asked: at most 2) | a reward | ratio (asked: at most 2) | begins a tick |
|---|---|---|---|---|---|---|---|""")
    for open, name in (("hold", "held"), ("silence", "heard")):
        cases = [Case(open, n, closed) for n, closed in ((0, True), (OPEN, True), (OPEN, False))]
        for case in cases:
            case.play()  # compiles
        for case in cases * PARTS:
            case.play()
        none = cases[0]
        for case in cases:
            cells = [name, f"{case.n:,}", "none" if case.closed else "all"]
            for ours, theirs in ((case.decided, none.decided), (case.rewarded, none.rewarded)):
                mean = sum(ours[1:]) / PARTS / PART * 1e6
                cells += [f"{mean:,.0f}", f"{sum(ours[1:]) / sum(theirs[1:]):.2f}"]
            cells += [f"{median(case.ticks) * 1e3:,.0f}" if case.ticks else "-"]
            print(f"| {' | '.join(cells)} |", flush=True)


# -------------------------------------------------------------------------------- a million


def million() -> None:
    """Prints the memory of open decisions, how long a start takes, and what looks at all."""
    held, heard = of_million("hold"), of_million("silence")
    print(f"""
## Open decisions: memory and starts

Printed by `python benchmarks/pending.py million`: {MILLION:,} open decisions in one bandit, {DIM} features. Heard:
the bandit learns from silence, and {RATE:.0%} convert, which stay open until their window closes. Seconds are the best of
three, milliseconds the best of twenty.

| what | held | heard | asked |
|---|---|---|---|""")
    for what in held:
        print(f"| {what} | {held[what]:.2f} | {heard[what]:.2f} | {ASKED.get(what, '')} |")


def of_million(open: str) -> dict[str, float]:
    """Returns what is measured of a bandit that holds open decisions, or learns from silence."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/many.db"
        told(f"{open}: {MILLION:,} open decisions")
        clock = Clock(2 * MILLION)  # their windows are open now, and for two days to come
        replica = new_replica(SQLiteLedger(url.removeprefix("sqlite:///")), open, clock)
        fill(replica, clock, MILLION, convert=open == "silence")
        replica.expire()  # closes nothing; silence of so long is learnt
        told("a snapshot")
        snapshots.save(replica, Path(folder, "snapshots"))
        reading = fastest(lambda: snapshots.load(Replica(replica.ledger), f"{folder}/snapshots"), 3)
        replica.ledger.close()
        pending, now = replica.folds["shop"].pending, clock()
        told("starts")
        # a service that was there before has compiled its kernels
        replica.folds["shop"].spec.learner().warm_up()
        start = min(ready(url, f"{folder}/snapshots") for _ in range(3))
        told("memory")
        opened, after = memory(replica.folds["shop"])
        return {
            BYTES: opened,
            BYTES_AFTER: after,
            START: start,
            "of these, to read the snapshot": reading,
            "milliseconds to count them by age, for `/metrics`": 1e3
            * fastest(lambda: pending.by_age(now)),
            "milliseconds to find the first window that closes, for the dashboard": 1e3
            * fastest(pending.first_due),
        }


def ready(url: str, folder: str) -> float:
    """Returns the seconds from the start of a service until it is ready."""
    port = free_port()
    script = (
        "from belated.service.serving import ServeSettings, serve; "
        f"serve(ServeSettings(ledger={url!r}, port={port}, snapshots={folder!r}))"
    )
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL)
    wait_until_ready(port)
    seconds = time.perf_counter() - started
    process.terminate()
    process.wait()
    return seconds


def memory(fold: Fold) -> tuple[float, float]:
    """Returns the bytes per open decision, of all and after every second one was closed."""
    ids, there = bytearray(fold.ids), [decision for _, decision in fold.pending.items()]
    grown = bytearray()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    pending = OpenDecisions(grown)
    sizes = []
    for decision in there:
        grown += ids[16 * decision.row : 16 * decision.row + 16]
        pending.add_all(decision.row, [decision.time], [decision.due], [decision.closes])
    sizes.append(tracemalloc.get_traced_memory()[0] - before - sys.getsizeof(grown))
    for decision in there[::2]:
        pending.close(decision.row)
    sizes.append(tracemalloc.get_traced_memory()[0] - before - sys.getsizeof(grown))
    tracemalloc.stop()
    return sizes[0] / len(there), sizes[1] / len(pending)


def fastest(look: Callable[[], object], of: int = 20) -> float:
    """Returns the seconds that the fastest of several calls took."""
    return min(timeit.repeat(look, number=1, repeat=of))


if __name__ == "__main__":
    parts = {"million": million, "events": events}
    for part in asked_parts(__doc__, parts):
        parts[part]()
