"""Snapshots shorten reading the log, and change nothing else."""

import numpy as np
import pytest

from belated import Bernoulli, Gaussian
from belated.estimators.laplace.fit import RENEWED
from belated.ledger import snapshots
from belated.ledger.proposing import Ask
from belated.ledger.replica import Replica
from belated.policies import AdaptiveThompson
from belated.policies.thompson import Thompson
from support.replicas import (
    HOUR,
    conversion,
    decide,
    explicit,
    new_replica,
    random_actions,
    replayed,
    same,
)


def test_snapshots(tmp_path):
    rng, replica = np.random.default_rng(1), new_replica(conversion())
    replica.configure("other", explicit(Gaussian(sd=1.0), Thompson()))
    replica.register("other", {"a": [1.0, 0.0, 0.0], "b": [0.0, 1.0, 0.0]})
    for k in range(40):
        id = decide(replica, rng)
        other = replica.propose("other", Ask()).draft
        replica.commit([other])
        replica.reward([(other.id, 0.5)])
        if k % 3 == 0:
            replica.reward([(id, 1.0)])
        replica.clock.now += HOUR // 10
        replica.expire()
        if k in (10, 20, 30):
            snapshots.save(replica, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2

    resumed = Replica(replica.ledger, clock=replica.clock)
    assert snapshots.load(resumed, tmp_path) < replica.position
    resumed.catch_up()
    assert resumed.position == replica.position
    assert same(replica, resumed)
    for twin in (replica, resumed):  # and they go on alike
        twin.rng = np.random.default_rng(9)
    assert replica.propose("other", Ask()).body == resumed.propose("other", Ask()).body
    assert snapshots.save(replica, tmp_path) == snapshots.save(resumed, tmp_path)

    # a damaged one is passed over, and so is one that holds what was erased since
    newest = max(tmp_path.iterdir())
    (newest / "0.npz").write_bytes(b"?")
    older = Replica(replica.ledger, clock=replica.clock)
    assert snapshots.load(older, tmp_path) > (0, 0)
    older.catch_up()
    assert same(replica, older)
    strangers = new_replica(explicit())
    assert snapshots.load(strangers, tmp_path) == strangers.position
    theirs = snapshots.save(strangers, tmp_path)  # positions of another ledger mean nothing here
    assert len(snapshots.found(tmp_path)) == 3
    assert theirs in snapshots.found(tmp_path)


def test_a_snapshot_of_what_was_erased_is_not_used(tmp_path):
    rng, replica = np.random.default_rng(1), new_replica(explicit())
    decide(replica, rng, subject="me")
    snapshots.save(replica, tmp_path)
    decide(replica, rng, subject="you")
    assert replica.ledger.forget("shop", "you", replica.clock()) == 1
    fresh = Replica(replica.ledger, clock=replica.clock)
    assert snapshots.load(fresh, tmp_path) > (0, 0)  # it holds nothing of you
    snapshots.drop_outdated(replica.ledger, tmp_path)
    assert len(snapshots.found(tmp_path)) == 1
    assert replica.ledger.forget("shop", "me", replica.clock()) == 1
    fresh = Replica(replica.ledger, clock=replica.clock)
    assert snapshots.load(fresh, tmp_path) == (0, 0)
    fresh.catch_up()
    replica.catch_up()
    snapshots.drop_outdated(replica.ledger, tmp_path)
    assert snapshots.found(tmp_path) == []
    assert fresh.folds["shop"].learner.n_decided == 0
    assert same(replica, fresh)


def played(replica, rng, n):
    """Decides and rewards so often; returns how often the prior was learnt."""
    renewals, last = 0, 0.0
    for _ in range(n):
        id = decide(replica, rng)
        replica.reward([(id, float(rng.random() < 0.3))])
        renewed = replica.folds["shop"].learner.state.fit.scalars[RENEWED]
        renewals, last = renewals + (renewed != last), renewed
    return renewals


@pytest.mark.parametrize("family", [Bernoulli(), Gaussian(sd=None)], ids=str)
def test_a_prior_that_was_learnt_goes_on_from_a_snapshot(tmp_path, family):
    rng, replica = np.random.default_rng(1), new_replica(explicit(family, AdaptiveThompson()))
    before = replica.folds["shop"].learner.state.fit.precision.copy()
    assert played(replica, rng, 120) > 5
    snapshots.save(replica, tmp_path)
    assert played(replica, rng, 120) > 1
    assert (replica.folds["shop"].learner.state.fit.precision != before).all()
    resumed = Replica(replica.ledger, clock=replica.clock)
    assert (0, 0) < snapshots.load(resumed, tmp_path) < replica.position
    resumed.catch_up()
    assert same(replica, resumed)
    assert same(replica, replayed(replica))
    for twin in (replica, resumed):
        twin.rng = np.random.default_rng(9)
    ask = Ask(matrix=random_actions(rng), probabilities=True)
    assert replica.propose("shop", ask).body == resumed.propose("shop", ask).body
