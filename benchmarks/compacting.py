"""What it costs to compact a log in PostgreSQL: seconds, room, and how long decisions wait meanwhile.

    python benchmarks/compacting.py                 # some minutes
    OLD=20000 python benchmarks/compacting.py       # with fewer events

prints the section of docs/performance.md. Progress goes to standard error.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import repeat
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import msgspec
import numpy as np
import psycopg
from load import drive, request
from msgspec.structs import replace
from parts import parser_of

from belated import Bernoulli
from belated.ledger import Ledger, open_ledger
from belated.ledger.events import Draft, Kind
from belated.ledger.ids import Ids
from belated.ledger.proposing import NOTHING_SAID
from belated.ledger.replica import Proposal, Replica, system_clock
from belated.ledger.spec import Spec
from belated.ledger.stores.postgres_upkeep import DROP_ROWS
from belated.policies import AdaptiveThompson
from service import DIM, actions, our_server, running, seconds_of_python
from support.postgres_server import Postgres, binaries  # type: ignore[import-not-found]

OLD = int(os.environ.get("OLD", "500000"))  # events that are dropped
YOUNG = OLD // 5  # events that stay
TOGETHER, PART = 100, 5_000  # events of a transaction, and of one call
DAY_US = 86_400_000_000
QUIET = 20.0  # seconds
SLICE = 0.1  # seconds of decisions between two looks at what is going on
DECIDE = request("/v1/bandits/shop/decisions", b"{}")
TABLES = ("events", "requests", "subjects")
NAMES = ", ".join(f"belated.{name}" for name in TABLES)
NEWLINE = "\n"
WHILE = ("nothing else goes on", "old events are folded", "they are deleted", "VACUUM runs")


def told(what: str) -> None:
    print(f"compacting: {what} ...", file=sys.stderr, flush=True)


def first_proposal(ledger: Ledger) -> Proposal:
    """Make the bandit; returns a decision of it."""
    replica = Replica(ledger, clock=lambda: system_clock() - 500 * DAY_US, seed=1)
    replica.configure("shop", Spec.of(DIM, Bernoulli(), AdaptiveThompson()))
    replica.register("shop", actions())
    return replica.propose("shop", NOTHING_SAID)


def write(ledger: Ledger, proposal: Proposal, events: int, days: int) -> None:
    """Write decisions of so many days ago, each with a request and a subject, and their rewards."""
    told(f"{events:,} events of {days} days ago are written")
    now = system_clock() - days * DAY_US
    ids = Ids(lambda: now)
    for start in range(0, events // 2, PART):
        decided = []
        for k in range(start, min(start + PART, events // 2)):
            names: dict[str, Any] = {"request": f"{days}-{k}", "subject": f"customer {k % 1000}"}
            body = msgspec.msgpack.encode(replace(proposal.body, **names))
            names |= {"id": ids(), "time": now, "body": body, "digest": bytes(32)}
            decided.append(replace(proposal.draft, **names))
        rewards = [Draft(Kind.REWARDED, "", draft.id, now, 1.0) for draft in decided]
        for drafts in (decided, rewards):
            parts = range(0, len(drafts), TOGETHER)
            ledger.commit_all([drafts[k : k + TOGETHER] for k in parts])


def megabytes(db: psycopg.Connection, *tables: str) -> float:
    """What tables take on the disk with their indices."""
    size = "select sum(pg_total_relation_size('belated.' || name)) from unnest(%s::text[]) as name"
    (total,) = db.execute(size, [list(tables)]).fetchone() or (0,)
    return float(total) / 1e6


def sizes(db: psycopg.Connection) -> str:
    return f"{megabytes(db, 'events'):,.0f} | {megabytes(db, 'requests', 'subjects'):,.0f}"


def decide_while(port: int, goes_on: Callable[[], bool]) -> list[float]:
    """Decide, one at a time; returns the seconds that each took."""
    took: list[float] = []
    while goes_on():
        load = drive([port], repeat(DECIDE), 1, SLICE)
        took += load.latencies
        if load.failures:
            raise RuntimeError(f"{load.failures} decisions were refused")
    return took


def compact(url: str) -> dict[str, int]:
    command = [sys.executable, "-m", "belated", "ledger", "compact", url, "--older-than", "30d"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def is_based(db: psycopg.Connection) -> bool:
    return db.execute("select from belated.base where digest <> ''").fetchone() is not None


def seconds_since(start: float) -> float:
    return time.perf_counter() - start


def row(name: str, took: list[float]) -> str:
    median, most, longest = 1000 * np.quantile(took, [0.5, 0.99, 1.0])
    return f"| {name} | {len(took):,} | {median:.1f} | {most:.1f} | {longest:.0f} |"


def measure(url: str, port: int, db: psycopg.Connection, again: Callable[[], None]) -> str:
    """Compact while decisions are made; returns the tables."""
    waits: list[list[float]] = []
    rooms = [f"| before | {sizes(db)} |"]
    with ThreadPoolExecutor(1) as beside:
        told("decisions, and nothing else")
        start = time.perf_counter()
        waits.append(decide_while(port, lambda: seconds_since(start) < QUIET))
        told("the log is compacted")
        start = time.perf_counter()
        compaction = beside.submit(compact, url)
        waits.append(decide_while(port, lambda: not (is_based(db) or compaction.done())))
        folded = seconds_since(start)
        waits.append(decide_while(port, lambda: not compaction.done()))
        deleted = seconds_since(start) - folded
        n = compaction.result()["deleted"]
        rooms.append(f"| after `compact` | {sizes(db)} |")
        told("VACUUM")
        start = time.perf_counter()
        vacuum = beside.submit(db.execute, f"vacuum {NAMES}")
        waits.append(decide_while(port, lambda: not vacuum.done()))
        vacuumed = seconds_since(start)
        vacuum.result()
    rooms.append(f"| after `VACUUM` | {sizes(db)} |")
    again()
    rooms.append(f"| after as many new events as were deleted | {sizes(db)} |")
    return f"""
| while | decisions | median ms | 99 % ms | longest ms |
|---|---|---|---|---|
{NEWLINE.join(map(row, WHILE, waits))}

`compact` took {folded + deleted:.1f} s: {folded:.1f} s to fold the old events and to write the base, and {deleted:.1f} s to delete {n:,} rows of
`events`, {n / deleted:,.0f} a second, with half as many of `requests` and of `subjects`. They go {DROP_ROWS:,} at a time, and every
commit waits for such a part. `VACUUM` took {vacuumed:.1f} s.

| MB on the disk, indices included | `events` | `requests` and `subjects` |
|---|---|---|
{NEWLINE.join(rooms)}"""


def main() -> None:
    programs = binaries()
    if programs is None:
        raise SystemExit("no PostgreSQL server here: expected postgres and initdb in PATH")
    before, server = os.getloadavg()[0], Postgres(programs)
    try:
        server.start()
        url = server.new_database("compacting")
        with ExitStack() as stack:
            ledger = stack.enter_context(closing(open_ledger(url)))
            proposal = first_proposal(ledger)
            db = stack.enter_context(psycopg.connect(url, autocommit=True))
            for name in TABLES:  # VACUUM has a line of its own
                db.execute(f"alter table belated.{name} set (autovacuum_enabled = false)")
            write(ledger, proposal, OLD, 400)
            write(ledger, proposal, YOUNG, 1)
            told("a service reads the log")
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            port = stack.enter_context(running(our_server, url, folder)).port
            page = measure(url, port, db, lambda: write(ledger, proposal, OLD, 0))
    finally:
        server.close()
    print(f"""
## Compacting a log in PostgreSQL

Printed by `python benchmarks/compacting.py`: a log of {OLD + YOUNG:,} events, {OLD:,} of them old: decisions with {DIM} features, a
request and a subject each, and their rewards, {TOGETHER} events in a transaction. `belated ledger compact` drops the old ones
while a service answers one decision after the other over one connection. Database, service, load generator and compaction share
{os.cpu_count()} cores. The load average was {before:.1f} before the run.
{page}

On this machine, ten million turns of an empty loop in Python take {seconds_of_python():.2f} s.
""")


if __name__ == "__main__":
    parser_of(__doc__).parse_args()
    main()
