"""Compaction drops what a promotion needs: each refuses where the other one was."""

import numpy as np
import pytest

from belated.ledger.events import START
from belated.ledger.promotion import Promotion
from belated.ledger.protocol import LedgerError
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.ledger.tools.compacting import compacted
from belated.ledger.tools.restoring import restore
from belated.ledger.tools.retraining import RefusedError, retrain
from belated.policies import Greedy
from support.compacting import live
from support.replicas import HOUR, explicit, new_replica, replayed, same


def played(ledger):
    replica = new_replica(explicit(), ledger)
    live(replica, np.random.default_rng(1), [], 4)
    replica.clock.now += HOUR
    return replica


def test_a_bandit_whose_events_were_dropped_is_not_retrained(tmp_path):
    url = f"sqlite:///{tmp_path}/a.db"
    ledger = SQLiteLedger(tmp_path / "a.db")
    replica = played(ledger)
    assert compacted(ledger, replica.clock())["written"]
    before = ledger.behind(START)
    with pytest.raises(RefusedError, match="retraining needs the whole log of 'shop'"):
        retrain(ledger, "shop", lambda spec: explicit(policy=Greedy()))
    with pytest.raises(LedgerError, match="a copy as of a moment needs the whole log"):
        restore(url, f"sqlite:///{tmp_path}/b.db", replica.clock(), dry_run=False)
    assert ledger.behind(START) == before
    assert not (tmp_path / "b.db").exists()


def test_a_log_is_not_cut_before_a_promotion_and_can_be_cut_after_it():
    ledger = MemoryLedger()
    replica = played(ledger)
    cut = replica.clock() - 1
    replica.promote("shop", Promotion(explicit(policy=Greedy()), "greedy"))
    replica.catch_up()
    replica.clock.now += HOUR
    for bound in (cut, replica.clock()):  # the last transaction stays, however old it is
        with pytest.raises(LedgerError, match=r"'shop' was promoted at .*: compact after the next"):
            compacted(ledger, bound)
    live(replica, np.random.default_rng(2), [], 2)
    with pytest.raises(LedgerError, match=r"'shop' was promoted .*: expected a shorter --older"):
        compacted(ledger, cut)
    assert ledger.base() is None
    assert compacted(ledger, replica.clock() - HOUR // 2)["written"]
    fresh = replayed(replica)
    assert type(fresh.folds["shop"].learner.policy).__name__.startswith("Greedy")
    assert same(replica, fresh)
