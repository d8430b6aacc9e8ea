"""Reading a ledger from the first event to the last."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from belated.core.arguments import wrong
from belated.core.files import refuse_missing
from belated.features import Features
from belated.ledger import Ledger, open_ledger, promotion
from belated.ledger.actions import Actions
from belated.ledger.base import spec_of, start_of
from belated.ledger.events import ActionsChange, Event, Kind
from belated.ledger.fold import Fold
from belated.ledger.growth import Earlier
from belated.ledger.promotion import promotion_of, promotions_of
from belated.ledger.replica import Progress, Replica
from belated.ledger.spec import Spec

CHUNK = 20_000  # events in memory at once


def is_new(url: str) -> bool:
    """Returns whether a ledger would have to be made first."""
    file = url.removeprefix("sqlite:///")
    return file != url and not Path(file).is_file()


@contextmanager
def opened(url: str) -> Iterator[Ledger]:
    """Yields the ledger at ``url``, which must exist: nothing is made by looking at it."""
    if is_new(url):
        refuse_missing("ledger", url, Path(url.removeprefix("sqlite:///")))
    with closing(open_ledger(url)) as ledger:
        yield ledger


def events_of(ledger: Ledger, told: Progress = lambda steps: None) -> Iterator[Event]:
    """Yields the whole log, in its order; a compacted one from its base on."""
    position = start_of(ledger)
    while True:
        events, position = ledger.follow(position, CHUNK)
        if not events:
            return
        yield from events
        told(len(events))


@dataclass(slots=True)
class Bandit:
    """Settings and actions of a bandit, as the log has them."""

    spec: Spec
    actions: Actions
    earlier: Earlier
    told: promotion.ToldSettings

    def change(self, event: Event) -> None:
        """Take in further settings, as ``Fold`` does."""
        with suppress(ValueError):  # two processes changed them at once, differently
            if event.kind == Kind.PROMOTED:
                self.spec = self.told.promoted(promotion_of(event))
            else:
                self.spec = self.told.configured(msgspec.json.decode(event.body, type=Spec))
            old, features = self.actions.features, self.spec.feature_map(self.actions.features)
            if isinstance(features, Features):
                if isinstance(old, Features) and features.dim != old.dim:
                    self.earlier.grow(old, features)
                self.actions.exchange(features)


def configure(bandits: dict[str, Bandit], event: Event, ledger: Ledger) -> None:
    """Make the bandit of a CONFIGURED event, or change its settings, or those of a PROMOTED one."""
    if event.bandit in bandits:
        bandits[event.bandit].change(event)
    else:
        told = promotion.ToldSettings(promotions_of(ledger, event.bandit))
        spec = told.first(msgspec.json.decode(event.body, type=Spec))
        actions = Actions(spec.dim, spec.feature_map(NoFeatures.for_spec(spec)))
        bandits[event.bandit] = Bandit(spec, actions, Earlier(spec.dim), told)


def bandits_at_base(ledger: Ledger) -> dict[str, Bandit]:
    """Returns the bandits with which the log begins: none, unless it was compacted."""
    base, bandits = ledger.base(), dict[str, Bandit]()
    for bandit in () if base is None else base.bandits:
        header, spec = json.loads(bandit.header), spec_of(bandit)
        actions = Actions(spec.dim, spec.feature_map(NoFeatures.for_spec(spec)))
        actions.restore(header["actions"])
        told = promotion.ToldSettings.restored(spec, header.get("regime"))
        earlier = Earlier(spec.dim, header.get("earlier", ()))
        bandits[bandit.name] = Bandit(spec, actions, earlier, told)
    return bandits


def bandits_of(ledger: Ledger) -> dict[str, Bandit]:
    """Returns the bandits of a ledger, with their present settings and actions."""
    bandits = bandits_at_base(ledger)
    for event in events_of(ledger):
        if event.kind in (Kind.CONFIGURED, Kind.PROMOTED):
            configure(bandits, event, ledger)
        elif event.kind == Kind.ACTIONS:
            change = msgspec.msgpack.decode(event.body, type=ActionsChange)
            bandits[event.bandit].actions.change(change.put, change.drop)
    return bandits


def only_bandit(bandits: dict[str, Any], name: str | None, where: str = "this ledger") -> str:
    """Returns the given name, or that of the only bandit; raises if there is no such bandit."""
    if name is None and len(bandits) == 1:
        return next(iter(bandits))
    if name not in bandits:
        raise wrong("--bandit", name, f"one of {where}: {', '.join(bandits) or 'none yet'}")
    return name


def unknown_bandit(ledger: Ledger, name: str) -> ValueError:
    """Returns the error for a name that no bandit of a ledger has."""
    names = ", ".join(bandits_of(ledger))
    return wrong("name", name, f"one of {names}" if names else "a bandit, and there is none yet")


class NoFeatures:
    """Stands for features that a log cannot hold. A fold needs none: the log has the vectors."""

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def transform(self, actions: Any, context: Any = None) -> Any:
        """Raises an error: these features are only known by their length."""
        raise ValueError("features: the log does not hold those of this bandit")

    def to_dict(self) -> dict[str, Any]:
        """Returns an empty dict."""
        return {}

    @classmethod
    def for_spec(cls, spec: Spec) -> "NoFeatures | None":
        """Returns a stand-in for a bandit's features if its settings do not hold them."""
        readable = spec.features is None or spec.features.get("kind") in ("features", "vectors")
        return None if readable else cls(spec.dim)


class Rebuilding(Replica):
    """A replica that reads a log and decides nothing, so it can do without features."""

    def empty_fold(self, name: str, spec: Spec) -> Fold:
        """Returns an empty fold, with a stand-in for features that the log cannot hold."""
        return Fold(name, spec, self._types, NoFeatures.for_spec(spec))


def rebuilt(ledger: Ledger, told: Progress) -> Rebuilding:
    """Rebuild all bandits of a ledger from zero, or from its base if it was compacted."""
    replica = Rebuilding(ledger)
    replica.catch_up(told)
    return replica
