"""Looking after a SQLite file: its soundness, its old decisions, and a copy of it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import apsw

from belated.core.files import sync_folder, unfinished_file
from belated.ledger.protocol import LedgerError
from belated.ledger.upkeep import Retained, blanked

MOST_PROBLEMS = 20
_BEGINS = "select seq from base"
_REQUEST = "from requests where bandit = ? and request = ? and id = ?"
_SUBJECT = "from subjects where bandit = ? and subject = ? and id = ?"

# Each entry has a problem and a query that counts its rows. ``SQLiteLedger.commit`` makes seq and
# tx without gaps, and a log never ends where it begins: compaction leaves its last transaction.
_RULES = (
    (
        "events are missing",
        f"select max(coalesce(max(seq), 0) - ({_BEGINS}), ({_BEGINS}) > 0) - count(*) "
        f"from events where seq > ({_BEGINS})",
    ),
    (
        "transactions lack their first event",
        f"select count(*) from (select tx from events where seq > ({_BEGINS}) "
        "group by tx having min(seq) != tx)",
    ),
    (
        "requests have no decision",
        "select count(*) from requests r where not exists "
        "(select 1 from events e where e.id = r.id and e.kind = 0 and e.bandit = r.bandit)",
    ),
    (
        "subjects have no decision",
        "select count(*) from subjects s where not exists "
        "(select 1 from events e where e.id = s.id and e.kind = 0 and e.bandit = s.bandit)",
    ),
)


def problems_of(execute: Any) -> list[str]:
    """Returns what is wrong with the file and between its tables, in words."""
    try:
        found = [text for (text,) in execute(f"pragma integrity_check({MOST_PROBLEMS})")]
        if found != ["ok"]:
            return found
        counts = [(what, execute(query).get) for what, query in _RULES]
    except apsw.CorruptError as error:
        return [str(error)]
    return [f"{count} {what}" for what, count in counts if count]


def latest_decisions(execute: Any) -> dict[str, int]:
    """Returns the time of the latest decision of each bandit."""
    return dict(execute("select bandit, max(time) from events where kind = 0 group by bandit"))


def blank_old(
    execute: Any, before: int, rows: range, latest: Mapping[str, int], *, dry_run: bool
) -> Retained:
    """Take from old decisions among these rows of the log what retention takes."""
    old = execute(
        "select seq, bandit, id, body from events "
        "where seq between ? and ? and kind = 0 and time < ? and id != x''",
        (rows.start, rows.stop - 1, before),
    ).fetchall()
    decisions = requests = 0
    for seq, bandit, id, body in old:
        rest = blanked(body, latest[bandit])
        if rest is None:
            continue
        decisions += 1
        name = (bandit, rest.request, id)
        requests += execute(f"select count(*) {_REQUEST}", name).get
        if not dry_run:
            execute("update events set body = ? where seq = ?", (rest.body, seq))
            execute(f"delete {_REQUEST}", name)
            execute(f"delete {_SUBJECT}", (bandit, rest.subject, id))
    return Retained(decisions, requests)


def copy_to(execute: Any, target: Path) -> None:
    """Writes a copy as of now into a new file, under an identity of its own.

    A snapshot names its log by the log's identity. A log that is restored from a copy goes on
    differently from the log that was copied, so it must not use the snapshots of that one.
    """
    if target.exists():
        raise LedgerError(f"{target} exists: expected the name of a new file")
    with unfinished_file(target.parent) as part:
        execute("vacuum into ?", (str(part),))
        copy = apsw.Connection(str(part))
        copy.execute("update ledger set identity = ?", (str(uuid4()),))
        copy.close()
        with part.open("rb+") as file:  # Windows flushes only what may be written to
            os.fsync(file.fileno())
        part.rename(target)
    sync_folder(target.parent)
