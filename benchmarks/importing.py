"""How quickly an exported log, and a CSV file, are read into an empty ledger, checks included.

    python benchmarks/importing.py

prints the section of docs/performance.md. PostgreSQL is a server on this machine; where its
programs are not installed, its rows are left out.
"""

import csv
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from belated import Bernoulli
from belated.ledger import open_ledger
from belated.ledger.events import Draft, Kind
from belated.ledger.proposing import NOTHING_SAID
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.tools.exporting import Selection, export
from belated.ledger.tools.importing_events import check_events, write_events
from belated.ledger.tools.importing_logs import Options, import_log
from belated.ledger.tools.mapping import parse_mapping
from belated.policies import Greedy
from service import DIM, actions

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.postgres_server import Postgres, binaries  # type: ignore[import-not-found]

DECISIONS = 30_000  # each with its reward; every event is a transaction of its own
COLUMNS = [f"x{k}" for k in range(DIM)]
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


def written_csv(folder: Path) -> Path:
    """Decisions of somebody else's system, one row each, with vector, propensity and reward."""
    path, rng = folder / "shop.csv", np.random.default_rng(1)
    vectors = [(name, list(map(str, x))) for name, x in actions().items()]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "time", "action", "reward", "propensity", *COLUMNS])
        for n, k in enumerate(rng.integers(len(vectors), size=DECISIONS)):
            name, x = vectors[k]
            writer.writerow([f"order-{n}", 1_700_000_000 + n, name, n % 2, 1 / len(vectors), *x])
    return path


def csv_rate(url: str, path: Path) -> float:
    """Events a second; a decision and its reward are two."""
    ledger = open_ledger(url)
    Replica(ledger).configure("shop", Spec.of(DIM, Bernoulli(), Greedy()))
    mapping = parse_mapping("", ",".join(COLUMNS), "")
    started = time.perf_counter()
    done = import_log(ledger, path, mapping, Options(bandit="shop"))
    seconds = time.perf_counter() - started
    ledger.close()
    assert done["decisions"] == done["rewards"] == {"accepted": DECISIONS}, done
    return 2 * DECISIONS / seconds


def main() -> None:
    print(f"""
## Importing a log

Printed by `python benchmarks/importing.py`: {2 * DECISIONS:,} events, checked and written; the slowest and
the fastest of {RUNS} runs. In the exported log each event is a transaction of its own; a row of the CSV
file is a decision with {DIM} features and its reward.

| from | into | events a second |
|---|---|---|""")
    with tempfile.TemporaryDirectory() as name, postgres() as server:
        folder = Path(name)
        sources = (("exported log", exported(folder), rate), ("CSV", written_csv(folder), csv_rate))
        for source, path, rate_of in sources:
            urls = {"SQLite": [f"sqlite:///{folder}/{path.suffix}-{k}.db" for k in range(RUNS)]}
            if server is not None:
                names = [f"{path.suffix[1:]}{k}" for k in range(RUNS)]
                urls["PostgreSQL"] = [server.new_database(name) for name in names]
            for store, places in urls.items():
                rates = sorted(rate_of(url, path) for url in places)
                print(f"| {source} | {store} | {rates[0]:,.0f} to {rates[-1]:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
