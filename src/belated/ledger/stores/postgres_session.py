"""A connection to PostgreSQL that comes back by itself, and the tables at its other end."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any
from uuid import uuid4

from belated.core.arguments import wrong
from belated.core.extras import extra
from belated.ledger.protocol import StoreUnavailableError
from belated.ledger.stores.migrations import missing

with extra("postgres"):
    import psycopg

Connection = psycopg.Connection[tuple[Any, ...]]
ANOTHER_CAME_FIRST = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
)

EXPECTED = "a URL that PostgreSQL's clients take, such as postgresql://user@host/database"
NETWORK = {  # a server that is cut off is noticed within half a minute
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
# A client that stops in the middle of a transaction is cut off before those who wait give up.
TIMEOUTS = """
    set statement_timeout = '60s';
    set lock_timeout = '10s';
    set idle_in_transaction_session_timeout = '5s'
"""
# The ledger relies on these, whatever the defaults of the server: every statement sees what was
# committed before it, a commit that returned is on the disk, and ids are looked up in the index,
# also in a log so new that PostgreSQL has no statistics of it and would read all of it instead.
# (Its cost estimates are then those of huge queries; compiling these would outlast running them.)
GUARANTEES = """
    set default_transaction_isolation = 'read committed';
    set enable_seqscan = off;
    set jit = off;
    select set_config('synchronous_commit', 'on', false)
        where current_setting('synchronous_commit') = 'off'
"""


class Session:
    """The tables of one ledger, reached through one connection.

    Connections must be the client's own: a pool that hands them on after each transaction, as
    pgbouncer can, forgets what is set here.
    """

    def __init__(self, url: str, schema: str) -> None:
        try:
            given = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # This shows neither the URL nor libpq's words about it: a password may be in both.
            raise wrong("ledger", "postgresql://...", EXPECTED) from None
        self._settings: dict[str, Any] = NETWORK | given
        host, database = given.get("host", "localhost"), given.get("dbname", "")
        self.name = f"PostgreSQL database {database!r} at {host}"
        self.schema = schema
        self.identity = ""
        self._lock = RLock()
        self._connection: Connection | None = None
        with self.connected():
            pass

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Yields the connection, made if there is none. After an error the next call makes one."""
        with self._lock:
            try:
                yield self._connection or self._connect()
            except psycopg.DataError as error:  # text with a NUL, a time beyond 64 bits
                self.close()
                raise ValueError(f"{self.name} cannot hold this: {error}") from error
            except psycopg.Error as error:
                self.close()
                raise StoreUnavailableError(f"{self.name}: {error}") from error
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _connect(self) -> Connection:
        db = self._connection = psycopg.connect(**self._settings, autocommit=True)
        db.execute(TIMEOUTS)
        db.execute(GUARANTEES)
        db.execute(self._about_schema("set search_path = {}"))
        self._migrate(db)
        (identity,) = only(db.execute("select identity from ledger"))
        if self.identity not in ("", identity):
            raise StoreUnavailableError(f"{self.name}: another ledger lies in its place")
        self.identity = identity
        return db

    def _migrate(self, db: Connection) -> None:
        if not self._missing(db):
            return
        # Another process may be about to do the same. This is no lock of the transaction: one that
        # began before the wait does not see the tables that were made meanwhile.
        lock = "(hashtext('belated'), hashtext(%s))"
        db.execute(f"select pg_advisory_lock{lock}", [self.schema])
        with db.transaction():
            db.execute(self._about_schema("create schema if not exists {}"))
            for version, script in self._missing(db):
                db.execute(script.encode())
                if version == 1:
                    db.execute("insert into ledger values (%s, 1, 0)", [str(uuid4())])
                db.execute("update ledger set version = %s", [version])
        db.execute(f"select pg_advisory_unlock{lock}", [self.schema])

    def _missing(self, db: Connection) -> list[tuple[int, str]]:
        (exists,) = only(db.execute("select to_regclass('ledger') is not null"))
        if not exists and self.identity:
            raise StoreUnavailableError(f"{self.name}: the tables are gone")
        version = only(db.execute("select version from ledger"))[0] if exists else 0
        return missing("postgres", self.name, version)

    def _about_schema(self, statement: Any) -> psycopg.sql.Composed:
        return psycopg.sql.SQL(statement).format(psycopg.sql.Identifier(self.schema))


def only(rows: Any) -> Any:
    """Returns the row of a result that has exactly one."""
    (row,) = rows
    return row
