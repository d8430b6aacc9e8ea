"""API keys, rate limits and the access log, alone and on a toy API."""

import hmac
import io
import itertools
import json
import logging
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from belated.ledger.events import KeyChange
from belated.service.http import access_log as logs
from belated.service.http.access import Gate, KeyRing, RateLimit, new_key
from belated.service.http.api import Api, Call
from support.toy_api import THINGS, TOY, ask, check_problem, post, ring_with, serve_once, toy

# Keys


def test_a_key_and_what_is_kept_of_it():
    text, id, secret_hash = new_key()
    prefix, shown_id, secret = text.split("_", 2)
    assert (prefix, shown_id) == ("bel", id)
    assert secret_hash == sha256(secret.encode()).hexdigest()
    assert len(secret) == 43  # 256 bits, six to a letter
    assert new_key().text != text


def test_only_the_whole_key_opens():
    ring, [text, other] = ring_with(("", ("read",)), ("", ("read",)))
    _, id, secret = text.split("_", 2)
    assert ring.check(text).id == id
    wrong = [
        "",
        "bel",
        f"bel_{id}",
        f"bel_{id}_",
        text[:-1],
        text + "a",
        text.replace("bel_", "abc_"),
        f"bel__{secret}",
        f"bel_{id}_{other.split('_', 2)[2]}",
        f"bel_{'0' * 16}_{secret}",
        f"bel_{'0' * 16}_",  # the secret of the dummy that unknown ids are compared with
        "bel_é_\ud800",
    ]
    assert [ring.check(attempt) for attempt in wrong] == [None] * len(wrong)


def test_every_check_compares_in_constant_time(monkeypatch):
    ring, [text, revoked] = ring_with(("", ("read",)), ("", ("read",)))
    ring.put(KeyChange(revoked.split("_")[1], "", "", "", (), revoked=True))
    compare, lengths = hmac.compare_digest, []

    def noting_compare(a, b):
        lengths.append((len(a), len(b)))
        return compare(a, b)

    monkeypatch.setattr(hmac, "compare_digest", noting_compare)
    attempts = [text, text[:-1], revoked, "bel_unknown_secret", "nonsense", ""]
    found = [ring.check(attempt) is not None for attempt in attempts]
    assert found == [True, False, False, False, False, False]
    assert lengths == [(64, 64)] * len(attempts)


def test_a_ring_is_open_until_it_has_had_a_key():
    ring = KeyRing()
    assert ring.is_open
    text, id, secret_hash = new_key()
    key = KeyChange(id, "first", secret_hash, "", ("read",))
    ring.put(key)
    assert not ring.is_open
    assert ring.check(text) == key
    ring.put(replace(key, revoked=True))
    assert ring.check(text) is None
    assert not ring.is_open  # the last key is gone, but the door stays shut


def key_headers(text):
    return {"x-api-key": text}


def test_open_mode_lets_everybody_in():
    app = toy(Gate(KeyRing())).app()
    assert ask(app, "GET", THINGS).status_code == 200
    assert ask(app, "GET", THINGS, headers=key_headers("nonsense")).status_code == 200


def test_without_a_valid_key():
    ring, [text] = ring_with(("", ("read",)))
    app = toy(Gate(ring)).app()
    answer = ask(app, "GET", THINGS)
    check_problem(answer, 401, "no-valid-key")
    assert answer.headers["www-authenticate"] == 'Bearer realm="belated"'
    wrong = [key_headers(text + "x"), {"authorization": f"Bearer {text}x"}, key_headers("")]
    for headers in wrong:
        answer = ask(app, "GET", THINGS, headers=headers)
        check_problem(answer, 401, "no-valid-key")
        assert answer.headers["www-authenticate"].endswith('error="invalid_token"')
        assert text not in answer.text
    check_problem(
        ask(app, "GET", THINGS, headers={"authorization": f"Basic {text}"}), 401, "no-valid-key"
    )
    assert ask(app, "GET", "/alive").status_code == 200
    assert ask(app, "GET", "/openapi.json").status_code == 200


def test_with_a_valid_key():
    ring, [text] = ring_with(("", ("read",)))
    app = toy(Gate(ring)).app()
    for headers in (
        key_headers(text),
        {"authorization": f"Bearer {text}"},
        {"authorization": f"bearer  {text} "},
    ):
        assert ask(app, "GET", THINGS, headers=headers).status_code == 200


def test_scopes_and_bandits():
    ring, [reader, of_shelf_a] = ring_with(("", ("read",)), ("a", ("read", "decide", "reward")))
    app = toy(Gate(ring)).app()
    body = {"label": "a"}
    refused = ask(app, "POST", THINGS, headers=key_headers(reader), json=body)
    assert "read, not decide" in check_problem(refused, 403, "forbidden")["detail"]
    made = ask(app, "POST", THINGS, headers=key_headers(of_shelf_a), json=body)
    assert made.status_code == 201
    assert ask(app, "GET", "/shelves/b/things", headers=key_headers(reader)).status_code == 200
    refused = ask(app, "GET", "/shelves/b/things", headers=key_headers(of_shelf_a))
    assert "'a', not 'b'" in check_problem(refused, 403, "forbidden")["detail"]


def test_a_key_is_asked_for_before_the_body_is_looked_at():
    ring, [reader] = ring_with(("", ("read",)))
    app = toy(Gate(ring)).app()
    check_problem(post(app, THINGS, b"{"), 401, "no-valid-key")
    headers = key_headers(reader)
    check_problem(ask(app, "POST", THINGS, headers=headers, content=b"{"), 403, "forbidden")


def test_paths_without_a_bandit_need_a_key_for_all_of_them_unless_the_handler_looks():
    ring, [of_a, of_all] = ring_with(("a", ("admin",)), ("", ("admin",)))
    api = Api("Two", "1", Gate(ring))

    @api.route("GET", "/all", answers={200: None}, needs="admin")
    async def everything() -> None:
        """Everything."""

    @api.route("GET", "/some", answers={200: str}, needs="admin", checks_bandit=True)
    async def some(call: Call) -> str:
        """What the key is for."""
        return call.key.bandit

    app = api.app()
    check_problem(ask(app, "GET", "/all", headers=key_headers(of_a)), 403, "forbidden")
    assert ask(app, "GET", "/all", headers=key_headers(of_all)).status_code == 200
    assert ask(app, "GET", "/some", headers=key_headers(of_a)).json() == "a"


# Rates


class Clock:
    def __init__(self):
        self.now = 1e9

    def __call__(self):
        return self.now


def test_a_rate_limit_gives_a_burst_and_then_a_rate():
    clock = Clock()
    limit = RateLimit(per_second=2.0, burst=3, clock=clock)
    assert [limit.wait("a") for _ in range(5)] == [0.0, 0.0, 0.0, 0.5, 0.5]
    assert limit.wait("b") == 0.0  # has a bucket of its own
    clock.now += 0.25
    assert limit.wait("a") == 0.25
    clock.now += 0.25
    assert [limit.wait("a"), limit.wait("a")] == [0.0, 0.5]
    clock.now += 1000.0
    assert [limit.wait("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    for per_second, burst in ((0.0, 1), (1.0, 0.5), (float("nan"), 1), (1.0, float("inf"))):
        with pytest.raises(ValueError, match=r"per_second = |burst = "):
            RateLimit(per_second, burst)


@given(
    st.integers(1, 8),
    st.integers(1, 5),
    st.lists(st.integers(0, 24), min_size=1, max_size=60),
)
def test_no_stretch_of_time_lets_more_pass_than_burst_and_rate(per_second, burst, gaps):
    clock = Clock()
    limit = RateLimit(per_second, burst, clock)
    passed = []
    for gap in gaps:
        clock.now += gap / 16  # exact in floats, as the clock is
        wait = limit.wait("a")
        if wait == 0.0:
            passed.append(clock.now)
        else:  # refused with reason: one more would have been too many for some stretch
            stretches = [(len(passed) - i + 1, clock.now - t) for i, t in enumerate(passed)]
            assert any(n > burst + per_second * length - 1e-6 for n, length in stretches)
    for i, start in enumerate(passed):
        for j in range(i, len(passed)):
            assert j - i + 1 <= burst + per_second * (passed[j] - start) + 1e-6


def test_too_many_requests():
    clock = Clock()
    ring, [text, other] = ring_with(("", ("read",)), ("", ("read",)))
    app = toy(Gate(ring, RateLimit(0.4, 1, clock))).app()
    assert ask(app, "GET", THINGS, headers=key_headers(text)).status_code == 200
    answer = ask(app, "GET", THINGS, headers=key_headers(text))
    document = check_problem(answer, 429, "too-many-requests")
    assert (answer.headers["retry-after"], document["retry_after"]) == ("3", 3)  # 2.5, rounded up
    assert ask(app, "GET", THINGS, headers=key_headers(other)).status_code == 200
    clock.now += 3
    assert ask(app, "GET", THINGS, headers=key_headers(text)).status_code == 200


# Logs


@pytest.fixture
def access_log():
    stream = io.StringIO()
    handler = logs.write_access_log(stream)
    yield stream
    logs.logger.removeHandler(handler)
    logs.logger.setLevel(logging.NOTSET)
    logs.logger.propagate = True


def test_the_access_log_tells_no_secrets(access_log):
    ring, [text] = ring_with(("", ("read", "decide")))
    times = itertools.count(100.0, 0.25)
    app = logs.AccessLog(toy(Gate(ring)).app(), clock=lambda: next(times))
    ask(app, "POST", THINGS, headers=key_headers(text), json={"label": "private"})
    ask(app, "GET", f"{THINGS}?limit=private", headers={"authorization": f"Bearer {text}"})
    ask(app, "GET", "/nowhere%0A{}")
    lines = [json.loads(line) for line in access_log.getvalue().splitlines()]
    assert len({line.pop("x_request_id") for line in lines}) == 3
    id, secret = text.split("_", 2)[1:]
    common = {"path": THINGS, "ms": 250.0, "key": id}
    assert lines[0] == common | {"time": 100.25, "method": "POST", "status": 201, "decision": "0"}
    assert lines[1] == common | {"time": 100.75, "method": "GET", "status": 422, "decision": None}
    assert lines[2]["path"] == "/nowhere\n{}"
    assert (lines[2]["status"], lines[2]["key"]) == (404, None)
    assert len(lines) == 3
    assert secret not in access_log.getvalue()
    assert "private" not in access_log.getvalue()


def test_the_access_log_of_a_client_that_left(access_log):
    messages = iter([{"type": "http.disconnect"}])
    assert serve_once(logs.AccessLog(TOY), messages) == []
    assert json.loads(access_log.getvalue())["status"] is None


def test_the_access_log_is_off_by_default(caplog):
    def clock():
        raise AssertionError("asked for the time")

    assert ask(logs.AccessLog(TOY, clock), "GET", "/alive", raises=True).status_code == 200
    assert caplog.records == []
