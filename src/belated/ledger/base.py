"""The base of a compacted log: the state of every bandit where the log begins.

Compaction folds the oldest events into a base and drops them. The log then begins at the base's
position, and everything that reads a log from its start begins with the base. The base holds the
history of each bandit (ids, vectors, rewards), as a snapshot does, but no context and no subject.
Decisions that were open are carried over: their events stay at hand, so that a reward still finds
its decision. Digests tell a compacted log from a damaged one.
"""

import json
from collections.abc import Callable, Iterable
from hashlib import sha256
from io import BytesIO
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import astuple

from belated.core.arguments import shown
from belated.core.times import utc
from belated.ledger.events import Event, Kind, Position
from belated.ledger.protocol import CompactedError, Ledger, LedgerError
from belated.ledger.spec import Spec
from belated.ledger.upkeep import Base, BasedBandit, blanked

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.ledger.fold import Fold


def packed(fold: "Fold") -> bytes:
    """Returns the arrays of a bandit as bytes; its header goes into the base itself."""
    file, sparse = BytesIO(), fold.learner.is_sparse
    vectors = np.zeros((0, 0)) if sparse else fold.learner.history.x[: fold.n_rows]
    np.savez(file, vectors=vectors, **fold.arrays())
    return file.getvalue()


def unpacked(empty: "Fold", header: bytes, content: bytes) -> "Fold":
    """Fill an empty fold with what ``packed`` returned, and return it."""
    with np.load(BytesIO(content), allow_pickle=False) as file:
        arrays = dict(file)
    vectors = arrays.pop("vectors")
    n, dim = vectors.shape
    x = np.zeros((n + n // 4 + 1024, dim))  # room for decisions to come
    x[:n] = vectors
    empty.restore(json.loads(header), arrays, x)
    return empty


def based(fold: "Fold", content: bytes) -> BasedBandit:
    """Returns a bandit as the base lists it."""
    header = msgspec.json.encode(fold.header())
    return BasedBandit(fold.name, header, fold.digest(), sha256(content).hexdigest())


def spec_of(bandit: BasedBandit) -> Spec:
    """Returns the settings of a bandit at the base."""
    return msgspec.convert(json.loads(bandit.header)["spec"], Spec)


def load(
    ledger: Ledger, base: Base, bandit: BasedBandit, empty: Callable[[str, Spec], "Fold"]
) -> "Fold":
    """Returns a bandit as the base has it; ``empty`` makes a fold that has taken in nothing.

    Raises ``CompactedError`` if another base has taken the place of this one, and ``LedgerError``
    if the base is not what was written.
    """
    content = ledger.base_content(base, bandit.name)
    if sha256(content).hexdigest() != bandit.sha256:
        present = ledger.base()
        if present is not None and present.digest != base.digest:
            raise CompactedError(present.position)
        raise LedgerError(
            f"the base of {bandit.name!r} is damaged: restore the ledger from a backup"
        )
    return unpacked(empty(bandit.name, spec_of(bandit)), bandit.header, content)


def is_carried(event: Event, is_open: Callable[[str, bytes], bool]) -> bool:
    """Returns whether an event that is dropped from the log stays at hand.

    API keys do, and everything about decisions that are open at the base.
    """
    return event.kind is Kind.KEYS or bool(event.id and is_open(event.bandit, event.id))


def as_carried(event: Event) -> Event:
    """Returns an event as it is carried: a decision without context, subject and request."""
    rest = blanked(event.body) if event.kind is Kind.DECIDED else None
    return event if rest is None else msgspec.structs.replace(event, body=rest.body)


def digest_of(events: Iterable[Event]) -> str:
    """Returns a digest of events in their order."""
    digest = sha256()
    for event in events:
        digest.update(msgspec.msgpack.encode(astuple(event)))
    return digest.hexdigest()


# ---------------------------------------------------------------------------------- for readers


def is_whole(ledger: Ledger, bandit: str) -> bool:
    """Returns whether the log holds every event of a bandit, from its first one on."""
    return version_at_base(ledger, bandit) == 0


def refuse_compacted(ledger: Ledger, bandit: str, what: str) -> None:
    """Raises ``LedgerError`` if ``what`` needs events of a bandit that were dropped."""
    base = ledger.base()
    if base is not None and not is_whole(ledger, bandit):
        raise LedgerError(
            f"{what} needs the whole log of {shown(bandit)}: its events up to {utc(base.until)} "
            "were compacted and dropped"
        )


def version_at_base(ledger: Ledger, bandit: str) -> int:
    """Returns the number of a bandit's events that were dropped: its version at the base."""
    base = ledger.base()
    found = [known for known in base.bandits if known.name == bandit] if base is not None else []
    return int(json.loads(found[0].header)["version"]) if found else 0


def too_old(ledger: Ledger, id: bytes) -> str:
    """Says that a decision may have been dropped; "" if it cannot be among those."""
    base = ledger.base()
    if base is None or id > base.last_id:
        return ""
    return (
        f"decisions up to {utc(base.until)} were compacted, and of those only the ones that were "
        "still open can be rewarded"
    )


def not_erased(ledger: Ledger) -> str:
    """Says what the erasure of a subject cannot reach; "" where the log holds everything."""
    base = ledger.base()
    if base is None:
        return ""
    return (
        f"Decisions up to {utc(base.until)} were compacted. Their vectors and rewards are part of "
        "the model and stay: contexts and subjects were deleted, so nobody knows whose they were."
    )


def start_of(ledger: Ledger) -> Position:
    """Returns the position at which the log begins."""
    base = ledger.base()
    return Position() if base is None else base.position


def described(base: Base | None) -> dict[str, Any]:
    """Returns what a command says about a compacted ledger; nothing about any other."""
    if base is None:
        return {}
    return {"log_begins_after": utc(base.until), "compacted_events": base.events}
