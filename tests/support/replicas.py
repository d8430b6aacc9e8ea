"""Replicas of a ledger with a clock that stands still, for the tests of folds."""

import numpy as np

from belated import Bernoulli, DelayedOFUGLM
from belated.core.events import Status
from belated.ledger.proposing import Ask
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.stores.memory import MemoryLedger

SECOND = 1_000_000
HOUR = 3600 * SECOND
DIM = 3


class Clock:
    """Stands still until told to move."""

    def __init__(self) -> None:
        self.now = 1_700_000_000 * SECOND

    def __call__(self) -> int:
        return self.now


def explicit(family=None, policy=None, *, open=None, **settings):
    """Returns settings; what is not set is as in a new bandit, learning from silence included."""
    parts = family or Bernoulli(), policy or DelayedOFUGLM()
    return Spec.of(DIM, *parts, open=open, **settings)


def conversion(**settings):
    return explicit(loop="conversion", window=3600.0, **settings)


def new_replica(spec, ledger=None, name="shop", seed=1):
    replica = Replica(ledger or MemoryLedger(), clock=Clock(), seed=seed)
    replica.configure(name, spec)
    return replica


def random_actions(rng, n=4):
    x = rng.normal(size=(n, DIM))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def decide(replica, rng, name="shop", **ask):
    proposal = replica.propose(name, Ask(matrix=random_actions(rng), **ask))
    (outcome,) = replica.commit([proposal.draft])
    assert outcome.status == Status.ACCEPTED
    return proposal.draft.id


def replayed(replica):
    fresh = Replica(replica.ledger, clock=replica.clock)
    fresh.catch_up()
    return fresh


def same(replica, other):
    return {n: f.digest() for n, f in replica.folds.items()} == {
        n: f.digest() for n, f in other.folds.items()
    }
