"""How long a decision takes while the service does something large, beside the quiet time.

    python benchmarks/latency.py

prints the table of docs/reliability.md (``python benchmarks/reliability.py latency`` does, too) and
ends with code 1 where a ratio is above the one that is allowed.
One server process with the default policy, on SQLite with a million events in its log; two
connections ask for a decision every few milliseconds while another one asks for the large thing.
The quiet time is measured just before and just after: a shared machine changes by the second.
Progress goes to standard error.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable

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

EVENTS = int(os.environ.get("EVENTS", "1000000"))
UPLOADED = EVENTS // 10  # rewards, twice: some like those in the log, and some that are all 1
BATCH = 1_000  # in one request
SUBJECTS = 1_000
MEAN = 0.3  # of the rewards
PROBES, PAUSE = 2, 0.002  # connections that ask for decisions, and seconds between two of theirs
QUIET, SCRAPING = 3.0, 5.0  # seconds
ALLOWED = 5.0  # times the quiet 99th percentile
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


async def during(port: int, act: Callable[[], Awaitable[None]]) -> tuple[float, list[float], float]:
    """Seconds that ``act`` took, and latencies of decisions meanwhile."""
    latencies: list[float] = []
    over = asyncio.Event()
    probes = [asyncio.create_task(probe(port, DECISION, latencies, over)) for _ in range(PROBES)]
    health: list[float] = []
    get = request("/healthz", b"", "GET")
    probes.append(asyncio.create_task(probe(port, get, health, over)))
    started = time.perf_counter()
    await act()
    seconds = time.perf_counter() - started
    over.set()
    await asyncio.gather(*probes)
    return seconds, latencies, max(health)


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


async def measured(port: int, url: str, folder: str, ids: list[str]) -> tuple[list[str], bool]:
    """The rows, and whether each ratio is one that is allowed."""
    rows, holds = [], True
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
        f"{UPLOADED:,} rewards that shift the mean uploaded": lambda: upload(port, shifting),
    }
    await quiet(port)  # what is only slow once
    before = await quiet(port)
    for name, act in doings.items():
        told(name)
        seconds, latencies, health = await during(port, act)
        after = await quiet(port)
        middle, far = percentile(latencies, 50), percentile(latencies, 99)
        usual = percentile(before + after, 99)
        holds = holds and far <= ALLOWED * usual
        times = f"{middle:.1f} | {far:.1f} | {max(latencies) * 1e3:.1f}"
        rows.append(
            f"| {name} | {seconds:.1f} | {len(latencies):,} | {times} | {usual:.1f} "
            f"| {far / usual:.1f} | {health * 1e3:.1f} |"
        )
        before = after
    return rows, holds


async def quiet(port: int) -> list[float]:
    """Latencies while nothing else is done."""
    return (await during(port, lambda: asyncio.sleep(QUIET)))[1]


def percentile(seconds: list[float], q: int) -> float:
    """In milliseconds."""
    return float(np.percentile(seconds, q)) * 1e3


def table() -> tuple[list[str], bool]:
    """The lines of the page, and whether each ratio is one that is allowed."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/shop.db"
        told(f"writing a log of {EVENTS:,} events")
        ids = fill(url)
        told("starting the service")
        with running(server, url, f"{folder}/snapshots") as live:
            rows, holds = uvloop.run(measured(live.port, url, f"{folder}/snapshots", ids))
    lines = [
        f"| meanwhile | seconds | decisions | median ms | 99 % ms | longest ms "
        f"| quiet 99 % ms | ratio (asked: at most {ALLOWED:g}) | longest /healthz ms |",
        "|---|---|---|---|---|---|---|---|---|",
        *rows,
    ]
    return lines, holds


if __name__ == "__main__":
    printed, held = table()
    print("\n".join(printed))
    sys.exit(not held)
