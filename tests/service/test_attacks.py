"""Attacks and faults against the real service, with counts; requests of others go on meanwhile.

Each has a size that ``benchmarks/reliability.py`` raises, and prints what it found.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from threading import Event, Thread

import numpy as np
import pytest
from test_replicas import decide, make_shop, reward, settled
from test_workers import callers_by_worker, port_of, served

from belated.service.http.limits import Limits
from support.attackers import (
    PAUSE,
    attackers,
    bodies_in_tiny_chunks,
    endless_headers,
    half_sent_requests,
    idle_connections,
)
from support.bare_server import bare_server
from support.event_loop import HOLDER
from support.live_server import Caller, Gone, LiveServer
from support.postgres_server import foreign_transactions
from support.serving import CONFIG, ended

pytestmark = pytest.mark.slow

HEADERS = int(os.environ.get("ATTACK_HEADERS", "5"))
BODIES = int(os.environ.get("ATTACK_BODIES", "5"))
SLOW = int(os.environ.get("ATTACK_SLOW", "50"))
HEADER_SECONDS = float(os.environ.get("ATTACK_HEADER_SECONDS", "1"))
IDLE = int(os.environ.get("ATTACK_IDLE", "300"))
MOST = int(os.environ.get("ATTACK_CONNECTIONS", "100"))  # connections at a time
HELD_SECONDS = float(os.environ.get("ATTACK_HELD_SECONDS", "1"))
FOREIGN = int(os.environ.get("ATTACK_FOREIGN", "20"))
KILLS = int(os.environ.get("ATTACK_WORKER_KILLS", "2"))
QUIET = int(os.environ.get("ATTACK_QUIET", "20"))  # decisions before an attack


class Health(Thread):
    """Somebody who asks for the health all the time, each time on a connection of its own.

    In turn a bare server is asked, which does nothing else: an answer of its that is late tells
    that the machine had no time for anybody.
    """

    def __init__(self, port, bare):
        super().__init__(daemon=True)
        self.port, self.bare = port, bare
        self.statuses, self.slowest, self.slowest_bare = [], 0.0, 0.0
        self._enough = Event()

    def run(self):
        while not self._enough.wait(0.01):
            status, seconds = self._ask(self.port)
            self.statuses.append(status)
            self.slowest = max(self.slowest, seconds)
            self.slowest_bare = max(self.slowest_bare, self._ask(self.bare)[1])

    def _ask(self, port):
        caller, started = Caller(port), time.perf_counter()
        try:
            status = caller("GET", "/healthz").status
        except Gone:
            status = None
        finally:
            caller.close()
        return status, time.perf_counter() - started

    def stop(self):
        self._enough.set()
        self.join()

    def __str__(self):
        answered = self.statuses.count(200)
        slowest = f"the slowest after {1e3 * self.slowest:.0f} ms"
        bare = f"(of a bare server {1e3 * self.slowest_bare:.0f} ms)"
        return f"{answered} of {len(self.statuses)} health checks answered, {slowest} {bare}"


@contextmanager
def watched(server):
    """The health of a server is asked for meanwhile, and is always told."""
    with bare_server() as bare:
        health = Health(server.port, bare)
        health.start()
        try:
            yield health
        finally:
            health.stop()
    assert set(health.statuses) <= {200}


class Decisions:
    """How long decisions took while nothing else was done, and during an attack."""

    def __init__(self):
        self.quiet, self.during = [], []

    def decide(self, server, times):
        started = time.perf_counter()
        decision = decide(server)
        times.append(time.perf_counter() - started)
        time.sleep(0.02)
        return decision

    def before(self, server):
        for _ in range(QUIET):
            self.decide(server, self.quiet)

    def until_over(self, server, attack):
        """Decisions go on as long as the attack."""
        self.decide(server, self.during)
        while not attack.done():
            self.decide(server, self.during)
        return attack.result()

    def __str__(self):
        during, quiet = (1e3 * np.percentile(times, 99) for times in (self.during, self.quiet))
        return f"99 % of decisions within {during:.0f} ms (before the attack {quiet:.0f} ms)"


def test_endless_headers():
    taken, said = until_all_are_cut(endless_headers, HEADERS)
    sent = f"{taken / HEADERS / 1e6:.1f} MB sent of each"
    print(f"{HEADERS} headers without end, {sent}; {said}")


def test_bodies_in_tiny_chunks():
    taken, said = until_all_are_cut(bodies_in_tiny_chunks, BODIES)
    sent = f"{taken / BODIES / 1e6:.1f} MB sent of each"
    print(f"{BODIES} bodies in chunks of a byte, {sent}; {said}")


def until_all_are_cut(attack, count):
    """The bytes that were sent on that many connections, and how others fared meanwhile."""
    decisions = Decisions()
    with LiveServer("memory://") as server, attackers() as others:
        make_shop(server)
        decisions.before(server)
        with watched(server) as health:
            under_way = others.submit(attack, server.port, count)
            taken = decisions.until_over(server, under_way)
    # what the buffers of both ends hold, and no more
    assert taken < 10_000_000 * count
    return taken, f"{health}; {decisions}"


def test_slow_and_half_sent_requests():
    limits = Limits(header_seconds=HEADER_SECONDS, body_seconds=2 * HEADER_SECONDS)
    decisions = Decisions()
    with LiveServer("memory://", limits=limits) as server, attackers() as others:
        make_shop(server)
        decisions.before(server)
        with watched(server) as health:
            seconds = 60.0 + 4 * HEADER_SECONDS
            attack = others.submit(half_sent_requests, server.port, SLOW, seconds)
            decisions.until_over(server, attack)
    print(f"{SLOW} slow and {SLOW} half-sent requests, all closed; {health}; {decisions}")


def test_idle_connections():
    check_idle_connections(PAUSE)


def test_idle_connections_faster_than_they_can_be_accepted():
    """Whoever comes meanwhile waits in the queue of the system, or tries again after a second."""
    check_idle_connections(0.0)


def check_idle_connections(pause):
    limits, decisions = Limits(max_connections=MOST), Decisions()
    with LiveServer("memory://", limits=limits) as server, attackers() as others:
        make_shop(server)
        decisions.before(server)
        with watched(server) as health:
            attack = others.submit(idle_connections, server.port, IDLE, MOST, pause)
            seconds = decisions.until_over(server, attack)
    opened = f"{IDLE} idle connections opened in {seconds:.1f} s, at most {MOST} of them open"
    print(f"{opened}; {health}; {decisions}")


def test_a_lock_that_another_process_holds(tmp_path):
    with LiveServer(f"sqlite:///{tmp_path}/shop.db") as server:
        make_shop(server)
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path / "shop.db")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with holder, watched(server) as health:
            assert holder.stdout.readline() == b"held\n"
            time.sleep(HELD_SECONDS)
            holder.communicate(b"\n")
        decide(server)  # and it goes on
    print(f"{HELD_SECONDS:g} s in which another process held the file; {health}")


def test_foreign_transactions(postgres):
    url, elsewhere = (postgres.new_database(f"attacks_{k}") for k in range(2))
    decisions = Decisions()
    with LiveServer(url) as one, LiveServer(url) as two:
        make_shop(one)
        decisions.before(one)
        with foreign_transactions(url, elsewhere), watched(one) as health:
            settled(one, two)
            for _ in range(FOREIGN):
                id = decisions.decide(one, decisions.during)
                assert reward(two, (id, 1.0)) == ["accepted"]
                settled(one, two)
        learnt = [
            server.call("GET", "/v1/bandits/shop").body["n_observed"] for server in (one, two)
        ]
    assert learnt == [FOREIGN, FOREIGN]
    learnt_by = f"{FOREIGN} rewards learnt by both replicas beside two open transactions"
    print(f"{learnt_by}; {health}; {decisions}")


def test_killed_workers(tmp_path):
    (tmp_path / "bandits.toml").write_text(CONFIG)
    made, answers, decisions = [], [], Decisions()
    with served(tmp_path) as (process, url):
        port, enough = port_of(url), Event()

        def ask():
            while not enough.is_set():
                caller, started = Caller(port), time.perf_counter()
                times = decisions.during if len(made) >= QUIET else decisions.quiet
                try:
                    answer = caller("POST", "/v1/bandits/plain/decisions", {})
                    times.append(time.perf_counter() - started)
                    answers.append(answer.status)
                    made.append(answer.body["decision_id"])
                except Gone:
                    answers.append(None)  # met the one that was killed
                finally:
                    caller.close()

        asking = Thread(target=ask)
        asking.start()
        while len(made) < QUIET:
            time.sleep(0.01)
        try:
            for _ in range(KILLS):
                with ExitStack() as stack:
                    victim = next(iter(callers_by_worker(port, stack)))
                os.kill(victim, signal.SIGKILL)
                time.sleep(0.5)
        finally:
            enough.set()
            asking.join()
        caller = Caller(port)
        lost = sum(caller("GET", f"/v1/decisions/{id}").status != 200 for id in made)
        caller.close()
        assert ended(process)[0] == 0
    assert set(answers) <= {200, None}
    assert lost == 0
    said = f"{KILLS} workers killed, {len(made)} decisions acknowledged, {lost} lost"
    no_answer = f"{answers.count(None)} requests met the killed ones and had no answer"
    print(f"{said}; {no_answer}; {decisions}")
