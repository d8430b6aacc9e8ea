"""Histories to be compacted, and what must hold afterwards in every store."""

import msgspec
import numpy as np

from belated import Gaussian, Poisson
from belated.ledger.events import START, Draft, KeyChange, Kind
from belated.ledger.proposing import Ask
from belated.ledger.tools.compacting import compacted
from belated.ledger.tools.verifying import verify
from belated.policies import AdaptiveThompson, OTFLinTS
from belated.policies.thompson import Thompson
from support.replicas import (
    HOUR,
    SECOND,
    conversion,
    decide,
    explicit,
    new_replica,
    random_actions,
    replayed,
    same,
)


def _silent(**settings):
    return conversion(policy=AdaptiveThompson(), open="silence", **settings)


LOOPS = {
    "explicit": explicit(),
    "thompson": explicit(Gaussian(sd=0.5), Thompson()),
    "revised": explicit(window=2000.0, late="revise", grace=500.0),
    "hold": conversion(late="revise", open="hold"),
    "silence": _silent(),
    "silence-revised": _silent(late="revise", half_life=8.0),
    "silence-first": _silent(grace=1800.0, combine="first"),
    "silence-sum": _silent(family=Poisson(), combine="sum"),
    "on-the-fly": conversion(policy=OTFLinTS(window=100)),
    "half-life": explicit(half_life=5.0),
    "seconds": conversion(half_life=1800.0, half_life_unit="seconds", open="hold"),
    "sum": explicit(Gaussian(sd=0.5), combine="sum", window=3000.0),
    "max": conversion(combine="max", grace=1800.0, open="hold"),
    "sticky": explicit(sticky=3000.0, holdout=0.3),
}


def live(replica, rng, ids, rounds):
    """Let things happen to the bandit "shop" at random."""
    spec, clock = replica.folds["shop"].spec, replica.clock
    for _ in range(rounds):
        n = int(rng.integers(1, 4))
        people = 4 if spec.sticky else 10**9
        subjects = [f"s{(len(ids) + k) % people}" for k in range(n)]
        asks = [Ask(matrix=random_actions(rng), subject=subject) for subject in subjects]
        proposals = [replica.propose("shop", ask) for ask in asks]
        replica.commit([proposal.draft for proposal in proposals])
        ids += [proposal.draft.id for proposal in proposals]
        clock.now += int(rng.integers(1, 900)) * SECOND
        event_id = "" if spec.combine is None else str(rng.integers(3))
        given = [(ids[k], float(k % 2), None, event_id) for k in rng.integers(len(ids), size=3)]
        replica.reward(given)
        if rng.random() < 0.2:
            replica.commit([Draft(Kind.CANCELLED, "", ids[int(rng.integers(len(ids)))], clock())])
        if rng.random() < 0.3 and spec.combine is None and replica.folds["shop"].learner.can_revise:
            revised = ids[int(rng.integers(len(ids)))]
            replica.commit([Draft(Kind.REVISED, "", revised, clock(), 1.0)])
        if rng.random() < 0.5:
            replica.expire()


def check_compacted_is_live(ledger, spec):
    rng, ids = np.random.default_rng(3), []
    replica = new_replica(spec, ledger)
    for hours in (0, 1):
        live(replica, rng, ids, 6)
        replica.clock.now += HOUR
        live(replica, rng, ids, 2)
        total = replica.folds["shop"].version
        found = compacted(ledger, replica.clock() - hours * HOUR)
        assert found["written"]
        assert 0 < ledger.behind(START) < total
        fresh = replayed(replica)
        assert same(replica, fresh)
        again = compacted(ledger, replica.clock() - hours * HOUR)
        assert (again["events"], again["deleted"], again["written"]) == (0, 0, False)
    for twin in (replica, fresh):  # and they go on alike
        twin.rng = np.random.default_rng(9)
    asked = Ask(matrix=random_actions(rng), subject="s1")
    assert replica.propose("shop", asked).body == fresh.propose("shop", asked).body
    live(replica, rng, ids, 2)
    fresh.catch_up()
    assert same(replica, fresh)
    assert verify(ledger, None)["violations"] == []


def old_and_young(ledger=None):
    """Returns a replica with twelve decisions, and their ids; all but the last three are old."""
    rng, replica = np.random.default_rng(5), new_replica(explicit(window=7200.0), ledger)
    key = KeyChange("k", "key", "hash", "", ("decide",))
    replica.commit([Draft(Kind.KEYS, "", b"", replica.clock(), body=msgspec.msgpack.encode(key))])
    ids = [decide(replica, rng, subject=f"s{k % 2}", request=f"r{k}") for k in range(9)]
    replica.reward([(id, 1.0) for id in ids[:6]])
    replica.clock.now += HOUR
    ids += [decide(replica, rng, subject="s1") for _ in range(3)]
    return replica, ids
