"""Decisions and rewards a second through several service processes on one PostgreSQL.

    python benchmarks/replicas.py

prints the section of docs/performance.md. Database, services and load generator share this machine:
the numbers say what a further process is worth here, not what further machines would be.
"""

import json
import os
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import repeat
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from load import Load, drive, request
from parts import parser_of

from belated.client import Client
from service import BATCH, DIM, K, actions, our_server, running, seconds_of_python
from support.postgres_server import Postgres, binaries  # type: ignore[import-not-found]

PROCESSES = (1, 2, 4)
CONNECTIONS = 64  # of all processes together
SECONDS, ROUNDS = 1.0, 9
REWARDS = 20  # requests of a turn, each with BATCH rewards
DECIDE = request("/v1/bandits/shop/decisions", b"{}")


@contextmanager
def services(server: Postgres, n: int) -> Iterator[list[int]]:
    """Yields the ports of ``n`` services on a database of their own, with a bandit in it."""
    url = server.new_database(f"replicas_{n}")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        ports = [stack.enter_context(running(our_server, url, folder)).port for _ in range(n)]
        client = stack.enter_context(Client(f"http://127.0.0.1:{ports[0]}", timeout=300.0))
        client.put_bandit("shop", {"family": "bernoulli", "dim": DIM})
        client.change_actions("shop", actions())
        for port in ports:  # compiled and known everywhere
            with Client(f"http://127.0.0.1:{port}", timeout=300.0, retries=50) as one:
                one.reward(one.decide("shop").decision_id or "", 1.0)
        yield ports


def rewards_of_new_decisions(port: int) -> Iterator[bytes]:
    """Make decisions, and return requests that reward them."""
    body = json.dumps({"decisions": [{}] * BATCH}).encode()
    url, kind = f"http://127.0.0.1:{port}", {"content-type": "application/json"}
    requests = []
    for _ in range(REWARDS):
        asked = urllib.request.Request(f"{url}/v1/bandits/shop/decisions/batch", body, kind)
        with urllib.request.urlopen(asked) as answer:
            made = json.load(answer)["decisions"]
        items = [{"decision_id": one["decision_id"], "reward": 1.0} for one in made]
        requests.append(request("/v1/rewards", json.dumps({"rewards": items}).encode()))
    return iter(requests)


def turn(ports: list[int]) -> tuple[float, float]:
    """Returns decisions and rewards a second."""
    decided = drive(ports, repeat(DECIDE), CONNECTIONS, SECONDS)
    messages = rewards_of_new_decisions(ports[0])
    rewarded = drive(ports, messages, CONNECTIONS // 8, 60.0)
    _check(decided, rewarded)
    return decided.rate, BATCH * rewarded.rate


def _check(*loads: Load) -> None:
    if any(load.failures for load in loads):
        raise RuntimeError(f"{[load.failures for load in loads]} requests were refused")


def _row(n: int, turns: dict[int, list[tuple[float, float]]]) -> str:
    cells = []
    for kind in range(2):
        rates = [one[kind] for one in turns[n]]
        ratios = [one[kind] / base[kind] for one, base in zip(turns[n], turns[1], strict=True)]
        cells += [f"{statistics.median(rates):,.0f}", f"{statistics.median(ratios):.2f}"]
    return f"| {n} | {' | '.join(cells)} |"


def main() -> None:
    programs = binaries()
    if programs is None:
        raise SystemExit("no PostgreSQL server here: expected postgres and initdb in PATH")
    server, turns = Postgres(programs), {n: [] for n in PROCESSES}  # type: ignore[var-annotated]
    server.start()
    before = os.getloadavg()[0]
    try:
        with ExitStack() as stack:
            ports = {n: stack.enter_context(services(server, n)) for n in PROCESSES}
            for _ in range(ROUNDS):
                for n in PROCESSES:
                    turns[n].append(turn(ports[n]))
    finally:
        server.close()
    rows = "\n".join(_row(n, turns) for n in PROCESSES)
    print(f"""
## Several processes on one PostgreSQL

Printed by `python benchmarks/replicas.py`. Each row has a database of its own and as many `belated serve`, the load
generator, PostgreSQL (every commit synced) and all services on {os.cpu_count()} cores; {K} registered actions, {DIM} features, the default
policy. Decisions come one in a request over {CONNECTIONS} connections, rewards {BATCH} in a request. {ROUNDS} turns, one after the other;
medians of rates, and of ratios to the turn of one process beside it. The load average was {before:.1f} before the run.

| processes | decisions a second | ratio to one | rewards a second | ratio to one |
|---|---|---|---|---|
{rows}

Every process takes in what all of them write, and commits flush one after the other. If the load average is not near 0,
others worked on these cores: the system then gives several processes a larger share of them than one, and the ratios hold
that, too. Only those of a quiet machine say what a further process is worth.

On this machine, ten million turns of an empty loop in Python take {seconds_of_python():.2f} s.
""")


if __name__ == "__main__":
    parser_of(__doc__).parse_args()
    main()
