"""A lively ledger in a file, and the commands of ``belated ledger`` run in this process."""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import astuple

from belated import Bernoulli, DelayedOFUGLM
from belated.commands.main import main
from belated.ledger import open_ledger
from belated.ledger.events import START, Draft, Kind
from belated.ledger.proposing import Ask
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.stores.sqlite import SQLiteLedger

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
BEGIN = 1_700_000_000 * SECOND
DIM = 3


@pytest.fixture
def belated(monkeypatch, capsys):
    """Runs the command line in this process: exit code, output, errors."""

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["belated", "ledger", *map(str, args)])
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return stopped.value.code or 0, out, err

    return run


@pytest.fixture
def ask(belated):
    """Runs a command with --json; returns exit code and what it says."""

    def run(*args):
        code, out, err = belated(*args, "--json")
        # a slow machine is told how far it is
        assert all(line.endswith(" a second") for line in err.splitlines()), err
        return code, json.loads(out)

    return run


class Clock:
    def __init__(self):
        self.now = BEGIN

    def __call__(self):
        return self.now


def fill(ledger, rounds=60, **settings):
    """A lively log: two bandits, both kinds of loop, requests, subjects, erasure, late rewards."""
    rng, replica = np.random.default_rng(1), Replica(ledger, clock=Clock(), seed=1)
    family = Bernoulli()
    replica.configure("shop", Spec.of(DIM, family, DelayedOFUGLM(), window=3600.0, **settings))
    replica.configure(
        "clicks",
        Spec.of(DIM, family, DelayedOFUGLM(), loop="conversion", window=3600.0, exploration=0.2),
    )
    replica.register(
        "clicks", {name: x.tolist() for name, x in zip("abc", np.eye(DIM) * 0.9, strict=True)}
    )
    waiting = []
    for k in range(rounds):
        x = rng.normal(size=(4, DIM))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        asks = [
            ("shop", Ask(matrix=x, request=f"r{k}", digest=b"%d" % k, subject=f"s{k % 5}")),
            ("clicks", Ask(context_json=b"")),
        ]
        drafts = [replica.propose(name, what).draft for name, what in asks]
        replica.commit(drafts)
        waiting += [draft.id for draft in drafts]
        replica.clock.now += HOUR // 8
        for _ in range(int(rng.integers(3))):
            id = waiting.pop(int(rng.integers(len(waiting))))
            replica.reward([(id, float(rng.integers(2)))])
        if k % 10 == 9:
            replica.commit([Draft(Kind.CANCELLED, "", waiting.pop(), replica.clock())])
        if k % 4 == 3:
            replica.expire()
    ledger.forget("shop", "s3", replica.clock())
    replica.catch_up()
    return replica


def digests(ledger):
    replica = Replica(ledger)
    replica.catch_up()
    return {name: fold.digest() for name, fold in replica.folds.items()}


def contents(events):
    """All but the places in the log."""
    return [astuple(event)[2:] for event in events]


def log_of(ledger):
    return ledger.follow(START, 10**9)[0]


@pytest.fixture
def shop(tmp_path):
    """A ledger in a file; its URL."""
    ledger = SQLiteLedger(tmp_path / "shop.db")
    fill(ledger)
    ledger.close()
    return f"sqlite:///{tmp_path}/shop.db"


def content(folder):
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def rebuilt(ledger):
    replica = Replica(ledger)
    replica.catch_up()
    return replica


def make_bandit(url, name="shop", **settings):
    ledger = open_ledger(url)
    Replica(ledger).configure(name, Spec.of(2, Bernoulli(), DelayedOFUGLM(), **settings))
    ledger.close()
