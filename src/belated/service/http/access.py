"""API keys with scopes, and a limit on their rate.

A change of keys holds on every process that serves the ledger as soon as it is answered. A process
lets nobody in unless it has seen the end of the log within the last FRESH seconds; and who changes
a key waits for KEYS_HOLD_AFTER seconds between the commit and the answer. So a request that is
sent after the answer meets a process that saw the end of the log after the commit.
"""

import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import NamedTuple

from belated.core.arguments import positive, shown, wrong
from belated.ledger.events import KeyChange
from belated.service.http.problems import FORBIDDEN, NO_KEY, TOO_MANY_REQUESTS, Problem

SCOPES = ("read", "decide", "reward", "admin")
PREFIX = "bel"  # lets scanners of source code find keys that were published by mistake
NO_SECRET = sha256(b"").hexdigest()
FRESH = 0.1  # seconds; a service looks at the log twice in this time, so nobody waits for it
KEYS_HOLD_AFTER = 1.2 * FRESH  # clocks of two machines do not run at quite the same speed
CHALLENGE = 'Bearer realm="belated"'

Headers = Mapping[bytes, bytes]  # names in lower case, as in ASGI


class NewKey(NamedTuple):
    """A key as it was made: the text is shown to its owner once and kept nowhere."""

    text: str
    id: str
    secret_hash: str


def hash_secret(secret: str) -> str:
    """Returns the SHA-256 of a secret.

    A slow password hash makes guessing likely passwords dear. The secret is 256 random bits: there
    are no likely ones, and a hash of milliseconds would be paid with every request.
    """
    return sha256(secret.encode(errors="replace")).hexdigest()


def new_key() -> NewKey:
    """Draw a key.

    >>> text, id, secret_hash = new_key()
    >>> text.startswith(f"bel_{id}_"), len(secret_hash)
    (True, 64)
    """
    id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    return NewKey(f"{PREFIX}_{id}_{secret}", id, hash_secret(secret))


class KeyRing:
    """The keys of a service.

    >>> from msgspec.structs import replace
    >>> text, id, secret_hash = new_key()
    >>> ring = KeyRing()
    >>> key = KeyChange(id, "shop's web server", secret_hash, bandit="shop", scopes=("decide",))
    >>> ring.put(key)
    >>> ring.check(text).name
    "shop's web server"
    >>> ring.put(replace(key, revoked=True))
    >>> ring.check(text) is None
    True
    """

    def __init__(self) -> None:
        self._keys: dict[str, KeyChange | None] = {}  # None: revoked
        # There never was a key. Revoking the last one must not let everybody in.
        self.is_open = True

    def put(self, key: KeyChange) -> None:
        """Let in whoever presents the secret of ``key``, or no longer: as the log says."""
        self._keys[key.id] = None if key.revoked else key
        self.is_open = False

    def check(self, presented: str) -> KeyChange | None:
        """The key that this text is, if it is one.

        An unknown id is compared, too, so that the time taken does not tell which ids exist.
        """
        prefix, _, rest = presented.partition("_")
        id, _, secret = rest.partition("_")
        key = self._keys.get(id)
        expected = NO_SECRET if key is None else key.secret_hash
        same = hmac.compare_digest(hash_secret(secret), expected)
        return key if same and prefix == PREFIX else None


class RateLimit:
    """A token bucket for each key: ``burst`` requests at once, ``per_second`` in the long run.

    Each process has buckets of its own: with n processes behind one address, n times as many
    requests may pass.
    """

    def __init__(
        self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.per_second = positive("per_second", per_second)
        self.burst = positive("burst", burst)
        if self.burst < 1.0:
            raise wrong("burst", burst, "1 or more: otherwise no request ever passes")
        self.clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens left, and when that was

    def wait(self, id: str) -> float:
        """Take a token of this key: 0.0, or the seconds until there will be one."""
        now = self.clock()
        tokens, then = self._buckets.get(id, (self.burst, now))
        tokens = min(self.burst, tokens + (now - then) * self.per_second)
        if tokens < 1.0:
            return (1.0 - tokens) / self.per_second
        self._buckets[id] = tokens - 1.0, now
        return 0.0


def presented_key(headers: Headers) -> str | None:
    """Returns the key in X-API-Key, in Personalizer's header, or in Authorization after Bearer."""
    text = headers.get(b"x-api-key", headers.get(b"ocp-apim-subscription-key"))
    if text is None:
        scheme, _, text = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            return None
    return text.strip().decode("latin-1")


class Gate:
    """Lets a request pass or raises the problem: what an ``Api`` asks before all else.

    With a ring that never held a key, everybody passes.
    """

    def __init__(self, ring: KeyRing, limit: RateLimit | None = None) -> None:
        self.ring = ring
        self.limit = limit

    async def __call__(self, headers: Headers, scope: str, bandit: str | None) -> KeyChange | None:
        """The key of a request that may use ``scope`` on ``bandit``.

        ``bandit`` is "" where the request is about no bandit in particular: a key for one bandit
        does not do. It is None where the handler itself looks at the key.
        """
        if self.ring.is_open:
            return None
        presented = presented_key(headers)
        if presented is None:
            raise Problem(
                NO_KEY,
                "Send an API key as X-API-Key: KEY or as Authorization: Bearer KEY.",
                headers={"WWW-Authenticate": CHALLENGE},
            )
        key = self.ring.check(presented)
        if key is None:
            raise Problem(
                NO_KEY,
                "The API key is unknown or was revoked.",
                headers={"WWW-Authenticate": f'{CHALLENGE}, error="invalid_token"'},
            )
        wait = self.limit.wait(key.id) if self.limit else 0.0
        if wait:
            detail = f"The key {key.id} may be used again in {wait:.3g} seconds."
            raise Problem(TOO_MANY_REQUESTS, detail, retry_after=wait)
        if scope not in key.scopes:
            detail = f"The key {key.id} has the scopes {', '.join(key.scopes)}, not {scope}."
            raise Problem(FORBIDDEN, detail)
        if bandit is not None and not key.covers(bandit):
            what = f"not {shown(bandit)}" if bandit else "and this is about all of them"
            raise Problem(FORBIDDEN, f"The key {key.id} is for the bandit {key.bandit!r}, {what}.")
        return key
