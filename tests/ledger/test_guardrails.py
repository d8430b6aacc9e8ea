"""Guardrail outcomes: events that the fold does not read, and that several writers may hand in."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from belated.core.events import Status
from belated.ledger.checks.trials import Writer, whole_log
from belated.ledger.events import Kind
from belated.ledger.proposing import Ask
from belated.ledger.replica import outcome_draft
from belated.ledger.stores.postgres import PostgresLedger
from belated.ledger.stores.sqlite import SQLiteLedger
from support.replicas import conversion, explicit, new_replica, replayed, same


@pytest.mark.parametrize("spec", [explicit(), conversion()])
def test_nothing_is_learnt_from_an_outcome(tmp_path, spec):
    replica = new_replica(spec, SQLiteLedger(tmp_path / "x.db"))
    replica.register("shop", {"a": [0.1, 0.0, 0.0], "b": [0.0, 0.1, 0.0]})
    drafts = [replica.propose("shop", Ask(subject=f"s{k}")).draft for k in range(4)]
    replica.commit(drafts)
    fold = replica.folds["shop"]
    before = fold.header() | {"version": 0}, fold.learner.n_observed, fold.pending.n_waiting
    now = replica.clock()
    replica.commit([outcome_draft("", now, draft.id, "calls", 3.0) for draft in drafts])
    after = fold.header() | {"version": 0}, fold.learner.n_observed, fold.pending.n_waiting
    assert before == after
    assert same(replica, replayed(replica))
    replica.ledger.forget("shop", "s1", now)
    replica.catch_up()
    assert same(replica, replayed(replica))
    values = [event.value for event in whole_log(replica.ledger) if event.kind == Kind.OUTCOME]
    assert values == [3.0, None, 3.0, 3.0]


def test_an_outcome_that_several_writers_hand_in_at_once_is_written_once(postgres):
    ledgers = [PostgresLedger(postgres.url, schema="guardrails") for _ in range(4)]
    writer = Writer(ledgers[0])
    decisions = [writer.decided() for _ in range(8)]
    writer.commit(*decisions)
    together = Barrier(4)

    def write(ledger):
        statuses = []
        for draft in decisions:
            together.wait(30)
            about = writer.about(Kind.OUTCOME, draft.id, 1.0, body=b"calls")
            statuses += [outcome.status for outcome in ledger.commit([about])]
        return statuses

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(write, ledgers))
    for statuses in zip(*found, strict=True):
        assert sorted(statuses) == [Status.ACCEPTED, *[Status.DUPLICATE] * 3]
    kinds = [event.kind for event in whole_log(ledgers[0])]
    assert kinds.count(Kind.OUTCOME) == 8
    for ledger in ledgers:
        ledger.close()
