"""Looking after a ledger in PostgreSQL: its soundness, and its old decisions."""

from collections.abc import Mapping
from typing import Any

from belated.ledger.events import Position
from belated.ledger.stores.postgres_session import Connection, only
from belated.ledger.upkeep import Retained, blanked

UPKEEP_ROWS = 10_000  # in one transaction: others must not wait for long
DROP_ROWS = 1_000  # the same where rows are deleted, with their entries in all indices

_NO_DECISION = """
    where not exists (
        select 1 from events e
        where e.id = named.id and e.id <> '' and e.kind = 0 and e.bandit = named.bandit
    )
"""
# Events are numbered without gaps, and a log never ends where it begins: compaction leaves its last
# transaction.
_MISSING = """
    select greatest(coalesce(max(e.seq), 0) - b.seq, b.compacted) - count(e.seq)
    from (
        select tx, seq, (seq > 0)::int as compacted from base
        where (tx, seq) >= (earlier_tx, earlier_seq)
        union all select earlier_tx, earlier_seq, 0 from base
        where (tx, seq) < (earlier_tx, earlier_seq)
    ) as b left join events e on (e.tx, e.seq) > (b.tx, b.seq) group by b.seq, b.compacted
"""
_OLD = """
    select tx, seq, bandit, id, body from events
    where (tx, seq) > (%s, %s) and kind = 0 and time < %s and id <> ''
    order by tx, seq limit %s
"""
_BLANK = """
    update events e set body = new.body
    from unnest(%b::bigint[], %b::bigint[], %b::bytea[]) as new (tx, seq, body)
    where e.tx = new.tx and e.seq = new.seq
"""
_NAMED = "select * from unnest(%b::text[], %b::text[], %b::bytea[])"
_REQUESTS = f"from requests where (bandit, request, id) in ({_NAMED})"
_SUBJECTS = f"from subjects where (bandit, subject, id) in ({_NAMED})"


def problems_of(db: Connection) -> list[str]:
    """Returns what is wrong between the tables, in words."""
    requests = only(db.execute(f"select count(*) from requests as named {_NO_DECISION}"))[0]
    subjects = only(db.execute(f"select count(*) from subjects as named {_NO_DECISION}"))[0]
    counts = {"requests": requests, "subjects": subjects}
    said = [f"{count} {table} have no decision" for table, count in counts.items() if count]
    (missing,) = only(db.execute(_MISSING))
    return [f"{missing} events are missing", *said] if missing else said


def latest_decisions(db: Connection) -> dict[str, int]:
    """Returns the time of the latest decision of each bandit."""
    rows = db.execute("select bandit, max(time) from events where kind = 0 group by bandit")
    return dict(rows.fetchall())


def blank_old(
    db: Connection, before: int, after: Position, latest: Mapping[str, int], *, dry_run: bool
) -> tuple[Retained, Position | None]:
    """Take from the next old decisions what retention takes; returns counts and the last place."""
    rows = db.execute(_OLD, [*after, before, UPKEEP_ROWS], binary=True).fetchall()
    if not rows:
        return Retained(), None
    old = [
        (*row[:4], rest) for row in rows if (rest := blanked(row[4], latest[row[2]])) is not None
    ]
    bandits, ids = [row[2] for row in old], [row[3] for row in old]
    asked: list[Any] = [bandits, [row[4].request for row in old], ids]
    (requests,) = only(db.execute(f"select count(*) {_REQUESTS}", asked))
    if not dry_run:
        places = [row[0] for row in old], [row[1] for row in old]
        db.execute(_BLANK, [*places, [row[4].body for row in old]])
        db.execute(f"delete {_REQUESTS}", asked)
        db.execute(f"delete {_SUBJECTS}", [bandits, [row[4].subject for row in old], ids])
    return Retained(len(old), requests), Position(*rows[-1][:2])


def drop_parked(db: Connection, before: int, *, dry_run: bool) -> Retained:
    """Drop rewards whose decision never came."""
    (found,) = only(db.execute("select count(*) from parked where time < %s", [before]))
    if not dry_run:
        db.execute("delete from parked where time < %s", [before])
    return Retained(parked=found)
