"""How long a decision takes while the service does something large, beside the quiet time.

    python benchmarks/latency.py

prints the table of docs/reliability.md (``python benchmarks/reliability.py latency`` does, too) and
ends with code 1 where a ratio is above the one that is asked, or health was late and the bare server was not.
One server process with the default policy, on SQLite with a million events in its log; two
connections ask for a decision every few milliseconds while another one asks for the large thing.
The quiet time is measured just before and just after: a shared machine changes by the second.
Health is asked for all the time, in turn with a bare server, which does nothing else: where that is
late as well, the machine had no time for anybody. All of it is done ``RUNS`` times, each with a log
of its own, and each row is that of the run with the median ratio, with the slowest health of every run.
Progress goes to standard error.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median_low
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import msgspec
import numpy as np
import uvloop
from load import request

from belated import Bernoulli
from belated.ledger.events import Decided, Draft, Kind
from belated.ledger.ids import to_text
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.policies import AdaptiveThompson
from belated.service.serving import ServeSettings, serve
from service import DIM, K, actions, running

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.bare_server import bare_server  # type: ignore[import-not-found]

EVENTS = int(os.environ.get("EVENTS", "1000000"))
RUNS = int(os.environ.get("RUNS", "3"))
UPLOADED = EVENTS // 10  # rewards, twice: some like those in the log, and some that are all 1
BATCH = 1_000  # in one request
SUBJECTS = 1_000
MEAN = 0.3  # of the rewards
PROBES, PAUSE = 2, 0.002  # connections that ask for decisions, and seconds between two of theirs
QUIET, SCRAPING = 3.0, 5.0  # seconds
ALLOWED = 5.0  # times the quiet 99th percentile
SHIFTING = f"{UPLOADED:,} rewards that shift the mean uploaded"
NOT_ASKED = [SHIFTING]  # rows of any ratio: decisions wait for the passes that such rewards cost
SLOWEST_HEALTH = 50.0  # milliseconds; what takes longer is in bold
DECISION = request("/v1/bandits/shop/decisions", b"{}")


def told(what: str) -> None:
    print(f"latency: {what} ...", file=sys.stderr, flush=True)


# ----------------------------------------------------------------------------------- the service


def server(port: int, url: str, folder: str) -> None:
    sys.stdout = sys.stderr
    # it makes no snapshot by itself: one is made when it is measured
    serve(ServeSettings(ledger=url, port=port, snapshots=folder, snapshot_every=10**12))


def fill(url: str) -> list[str]:
    """A log of ``EVENTS`` events; returns the decisions that wait for a reward."""
    ledger = SQLiteLedger(url.removeprefix("sqlite:///"))
    replica = Replica(ledger, seed=1)
    replica.configure("shop", Spec.of(DIM, Bernoulli(), AdaptiveThompson()))
    replica.register("shop", actions())
    vectors, rng = np.array(list(actions().values())), np.random.default_rng(2)
    pending: list[str] = []
    decided = EVENTS // 2 + UPLOADED
    for start in range(0, decided, 10_000):
        chosen = rng.integers(K, size=min(10_000, decided - start))
        drafts = [_drawn(replica, vectors, int(k), start + n) for n, k in enumerate(chosen)]
        ledger.commit(drafts)
        waiting = len(drafts) * 2 * UPLOADED // decided + 1
        pending += [to_text(draft.id) for draft in drafts[:waiting]]
        luck = (rng.random(len(drafts)) < MEAN).astype(float).tolist()
        rewarded = list(zip(drafts, luck, strict=True))[waiting:]
        ledger.commit([Draft(Kind.REWARDED, "shop", d.id, d.time + 1000, y) for d, y in rewarded])
    ledger.close()
    os.sync()  # else the disk is busy with it while the first rows are measured
    return pending


def _drawn(replica: Replica, vectors: np.ndarray, k: int, n: int) -> Draft:
    subject = f"subject-{n % SUBJECTS}"
    body = Decided(vectors[k].tobytes(), f"action-{k}", k, 1.0, n, "p", 0.0, 0.0, 0.0)
    return Draft(
        Kind.DECIDED,
        "shop",
        replica.ids(),
        replica.clock(),
        body=msgspec.msgpack.encode(body),
        subject=subject,
    )


# ---------------------------------------------------------------------------------- measuring


class Connection:
    """One request after the other."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> "Connection":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._writer.close()

    async def send(self, message: bytes) -> None:
        self._writer.write(message)
        head = await self._reader.readuntil(b"\r\n\r\n")
        at = head.lower().index(b"content-length:") + 15
        await self._reader.readexactly(int(head[at : head.index(b"\r", at)]))
        if not head.startswith(b"HTTP/1.1 20"):
            raise RuntimeError(head.decode())


async def probe(port: int, path: bytes, latencies: list[float], over: asyncio.Event) -> None:
    async with Connection(port) as connection:
        while not over.is_set():
            sent = time.perf_counter()
            await connection.send(path)
            latencies.append(time.perf_counter() - sent)
            await asyncio.sleep(PAUSE)


class Ports(NamedTuple):
    """The service, and a server that does nothing else but answer."""

    service: int
    bare: int


class Meanwhile(NamedTuple):
    """How long something took, and answers meanwhile, in seconds."""

    seconds: float
    latencies: list[float]  # of decisions
    health: list[float]
    bare: list[float]


async def ask_health(ports: Ports, seen: Meanwhile, over: asyncio.Event) -> None:
    """Ask both servers in turn, each time on a connection of its own."""
    while not over.is_set():
        for port, latencies in ((ports.service, seen.health), (ports.bare, seen.bare)):
            sent = time.perf_counter()
            await once(port, "GET", "/healthz")
            latencies.append(time.perf_counter() - sent)
        await asyncio.sleep(PAUSE)


async def during(ports: Ports, act: Callable[[], Awaitable[None]]) -> Meanwhile:
    seen, over = Meanwhile(0.0, [], [], []), asyncio.Event()
    asking = [probe(ports.service, DECISION, seen.latencies, over) for _ in range(PROBES)]
    probes = [asyncio.create_task(ask) for ask in (*asking, ask_health(ports, seen, over))]
    started = time.perf_counter()
    await act()
    seconds = time.perf_counter() - started
    over.set()
    await asyncio.gather(*probes)
    return seen._replace(seconds=seconds)


def uploads(ids: list[str], mean: float) -> list[bytes]:
    """Requests with rewards: made before anything is measured."""
    luck = (np.random.default_rng(3).random(UPLOADED) < mean).astype(float).tolist()
    pairs = zip(ids, luck, strict=False)
    rewards = [{"decision_id": id, "reward": reward} for id, reward in pairs]
    return [
        request("/v1/rewards", msgspec.json.encode({"rewards": rewards[k : k + BATCH]}))
        for k in range(0, UPLOADED, BATCH)
    ]


async def upload(port: int, messages: list[bytes]) -> None:
    left = iter(messages)

    async def send() -> None:
        async with Connection(port) as connection:
            for message in left:
                await connection.send(message)

    await asyncio.gather(*(send() for _ in range(4)))


async def once(port: int, method: str, path: str) -> None:
    async with Connection(port) as connection:
        await connection.send(request(path, b"", method))


async def scrape(port: int) -> None:
    end = time.perf_counter() + SCRAPING
    while time.perf_counter() < end:
        await once(port, "GET", "/metrics")
        await asyncio.sleep(0.05)


async def snapshot(url: str, folder: str) -> None:
    """As the service makes one by itself."""
    command = [sys.executable, "-m", "belated", "ledger", "snapshot", url, "--folder", folder]
    made = await asyncio.to_thread(
        subprocess.run, command, stdout=subprocess.DEVNULL, check=True, start_new_session=True
    )
    assert made.returncode == 0


class Row(NamedTuple):
    """Of the table."""

    name: str
    seen: Meanwhile
    quiet: float  # 99th percentile, in milliseconds

    @property
    def ratio(self) -> float:
        return percentile(self.seen.latencies, 99) / self.quiet

    @property
    def is_allowed(self) -> bool:
        return self.name in NOT_ASKED or self.ratio <= ALLOWED

    @property
    def health_was_late(self) -> bool:
        return is_late(max(self.seen.health) * 1e3, max(self.seen.bare) * 1e3)

    def __str__(self) -> str:
        latencies = self.seen.latencies
        middle, far = percentile(latencies, 50), percentile(latencies, 99)
        times = f"{middle:.1f} | {far:.1f} | {max(latencies) * 1e3:.1f}"
        return (
            f"| {self.name} | {self.seen.seconds:.1f} | {len(latencies):,} | {times} "
            f"| {self.quiet:.1f} | {self.ratio:.1f}{' (not asked)' * (self.name in NOT_ASKED)} |"
        )


def is_late(health: float, bare: float) -> bool:
    """Tells whether the service took too long about health, and a bare server did not.

    >>> is_late(51.0, 7.0), is_late(51.0, 70.0), is_late(9.0, 7.0)
    (True, False, False)
    """
    return health > SLOWEST_HEALTH >= bare


def slowest(seconds: list[float]) -> str:
    """The longest of some answers in milliseconds; in bold where it took too long.

    >>> slowest([0.003, 0.0501]), slowest([0.003])
    ('**50.1**', '3.0')
    """
    longest = max(seconds) * 1e3
    return f"**{longest:.1f}**" if longest > SLOWEST_HEALTH else f"{longest:.1f}"


async def measured(ports: Ports, url: str, folder: str, ids: list[str]) -> list[Row]:
    port, rows = ports.service, []
    rewards, shifting = uploads(ids, MEAN), uploads(ids[UPLOADED:], 1.0)
    explained = f"/v1/decisions/{ids[-1]}?explain=true"
    doings: dict[str, Callable[[], Awaitable[None]]] = {
        f"{UPLOADED:,} rewards uploaded": lambda: upload(port, rewards),
        f"erasure among {EVENTS:,} events": lambda: once(
            port, "DELETE", "/v1/bandits/shop/subjects/subject-7"
        ),
        "snapshot": lambda: snapshot(url, folder),
        "metrics scraped 20 times a second": lambda: scrape(port),
        "explain": lambda: once(port, "GET", explained),
        SHIFTING: lambda: upload(port, shifting),
    }
    await quiet(ports)  # what is only slow once
    before = await quiet(ports)
    for name, act in doings.items():
        told(name)
        seen = await during(ports, act)
        after = await quiet(ports)
        rows.append(Row(name, seen, percentile(before + after, 99)))
        before = after
    return rows


async def quiet(ports: Ports) -> list[float]:
    """Latencies while nothing else is done."""
    return (await during(ports, lambda: asyncio.sleep(QUIET))).latencies


def percentile(seconds: list[float], q: int) -> float:
    """In milliseconds."""
    return float(np.percentile(seconds, q)) * 1e3


def one_run() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/shop.db"
        told(f"writing a log of {EVENTS:,} events")
        ids = fill(url)
        told("starting the service")
        with running(server, url, f"{folder}/snapshots") as live, bare_server() as bare:
            ports = Ports(live.port, bare)
            return uvloop.run(measured(ports, url, f"{folder}/snapshots", ids))


def median_run(rows: tuple[Row, ...]) -> Row:
    """Returns the row whose ratio is the median; of an even number, the lower one."""
    median = median_low(row.ratio for row in rows)
    return next(row for row in rows if row.ratio == median)


def line_of(runs: tuple[Row, ...]) -> str:
    """The row with the median ratio, with the longest checks of health of every run."""
    health = ", ".join(slowest(row.seen.health) for row in runs)
    bare = ", ".join(slowest(row.seen.bare) for row in runs)
    return f"{median_run(runs)} {health} | {bare} |"


def table() -> tuple[list[str], bool]:
    """The lines of the page, and whether each ratio is allowed and health was in time."""
    rows = list(zip(*(one_run() for _ in range(RUNS)), strict=True))
    lines = [
        f"| meanwhile | seconds | decisions | median ms | 99 % ms | longest ms "
        f"| quiet 99 % ms | ratio (asked: at most {ALLOWED:g}) | longest /healthz ms, every run "
        "| of a bare server ms, every run |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *map(line_of, rows),
    ]
    in_time = not any(row.health_was_late for runs in rows for row in runs)
    return lines, in_time and all(median_run(runs).is_allowed for runs in rows)


if __name__ == "__main__":
    printed, held = table()
    print("\n".join(printed))
    sys.exit(not held)
