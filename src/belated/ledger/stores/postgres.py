"""A ledger in PostgreSQL: several machines write at once, and each follows the log of all.

Events are ordered by (tx, seq), and ``tx`` is the order of commits. A writer first reads what the
log says and settles its drafts, side by side with other writers. Then it waits for its turn, an
advisory lock that the function ``end_of_log`` takes and that ends with the transaction, and numbers
its events from the end of the log. Transactions of anybody else play no part.

Why a reader that asks for what comes after its last position misses no event and gets none twice:

- PostgreSQL makes a transaction visible before it releases its locks. So a writer whose turn it is
  sees every transaction with a smaller number, and its own number is greater than all of them. A
  number whose transaction was rolled back is drawn again: nobody has ever seen it.
- A snapshot that shows a transaction was therefore taken after all transactions with smaller
  numbers had become visible, and shows them, too. What is after the last position now was not
  visible before, and what becomes visible later has a greater number.
- Causes come before their effects: a process that rewards a decision has read it, so it was
  visible, and the reward gets a greater number.

During its turn a writer waits for the server only. The turn begins when the server has received
the events, which are written last, and the end of the transaction is sent right behind them. A
writer that stops before that holds up nobody's turn. All take their locks in the same order: those
of ``_SHARE`` and ``_ALONE``, then rows of requests by their name, then the turn.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, LiteralString

from msgspec.structs import astuple

from belated.ledger.events import NOBODY, START, Draft, Event, Kind, Outcome, Position, Waiting
from belated.ledger.ids import first_id
from belated.ledger.protocol import (
    PAGE,
    CompactedError,
    Follower,
    Ledger,
    LedgerError,
    StoreUnavailableError,
)
from belated.ledger.rules import Known, Settled, mentioned, refuse_base, settle
from belated.ledger.stores.memory import PARK_FOR
from belated.ledger.stores.postgres_base import (
    AFTER_BASE,
    IS_AFTER_BASE,
    PRESENT,
    drop_old,
    present_base,
    put_carried,
    put_content,
    set_base,
)
from belated.ledger.stores.postgres_session import ANOTHER_CAME_FIRST, Connection, Session, only
from belated.ledger.stores.postgres_upkeep import (
    DROP_ROWS,
    UPKEEP_ROWS,
    blank_old,
    drop_parked,
    latest_decisions,
    problems_of,
)
from belated.ledger.upkeep import Base, Retained, erasure, pieces

TRIES = 10  # to settle a batch while others write about the same decisions
_COLUMNS: LiteralString = (
    "tx, seq, kind, bandit, id, time, value, due, body, received, closes, combine"
)
_DECISION: LiteralString = "kind = 0 and id <> ''"  # as in the index that finds decisions
_KINDS = {kind.value: kind for kind in Kind}  # faster than to call the enum

# Commits share a lock that parking, combining, guardrail outcomes and forgetting hold alone:
# otherwise a reward could be parked while its decision is being written, be combined with too few
# of the others, or arrive while its decision is being erased, and an outcome be written twice.
_SHARE = "select pg_advisory_xact_lock_shared('events'::regclass::oid::bigint)"
_ALONE = "select pg_advisory_xact_lock('events'::regclass::oid::bigint)"
_FACTS_IN: LiteralString = """
    select id, kind, bandit, time, due, closes, value, received, combine,
        case kind when 0 then null else body end
"""
_FACTS: LiteralString = f"""
    {_FACTS_IN} from events
    where id = any(%b::bytea[]) and id <> '' and {IS_AFTER_BASE} order by tx, seq
"""
_FACTS_CARRIED: LiteralString = f"""
    {_FACTS_IN} from carried
    where id = any(%b::bytea[]) and id <> '' and base = {PRESENT} order by tx, seq
"""
_CARRIED: LiteralString = f"select {_COLUMNS} from carried where base = {PRESENT}"
_PARKED = "select * from parked where id = any(%b::bytea[])"
_REQUESTS: LiteralString = f"""
    select r.bandit, request, digest, {_COLUMNS.replace("bandit, id", "e.bandit, e.id")}
    from unnest(%b::text[], %b::text[]) as asked (bandit, request)
    join requests r using (bandit, request) join events e on e.id = r.id and e.kind = 0
    where e.id <> ''
"""
_INSERT: LiteralString = f"""
    insert into events ({_COLUMNS})
    select log.tx + 1 + batch, log.seq + place, kind, bandit, id, time, value, due, body,
        received, closes, combine
    from end_of_log() as log, unnest(
        %b::bigint[], %b::smallint[], %b::text[], %b::bytea[],
        %b::bigint[], %b::float8[], %b::bigint[], %b::bytea[], %b::bigint[], %b::bigint[],
        %b::text[]
    ) with ordinality as new (
        batch, kind, bandit, id, time, value, due, body, received, closes, combine, place
    )
"""
_FOLLOW: LiteralString = f"""
    select {_COLUMNS} from events where (tx, seq) > (%s, %s) order by tx, seq limit %s
"""


class PostgresLedger(Ledger):
    """A ledger in PostgreSQL; see the module.

    Parameters
    ----------
    url
        ``postgresql://user@host/database``, or anything else that libpq connects to.
    schema
        The PostgreSQL schema that holds the tables; made if there is none.
    park_for
        Microseconds for which a reward may precede its decision.

    Notes
    -----
    If a connection is lost during a commit, it is not known whether the commit took place.
    Committing the same drafts again is safe: those that are there already are DUPLICATE.
    """

    def __init__(self, url: str, *, schema: str = "belated", park_for: int = PARK_FOR) -> None:
        self._session = Session(url, schema)
        self.identity = self._session.identity
        self.park_for = park_for

    def commit_all(
        self, batches: Sequence[Sequence[Draft]], follower: Follower | None = None
    ) -> list[list[Outcome]]:
        """See ``Ledger.commit_all``: either all batches are durable, or none."""
        drafts = list(chain.from_iterable(batches))
        with self._session.connected() as db:
            lock = _SHARE
            for _ in range(TRIES):
                try:
                    known = self._known(db, lock, drafts)
                    parts = [
                        settle(part, known, batch, repeat(0), self.park_for, follower)
                        for batch, part in enumerate(batches)
                    ]
                    alone = any(part.park or part.alone for part in parts)
                    if lock == _ALONE or not alone:
                        with db.pipeline():
                            self._write(db, parts)
                            db.execute("commit")
                        return [part.outcomes for part in parts]
                    lock = _ALONE
                except ANOTHER_CAME_FIRST:
                    pass  # the next try sees what the other writer wrote, and judges again
                db.rollback()
        name = self._session.name
        raise StoreUnavailableError(f"{name}: others wrote the same {TRIES} times in a row")

    def _known(self, db: Connection, lock: LiteralString, drafts: Sequence[Draft]) -> Known:
        """Begin a transaction; returns what the log says about the drafts."""
        ids = list(mentioned(drafts))
        asked = [draft for draft in drafts if draft.request]
        names = [[draft.bandit for draft in asked], [draft.request for draft in asked]]
        known = Known()
        with db.pipeline():
            db.execute("begin")
            db.execute(lock)
            dropped = db.execute("select last_id from base", binary=True)
            carried = db.execute(_FACTS_CARRIED, [ids], binary=True)
            facts = db.execute(_FACTS, [ids], binary=True)
            requests = db.execute(_REQUESTS, names, binary=True) if asked else ()
        # Not in the pipeline: psycopg's way to end one stops the server's idle-transaction clock.
        parked = db.execute(_PARKED, [ids], binary=True)
        (known.last_dropped,) = only(dropped)
        for fact in chain(carried, facts):
            known.add(*fact)
        known.parked = {row[0]: Waiting(*row) for row in parked}
        for bandit, request, digest, *row in requests:
            known.requests[bandit, request] = _event(row), digest
        return known

    def _write(self, db: Connection, parts: Sequence[Settled]) -> None:
        """Write what was settled; events come last and get their numbers at the writer's turn.

        Until then the ``tx`` of an event is the place of its batch among those of this commit.
        """

        def insert(statement: LiteralString, rows: Iterable[Sequence[Any]]) -> None:
            columns = [list(column) for column in zip(*rows, strict=True)]
            if columns:
                db.execute(statement, columns)

        insert(
            "insert into requests select * from unnest("
            "%b::text[], %b::text[], %b::bytea[], %b::bytea[])",
            sorted(chain.from_iterable(part.requests for part in parts)),
        )
        insert(
            "insert into subjects select * from unnest(%b::text[], %b::text[], %b::bytea[])",
            chain.from_iterable(part.subjects for part in parts),
        )
        insert(
            "insert into parked select * from unnest("
            "%b::bytea[], %b::bigint[], %b::float8[], %b::bigint[], %b::text[])",
            chain.from_iterable(part.park for part in parts),
        )
        unpark = list(chain.from_iterable(part.unpark for part in parts))
        if unpark:
            db.execute("delete from parked where id = any(%b::bytea[])", [unpark])
        insert(_INSERT, [_row(event) for part in parts for event in part.events])

    def follow(self, after: Position, limit: int = 100_000) -> tuple[list[Event], Position]:
        with self._session.connected() as db:
            events = _events(db.execute(_FOLLOW, [*after, limit], binary=True))
            if len(events) == limit:
                rest = f"select {_COLUMNS} from events where tx = %s and seq > %s order by seq"
                events += _events(db.execute(rest, [events[-1].tx, events[-1].seq], binary=True))
            # Numbers have no gaps, so a gap says that events were dropped (or are of version 0.1).
            if events and events[-1].seq - after.seq != len(events):
                base = present_base(db)
                if base is not None and after < base.position:
                    raise CompactedError(base.position)
        return events, Position(events[-1].tx, events[-1].seq) if events else after

    def story(self, id: bytes) -> list[Event]:
        later = f"select {_COLUMNS} from events where id = %b and id <> '' and {IS_AFTER_BASE}"
        query = f"{_CARRIED} and id = %b union all {later} order by tx, seq"
        with self._session.connected() as db:
            events = _events(db.execute(query, [id, id], binary=True))
        return events if events and events[0].kind is Kind.DECIDED else []

    def requested(self, bandit: str, request: str) -> tuple[Event, bytes] | None:
        with self._session.connected() as db:
            for _, _, digest, *row in db.execute(_REQUESTS, [[bandit], [request]], binary=True):
                return _event(row), digest
        return None

    def subject(self, bandit: str, subject: str) -> list[bytes]:
        query = "select id from subjects where bandit = %s and subject = %s order by id"
        with self._session.connected() as db:
            return [id for (id,) in db.execute(query, [bandit, subject], binary=True)]

    def forget(self, bandit: str, subject: str, time: int) -> int:
        """See ``Ledger.forget``. The space is freed by PostgreSQL's next vacuum, not at once."""
        with self._session.connected() as db, db.transaction():
            db.execute(_ALONE)
            query = (
                f"select {_COLUMNS} from events where id = any(%b::bytea[]) and {_DECISION} "
                f"and {IS_AFTER_BASE}"
            )
            found = db.execute(query, [self.subject(bandit, subject)], binary=True)
            decisions = _events(found)
            ids = [event.id for event in decisions]
            requests, draft = erasure(bandit, time, decisions)
            db.execute(
                "delete from requests where bandit = %s and request = any(%s)", [bandit, requests]
            )
            db.execute(
                "update events set id = '', value = null, due = null, body = '', received = null, "
                "closes = null, combine = null where id = any(%b::bytea[]) and id <> ''",
                [ids],
            )
            db.execute("delete from subjects where bandit = %s and subject = %s", [bandit, subject])
            self._write(db, [settle([draft], Known(), 0, repeat(0), self.park_for, None)])
        return len(ids)

    def parked(self, limit: int = PAGE, after: bytes = NOBODY) -> list[Waiting]:
        query = "select * from parked where id > %b order by id limit %s"
        with self._session.connected() as db:
            return [Waiting(*row) for row in db.execute(query, [after, limit], binary=True)]

    def end_parked(self, before: int) -> int:
        with self._session.connected() as db:
            return db.execute("delete from parked where id < %b", [first_id(before)]).rowcount

    def rare(self, kind: Kind, after: Position) -> list[Event]:
        later = (
            f"select {_COLUMNS} from events where kind = %s and kind >= 7 "
            f"and (tx, seq) > (%s, %s) and {AFTER_BASE}"
        )
        carried = f"{_CARRIED} and kind = %s and (tx, seq) > (%s, %s)"
        query, asked = f"{carried} union all {later} order by tx, seq", (int(kind), *after)
        with self._session.connected() as db:
            return _events(db.execute(query, asked * 2, binary=True))

    def behind(self, after: Position) -> int:
        with self._session.connected() as db:
            query = f"select count(*) from events where (tx, seq) > (%s, %s) and {AFTER_BASE}"
            return int(only(db.execute(query, after))[0])

    def retain(self, before: int, *, dry_run: bool = False) -> Retained:
        """See ``Ledger.retain``. The space is freed by PostgreSQL's next vacuum, not at once."""
        total, position = Retained(), Position()
        with self._session.connected() as db:
            latest = latest_decisions(db)
        while True:
            with self._session.connected() as db, db.transaction():
                db.execute(_ALONE)  # nothing is forgotten meanwhile
                taken, last = blank_old(db, before, position, latest, dry_run=dry_run)
                total = total.plus(taken)
                if last is None:
                    return total.plus(drop_parked(db, before, dry_run=dry_run))
                position = last

    def base(self) -> Base | None:
        with self._session.connected() as db:
            return present_base(db)

    def base_content(self, base: Base, bandit: str) -> bytes:
        query = "select content from base_content where base = %s and bandit = %s order by piece"
        with self._session.connected() as db:
            rows = db.execute(query, [base.digest, bandit], binary=True)
            return b"".join(piece for (piece,) in rows)

    def carried(self) -> Iterable[Event]:
        with self._session.connected() as db:
            return _events(db.execute(f"{_CARRIED} order by tx, seq", binary=True))

    def compact(
        self,
        base: Base,
        contents: Iterable[tuple[str, bytes]],
        carried: Iterable[Event],
        seen: Position,
    ) -> None:
        n, rows = 0, ((event.tx, event.seq, *_row(event)[1:]) for event in carried)
        with self._session.connected() as db:
            for piece in pieces(contents):
                put_content(db, base, *piece)
                n += 1
            while some := list(islice(rows, UPKEEP_ROWS)):
                put_carried(db, base, some)
            with db.transaction():
                db.execute(_ALONE)  # nothing is written, forgotten or dropped meanwhile
                refuse_base(base, present_base(db), self.rare(Kind.FORGOTTEN, seen))
                set_base(db, base, n)

    def drop(self) -> int:
        """See ``Ledger.drop``. The space is used again after PostgreSQL's next vacuum."""
        dropped, n, last = 0, 1, START
        while n:
            with self._session.connected() as db, db.transaction():
                db.execute(_ALONE)  # no base is put in place meanwhile
                n, last = drop_old(db, last, DROP_ROWS)
            dropped += n
        return dropped

    def problems(self) -> list[str]:
        with self._session.connected() as db:
            return problems_of(db)

    def backup(self, target: Path) -> None:
        raise LedgerError(f"{self._session.name}: expected SQLite; PostgreSQL has pg_dump for it")

    def close(self) -> None:
        self._session.close()


def _event(row: Any) -> Event:
    tx, seq, kind, *rest = row
    return Event(tx, seq, _KINDS[kind], *rest)


def _events(rows: Any) -> list[Event]:
    return [_event(row) for row in rows]


def _row(event: Event) -> tuple[Any, ...]:
    """Returns an event as ``_INSERT`` takes it; psycopg wants arrays of one type each."""
    tx, _, kind, bandit, id, time, value, *rest = astuple(event)
    return tx, int(kind), bandit, id, time, None if value is None else float(value), *rest
