"""The base of a compacted log in PostgreSQL; see ``ledger/base.py``."""

from collections.abc import Sequence
from typing import Any, LiteralString

import msgspec

from belated.ledger.events import Position
from belated.ledger.protocol import StoreUnavailableError
from belated.ledger.rules import checked_base
from belated.ledger.stores.postgres_session import Connection, only
from belated.ledger.upkeep import Base, blanked

PRESENT: LiteralString = "(select digest from base)"
AFTER_BASE: LiteralString = "(tx, seq) > (select tx, seq from base)"
# The same for decisions that are looked up by id. It hides from the planner that events are also
# indexed by their place: in a log without statistics it would read all of them in that order.
IS_AFTER_BASE: LiteralString = "(tx + 0, seq) > (select tx, seq from base)"
_TABLES: tuple[LiteralString, ...] = ("base_content", "carried")
_PUT_CARRIED = """
    insert into carried select %b::text, * from unnest(
        %b::bigint[], %b::bigint[], %b::smallint[], %b::text[], %b::bytea[],
        %b::bigint[], %b::float8[], %b::bigint[], %b::bytea[], %b::bigint[], %b::bigint[],
        %b::text[]
    ) on conflict do nothing
"""
_OLD = """
    select tx, seq, kind, bandit, id, body from events
    where (tx, seq) > (%s, %s) and (tx, seq) <= (select tx, seq from base)
    order by tx, seq limit %s
"""
_DROP = "delete from events where (tx, seq) > (%s, %s) and (tx, seq) <= (%s, %s)"
_NAMED: LiteralString = "select * from unnest(%b::text[], %b::text[], %b::bytea[])"


def present_base(db: Connection) -> Base | None:
    """Returns the base; raises ``LedgerError`` if it is not what was written."""
    query = "select tx, seq, last_id, digest, body from base"
    return checked_base(*only(db.execute(query, binary=True)))


def put_content(db: Connection, base: Base, bandit: str, piece: int, content: bytes) -> None:
    """Write a piece of a base that is being prepared."""
    row = base.digest, bandit, piece, content
    db.execute("insert into base_content values (%s, %s, %s, %b) on conflict do nothing", row)


def put_carried(db: Connection, base: Base, rows: Sequence[Sequence[Any]]) -> None:
    """Write events that a base that is being prepared carries."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    db.execute(_PUT_CARRIED, [base.digest, *columns])


def set_base(db: Connection, base: Base, pieces: int) -> None:
    """Let the log begin with a base whose content is there."""
    there = [
        only(db.execute(f"select count(*) from {table} where base = %s", [base.digest]))[0]
        for table in _TABLES
    ]
    if there != [pieces, base.carried]:
        raise StoreUnavailableError("another process has removed the base meanwhile: try again")
    row = *base.position, base.last_id, base.digest, msgspec.msgpack.encode(base)
    db.execute("update base set (tx, seq, last_id, digest, body) = (%s, %s, %b, %s, %b)", row)


def drop_old(db: Connection, after: Position, most: int) -> tuple[int, Position]:
    """Delete the next events before the base, with their requests and subjects.

    When there are none left, earlier bases are deleted. Returns how many events were deleted, and
    the place of the last one: until the next vacuum, a search that began before it would look at
    all that was deleted.
    """
    rows = db.execute(_OLD, [*after, most], binary=True).fetchall()
    if not rows:
        for table in _TABLES:
            db.execute(f"delete from {table} where base <> {PRESENT}")
        return 0, after
    decided = [row for row in rows if row[2] == 0 and row[4]]
    old = [(row[3], row[4], rest) for row in decided if (rest := blanked(row[5])) is not None]
    bandits, ids = [bandit for bandit, _, _ in old], [id for _, id, _ in old]
    requests, subjects = [rest.request for *_, rest in old], [rest.subject for *_, rest in old]
    db.execute(
        f"delete from requests where (bandit, request, id) in ({_NAMED})", [bandits, requests, ids]
    )
    db.execute(
        f"delete from subjects where (bandit, subject, id) in ({_NAMED})", [bandits, subjects, ids]
    )
    last = Position(*rows[-1][:2])
    return db.execute(_DROP, [*after, *last]).rowcount, last
