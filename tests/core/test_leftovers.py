"""Unfinished files of killed processes are removed by the next writer; those of live ones stay."""

import os
import subprocess
import sys
import time

import pytest

from belated import Bandit
from belated.core.files import replacing
from belated.families.logistic import Bernoulli
from belated.ledger import open_ledger, snapshots
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.policies.delayed_ofu_glm import DelayedOFUGLM
from belated.service.snapshotting import Snapshots

# Each writes for ever, and says when it has begun.
WRITES_A_FILE = """
import sys, time
from pathlib import Path
from belated.core.files import replacing
with replacing(Path(sys.argv[1]) / "target") as file:
    print("begun", flush=True)
    time.sleep(600)
"""
WRITES_A_SNAPSHOT = """
import sys, time
from pathlib import Path
from belated.ledger import open_ledger, snapshots
from belated.ledger.replica import Replica
replica = Replica(open_ledger(sys.argv[2]))
replica.catch_up()
def never_done(*_):
    print("begun", flush=True)
    time.sleep(600)
snapshots._write = never_done
snapshots.save(replica, Path(sys.argv[1]))
"""


@pytest.fixture
def writer(request):
    """Starts a process that is in the middle of writing."""
    started = []

    def start(program, *args):
        command = [sys.executable, "-c", program, *map(str, args)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"begun\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def killed(process):
    process.kill()
    process.wait()


def write(folder):
    with replacing(folder / "other") as file:
        file.write(b"whole")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_next_writer_removes_the_file_of_a_killed_one_and_of_no_other(tmp_path, writer):
    process = writer(WRITES_A_FILE, tmp_path)
    (live,) = names(tmp_path)
    write(tmp_path)
    assert names(tmp_path) == [live, "other"]
    killed(process)
    (tmp_path / ".belated-notes").touch()  # of the user
    Bandit(2, family="bernoulli", policy="greedy").save(tmp_path / "bandit.npz")
    assert names(tmp_path) == [".belated-notes", "bandit.npz", "other"]


def test_a_backup_removes_them_too(tmp_path, writer):
    killed(writer(WRITES_A_FILE, tmp_path))
    ledger = open_ledger(f"sqlite:///{tmp_path}/shop.db")
    ledger.backup(tmp_path / "copy.db")
    ledger.close()
    assert not list(tmp_path.glob(".belated-*"))


@pytest.fixture
def shop(tmp_path):
    """The URL of a ledger with a bandit."""
    url = f"sqlite:///{tmp_path}/shop.db"
    ledger = open_ledger(url)
    Replica(ledger).configure("shop", Spec.of(2, Bernoulli(), DelayedOFUGLM()))
    ledger.close()
    return url


def saved(url, folder):
    ledger = open_ledger(url)
    replica = Replica(ledger)
    replica.catch_up()
    path = snapshots.save(replica, folder)
    ledger.close()
    return path


def test_the_next_snapshot_removes_the_folder_of_a_killed_one_and_of_no_other(
    tmp_path, shop, writer
):
    folder = tmp_path / "snapshots"
    process = writer(WRITES_A_SNAPSHOT, folder, shop)
    (live,) = names(folder)
    assert live.endswith(".part")
    whole = saved(shop, folder)
    assert names(folder) == [whole.name, live]
    killed(process)
    assert saved(shop, folder) == whole  # which was there before
    assert names(folder) == [whole.name]


def test_a_service_removes_them_as_it_starts(tmp_path, shop, writer):
    folder = tmp_path / "snapshots"
    killed(writer(WRITES_A_SNAPSHOT, folder, shop))
    assert names(folder)
    thread = Snapshots(shop, folder, every=10**9)
    thread.start()
    deadline = time.monotonic() + 60.0
    while names(folder) and time.monotonic() < deadline:
        time.sleep(0.01)
    thread.stop()
    assert not names(folder)


def test_what_version_0_1_left_is_removed_after_a_day(tmp_path, shop):
    folder = tmp_path / "snapshots"
    old, young = folder / "a-1.4711.part", folder / "a-2.4712.part"  # it took no locks
    for part in (old, young):
        part.mkdir(parents=True)
    two_days_ago = time.time() - 2 * 86_400
    os.utime(old, (two_days_ago, two_days_ago))
    whole = saved(shop, folder)
    assert names(folder) == sorted([young.name, whole.name])


def test_a_snapshot_that_fails_leaves_nothing(tmp_path, shop, monkeypatch):
    def fails(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(snapshots, "_write", fails)
    with pytest.raises(OSError, match="the disk is full"):
        saved(shop, tmp_path / "snapshots")
    assert not names(tmp_path / "snapshots")
