"""Mutated requests against the whole app, without sockets: refused, or served, and nothing between.

A request is a valid one with a few things changed: values, types, lengths, names, ids, bytes,
headers, addresses. Whatever comes, there is no answer from 500 up, nothing is logged as an error,
and what is refused leaves no trace. ``python tests/support/fuzzing.py SEED N`` replays a run.
"""

import asyncio
import json
import logging
import random
import sys
from collections import Counter
from typing import Any, NamedTuple

import msgspec

from belated.ledger.events import NOBODY, Draft, KeyChange, Kind
from belated.ledger.stores.memory import MemoryLedger
from belated.service.app import new_app
from belated.service.http.access import new_key
from belated.service.service import Service
from support.fuzz_requests import BANDITS, COLUMNS, NOW, VECTORS, Mutator, Request, Valid, encoded

REQUESTS_OF_A_SERVICE = 4000  # then a new one: a log that only grows would slow everything down
CHECK_DIGEST_EVERY = 500


class Failure(NamedTuple):
    """A request that was not answered as it must be."""

    request: Request
    why: str


class Errors(logging.Handler):
    """What the service logs of itself."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(logging.Formatter().format(record))


class Target:
    """The app on a ledger in memory, with a clock that goes on by a second a request."""

    def __init__(self, seed: int) -> None:
        self.now = NOW
        ledger = MemoryLedger()
        self.service = Service("memory://", ledger=ledger, clock=lambda: self.now, seed=seed)
        text, id, secret_hash = new_key()
        self.key = text
        change = KeyChange(id, "fuzzer", secret_hash, "", ("admin", "decide", "read", "reward"))
        body = msgspec.msgpack.encode(change)
        ledger.commit([Draft(Kind.KEYS, "", NOBODY, NOW, body=body)])
        self.service.read_log()
        self.app = new_app(self.service, personalizer="rich")

    async def ask(self, request: Request) -> tuple[int, str, bytes]:
        """Status, media type and body of the answer."""
        sent: list[dict[str, Any]] = []
        scope = {
            "type": "http",
            "method": request.method,
            "path": request.path,
            "query_string": request.query.encode(),
            "headers": request.headers,
            "root_path": "",
        }

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": request.body}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        self.now += 1_000_000
        await self.app(scope, receive, send)
        kind = dict(sent[0]["headers"]).get(b"content-type", b"").decode()
        return sent[0]["status"], kind, sent[1]["body"]

    def stamp(self) -> tuple[Any, ...]:
        """Changes whenever the state does: all state comes from the log, and what is parked."""
        ledger = self.service.ledger
        sizes = len(ledger._events), len(ledger._parked), len(ledger._requests)
        return *sizes, self.service.replica.position

    def digests(self) -> list[str]:
        return [fold.digest() for fold in self.service.replica.folds.values()]


async def _fuzz(seed: int, n: int, counts: Counter[int], errors: Errors) -> Failure | None:
    """Up to ``n`` requests to one service."""
    rng, target = random.Random(seed), Target(seed)
    valid, mutator = Valid(rng), Mutator(rng, target.key)
    for name, settings in BANDITS.items():
        setup = [("PUT", f"/v1/bandits/{name}", settings)]
        setup.append(
            ("PATCH", f"/v1/bandits/{name}/actions", COLUMNS if name == "rich" else VECTORS)
        )
        for method, path, body in setup:
            request = Request(method, path, "", mutator.headers, encoded(body))
            status, _, said = await target.ask(request)
            assert status in (200, 201), said
    stamp, digests = target.stamp(), target.digests()
    for k in range(n):
        request = mutator.request(*valid.request())
        try:
            status, kind, body = await target.ask(request)
        except Exception as error:
            return Failure(request, f"raised {error!r}")
        counts[status] += 1
        before, stamp = stamp, target.stamp()
        if status >= 500 or errors.lines:
            return Failure(request, f"{status} {body[:300]!r} {errors.lines}")
        if status >= 400:
            if kind != "application/problem+json":
                return Failure(request, f"{status} as {kind}")
            if stamp != before:
                return Failure(request, f"{status}, but the state changed")
            if k % CHECK_DIGEST_EVERY == 0 and digests and target.digests() != digests:
                return Failure(request, f"{status}, but a digest changed")
        elif b'"decision_id":"' in body[:300]:
            id = json.loads(body).get("decision_id")
            valid.ids = [*valid.ids[-30:], id] if id else valid.ids
        if k % CHECK_DIGEST_EVERY == CHECK_DIGEST_EVERY - 1:
            digests = target.digests()
        elif stamp != before:
            digests = []
    return None


def fuzz(seed: int, n: int) -> tuple[Counter[int], Failure | None]:
    """``n`` requests, deterministic but for the keys; how many got which status."""
    counts: Counter[int] = Counter()
    errors = Errors()
    logger = logging.getLogger("belated")
    logger.addHandler(errors)
    try:
        for k in range(0, n, REQUESTS_OF_A_SERVICE):
            part = min(REQUESTS_OF_A_SERVICE, n - k)
            failure = asyncio.run(_fuzz(seed * 1_000_003 + k, part, counts, errors))
            if failure is not None:
                return counts, failure
    finally:
        logger.removeHandler(errors)
    return counts, None


if __name__ == "__main__":
    print(*fuzz(int(sys.argv[1]), int(sys.argv[2])))
