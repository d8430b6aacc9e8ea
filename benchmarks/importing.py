"""How quickly an exported log is read into an empty ledger, checks included.

    python benchmarks/importing.py

prints the section of docs/performance.md. PostgreSQL is a server on this machine; where its
programs are not installed, its row is left out.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from belated import Bernoulli
from belated.ledger import open_ledger
from belated.ledger.events import Draft, Kind
from belated.ledger.proposing import NOTHING_SAID
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.tools.exporting import Selection, export
from belated.ledger.tools.importing_events import check_events, write_events
from belated.policies import Greedy
from service import DIM, actions

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.postgres_server import Postgres, binaries  # type: ignore[import-not-found]

DECISIONS = 30_000  # each with its reward; every event is a transaction of its own
RUNS = 3


def exported(folder: Path) -> Path:
    """A log such as a service under little load writes it."""
    ledger = open_ledger(f"sqlite:///{folder}/shop.db")
    replica = Replica(ledger, seed=1)
    replica.configure("shop", Spec.of(DIM, Bernoulli(), Greedy()))
    replica.register("shop", actions())
    decided = [replica.propose("shop", NOTHING_SAID).draft for _ in range(DECISIONS)]
    ledger.commit_all([[draft] for draft in decided])
    rewards = [Draft(Kind.REWARDED, "shop", draft.id, draft.time, 1.0) for draft in decided]
    ledger.commit_all([[reward] for reward in rewards])
    path = folder / "shop.jsonl"
    export(ledger, path, Selection(), as_joined=False, dry_run=False)
    ledger.close()
    return path


@contextmanager
def postgres() -> Iterator[Postgres | None]:
    programs = binaries()
    if programs is None:
        yield None
        return
    server = Postgres(programs)
    server.start()
    try:
        yield server
    finally:
        server.close()


def rate(url: str, path: Path) -> float:
    """Events a second."""
    ledger = open_ledger(url)
    started = time.perf_counter()
    plan = check_events(ledger, path)
    write_events(ledger, path, plan)
    seconds = time.perf_counter() - started
    ledger.close()
    return plan.events / seconds


def main() -> None:
    print(f"""
## Importing an exported log

Printed by `python benchmarks/importing.py`: {2 * DECISIONS:,} events, each a transaction of its own,
checked and written; the slowest and the fastest of {RUNS} runs.

| into | events a second |
|---|---|""")
    with tempfile.TemporaryDirectory() as name, postgres() as server:
        folder = Path(name)
        path = exported(folder)
        urls = {"SQLite": [f"sqlite:///{folder}/copy-{k}.db" for k in range(RUNS)]}
        if server is not None:
            urls["PostgreSQL"] = [server.new_database(f"copy{k}") for k in range(RUNS)]
        for store, places in urls.items():
            rates = sorted(rate(url, path) for url in places)
            print(f"| {store} | {rates[0]:,.0f} to {rates[-1]:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
