"""The durable log that joins a decision to its reward, days later.

>>> from belated.ledger import open_ledger
>>> ledger = open_ledger("memory://")
>>> ledger.parked()
[]
"""

import os

from belated.core.arguments import wrong
from belated.ledger.protocol import Ledger, LedgerError, StoreUnavailableError

__all__ = ["Ledger", "LedgerError", "StoreUnavailableError", "open_ledger"]

EXPECTED = "sqlite:///file.db, postgresql://host/database or memory://"


def open_ledger(url: str, *, waits: bool = True) -> Ledger:
    """Returns the ledger at ``url``; a SQLite file is made if there is none.

    Parameters
    ----------
    url
        ``sqlite:///file.db`` (three slashes, then a path; a fourth for an absolute one),
        ``postgresql://...`` (needs ``belated[postgres]``) or ``memory://``; or ``env:NAME``, the
        environment variable that holds one of these, so that no password is seen in a command.
    waits
        Whether a SQLite ledger waits while another process writes; otherwise it raises
        ``StoreBusyError`` at once.
    """
    if not isinstance(url, str):
        raise wrong("ledger", url, EXPECTED)
    if url.startswith("env:"):
        name = url.removeprefix("env:")
        if name not in os.environ:
            raise wrong("ledger", url, "the name of an environment variable that is set")
        url = os.environ[name]
    scheme, found, rest = url.partition("://")
    if scheme == "memory" and found:
        from belated.ledger.stores.memory import MemoryLedger

        return MemoryLedger()
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        from belated.ledger.stores.sqlite import SQLiteLedger

        return SQLiteLedger(rest[1:], waits=waits)
    if scheme in ("postgresql", "postgres") and found:
        from belated.ledger.stores.postgres import PostgresLedger

        return PostgresLedger(url)
    raise wrong("ledger", url, EXPECTED)
