"""The base of a compacted log in a SQLite file; see ``ledger/base.py``."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

from belated.ledger.events import Event
from belated.ledger.protocol import StoreUnavailableError
from belated.ledger.rules import checked_base
from belated.ledger.upkeep import Base, blanked

PRESENT = "select digest from base"
_ROW = "(?,?,?,?,?,?,?,?,?,?,?,?,?)"
_COLUMNS = "tx, seq, kind, bandit, id, time, value, due, body, received, closes, combine"


def present_base(execute: Any) -> Base | None:
    """Returns the base; raises ``LedgerError`` if it is not what was written."""
    return checked_base(*execute("select tx, seq, last_id, digest, body from base").get)


def put_content(execute: Any, base: Base, bandit: str, piece: int, content: bytes) -> None:
    """Write a piece of a base that is being prepared."""
    row = base.digest, bandit, piece, content
    execute("insert or replace into base_content values (?,?,?,?)", row)


def put_carried(executemany: Callable[..., Any], base: Base, events: Sequence[Event]) -> None:
    """Write events that a base that is being prepared carries."""
    rows = [(base.digest, *astuple(event)) for event in events]
    executemany(f"insert or replace into carried (base, {_COLUMNS}) values {_ROW}", rows)


def set_base(execute: Any, base: Base, pieces: int) -> None:
    """Let the log begin with a base whose content is there."""
    of = (base.digest,)
    there = [
        execute(f"select count(*) from {table} where base = ?", of).get
        for table in ("base_content", "carried")
    ]
    if there != [pieces, base.carried]:
        raise StoreUnavailableError("another process has removed the base meanwhile: try again")
    row = *base.position, base.last_id, base.digest, msgspec.msgpack.encode(base)
    execute("update base set (tx, seq, last_id, digest, body) = (?,?,?,?,?)", row)


def drop_old(execute: Any, most: int) -> int:
    """Delete the next events before the base, with their requests and subjects; returns how many.

    When there are none left, earlier bases are deleted.
    """
    begins = execute("select seq from base").get
    first = execute("select min(seq) from events").get
    if first is None or first > begins:
        for table in ("base_content", "carried"):
            execute(f"delete from {table} where base != ({PRESENT})")
        return 0
    rows = first, min(first + most - 1, begins)
    old = "from events where seq between ? and ?"
    query = f"select bandit, id, body {old} and kind = 0 and id != x''"
    for bandit, id, body in execute(query, rows).fetchall():
        rest = blanked(body)
        if rest is not None:
            for table, name in (("requests", "request"), ("subjects", "subject")):
                named = bandit, getattr(rest, name), id
                execute(f"delete from {table} where bandit = ? and {name} = ? and id = ?", named)
    execute(f"delete {old}", rows)
    return int(execute("select changes()").get)
