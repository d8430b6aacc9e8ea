"""Snapshots, copies and retention."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from belated.core.arguments import wrong
from belated.core.times import duration, iso
from belated.ledger import Ledger, LedgerError, snapshots
from belated.ledger.events import START, Decided, Kind
from belated.ledger.promotion import promotion_of
from belated.ledger.replica import system_clock
from belated.ledger.tools.progress import progress
from belated.ledger.tools.reading import Rebuilding, events_of, opened
from belated.ledger.tools.verifying import verify

_decided = msgspec.msgpack.Decoder(Decided)


def save_snapshot(url: str, folder: Path | None, *, dry_run: bool) -> dict[str, Any]:
    """Fold the log on from the newest snapshot, and save the state at its end."""
    folder = folder or snapshots.default_folder(url)
    if folder is None:
        raise wrong("--folder", None, "a folder: this ledger is no file that it could lie beside")
    with opened(url) as ledger:
        replica = Rebuilding(ledger)
        start = snapshots.load(replica, folder)
        with progress("taking in the log", ledger.behind(start)) as told:
            taken_in = replica.catch_up(told)
        nothing = replica.position == START
        path = None if dry_run or nothing else str(snapshots.save(replica, folder))
    return {"snapshot": path, "bandits": len(replica.folds), "events_since_the_last": taken_in}


def copy(url: str, out: Path, *, dry_run: bool) -> dict[str, Any]:
    """Copy a ledger to a new file and verify the copy; a copy that is not sound is deleted."""
    if url.startswith(("postgresql://", "postgres://")):
        raise LedgerError(
            "a ledger in PostgreSQL: expected SQLite; PostgreSQL has its own tool for it: "
            f"pg_dump --schema=belated --format=custom --file={out} {without_password(url)}"
        )
    if out.exists():
        raise wrong("--out", str(out), "the name of a new file")
    if not out.parent.is_dir():
        raise wrong("--out", str(out), "a name in a folder that exists")
    with opened(url) as ledger:
        events = ledger.behind(START)
        if dry_run:
            return {"file": str(out), "events": events, "written": False, "sound": True}
        ledger.backup(out)
    with opened(f"sqlite:///{out}") as ledger:
        found = verify(ledger, None)
    if not found["sound"]:
        out.unlink()
    return {"file": str(out), **found, "written": found["sound"]}


def without_password(url: str) -> str:
    """Returns a URL that may be shown.

    >>> without_password("postgresql://me:secret@host/shop")
    'postgresql://me@host/shop'
    """
    scheme, _, rest = url.partition("://")
    login, at, place = rest.rpartition("@")
    return f"{scheme}://{login.partition(':')[0]}{at}{place.partition('?')[0]}"


def _refuse_needed(ledger: Ledger, before: int) -> None:
    """Raises if contexts are needed: a bandit was promoted to other features since."""
    layouts = {
        e.bandit: promotion_of(e).promotion.layout for e in ledger.rare(Kind.PROMOTED, START)
    }
    needed = Counter(
        event.bandit
        for event in (events_of(ledger) if layouts else ())
        if event.bandit in layouts and event.kind == Kind.DECIDED and event.id
        if event.time < before and _decided.decode(event.body).layout != layouts[event.bandit]
    )
    for bandit, n in needed.items():
        raise LedgerError(
            f"{n:,} decisions of {bandit!r} were made with other features than the bandit has now, "
            "and its model needs their contexts: expected decisions with its present features. "
            f"`belated retrain {bandit} --back --promote` returns to the others"
        )


def retain(url: str, older_than: str, *, dry_run: bool) -> dict[str, Any]:
    """Take from old decisions what the state does not depend on."""
    before = system_clock() - duration("--older-than", older_than)
    with opened(url) as ledger:
        _refuse_needed(ledger, before)
        taken = ledger.retain(before, dry_run=dry_run)
    return {"before": iso(before), **taken._asdict(), "written": not dry_run}
