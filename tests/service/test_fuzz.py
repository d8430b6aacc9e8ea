"""Mutated requests: no answer from 500 up, no traceback, no change of state by what is refused.

BELATED_FUZZED=1000000 for the long run.
"""

import asyncio
import os
import random
import re
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context

import pytest

from belated.ledger import ids
from belated.ledger.stores.memory import MemoryLedger
from belated.service import deciding
from belated.service.routes import new_api
from belated.service.service import Service
from support import fuzzing
from support.fuzz_requests import BANDITS, Mutator, Request, Valid, encoded
from support.fuzzing import Target, fuzz

PART = 50_000
REQUESTS = int(os.environ.get("BELATED_FUZZED", "20000"))


def fuzz_on_all_cores(seed, n):
    """Many requests are cut into parts, each with a seed of its own."""
    if n <= PART:
        return fuzz(seed, n)
    counts = Counter()
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for more, failure in pool.map(fuzz, range(seed, seed + n // PART), repeat(PART)):
            counts += more
            if failure is not None:
                return counts, failure
    return counts, None


@pytest.mark.slow
def test_mutated_requests_are_served_or_refused():
    counts, failure = fuzz_on_all_cores(1, REQUESTS)
    refused = sum(n for status, n in counts.items() if status >= 400)
    print(f"{sum(counts.values())} requests, {refused} refused, {int(failure is not None)} failed")
    assert failure is None, failure
    assert sum(counts.values()) == REQUESTS
    for status in (200, 201, 204, 400, 401, 404, 405, 409, 413, 415, 422):
        assert counts[status] > REQUESTS / 10_000, status
    assert counts[200] > REQUESTS / 10  # enough get through to do harm


def test_every_operation_is_among_the_requests():
    valid = Valid(random.Random(1))
    sent = {valid.request()[:2] for _ in range(20_000)}
    api = new_api(Service("memory://", ledger=MemoryLedger()))
    for operation in api.operations:
        pattern = re.sub("{.*?}", "[^/]+", operation.path)
        assert any(
            method == operation.method and re.fullmatch(pattern, path) for method, path in sent
        ), f"{operation.method} {operation.path}"


def test_a_seed_decides_everything():
    assert fuzz(3, 500) == fuzz(3, 500)


@pytest.mark.parametrize(
    ("module", "name", "mistake"),
    [
        (deciding, "ask_of", KeyError),
        (ids, "from_text", ZeroDivisionError),
    ],
)
def test_a_mistake_in_the_service_is_found(monkeypatch, module, name, mistake):
    correct = getattr(module, name)

    def rarely_wrong(argument):
        if getattr(argument, "subject", argument) in ("\0", " ", "1", "a", "é", "nan"):
            raise mistake
        return correct(argument)

    monkeypatch.setattr(module, name, rarely_wrong)
    _, failure = fuzz(1, 20_000)
    assert failure is not None
    assert mistake.__name__ in failure.why


def test_a_refused_request_that_leaves_a_trace_is_found(monkeypatch):
    correct = fuzzing.Target.ask

    async def parks_what_it_refuses(self, request):
        answer = await correct(self, request)
        if answer[0] == 415:
            self.service.ledger._parked[b"x"] = None
        return answer

    monkeypatch.setattr(fuzzing.Target, "ask", parks_what_it_refuses)
    _, failure = fuzz(1, 2000)
    assert failure is not None
    assert "the state changed" in failure.why


# ---------------------------------------------------------------------- what the fuzzer found


def answer(method, path, body):
    target = Target(1)

    async def one():
        headers = Mutator(None, target.key).headers
        for made, settings in BANDITS.items():
            put = Request("PUT", f"/v1/bandits/{made}", "", headers, encoded(settings))
            await target.ask(put)
        return await target.ask(Request(method, path, "", headers, encoded(body)))

    return asyncio.run(one())


HUGE = {"hashed": {"a": 1000, "b": 1000}, "interactions": [["a", "b"]]}  # a million columns


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PATCH", "/v1/bandits/rich/actions", {"put": {"a": {"ad": 10**30}}}, 422),
        ("POST", "/v1/bandits/rich/decisions", {"context": {"user": 2**64}}, 422),
        ("PATCH", "/v1/bandits/plain/actions", {"put": {"a": [1e308, 1e308]}}, 422),
        ("PUT", "/v1/bandits/huge", {"family": "bernoulli", "features": HUGE}, 422),
    ],
)
def test_what_was_once_a_mistake(method, path, body, status):
    assert answer(method, path, body)[0] == status
