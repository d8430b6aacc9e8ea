"""A ledger in one SQLite file: write-ahead log, every commit flushed to the disk.

Several processes may use one file. SQLite lets one of them write at a time, so ``seq`` is commit
order, and the process that holds the write lock sees everything before it.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, count, islice
from pathlib import Path
from threading import RLock
from typing import Any
from uuid import uuid4

import apsw
from msgspec.structs import astuple

from belated.ledger.events import NOBODY, Draft, Event, Kind, Outcome, Position, Waiting
from belated.ledger.ids import first_id
from belated.ledger.protocol import (
    PAGE,
    CompactedError,
    Follower,
    Ledger,
    LedgerError,
    StoreBusyError,
    StoreUnavailableError,
)
from belated.ledger.rules import Known, Settled, mentioned, refuse_base, settle
from belated.ledger.stores.memory import PARK_FOR
from belated.ledger.stores.migrations import missing
from belated.ledger.stores.sqlite_base import (
    PRESENT,
    drop_old,
    present_base,
    put_carried,
    put_content,
    set_base,
)
from belated.ledger.stores.sqlite_upkeep import blank_old, copy_to, latest_decisions, problems_of
from belated.ledger.upkeep import Base, Retained, erasure, pieces

BUSY_MS = 10_000  # wait this long for another process to finish writing
LONGEST_TAIL = 100_000
RETAIN_ROWS = 10_000  # in one transaction: others must not wait for long
TOGETHER = 64  # rows of one statement: faster than one by one
_COLUMNS = "tx, seq, kind, bandit, id, time, value, due, body, received, closes, combine"
_KINDS = {kind.value: kind for kind in Kind}  # faster than to call the enum
_CARRIED = f"select {_COLUMNS} from carried where base = ({PRESENT})"
_ROW = "(?,?,?,?,?,?,?,?,?,?,?,?)"
_INSERT = f"insert into events ({_COLUMNS}) values {_ROW}"
_INSERT_TOGETHER = _INSERT + f", {_ROW}" * (TOGETHER - 1)
# cross join: each id is looked up, whatever the planner thinks of the sizes
_FACTS_IN = """select e.id, e.kind, e.bandit, e.time, e.due, e.closes, e.value, e.received,
        e.combine, case e.kind when 0 then null else e.body end
    from carray(?1) as given cross join {} as e on e.id = given.value where {}
    order by e.id, e.seq"""
_FACTS = _FACTS_IN.format("events", "e.seq > ?2")
_FACTS_CARRIED = _FACTS_IN.format("carried", f"e.base = ({PRESENT})")
_NEWEST = """select max(
    coalesce((select max(id) from events), x''), coalesce((select max(id) from parked), x''))"""
_ERASE = """update events set id = x'', value = null, due = null, body = x'', received = null,
    closes = null, combine = null where id = ?"""
_PARKED = "select p.* from carray(?) as given cross join parked as p on p.id = given.value"


class SQLiteLedger(Ledger):
    """A ledger in a file; see the module.

    Parameters
    ----------
    path
        The file; made if there is none.
    park_for
        Microseconds for which a reward may precede its decision.
    vfs
        Name of an apsw VFS, for tests that break the disk.
    waits
        Whether to wait while another process writes, for ten seconds at most; otherwise
        ``StoreBusyError`` is raised at once.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        park_for: int = PARK_FOR,
        vfs: str | None = None,
        waits: bool = True,
    ) -> None:
        self.path = Path(path)
        self.park_for = park_for
        self._vfs = vfs
        self._waits = waits
        self._lock = RLock()
        # Events that this object wrote itself need not be read back to be followed.
        self._tail: list[Event] = []
        self._tail_after = Position()
        with self._translated():
            self._open(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
            self._migrate()
            self.identity = str(self._db.execute("select identity from ledger").get)
            self._set_patience()

    def commit_all(
        self, batches: Sequence[Sequence[Draft]], follower: Follower | None = None
    ) -> list[list[Outcome]]:
        """See ``Ledger.commit_all``: either all batches are durable, or none."""
        events: list[Event] = []
        outcomes = []
        with self._lock:  # around the tail, too: another thread may be following
            with self._writing() as execute:
                last_event = "select tx, seq from events order by seq desc limit 1"
                tx, last = execute(last_event).get or (0, 0)
                up_to_date = follower is not None and follower.position == (tx, last)
                memory = follower if up_to_date else None
                known = self._known([draft for drafts in batches for draft in drafts], memory)
                for drafts in batches:
                    first = last + 1 + len(events)
                    settled = settle(drafts, known, first, count(first), self.park_for, follower)
                    self._write(settled)
                    events += settled.events
                    outcomes.append(settled.outcomes)
            if not self._tail or self._tail[-1].seq != last or len(self._tail) > LONGEST_TAIL:
                self._tail, self._tail_after = [], Position(tx, last)
            self._tail += events
        return outcomes

    def _known(self, drafts: Sequence[Draft], memory: Follower | None) -> Known:
        execute, ids = self._db.execute, mentioned(drafts)
        begins, last_dropped = execute("select seq, last_id from base").get
        known = Known(last_dropped=last_dropped)
        if ids and memory is not None:
            # A follower remembers no guardrail outcomes.
            known.facts = memory.open_decisions(ids - mentioned(drafts, Kind.OUTCOME))
            ids -= known.facts.keys()
        old = tuple(id for id in ids if id <= last_dropped)
        if old:
            for row in execute(_FACTS_CARRIED, (_blobs(old),)):
                known.add(*row)
        if ids:  # ids of new decisions are greater than all in the log
            newest = execute(_NEWEST).get
            ids = {id for id in ids if id <= newest}
        if ids:  # one query for all is four times as fast as one per id
            several = _blobs(tuple(ids))
            for row in execute(_FACTS, (several, begins)):
                known.add(*row)
            for row in execute(_PARKED, (several,)):
                known.parked[row[0]] = Waiting(*row)
        for draft in drafts:
            if draft.request:
                earlier = self._requested(draft.bandit, draft.request)
                if earlier is not None:
                    known.requests[draft.bandit, draft.request] = earlier
        return known

    def _write(self, settled: Settled) -> None:
        write, rows = self._db.executemany, list(map(astuple, settled.events))
        whole = len(rows) - len(rows) % TOGETHER
        for start in range(0, whole, TOGETHER):
            several = tuple(chain.from_iterable(rows[start : start + TOGETHER]))
            self._db.execute(_INSERT_TOGETHER, several)
        write(_INSERT, rows[whole:])
        if settled.requests:
            write("insert into requests values (?,?,?,?)", settled.requests)
        if settled.subjects:
            write("insert into subjects values (?,?,?)", settled.subjects)
        if settled.park:
            write("insert into parked values (?,?,?,?,?)", settled.park)
        if settled.unpark:
            write("delete from parked where id = ?", [(id,) for id in settled.unpark])

    def follow(self, after: Position, limit: int = 100_000) -> tuple[list[Event], Position]:
        with self._lock:
            if self._tail and self._tail_after == after:
                events, self._tail = self._tail, []
            else:
                events = self._read(after, limit)
                # Numbers have no gaps, so a gap says that events were dropped meanwhile.
                if events and events[-1].seq - after.seq != len(events):
                    base = self.base()
                    if base is not None and after < base.position:
                        raise CompactedError(base.position)
        return events, Position(events[-1].tx, events[-1].seq) if events else after

    def _read(self, after: Position, limit: int) -> list[Event]:
        events: list[Event] = []
        with self._reading():
            rows = self._db.cursor()
            rows.execute(f"select {_COLUMNS} from events where seq > ? order by seq", (after.seq,))
            for row in rows:
                if len(events) >= limit and row[0] != events[-1].tx:
                    break
                events.append(_event(row))
            rows.close(force=True)  # an unfinished query would keep old pages from being reused
        return events

    def story(self, id: bytes) -> list[Event]:
        later = f"select {_COLUMNS} from events where id = ?1 and seq > (select seq from base)"
        with self._reading() as execute:
            rows = execute(f"{_CARRIED} and id = ?1 union all {later} order by seq", (id,))
            events = _events(rows)
        return events if events and events[0].kind is Kind.DECIDED else []

    def requested(self, bandit: str, request: str) -> tuple[Event, bytes] | None:
        with self._reading():
            return self._requested(bandit, request)

    def _requested(self, bandit: str, request: str) -> tuple[Event, bytes] | None:
        found = self._db.execute(
            "select id, digest from requests where bandit = ? and request = ?", (bandit, request)
        ).get
        if found is None:
            return None
        id, digest = found
        rows = self._db.execute(f"select {_COLUMNS} from events where id = ? and kind = 0", (id,))
        (event,) = _events(rows)
        return event, digest

    def subject(self, bandit: str, subject: str) -> list[bytes]:
        with self._reading() as execute:
            rows = execute(
                "select id from subjects where bandit = ? and subject = ? order by id",
                (bandit, subject),
            )
            return [id for (id,) in rows]

    def forget(self, bandit: str, subject: str, time: int) -> int:
        with self._writing() as execute:
            begins = execute("select seq from base").get
            stories = [self.story(id) for id in self.subject(bandit, subject)]
            decisions = [story[0] for story in stories if story and story[0].seq > begins]
            ids = [event.id for event in decisions]
            requests, draft = erasure(bandit, time, decisions)
            for request in requests:
                execute("delete from requests where bandit = ? and request = ?", (bandit, request))
            for id in ids:
                execute(_ERASE, (id,))
            execute("delete from subjects where bandit = ? and subject = ?", (bandit, subject))
            (last,) = execute("select coalesce(max(seq), 0) from events").fetchone()
            self._write(settle([draft], Known(), last + 1, count(last + 1), self.park_for, None))
        self._empty_log_file()
        return len(ids)

    def parked(self, limit: int = PAGE, after: bytes = NOBODY) -> list[Waiting]:
        query = "select * from parked where id > ? order by id limit ?"
        with self._reading() as execute:
            return [Waiting(*row) for row in execute(query, (after, limit))]

    def end_parked(self, before: int) -> int:
        ended = (first_id(before),)
        with self._reading() as execute:  # mostly there are none, and others may be writing
            if not execute("select count(*) from parked where id < ?", ended).get:
                return 0
        with self._writing() as execute:
            execute("delete from parked where id < ?", ended)
            return self._db.changes()

    def rare(self, kind: Kind, after: Position) -> list[Event]:
        later = (
            f"select {_COLUMNS} from events where kind = ?1 and kind >= 7 and seq > ?2 "
            "and seq > (select seq from base)"
        )
        query = f"{_CARRIED} and kind = ?1 and seq > ?2 union all {later} order by seq"
        with self._reading() as execute:
            return _events(execute(query, (kind, after.seq)))

    def behind(self, after: Position) -> int:
        with self._reading() as execute:
            # After the base no number is left out; counting would take longer in a longer log.
            last, begins = execute("select (select max(seq) from events), seq from base").get
            return max(0, int(last or 0) - max(after.seq, begins))

    def retain(self, before: int, *, dry_run: bool = False) -> Retained:
        with self._reading() as execute:
            last = execute("select coalesce(max(seq), 0) from events").get
            parked = execute("select count(*) from parked where time < ?", (before,)).get
            latest = latest_decisions(execute)
        total = Retained(parked=parked)
        for first in range(1, last + 1, RETAIN_ROWS):
            rows = range(first, first + RETAIN_ROWS)
            with self._reading() if dry_run else self._writing() as execute:
                total = total.plus(blank_old(execute, before, rows, latest, dry_run=dry_run))
        if not dry_run:
            with self._writing() as execute:
                execute("delete from parked where time < ?", (before,))
            self._empty_log_file()
        return total

    def base(self) -> Base | None:
        with self._reading() as execute:
            return present_base(execute)

    def base_content(self, base: Base, bandit: str) -> bytes:
        query = "select content from base_content where base = ? and bandit = ? order by piece"
        with self._reading() as execute:
            return b"".join(piece for (piece,) in execute(query, (base.digest, bandit)))

    def carried(self) -> Iterable[Event]:
        with self._reading() as execute:
            return _events(execute(f"{_CARRIED} order by seq"))

    def compact(
        self,
        base: Base,
        contents: Iterable[tuple[str, bytes]],
        carried: Iterable[Event],
        seen: Position,
    ) -> None:
        n = 0
        for piece in pieces(contents):  # one by one: others want to write, too
            with self._writing() as execute:
                put_content(execute, base, *piece)
            n += 1
        events = iter(carried)
        while some := list(islice(events, RETAIN_ROWS)):
            with self._writing():
                put_carried(self._db.executemany, base, some)
        with self._writing() as execute:
            refuse_base(base, present_base(execute), self.rare(Kind.FORGOTTEN, seen))
            set_base(execute, base, n)

    def drop(self) -> int:
        dropped, n = 0, 1
        while n:
            with self._writing() as execute:
                n = drop_old(execute, RETAIN_ROWS)
            dropped += n
        self._empty_log_file()
        return dropped

    def problems(self) -> list[str]:
        with self._reading() as execute:
            return problems_of(execute)

    def backup(self, target: Path) -> None:
        with self._reading() as execute:
            copy_to(execute, target)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    # ------------------------------------------------------------------------------ the file

    def _open(self, flags: int) -> None:
        self._db = apsw.Connection(str(self.path), flags=flags, vfs=self._vfs)
        self._db.set_busy_timeout(BUSY_MS)
        mode = self._db.execute("pragma journal_mode = wal").get
        if mode != "wal":  # SQLite silently keeps a mode that loses commits in a power cut
            raise LedgerError(f"{self.path}: journal mode {mode!r}, expected 'wal'")
        self._db.execute("pragma synchronous = full")
        self._db.execute("pragma fullfsync = on")  # else macOS leaves commits in the disk's cache
        self._db.execute("pragma secure_delete = on")  # erased data must not stay in free pages
        self._file = self._file_now()

    def _set_patience(self) -> None:
        if not self._waits:
            self._db.set_busy_timeout(0)

    def _file_now(self) -> tuple[int, int] | None:
        if self._vfs is not None:
            return None
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return 0, 0
        return found.st_dev, found.st_ino

    def _migrate(self) -> None:
        def steps() -> list[tuple[int, str]]:
            return missing("sqlite", str(self.path), self._db.execute("pragma user_version").get)

        if not steps():
            return
        self._db.execute("begin immediate")  # another process may be about to do the same
        for version, script in steps():
            self._db.execute(script)
            self._db.execute(f"pragma user_version = {version}")
            if version == 1:
                self._db.execute("insert into ledger values (?)", (str(uuid4()),))
        self._db.execute("commit")

    def _empty_log_file(self) -> None:
        """Empty the write-ahead log, so that nothing erased stays in it or in memory."""
        self._tail = []
        with self._reading() as execute:
            execute("pragma wal_checkpoint(truncate)").fetchall()

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        with self._lock, self._translated():
            if self._file_now() != self._file:
                self._open_again()
            yield self._db.execute

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        with self._reading() as execute:
            execute("begin immediate")
            try:
                yield execute
                execute("commit")
            except BaseException:
                if self._db.in_transaction:
                    execute("rollback")
                raise

    def _open_again(self) -> None:
        """Open the file anew: it was replaced, and SQLite would go on with a file nobody finds."""
        if not self.path.exists():
            raise StoreUnavailableError(f"{self.path}: the file is gone")
        self._db.close()
        self._open(apsw.SQLITE_OPEN_READWRITE)
        opened, self._file = self._file, None  # until it is known to be ours
        identity = self._db.execute("select identity from ledger").get
        if identity != self.identity:
            raise StoreUnavailableError(f"{self.path}: another ledger lies in its place")
        self._file, self._tail = opened, []
        self._set_patience()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raises errors of SQLite as those of a ledger."""
        try:
            yield
        except (apsw.CorruptError, apsw.NotADBError) as error:
            raise LedgerError(f"{self.path}: damaged, or no SQLite file ({error})") from error
        except apsw.BusyError as error:
            raise StoreBusyError(f"{self.path}: {error}") from error
        except apsw.CantOpenError as error:
            raise StoreUnavailableError(f"{self.path}: {self._why_not() or error}") from error
        except apsw.Error as error:
            raise StoreUnavailableError(f"{self.path}: {error}") from error

    def _why_not(self) -> str:
        """Says why the file cannot be opened; "" if that is not its name."""
        if self.path.is_dir():
            return "it is a folder, expected a file"
        folder = self.path.parent
        return "" if folder.is_dir() else f"there is no folder {folder}"


def _blobs(ids: tuple[bytes, ...]) -> Any:
    return apsw.carray(ids, flags=apsw.SQLITE_CARRAY_BLOB)


def _event(row: Any) -> Event:
    tx, seq, kind, *rest = row
    return Event(tx, seq, _KINDS[kind], *rest)


def _events(rows: Any) -> list[Event]:
    return [_event(row) for row in rows]
