"""A ledger in PostgreSQL: several machines write at once, and each follows the log of all.

The order of ``seq`` is not the order of commits: a reader that asks for ``seq > last`` misses what
a slower transaction commits later. So events carry the number of their transaction, and a reader
sees only those of transactions older than any that is still running. Such a number is drawn after
everything a transaction builds on has been read, so a reward always comes after its decision.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, LiteralString

import msgspec
from msgspec.structs import astuple

from belated.ledger.events import Decided, Draft, Erasure, Event, Kind, Outcome, Position, Waiting
from belated.ledger.memory import PARK_FOR
from belated.ledger.postgres_session import ANOTHER_CAME_FIRST, Connection, Session, only
from belated.ledger.postgres_upkeep import blank_old, drop_parked, problems_of
from belated.ledger.protocol import Follower, LedgerError, StoreUnavailableError
from belated.ledger.settling import Known, Settled, mentioned, settle
from belated.ledger.upkeep import Retained

TRIES = 10  # to settle a batch while others write about the same decisions
_COLUMNS: LiteralString = "tx, seq, kind, bandit, id, time, value, due, body"
_TYPES: LiteralString = "bigint bigint smallint text bytea bigint float8 bigint bytea"
_DECISION: LiteralString = "kind = 0 and id <> ''"  # as in the index that finds them
_KINDS = list(Kind)

# Commits share a lock that parking and forgetting hold alone: otherwise a reward could be parked
# while its decision is being written, or arrive while its decision is being erased.
_SHARE = "select pg_advisory_xact_lock_shared('events'::regclass::oid::bigint)"
_ALONE = "select pg_advisory_xact_lock('events'::regclass::oid::bigint)"
_FACTS = """
    select id, kind, bandit, due, value from events where id = any(%b::bytea[]) and id <> ''
    order by tx, seq
"""
_PARKED = "select id, time, value from parked where id = any(%b::bytea[])"
_REQUESTS: LiteralString = f"""
    select r.bandit, request, digest, {_COLUMNS.replace("bandit, id", "e.bandit, e.id")}
    from unnest(%b::text[], %b::text[]) as asked (bandit, request)
    join requests r using (bandit, request) join events e on e.id = r.id and e.kind = 0
    where e.id <> ''
"""
_NUMBERS = """
    select pg_current_xact_id()::text::bigint + tx_offset,
        array(select nextval('event_seq') from generate_series(1, %s))
    from ledger
"""
_FOLLOW: LiteralString = f"""
    select {_COLUMNS} from events
    where (tx, seq) > (%s, %s) and tx < (
        select tx_offset + pg_snapshot_xmin(pg_current_snapshot())::text::bigint from ledger
    )
    order by tx, seq
"""


class PostgresLedger:
    """See ``Ledger``.

    Parameters
    ----------
    url
        ``postgresql://user@host/database``, or anything else that libpq connects to.
    schema
        The PostgreSQL schema that holds the tables; made where there is none.
    park_for
        Microseconds for which a reward may precede its decision.

    Notes
    -----
    A connection that is lost during a commit leaves it open whether that took place. Committing the
    same drafts again is safe: what is there already is a DUPLICATE.
    """

    def __init__(self, url: str, *, schema: str = "belated", park_for: int = PARK_FOR) -> None:
        self._session = Session(url, schema)
        self.park_for = park_for

    @property
    def identity(self) -> str:
        """See ``Ledger.identity``."""
        return self._session.identity

    def commit(self, drafts: Sequence[Draft], follower: Follower | None = None) -> list[Outcome]:
        """See ``Ledger.commit``."""
        with self._session.connected() as db:
            lock = _SHARE
            for _ in range(TRIES):
                try:
                    known, tx, seqs = self._known(db, lock, drafts)
                    settled = settle(drafts, known, tx, iter(seqs), self.park_for, follower)
                    if not settled.park or lock == _ALONE:
                        with db.pipeline():
                            self._write(db, settled)
                            db.execute("commit")
                        return settled.outcomes
                    lock = _ALONE
                except ANOTHER_CAME_FIRST:
                    pass  # see what it wrote, and judge again
                db.rollback()
        name = self._session.name
        raise StoreUnavailableError(f"{name}: others wrote the same {TRIES} times in a row")

    def _known(
        self, db: Connection, lock: LiteralString, drafts: Sequence[Draft]
    ) -> tuple[Known, int, list[int]]:
        """Begin; what the log says; the numbers of the transaction and of its events.

        A decision makes two events where its reward was parked.
        """
        ids = list(mentioned(drafts))
        asked = [draft for draft in drafts if draft.request]
        names = [[draft.bandit for draft in asked], [draft.request for draft in asked]]
        known = Known()
        with db.pipeline():
            db.execute("begin")
            db.execute(lock)
            facts = db.execute(_FACTS, [ids], binary=True)
            parked = db.execute(_PARKED, [ids], binary=True)
            requests = db.execute(_REQUESTS, names, binary=True) if asked else ()
            numbers = db.execute(_NUMBERS, [2 * len(drafts)], binary=True)
        for id, kind, bandit, due, value in facts:
            known.add(id, kind, bandit, due, value)
        known.parked = {row[0]: Waiting(*row) for row in parked}
        for bandit, request, digest, *row in requests:
            known.requests[bandit, request] = _event(row), digest
        tx, seqs = only(numbers)
        return known, tx, seqs

    def _write(self, db: Connection, settled: Settled) -> None:
        def insert(table: LiteralString, types: LiteralString, columns: Any) -> None:
            arrays = ", ".join(f"%b::{kind}[]" for kind in types.split())
            rows = [list(column) for column in columns]
            if rows:
                db.execute(f"insert into {table} select * from unnest({arrays})", rows)

        insert(f"events ({_COLUMNS})", _TYPES, _event_columns(settled.events))
        insert("requests", "text text bytea bytea", zip(*settled.requests, strict=True))
        insert("subjects", "text text bytea", zip(*settled.subjects, strict=True))
        insert("parked", "bytea bigint float8", zip(*settled.park, strict=True))
        if settled.unpark:
            db.execute("delete from parked where id = any(%b::bytea[])", [settled.unpark])

    def commit_all(
        self, batches: Sequence[Sequence[Draft]], follower: Follower | None = None
    ) -> list[list[Outcome]]:
        """See ``Ledger.commit_all``: the number of a transaction is PostgreSQL's, so one by one."""
        return [self.commit(drafts, follower) for drafts in batches]

    def follow(self, after: Position, limit: int = 100_000) -> tuple[list[Event], Position]:
        """See ``Ledger.follow``."""
        with self._session.connected() as db:
            events = _events(db.execute(_FOLLOW + " limit %s", [*after, limit], binary=True))
            if len(events) == limit:
                rest = f"select {_COLUMNS} from events where tx = %s and seq > %s order by seq"
                events += _events(db.execute(rest, [events[-1].tx, events[-1].seq], binary=True))
        return events, Position(events[-1].tx, events[-1].seq) if events else after

    def story(self, id: bytes) -> list[Event]:
        """See ``Ledger.story``."""
        query = f"select {_COLUMNS} from events where id = %b and id <> '' order by tx, seq"
        with self._session.connected() as db:
            return _events(db.execute(query, [id], binary=True))

    def requested(self, bandit: str, request: str) -> tuple[Event, bytes] | None:
        """See ``Ledger.requested``."""
        with self._session.connected() as db:
            for _, _, digest, *row in db.execute(_REQUESTS, [[bandit], [request]], binary=True):
                return _event(row), digest
        return None

    def subject(self, bandit: str, subject: str) -> list[bytes]:
        """See ``Ledger.subject``."""
        query = "select id from subjects where bandit = %s and subject = %s order by id"
        with self._session.connected() as db:
            return [id for (id,) in db.execute(query, [bandit, subject], binary=True)]

    def forget(self, bandit: str, subject: str, time: int) -> int:
        """See ``Ledger.forget``. The space is freed by PostgreSQL's next vacuum, not at once."""
        with self._session.connected() as db, db.transaction():
            db.execute(_ALONE)
            ids = self.subject(bandit, subject)
            query = f"select {_COLUMNS} from events where id = any(%b::bytea[]) and {_DECISION}"
            decisions = _events(db.execute(query, [ids], binary=True))
            requests = [msgspec.msgpack.decode(e.body, type=Decided).request for e in decisions]
            db.execute(
                "delete from requests where bandit = %s and request = any(%s)", [bandit, requests]
            )
            db.execute(
                "update events set id = '', value = null, due = null, body = '' "
                "where id = any(%b::bytea[]) and id <> ''",
                [ids],
            )
            db.execute("delete from subjects where bandit = %s and subject = %s", [bandit, subject])
            first = min((Position(e.tx, e.seq) for e in decisions), default=None)
            body = msgspec.msgpack.encode(Erasure(len(ids), first))
            tx, (seq,) = only(db.execute(_NUMBERS, [1], binary=True))
            event = Event(tx, seq, Kind.FORGOTTEN, bandit, b"", time, None, None, body)
            self._write(db, Settled(events=[event]))
        return len(ids)

    def parked(self) -> list[Waiting]:
        """See ``Ledger.parked``."""
        with self._session.connected() as db:
            rows = db.execute("select id, time, value from parked order by time, id", binary=True)
            return [Waiting(*row) for row in rows]

    def rare(self, kind: Kind, after: Position) -> list[Event]:
        """See ``Ledger.rare``."""
        query = (
            f"select {_COLUMNS} from events where kind = %s and kind >= 7 "
            "and (tx, seq) > (%s, %s) order by tx, seq"
        )
        with self._session.connected() as db:
            return _events(db.execute(query, (int(kind), *after), binary=True))

    def behind(self, after: Position) -> int:
        """See ``Ledger.behind``."""
        with self._session.connected() as db:
            query = "select count(*) from events where (tx, seq) > (%s, %s)"
            return int(only(db.execute(query, after))[0])

    def retain(self, before: int, *, dry_run: bool = False) -> Retained:
        """See ``Ledger.retain``. The space is freed by PostgreSQL's next vacuum, not at once."""
        total, position = Retained(), Position()
        while True:
            with self._session.connected() as db, db.transaction():
                db.execute(_ALONE)  # nothing is forgotten meanwhile
                taken, last = blank_old(db, before, position, dry_run=dry_run)
                total = total.plus(taken)
                if last is None:
                    return total.plus(drop_parked(db, before, dry_run=dry_run))
                position = last

    def problems(self) -> list[str]:
        """See ``Ledger.problems``."""
        with self._session.connected() as db:
            return problems_of(db)

    def backup(self, target: Path) -> None:
        """See ``Ledger.backup``."""
        raise LedgerError(f"{self._session.name}: expected SQLite; PostgreSQL has pg_dump for it")

    def close(self) -> None:
        """See ``Ledger.close``."""
        self._session.close()


def _event(row: Any) -> Event:
    tx, seq, kind, bandit, id, time, value, due, body = row
    return Event(tx, seq, _KINDS[kind], bandit, id, time, value, due, body)


def _events(rows: Any) -> list[Event]:
    return [_event(row) for row in rows]


def _event_columns(events: list[Event]) -> list[Any]:
    columns = list(zip(*map(astuple, events), strict=True))
    if columns:  # psycopg wants arrays of one type each
        columns[2] = tuple(int(kind) for kind in columns[2])
        columns[6] = tuple(None if value is None else float(value) for value in columns[6])
    return columns
