"""The service under load, against the least that could do the same on this machine.

    python benchmarks/service.py

prints the section of docs/performance.md. Rates are of one process; the load generator has the
other core.
"""

import asyncio
import json
import multiprocessing
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, repeat
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import apsw
import msgspec
import numpy as np
import uvicorn
from load import Load, drive, request
from parts import asked_parts

from belated import Bernoulli, DelayedOFUGLM, Gaussian
from belated.client import Client
from belated.ledger import snapshots
from belated.ledger.events import Decided, Draft, Kind
from belated.ledger.ids import Ids, to_text
from belated.ledger.replica import Replica, system_clock
from belated.ledger.spec import Spec
from belated.ledger.stores.migrations import scripts
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.policies import AdaptiveThompson
from belated.service.serving import ServeSettings, serve
from belated.service.settings import spec_of
from belated.wire import BanditSettings

K, DIM, CONNECTIONS = 100, 20, 64
SECONDS, ROUNDS = 0.6, 21  # many short turns: the speed of a shared machine changes by the second
SEEN = 20_000  # rewards, before decisions are measured
BATCH = 100
SHOPS = {"shop": DelayedOFUGLM(), "drawn": AdaptiveThompson()}  # bandits without a context
RAW, RAW_DECIDES = "raw ASGI", "raw ASGI that decides"
INSERT = "insert into events (seq, tx, kind, bandit, id, time, value, due, body)"
INSERT += " values (?,?,?,?,?,?,?,?,?)"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def actions() -> dict[str, list[float]]:
    x = np.random.default_rng(1).normal(size=(K, DIM))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return {f"action-{k}": row.tolist() for k, row in enumerate(x)}


@dataclass
class Server:
    """A server in another process."""

    port: int
    pid: int

    def drive(self, messages: Iterator[bytes], connections: int, seconds: float) -> Load:
        before = self.cpu_seconds()
        load = drive([self.port], messages, connections, seconds)
        load.cpu = self.cpu_seconds() - before
        return load

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(target: Callable[..., Any], *args: Any) -> Iterator["Server"]:
    """A server process, when it is ready."""
    port = free_port()
    process = multiprocessing.get_context("spawn").Process(target=target, args=(port, *args))
    process.start()
    try:
        wait_until_ready(port)
        yield Server(port, process.pid or 0)
    finally:
        process.terminate()
        process.join()


def wait_until_ready(port: int) -> float:
    started = time.perf_counter()
    while time.perf_counter() - started < 300:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
                if answer.status == 200:
                    return time.perf_counter() - started
        except OSError:
            time.sleep(0.002)
    raise TimeoutError


# ---------------------------------------------------------------------------------- baselines


def raw_database(path: str) -> apsw.Connection:
    db = apsw.Connection(path)
    db.execute("pragma journal_mode = wal")
    db.execute("pragma synchronous = full")
    for script in scripts("sqlite"):
        db.execute(script)
    return db


class RawApp:
    """ASGI without anything: reads the body, writes a row of the same size durably, answers.

    With ``decides`` it also reads the JSON and scores all actions with NumPy, as one would write it
    by hand.
    """

    def __init__(self, path: str, decides: bool) -> None:
        self.db, self.ids, self.decides = raw_database(path), Ids(system_clock), decides
        self.seq = self.open = self.seen = 0
        self.looking = False
        self.queue: list[asyncio.Future[None]] = []
        self.timer: asyncio.TimerHandle | None = None
        self.body = msgspec.msgpack.encode(
            Decided(b"x" * 8 * DIM, "action-50", 50, 1.0, 1234, "delayed-ofu-glm", 0.1, 0.2, 0.3)
        )
        self.answer = b'{"action":"action-50","index":50,"logged":true,"decision_id":"'
        self.answer += b"0" * 36 + b'","propensity":1.0,"score":0.123456789,"width":0.1234567}'
        length = b"%d" % len(self.answer)
        self.headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        self.X, self.W_inv = np.array(list(actions().values())), np.eye(DIM)
        self.theta = np.zeros(DIM)

    def flush(self) -> None:
        if self.timer:
            self.timer.cancel()
            self.timer = None
        batch, self.queue, self.seen = self.queue, [], 0
        rows, first = [], self.seq + 1
        for _ in batch:
            self.seq += 1
            rows.append(
                (self.seq, first, 0, "shop", self.ids(), system_clock(), None, None, self.body)
            )
        self.db.execute("begin immediate")
        self.db.executemany(INSERT, rows)
        self.db.execute("commit")
        for future in batch:
            future.set_result(None)

    def look(self) -> None:
        self.looking = False
        grown, self.seen = len(self.queue) > self.seen, len(self.queue)
        if self.queue and not grown and self.seen >= self.open:
            self.flush()
            return
        loop = asyncio.get_running_loop()
        if self.queue and not self.timer:
            self.timer = loop.call_later(0.002, self.flush)
        if grown:
            self.looking = True
            loop.call_soon(self.look)

    def decide(self, body: bytes) -> None:
        json.loads(body)
        scores = self.X @ self.theta
        scores += np.sqrt((self.X @ self.W_inv * self.X).sum(axis=1))
        self.X[int(scores.argmax())].tobytes()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] == "POST":
            self.open += 1
            message = await receive()
            if self.decides:
                self.decide(message["body"])
            loop = asyncio.get_running_loop()
            future = loop.create_future()
            self.queue.append(future)
            if not self.looking:
                self.looking = True
                loop.call_soon(self.look)
            await future
            self.open -= 1
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.answer})


def raw_server(port: int, path: str, decides: bool = False) -> None:
    uvicorn.run(
        RawApp(path, decides), port=port, access_log=False, log_level="error", lifespan="off"
    )


def raw_rewards(path: str, ids: list[bytes]) -> float:
    """Rewards a second that SQLite takes in batches of 100, nothing checked."""
    db = apsw.Connection(path)
    db.execute("pragma synchronous = full")
    seq = db.execute("select max(seq) from events").get
    started = time.perf_counter()
    for k in range(0, len(ids), BATCH):
        first = seq + 1
        rows = []
        for id in ids[k : k + BATCH]:
            seq += 1
            rows.append((seq, first, 1, "shop", id, 1_700_000_000_000_000, 1.0, None, b""))
        db.execute("begin immediate")
        db.executemany(INSERT, rows)
        db.execute("commit")
    return len(ids) / (time.perf_counter() - started)


def commit_seconds(path: str) -> float:
    """Median time of a commit of one row."""
    db, times = raw_database(path), []
    for seq in range(1, 2001):
        started = time.perf_counter()
        row = (seq, seq, 0, "shop", os.urandom(16), 1, None, None, b"x" * 230)
        db.execute("begin immediate")
        db.execute(INSERT, row)
        db.execute("commit")
        times.append(time.perf_counter() - started)
    return statistics.median(times)


# -------------------------------------------------------------------------------- the service


def our_server(port: int, url: str, folder: str | None = None) -> None:
    sys.stdout = sys.stderr  # this page is no place for what the service says
    serve(ServeSettings(ledger=url, port=port, snapshots=folder))


def with_contexts(url: str, n: int) -> None:
    """A bandit whose actions meet another context in every request: 20 features, ``n`` rewards."""
    features = {
        "numeric": {"price": (0.0, 10.0), "hour": (0.0, 24.0), "age": (0.0, 100.0)},
        "categorical": {"kind": ["a", "b", "c", "d"]},
        "interactions": [("hour", "kind"), ("age", "kind"), ("price", "kind")],
    }
    settings = {"family": "bernoulli", "features": features}
    offers = {f"offer-{k}": {"price": k % 11, "kind": "abcd"[k % 4]} for k in range(K)}
    spec = spec_of(msgspec.convert(settings, BanditSettings))
    rows, fitted = list(offers.values()), spec.feature_map()
    assert fitted is not None
    vectors = [fitted.transform(rows, {"hour": k % 24, "age": k % 83}) for k in range(97)]
    fill(url, n, spec, offers, np.concatenate(vectors), "contextual", rewarded=True)


def context_requests() -> Iterator[bytes]:
    path = "/v1/bandits/contextual/decisions"
    for k in cycle(range(997)):
        body = {"context": {"hour": k % 24, "age": k % 83}}
        yield request(path, json.dumps(body).encode())


def decisions(folder: Path) -> None:
    commit = commit_seconds(str(folder / "commit.db"))
    plain, drawn = (request(f"/v1/bandits/{name}/decisions", b"{}") for name in SHOPS)
    url = f"sqlite:///{folder}/ours.db"
    for name, policy in SHOPS.items():
        fill_shop(url, SEEN, Bernoulli(), policy, name, rewarded=True)
    with_contexts(url, SEEN)
    loads: dict[str, list[Load]] = {}
    alone: dict[str, list[float]] = {bandit: [] for bandit in SHOPS}
    with (
        running(our_server, url) as ours,
        running(raw_server, str(folder / "raw.db")) as raw,
        running(raw_server, str(folder / "raw-2.db"), True) as deciding,
    ):
        for _ in range(ROUNDS):
            for name, where, messages in (
                ("belated, delayed-ofu-glm", ours, repeat(plain)),
                ("belated, adaptive-thompson (the default)", ours, repeat(drawn)),
                (
                    "belated, adaptive-thompson, another context in each request",
                    ours,
                    context_requests(),
                ),
                (RAW, raw, repeat(plain)),
                (RAW_DECIDES, deciding, repeat(plain)),
            ):
                loads.setdefault(name, []).append(where.drive(messages, CONNECTIONS, SECONDS))
            for bandit, message in zip(SHOPS, (plain, drawn), strict=True):
                alone[bandit] += ours.drive(repeat(message), 1, SECONDS / 2).latencies
    assert not any(load.failures for several in loads.values() for load in several)
    one, other = (statistics.median(latencies) * 1e3 for latencies in alone.values())
    baselines = [loads[RAW], loads[RAW_DECIDES]]
    table = "\n".join(_row(name, several, baselines) for name, several in loads.items())
    print(f"""
## Durable decisions: {K} registered actions, {DIM} features, logistic, {SEEN:,} rewards seen by each bandit

The raw app is ASGI without a framework: it checks nothing, decides nothing and writes a row of the
same size with the same group commit; the other one also reads the JSON and scores all actions with
NumPy. {ROUNDS} turns of {SECONDS:g} seconds each, one after the other; medians of rates and of ratios.

| {CONNECTIONS} connections | requests a second | median ms | 99 % ms | CPU us a request | ratio to {RAW} | ratio to {RAW_DECIDES} |
|---|---|---|---|---|---|---|
{table}

Asked: a ratio to {RAW} of at least 0.6 of the first row, and to {RAW_DECIDES} of at least 0.5 of the third.
Version 0.1, which had no limits on requests, no ids of them and no event time, reached 0.68 in the first row.
Without a context, the answer of a deterministic policy, such as Delayed OFU-GLM, is worked out once between two commits, and
so is the law of the scores of the default, from which it draws for every request. What is left is Python: routing, checking and
decoding a request, drawing it up as an event, judging, writing and folding it, which alone takes about twice the whole request
of {RAW_DECIDES}. With contexts, the features of all actions, the law of their scores and their probabilities
are made anew for every request. The third row cannot get beyond the second, which has nothing to score: what was asked of it
would take a request path in another language, or probabilities that are not logged.

One connection: median {one:.2f} ms with Delayed OFU-GLM, {other:.2f} ms with the default. A commit of one row takes {commit * 1e3:.2f} ms here, and twice
that plus 0.5 ms, the bound asked for, is {2e3 * commit + 0.5:.2f} ms.
""")


def _row(name: str, loads: list[Load], baselines: list[list[Load]]) -> str:
    rate = statistics.median(load.rate for load in loads)
    latencies = sorted(t for load in loads for t in load.latencies)
    middle, far = latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]
    pairs = [zip(loads, baseline, strict=True) for baseline in baselines]
    ratios = [statistics.median(a.rate / b.rate for a, b in pair) for pair in pairs]
    cpu = sum(load.cpu for load in loads) / len(latencies)
    times = f"{middle * 1e3:.1f} | {far * 1e3:.1f} | {cpu * 1e6:.0f}"
    return f"| {name} | {rate:,.0f} | {times} | {ratios[0]:.2f} | {ratios[1]:.2f} |"


def fill_shop(
    url: str,
    n: int,
    family: Any,
    policy: Any = SHOPS["shop"],
    name: str = "shop",
    rewarded: bool = False,
) -> list[bytes]:
    """A ledger with ``n`` decisions among actions that are vectors."""
    vectors = np.array(list(actions().values()))
    return fill(url, n, Spec.of(DIM, family, policy), actions(), vectors, name, rewarded)


def fill(
    url: str,
    n: int,
    spec: Spec,
    named: Mapping[str, Any],
    vectors: np.ndarray,
    bandit: str,
    rewarded: bool,
) -> list[bytes]:
    """A ledger with ``n`` decisions; row k of ``vectors`` is that of action k modulo K."""
    ledger = SQLiteLedger(url.removeprefix("sqlite:///"))
    replica = Replica(ledger, seed=1)
    replica.catch_up()
    replica.configure(bandit, spec)
    replica.register(bandit, named)
    ids, rng, names = [], np.random.default_rng(2), list(named)
    for start in range(0, n, 10_000):
        drafts, chosen = [], rng.integers(len(vectors), size=min(10_000, n - start))
        for row in chosen:
            k = int(row) % K
            body = Decided(vectors[row].tobytes(), names[k], k, 1.0, 0, "p", 0.0, 0.0, 0.0)
            drafts.append(
                Draft(
                    Kind.DECIDED,
                    bandit,
                    replica.ids(),
                    replica.clock(),
                    body=msgspec.msgpack.encode(body),
                )
            )
        ids += [draft.id for draft in drafts]
        ledger.commit(drafts)
        if rewarded:
            luck = (rng.random(len(drafts)) < 0.3).astype(float).tolist()
            ledger.commit(
                [
                    Draft(Kind.REWARDED, bandit, draft.id, draft.time + 1000, y)
                    for draft, y in zip(drafts, luck, strict=True)
                ]
            )
    ledger.close()
    return ids


def rewards(folder: Path) -> None:
    n = ROUNDS * 20_000
    for name, family, policy in (
        ("linear", Gaussian(sd=1.0), DelayedOFUGLM()),
        ("logistic", Bernoulli(), DelayedOFUGLM()),
        ("logistic, the default", Bernoulli(), AdaptiveThompson()),
    ):
        ids = fill_shop(f"sqlite:///{folder}/{name}.db", n, family, policy)
        raw_ids = fill_shop(f"sqlite:///{folder}/{name}-raw.db", n, family, policy)
        part = n // ROUNDS // BATCH * BATCH
        ours, raw = [], []
        with running(our_server, f"sqlite:///{folder}/{name}.db") as server:
            for turn in range(ROUNDS):
                mine = ids[turn * part : (turn + 1) * part]
                messages = [
                    request("/v1/rewards", _batch(mine[k : k + BATCH]))
                    for k in range(0, part, BATCH)
                ]
                load = server.drive(iter(messages), 32, 600.0)
                assert not load.failures
                ours.append(load.rate * BATCH)
                raw.append(
                    raw_rewards(f"{folder}/{name}-raw.db", raw_ids[turn * part : (turn + 1) * part])
                )
        ratio = statistics.median(a / b for a, b in zip(ours, raw, strict=True))
        print(
            f"| {name} | {statistics.median(ours):,.0f} | {statistics.median(raw):,.0f} | {ratio:.2f} |",
            flush=True,
        )


def _batch(ids: list[bytes]) -> bytes:
    items = [{"decision_id": to_text(id), "reward": k % 2} for k, id in enumerate(ids)]
    return msgspec.json.encode({"rewards": items})


def start_times(folder: Path, events: int) -> None:
    """From the start of the process until it is ready."""

    def ready(url: str, where: str | None = None) -> float:
        port = free_port()
        script = (
            "from belated.service.serving import ServeSettings, serve; "
            f"serve(ServeSettings(ledger={url!r}, port={port}, snapshots={where!r}))"
        )
        # an installation has its bytecode; the first of three starts makes sure of it
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.DEVNULL, env=environment
        )
        wait_until_ready(port)
        seconds = time.perf_counter() - started
        process.terminate()
        process.wait()
        return seconds

    empty = min(ready(f"sqlite:///{folder}/empty-{k}.db") for k in range(3))
    url = f"sqlite:///{folder}/many.db"
    fill_shop(url, events // 2, Bernoulli(), rewarded=True)
    replica = Replica(SQLiteLedger(url.removeprefix("sqlite:///")))
    started = time.perf_counter()
    replica.catch_up()
    replay = time.perf_counter() - started
    snapshots.save(replica, folder / "snapshots")
    replica.ledger.close()
    many = min(ready(url, str(folder / "snapshots")) for _ in range(3))
    print(f"""
## From the start of the process to ready

The best of three starts, with bytecode and compiled kernels cached.

| log | seconds |
|---|---|
| empty | {empty:.2f} (asked: under 1) |
| {events:,} events, logistic, Delayed OFU-GLM, {DIM} features, from a snapshot | {many:.2f} (asked: under 3) |
| the same replayed from zero, in a process that runs | {replay:.1f} |
""")


COLD = (  # family and policy, None for the default
    ("bernoulli", None),
    ("bernoulli", "delayed-ofu-glm"),
    ("probit", None),
    ("tanh", None),
)


def seconds_of_python() -> float:
    """The unit of the machine: a fixed loop of pure Python, the best of five."""
    best = float("inf")
    for _ in range(5):
        started = time.process_time()
        for _ in range(10_000_000):
            pass
        best = min(best, time.process_time() - started)
    return best


def cold_starts(folder: Path) -> None:
    """From nothing compiled to the first decision, as a newcomer meets it."""
    print(f"""
## From nothing compiled to the first decision

Printed by `python benchmarks/service.py cold`. Seconds since `belated serve` was called with an empty
cache, by when a bandit was made, when its first decision was answered and when it began to learn; then
the CPU seconds of the service and of the two processes that compile for it. This happens once for a
version of belated. The unit of this machine: ten million turns of an empty loop in Python take
{seconds_of_python():.2f} s; {os.getloadavg()[0]:.1f} processes on {os.cpu_count()} cores were running when this began.

| family | policy | ready | bandit made | first decision | learns | CPU |
|---|---|---|---|---|---|---|""")
    for family, policy in COLD:
        name = f"{family}-{policy or 'default'}"
        cache, url = folder / f"cache-{name}", f"sqlite:///{folder}/cold-{name}.db"
        before = _cpu_of_children()
        port, started = free_port(), time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "belated", "serve", "--ledger", url, "--port", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "BELATED_CACHE_DIR": str(cache)},
        )
        wait_until_ready(port)
        seconds = [time.perf_counter() - started]
        settings = {"family": family, "dim": 2} | ({"policy": policy} if policy else {})
        with Client(f"http://127.0.0.1:{port}") as client:
            client.put_bandit("shop", settings)
            seconds.append(time.perf_counter() - started)
            client.decide("shop", matrix=np.eye(2))
            seconds.append(time.perf_counter() - started)
            while not client.bandit("shop").n_decided:
                time.sleep(0.1)
            seconds.append(time.perf_counter() - started)
        process.terminate()
        process.wait()
        seconds.append(_cpu_of_children() - before)
        row = " | ".join(f"{s:.1f}" for s in seconds)
        print(f"| {family} | {policy or 'the default'} | {row} |", flush=True)
    print("""
Where Python may not keep its bytecode (`PYTHONDONTWRITEBYTECODE`), every process translates NumPy, Numba and SciPy again, which makes
all of this longer: `PYTHONPYCACHEPREFIX=$(mktemp -d) PYTHONDONTWRITEBYTECODE=1 python benchmarks/service.py cold` prints
by how much.""")


def _cpu_of_children() -> float:
    """CPU seconds of processes that have ended, those that they waited for included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parts = asked_parts(__doc__, ("decisions", "rewards", "start", "cold"))
    print("""

# The service

Printed by `python benchmarks/service.py`. One server process; the load generator has the other core.
""")
    with tempfile.TemporaryDirectory() as folder:
        if "decisions" in parts:
            decisions(Path(folder))
        if "rewards" in parts:
            print(f"""
## Rewards in batches of {BATCH} over HTTP, 32 connections

Against rows that SQLite takes in transactions of {BATCH} in the same run, nothing checked, no HTTP. Delayed OFU-GLM,
and the default policy in the last row.

| family | rewards a second | raw SQLite | ratio (asked: at least 0.5) |
|---|---|---|---|""")
            rewards(Path(folder))
            print("""
Version 0.1 had both ratios that are asked for. It had no limits on what a request may cost, no id for every request, no event
time and no threads that keep health answered while bandits learn. Rewards pay for short transactions, too: with more of
them in one they come quicker, and [decisions wait longer during an upload](reliability.md#the-long-runs).
""")
        if "start" in parts:
            start_times(Path(folder), int(os.environ.get("EVENTS", "10000000")))
        if "cold" in parts:
            cold_starts(Path(folder))


if __name__ == "__main__":
    main()
