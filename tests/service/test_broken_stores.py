"""A store that fails: 503 or the fallback, nothing half done, and back without a restart (P9)."""

import asyncio
import os
import resource
import shutil
import subprocess
import time
from itertools import count

import pytest

from belated.ledger import StoreUnavailableError, open_ledger
from belated.ledger.events import START, Kind
from belated.ledger.stores.memory import MemoryLedger
from belated.service import service as running
from belated.service import snapshotting
from belated.service.service import Service
from support.live_server import LiveServer

PLAIN = {"family": "bernoulli", "dim": 2}
WITH_FALLBACK = {**PLAIN, "fallback": "a"}
names = (f"broken_{k}" for k in count())


def make_bandits(server):
    for name, settings in (("plain", PLAIN), ("careful", WITH_FALLBACK)):
        assert server.call("PUT", f"/v1/bandits/{name}", settings).status == 201
        put = {"put": {"a": [1.0, 0.0], "b": [0.0, 1.0]}}
        assert server.call("PATCH", f"/v1/bandits/{name}/actions", put).status == 200


def decide(server, name="plain", **body):
    return server.call("POST", f"/v1/bandits/{name}/decisions", body)


def reward(server, id):
    return server.call("POST", "/v1/rewards", {"rewards": [{"decision_id": id, "reward": 1.0}]})


def metric(server, name):
    page = server.call("GET", "/metrics").body
    (line,) = [line for line in page.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def is_503(answer):
    assert (answer.status, answer.type) == (503, "application/problem+json"), answer
    assert answer.body["type"] == "/problems/store-unavailable"
    return True


def check_refusals(server, known_id):
    """While the store is broken: told to everybody, and nothing changes."""
    before = server.digests()
    assert is_503(decide(server))
    assert is_503(decide(server, request_id="r"))
    assert is_503(reward(server, known_id))
    assert is_503(server.call("POST", f"/v1/decisions/{known_id}/cancel"))
    assert is_503(server.call("PUT", "/v1/bandits/another", PLAIN))
    answer = decide(server, "careful")
    assert answer.status == 200
    assert (answer.body["action"], answer.body["logged"]) == ("a", False)
    assert answer.body["decision_id"] is None
    assert server.digests() == before
    time.sleep(0.2)  # it looks at the log meanwhile, and a full disk can be read
    ready = server.call("GET", "/readyz")
    assert (ready.status, ready.body["status"]) == (503, "store unavailable")
    assert server.call("GET", "/healthz").status == 200
    assert metric(server, "belated_store_down") == 1.0
    assert metric(server, "belated_store_errors_total") >= 5.0
    assert server.call("GET", "/v1/bandits/plain").status == 200  # what is known can be read


def check_recovery(server, url, known_id, acknowledged):
    """Once the cause is gone, the same process goes on."""
    for _ in range(300):
        answer = decide(server)
        if answer.status == 200:
            break
        time.sleep(0.02)
    assert answer.status == 200, answer
    assert answer.body["logged"]
    acknowledged.append(answer.body["decision_id"])
    assert reward(server, known_id).body == {"statuses": ["accepted"]}
    for _ in range(300):  # the log is looked at again a little later
        answer = server.call("GET", "/readyz")
        if answer.status == 200:
            break
        time.sleep(0.02)
    assert answer.status == 200, answer
    assert metric(server, "belated_store_down") == 0.0
    assert server.process.is_alive()
    ledger = open_ledger(url)
    decided = [e for e in ledger.follow(START, 10**9)[0] if e.kind == Kind.DECIDED]
    assert len(decided) == len(acknowledged)
    ledger.close()


def break_and_mend(server, url, break_it, mend_it):
    make_bandits(server)
    known = decide(server).body["decision_id"]
    acknowledged = [known]
    break_it(acknowledged)
    check_refusals(server, known)
    mend_it()
    check_recovery(server, url, known, acknowledged)


def fill(server, acknowledged):
    """Decide until there is no more room, not even for the smallest of requests."""
    for body in ({"subject": "x" * 200}, {}):
        for _ in range(10_000):
            answer = decide(server, **body)
            if answer.status != 200:
                break
            acknowledged.append(answer.body["decision_id"])
        else:
            raise AssertionError("the disk did not fill")


# -------------------------------------------------------------------------------------- SQLite


@pytest.mark.parametrize("error", ["FullError", "ReadOnlyError", "IOError"])
def test_a_disk_that_cannot_be_written_to(tmp_path, error):
    url, breaking = f"sqlite:///{tmp_path}/ledger.db", tmp_path / "broken"
    with LiveServer(url, breaking=str(breaking)) as server:
        break_and_mend(server, url, lambda _: breaking.write_text(error), breaking.unlink)


def test_without_traffic_it_is_ready_again_after_a_while(tmp_path):
    """Otherwise nobody would send the request that finds the disk mended."""
    breaking = tmp_path / "broken"
    with LiveServer(f"sqlite:///{tmp_path}/ledger.db", breaking=str(breaking)) as server:
        make_bandits(server)
        breaking.write_text("FullError")
        assert is_503(decide(server))
        assert server.call("GET", "/readyz").status == 503
        breaking.unlink()
        for _ in range(500):
            if server.call("GET", "/readyz").status == 200:
                break
            time.sleep(0.02)
        else:
            raise AssertionError("it never became ready again")


def test_a_limit_on_the_size_of_files(tmp_path):
    """Python ignores the signal that this brings; SQLite then sees a disk that takes no more."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    with LiveServer(url) as server:

        def limit(size):
            _, most = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, most))

        def break_it(acknowledged):
            limit(100_000)
            fill(server, acknowledged)

        break_and_mend(server, url, break_it, lambda: limit(resource.RLIM_INFINITY))


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.getuid() != 0 or not shutil.which("mount") or subprocess.run(command).returncode:
        pytest.skip("cannot mount a small file system here: expected root with CAP_SYS_ADMIN")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_really_full(small_disk):
    url, ballast = f"sqlite:///{small_disk}/ledger.db", small_disk / "ballast"
    with LiveServer(url) as server:

        def write_until_full():
            with ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))

        def break_it(acknowledged):
            with pytest.raises(OSError, match="No space"):
                write_until_full()
            fill(server, acknowledged)

        break_and_mend(server, url, break_it, ballast.unlink)


def test_a_database_that_vanished_and_came_back(tmp_path):
    url, path = f"sqlite:///{tmp_path}/ledger.db", tmp_path / "ledger.db"
    with LiveServer(url) as server:
        break_and_mend(
            server,
            url,
            lambda _: path.rename(tmp_path / "elsewhere"),
            lambda: (tmp_path / "elsewhere").rename(path),
        )


def test_who_makes_snapshots_does_not_make_a_new_file_where_the_old_one_is_gone(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(snapshotting, "LOOK_EVERY", 0.01)
    path = tmp_path / "ledger.db"
    open_ledger(f"sqlite:///{path}").close()
    thread = snapshotting.Snapshots(f"sqlite:///{path}", tmp_path / "snapshots", 10**6)
    thread.start()
    time.sleep(0.1)
    path.rename(tmp_path / "elsewhere")
    time.sleep(0.1)
    thread.stop()
    assert not path.exists()


def test_another_ledger_in_its_place_is_not_written_to(tmp_path):
    folder, away = tmp_path / "here", tmp_path / "away"
    url = f"sqlite:///{folder}/ledger.db"
    folder.mkdir()
    with LiveServer(url) as server:
        make_bandits(server)
        before = server.digests()
        folder.rename(away)
        folder.mkdir()
        open_ledger(url).close()
        for _ in range(3):
            assert is_503(decide(server))
        other = open_ledger(url)
        assert other.behind(START) == 0
        other.close()
        assert server.digests() == before
        folder.rename(tmp_path / "other")
        away.rename(folder)
        assert decide(server).status == 200


def test_a_database_that_cannot_be_opened_is_told_at_the_start(tmp_path):
    with pytest.raises(RuntimeError, match="did not start"):
        LiveServer(f"sqlite:///{tmp_path}/no/such/folder/ledger.db").start()


class AwayAtFirst(MemoryLedger):
    """Cannot be read when the service starts."""

    tries = 0

    def follow(self, after, limit=100_000):
        self.tries += 1
        if self.tries <= 2:
            raise StoreUnavailableError("away")
        return super().follow(after, limit)


def test_a_log_that_cannot_be_read_at_the_start_is_tried_again(monkeypatch):
    monkeypatch.setattr(running, "READ_AGAIN_AFTER", 0.001)

    async def ready():
        service = Service("memory://", ledger=AwayAtFirst())
        await service.start()
        for _ in range(1000):
            if service.ready:
                break
            await asyncio.sleep(0.005)
        await service.stop()
        return service.ready

    assert asyncio.run(ready())


# ---------------------------------------------------------------------------------- PostgreSQL


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_postgres_that_is_away(postgres, how):
    url = postgres.new_database(next(names))
    with LiveServer(url) as server:
        break_and_mend(
            server,
            url,
            lambda _: postgres.stop() if how == "stop" else postgres.kill(),
            postgres.start,
        )
