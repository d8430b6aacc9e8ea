"""``belated serve --workers``: several processes that look like one."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing
from unittest.mock import Mock

import httpx2
import pytest

from belated.service.serving import Worker
from belated.service.workers import Board, new_board
from support.live_server import Caller, Gone
from support.serving import CONFIG, ENVIRONMENT, ended, serving, until

HOLD = "import sys; from belated.service.workers import Board; board = Board(sys.argv[1]);"
HOLD += "print(board._start // 8, board.is_first, flush=True); sys.stdin.read(1); board.tell();"
HOLD += "print('told', flush=True); sys.stdin.read()"
WAIT = """
import asyncio
from belated.service.workers import until_ready

class Reading:
    @property
    def ready(self):
        print("reading", flush=True)
        return False

asyncio.run(until_ready(Reading()))
"""


def python(code, *args):
    return subprocess.Popen(
        [sys.executable, "-c", code, *args],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_each_worker_has_a_slot_of_its_own_which_the_next_one_gets():
    with new_board() as path, closing(Board(path)) as first:
        assert first.is_first
        for _ in range(2):
            with python(HOLD, path) as second:
                assert second.stdout.readline() == "1 False\n"
                seen = first.others()
                first.tell()
                assert first.others() == seen, "only what others write is news"
                second.stdin.write("x")
                second.stdin.flush()
                assert second.stdout.readline() == "told\n"
                assert first.others() != seen
                second.kill()


def test_an_erasure_waits_for_workers_that_live_and_have_not_rebuilt():
    with new_board() as path, closing(Board(path)) as first:
        assert first.others_rebuilt(7), "there are no others"
        with python(HOLD.replace("tell()", "tell_rebuilt(7)"), path) as second:
            second.stdout.readline()
            assert not first.others_rebuilt(1)
            second.stdin.write("x")
            second.stdin.flush()
            assert second.stdout.readline() == "told\n"
            assert first.others_rebuilt(7)
            assert not first.others_rebuilt(8)
            second.kill()
            second.wait()
            assert first.others_rebuilt(8), "whoever is dead knows nothing"


def test_a_worker_that_still_reads_its_log_ends_when_it_is_told_to():
    with python(WAIT) as process:
        assert process.stdout.readline() == "reading\n"
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait() == 0


def port_of(url):
    return int(url.rstrip("/").rpartition(":")[2])


def worker(caller):
    """The pid of the process at the other end of a connection."""
    return int(re.search(r'belated_worker_info{pid="(\d+)"}', caller("GET", "/metrics").body)[1])


def callers_by_worker(port, stack, n_workers=2, tls=None):
    """A connection to each of the workers; the second one may have to read its log first."""
    callers = {}

    def all_met():
        caller = Caller(port, tls=tls)
        stack.callback(caller.close)
        if caller("GET", "/readyz").status == 200:  # the first one answers before it is ready
            callers.setdefault(worker(caller), caller)
        return len(callers) == n_workers

    until(all_met)
    return callers


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "bandits.toml").write_text(CONFIG)
    return tmp_path


def served(folder, ledger="sqlite:///belated.db"):
    settings = ("--workers", "2", "--config", "bandits.toml", "--ledger", ledger)
    return serving(*settings, cwd=folder)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_what_one_worker_acknowledged_the_other_sees(request, folder, store):
    """It was up to 50 ms behind."""
    ledger = "sqlite:///belated.db"
    if store == "postgres":
        ledger = request.getfixturevalue("postgres").new_database("workers")
    with served(folder, ledger) as (process, url), ExitStack() as stack:
        one, other = callers_by_worker(port_of(url), stack).values()
        for n in range(8):
            bandit = f"/v1/bandits/b{n}"
            assert one("PUT", bandit, {"family": "bernoulli", "dim": 1}).status == 201
            change = {"put": {"a": [0.5], "b": [1.0]}}
            assert other("PATCH", f"{bandit}/actions", change).status == 200
            for k in range(1, 11):
                decision = one("POST", f"{bandit}/decisions", {})
                assert decision.status == 200, decision
                reward = {"rewards": [{"decision_id": decision.body["decision_id"], "reward": 1}]}
                assert other("POST", "/v1/rewards", reward).body == {"statuses": ["accepted"]}
                state = one("GET", bandit).body
                assert (state["n_decided"], state["n_observed"]) == (k, k)
                one, other = other, one
        for n in range(5):
            subject = {"subject": f"s{n}"}
            assert one("POST", "/v1/bandits/plain/decisions", subject).status == 200
            assert other("GET", "/v1/bandits/plain").body["n_decided"] == 1
            erased = other("DELETE", f"/v1/bandits/plain/subjects/s{n}")
            assert erased.body == {"decisions": 1}
            assert one("GET", "/v1/bandits/plain").body["n_decided"] == 0
            one, other = other, one
        key = one("POST", "/v1/keys", {"name": "k", "scopes": ["read"]}).body
        assert other("GET", "/v1/bandits").status == 401, "the door is closed everywhere at once"
        headers = {"X-API-Key": key["key"]}
        for _ in range(10):
            assert httpx2.get(f"{url}v1/bandits", headers=headers).status_code == 200
        assert ended(process)[0] == 0


@pytest.mark.slow
def test_a_replacement_takes_no_traffic_before_it_is_ready(folder):
    """Its first requests were answered with 503."""
    with served(folder) as (process, url), ExitStack() as stack:
        port = port_of(url)
        workers = set(callers_by_worker(port, stack))
        codes, seen, stop = [], set(), threading.Event()

        def ask():
            while not stop.is_set():
                caller = Caller(port)
                try:
                    codes.append(caller("GET", "/v1/bandits").status)
                    seen.add(worker(caller))
                except Gone:  # the one that was killed
                    codes.append(None)
                finally:
                    caller.close()
                time.sleep(0.05)  # leaves some time for the replacement

        asking = threading.Thread(target=ask)
        asking.start()
        victims = sorted(workers)
        try:
            for victim in victims:
                before = seen.copy()
                os.kill(victim, signal.SIGKILL)
                until(lambda before=before: len(seen - before - workers) >= 1, 300.0)
        finally:
            stop.set()
            asking.join()
        assert len(seen - workers) >= 2
        assert set(codes) <= {200, None}, "nobody was told to come back later"
        assert codes.count(None) < 50
        stack.close()
        assert ended(process)[0] == 0


@pytest.mark.parametrize(
    ("code", "end"),
    [
        (None, "has not answered for 15 s and is killed"),
        (-9, "died of signal 9 (Killed)"),
        (1, "ended with exit code 1"),
    ],
)
def test_the_end_of_a_worker_is_told(caplog, code, end):
    worker = object.__new__(Worker)
    worker.process = worker.parent_conn = worker.child_conn = Mock(pid=7, exitcode=code)
    worker.kill()
    worker.process.kill.assert_called_once()
    assert caplog.messages == [f"worker 7 {end}"]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["text", "json"])
def test_the_log_names_a_worker_that_was_killed(folder, format):
    """It was replaced, and nobody learnt of it."""
    settings = ("--workers", "2", "--log-format", format, "--ledger", "sqlite:///belated.db")
    with serving(*settings, cwd=folder) as (process, url), ExitStack() as stack:
        victim = next(iter(callers_by_worker(port_of(url), stack)))
        os.kill(victim, signal.SIGKILL)
        line = process.stderr.readline()
        stack.close()
        code, _, rest = ended(process)
    said = f"worker {victim} died of signal 9 (Killed)"
    if format == "json":
        told = json.loads(line)
        assert (told["level"], told["logger"], told["event"]) == (
            "warning",
            "belated.service",
            said,
        )
    else:
        assert line == f"{said}\n"
    assert (code, rest) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_when_their_parent_does(folder, monkeypatch, number):
    """Killed, it left them behind: they went on holding the port."""
    monkeypatch.setitem(ENVIRONMENT, "TMPDIR", str(folder))
    with served(folder) as (process, url), ExitStack() as stack:
        workers = list(callers_by_worker(port_of(url), stack))
        assert all(map(is_running, workers))
        assert len(list(folder.glob("belated-workers-*"))) == 1
        process.send_signal(number)
        until(lambda: not any(map(is_running, workers)))
        process.wait(timeout=30)
        with pytest.raises(httpx2.TransportError):
            httpx2.get(f"{url}healthz")
    assert not list(folder.glob("belated-workers-*"))
