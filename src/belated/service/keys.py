"""API keys in a ledger: made and revoked by writing so into the log."""

import time
from collections.abc import Sequence

import msgspec

from belated.core.arguments import wrong
from belated.ledger.events import NOBODY, START, Draft, KeyChange, Kind
from belated.ledger.protocol import Ledger
from belated.ledger.replica import system_clock
from belated.service.http.access import KEYS_HOLD_AFTER, SCOPES, NewKey, new_key


def make_key(ledger: Ledger, name: str, scopes: Sequence[str], bandit: str = "") -> NewKey:
    """Make a key; its text is kept nowhere.

    >>> from belated.ledger import open_ledger
    >>> ledger = open_ledger("memory://")
    >>> key = make_key(ledger, "web server", ["decide", "reward"], bandit="shop")
    >>> valid_keys(ledger)[key.id].scopes
    ('decide', 'reward')
    >>> revoke(ledger, key.id)
    >>> valid_keys(ledger)
    {}
    """
    for scope in scopes:
        if scope not in SCOPES:
            raise wrong("scope", scope, f"one of {', '.join(SCOPES)}")
    if not 0 < len(name) <= 200:
        raise wrong("name", name, "1 to 200 characters")
    key = new_key()
    change = KeyChange(key.id, name, key.secret_hash, bandit, tuple(sorted(set(scopes))))
    _write(ledger, change)
    return key


def valid_keys(ledger: Ledger) -> dict[str, KeyChange]:
    """The keys that are not revoked, by id."""
    changes = (
        msgspec.msgpack.decode(event.body, type=KeyChange)
        for event in ledger.rare(Kind.KEYS, START)
    )
    newest = {change.id: change for change in changes}
    return {id: change for id, change in newest.items() if not change.revoked}


def revoke(ledger: Ledger, id: str) -> None:
    """Let this key in no longer, wherever the ledger is served."""
    known = valid_keys(ledger)
    if id not in known:
        ids = f"one of {', '.join(known)}" if known else "the id of a key, and there is none"
        raise wrong("id", id, ids)
    _write(ledger, msgspec.structs.replace(known[id], revoked=True))


def _write(ledger: Ledger, change: KeyChange) -> None:
    body = msgspec.msgpack.encode(change)
    ledger.commit([Draft(Kind.KEYS, "", NOBODY, system_clock(), body=body)])
    time.sleep(KEYS_HOLD_AFTER)
