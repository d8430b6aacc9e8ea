"""Compaction in PostgreSQL: the same state, interrupted or not, and damage that is found."""

from itertools import count

import pytest

from belated.ledger.events import START
from belated.ledger.replica import Replica
from belated.ledger.stores import postgres_base
from belated.ledger.stores.postgres import PostgresLedger
from belated.ledger.tools.compacting import compacted
from belated.ledger.tools.verifying import verify
from support.compacting import LOOPS, check_compacted_is_live, old_and_young
from support.replicas import same
from support.shop_ledger import rebuilt

names = (f"compacted_{k}" for k in count())


@pytest.fixture
def new(postgres):
    """Makes ledgers, each empty and in a schema of its own unless one is named."""
    made = []

    def make(schema=None):
        made.append(PostgresLedger(postgres.url, schema=schema or next(names)))
        return made[-1]

    yield make
    for ledger in made:
        ledger.close()


@pytest.mark.parametrize("loop", ["explicit", "silence", "sum"])
def test_a_compacted_log_leads_to_the_live_state(new, loop):
    check_compacted_is_live(new(), LOOPS[loop])


def test_a_compaction_that_is_interrupted_and_a_replica_that_is_behind(new, monkeypatch):
    monkeypatch.setattr("belated.ledger.stores.postgres.DROP_ROWS", 5)
    ledger = new()
    schema = ledger._session.schema
    replica, _ = old_and_young(ledger)
    behind = Replica(new(schema))
    behind.at_once = 4
    behind.take_in_next()

    def killed(*args):
        postgres_base.drop_old(*args)
        raise RuntimeError("killed")

    # the first looks for an earlier compaction to finish
    drops = iter([postgres_base.drop_old, postgres_base.drop_old, killed])
    monkeypatch.setattr("belated.ledger.stores.postgres.drop_old", lambda *args: next(drops)(*args))
    with pytest.raises(RuntimeError, match="killed"):
        compacted(ledger, replica.clock())
    monkeypatch.undo()
    assert whole_count(ledger) == 15
    for place in (ledger, behind.ledger):  # the log begins with the base from then on
        assert verify(place, None)["violations"] == []
    assert same(replica, rebuilt(new(schema)))
    assert compacted(ledger, replica.clock())["deleted"] == 12
    behind.catch_up()
    assert same(replica, behind)
    assert whole_count(ledger) == 3


def test_events_are_deleted_in_small_parts_each_after_the_last(new, monkeypatch):
    """All commits wait for a part; one that began with the log would pass over all deleted rows."""
    monkeypatch.setattr("belated.ledger.stores.postgres.DROP_ROWS", 5)
    ledger = new()
    replica, _ = old_and_young(ledger)
    parts = []

    def drop_old(db, after, most):
        parts.append((after, *postgres_base.drop_old(db, after, most)))
        return parts[-1][1:]

    monkeypatch.setattr("belated.ledger.stores.postgres.drop_old", drop_old)
    done = compacted(ledger, replica.clock())
    before, *parts = parts  # the first looks for an earlier compaction to finish
    assert before == (START, 0, START)
    assert [n for _, n, _ in parts] == [5, 5, 5, 2, 0]
    assert [after for after, _, _ in parts] == [START, *(last for _, _, last in parts[:-1])]
    assert done["deleted"] == 17


def whole_count(ledger):
    with ledger._session.connected() as db:
        return db.execute("select count(*) from events").fetchone()[0]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("delete from events where seq = (select seq + 2 from base)", "1 events are missing"),
        ("delete from events where (tx, seq) > (select tx, seq from base)", "1 events are missing"),
        ("update base set tx = tx + 1", "is damaged: restore"),
        ("update base_content set content = 'x'", "'shop': LedgerError"),
        ("delete from carried where kind = 0", "events are carried, expected"),
    ],
)
def test_verify_tells_a_compacted_ledger_from_a_damaged_one(new, damage, said):
    ledger = new()
    replica, _ = old_and_young(ledger)
    compacted(ledger, replica.clock())
    assert verify(ledger, None)["sound"]
    with ledger._session.connected() as db:
        assert db.execute(damage).rowcount > 0
    found = verify(ledger, None)["violations"]
    assert any(said in row["violation"] for row in found), found
