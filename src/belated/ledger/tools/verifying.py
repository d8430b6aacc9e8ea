"""Verifies a ledger: its store, the invariants of its log, rebuilding from zero and snapshots."""

from pathlib import Path
from typing import Any

from belated.ledger import Ledger, LedgerError, StoreUnavailableError, snapshots
from belated.ledger.base import described
from belated.ledger.events import START
from belated.ledger.replica import system_clock
from belated.ledger.tools.compacting import problems_of
from belated.ledger.tools.invariants import Rules
from belated.ledger.tools.progress import progress
from belated.ledger.tools.reading import Rebuilding, events_of, rebuilt
from belated.ledger.tools.showing import NOT_SHOWN
from belated.ledger.upkeep import Base

SHOWN = 20  # violations that are shown


def verify(ledger: Ledger, folder: Path | None) -> dict[str, Any]:
    """Look at everything; ``sound`` says whether all was well."""
    checks = [_check("store", _problems(ledger), 1)]
    sound = not checks[0]["violations"]
    base, events = (ledger.base(), ledger.behind(START)) if sound else (None, 0)
    if base is not None:
        checks.append(_check("base", problems_of(ledger, base), len(base.bandits)))
    if not any(check["violations"] for check in checks):
        checks.append(_rules(ledger, events, base))
    if not any(check["violations"] for check in checks):
        checks += _rebuilding(ledger, events, folder)
    sound = not any(check["violations"] for check in checks)
    shown = [
        {"check": check["check"], "violation": said} for check in checks for said in check["said"]
    ]
    for check in checks:
        del check["said"]
    more = sum(check["violations"] for check in checks) - len(shown)
    report = {"events": events, **described(base), "checks": checks, "violations": shown}
    return report | {f"violations{NOT_SHOWN}": more, "sound": sound}


def _check(name: str, said: list[str], looked_at: int, violations: int | None = None) -> Any:
    found = len(said) if violations is None else violations
    return {"check": name, "looked_at": looked_at, "violations": found, "said": said[:SHOWN]}


def _problems(ledger: Ledger) -> list[str]:
    try:
        ledger.base()
    except StoreUnavailableError:
        raise
    except LedgerError as error:
        return [*ledger.problems(), str(error)]
    return ledger.problems()


def _rules(ledger: Ledger, events: int, base: Base | None) -> Any:
    rules, found, n = Rules(system_clock()), 0, 0
    if base is not None:
        folds = Rebuilding(ledger)
        folds.begin()
        rules.begin(base, ledger.carried(), folds.folds)
    said: list[str] = []
    try:
        with progress("checking the log", events) as told:
            for event in events_of(ledger, told):
                n += 1
                problem = rules.problem(event)
                if problem:
                    found += 1
                    if len(said) < SHOWN:
                        kind = event.kind.name.lower()
                        said.append(f"event {event.seq} ({kind}, {event.bandit!r}) {problem}")
    except LedgerError as error:  # damage that a store finds when it reads
        said, found = [*said, str(error)], found + 1
    return _check("rules of the log", said, n, found)


def _rebuilding(ledger: Ledger, events: int, folder: Path | None) -> list[Any]:
    """Returns one check per snapshot: whether it leads to the state that the whole log gives."""
    with progress("rebuilding from zero", events) as told:
        digests = digests_of(rebuilt(ledger, told))
    start = "zero" if ledger.base() is None else "the base"
    checks = [_check(f"rebuilt from {start}", [], len(digests))]
    for path in snapshots.found(folder):
        with progress(f"rebuilding from {path.name}", None) as told:
            said = _from_snapshot(ledger, path, digests, told)
        checks.append(_check(f"rebuilt from {path.name}", said, len(digests)))
    return checks


def _from_snapshot(ledger: Ledger, path: Path, digests: dict[str, str], told: Any) -> list[str]:
    replica = Rebuilding(ledger)
    try:
        if not snapshots.load_one(replica, path):
            return []  # nobody would use it: of another ledger, or it holds erased data
        replica.catch_up(told)
    except Exception as error:  # damaged bytes can break a reader anywhere
        return [f"{path} cannot be read ({type(error).__name__}: {error}); delete it"]
    found = digests_of(replica)
    return [
        f"{path}: {name!r} is not what the log says; delete it"
        for name in digests.keys() | found.keys()
        if digests.get(name) != found.get(name)
    ]


def digests_of(replica: Rebuilding) -> dict[str, str]:
    """Returns the digest of each bandit's state."""
    return {name: fold.digest() for name, fold in replica.folds.items()}
