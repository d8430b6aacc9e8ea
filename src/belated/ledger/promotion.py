"""Promotions: a bandit goes on as if it had had another policy, family or features all along.

A PROMOTED event begins a regime. From then on the bandit is what a fold of all its events, from the
first one on, gives under the settings of that regime. A regime has a name, "" for the settings with
which the bandit was made, so that an event can return to an earlier one. Settings that do not
belong to a regime, such as ``exploration`` or ``late``, stay as each event of the log left them.

Vectors are written by the features of their time. A layout names such features: it is the regime
that brought them. A decision of another layout is given a vector again, from its context and from
its action as it was registered at that time.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from belated.features import Features
from belated.ledger.actions import Actions
from belated.ledger.events import START, Decided, Event, Kind, Position
from belated.ledger.protocol import Ledger
from belated.ledger.spec import Spec
from belated.ledger.vectors import packed

# Settings that a regime fixes for all decisions, whenever they were made, ...
MODEL = (
    *("family", "policy", "max_norm", "open"),
    *("window", "grace", "half_life", "half_life_unit"),
)
FEATURES = ("features", "dim")  # ... and those that a layout fixes, but for their growth


class Promotion(msgspec.Struct, frozen=True):
    """Body of a PROMOTED event, as JSON."""

    spec: Spec
    regime: str
    layout: str = ""
    request: str = ""  # the caller's name for it

    def encoded(self) -> bytes:
        """Returns the body."""
        return msgspec.json.encode({**msgspec.structs.asdict(self), "spec": self.spec.as_kept()})


class Placed(NamedTuple):
    """A promotion and its place in the log."""

    place: Position
    promotion: Promotion


def promotion_of(event: Event) -> Placed:
    """Returns what a PROMOTED event says."""
    promotion = msgspec.json.decode(event.body, type=Promotion)
    return Placed(Position(event.tx, event.seq), promotion)


def settings_in(event: Event) -> Spec:
    """Returns the settings that a CONFIGURED or PROMOTED event gives a bandit."""
    if event.kind == Kind.PROMOTED:
        return promotion_of(event).promotion.spec
    return msgspec.json.decode(event.body, type=Spec)


def promotions_of(ledger: Ledger, name: str, end: Position | None = None) -> list[Placed]:
    """Returns the promotions of a bandit, up to a place in the log."""
    told = [promotion_of(e) for e in ledger.rare(Kind.PROMOTED, START) if e.bandit == name]
    return [one for one in told if end is None or one.place <= end]


class ToldSettings:
    """The settings of a bandit as its log tells them, for a fold of the regime that began last.

    Parameters
    ----------
    promotions
        All of the bandit, up to the one that began the regime of the fold.
    """

    def __init__(self, promotions: Sequence[Placed] = ()) -> None:
        self.regime = self.layout = ""
        self.last = START  # events up to this one are known to lead to the regime of the fold
        self.superseded = False  # whether another regime has begun: the fold will be replaced
        self.ever = bool(promotions)  # whether the bandit was ever promoted
        self.former: str | None = None  # the regime before the present one
        self._present = ""  # the regime at the present place in the log
        self._layouts = {"": ""}  # by regime
        self._models: dict[str, Spec] = {}  # by regime: settings in which its MODEL stands
        self._features: dict[str, Spec] = {}  # by layout
        for place, promotion in promotions:
            self.regime, self.layout, self.last = promotion.regime, promotion.layout, place
            self._models.setdefault(promotion.regime, promotion.spec)
            self._features.setdefault(promotion.layout, promotion.spec)

    @classmethod
    def restored(cls, spec: Spec, kept: Sequence[str] | None) -> "ToldSettings":
        """Returns the settings of a fold that goes on from a snapshot, as ``to_keep`` had them."""
        told = cls()
        told.ever = kept is not None
        regime, layout = kept or ("", "")
        told.regime, told.layout, told._present = regime, layout, regime
        told._layouts[regime] = layout
        told._log = spec
        told._seen()
        return told

    def first(self, spec: Spec) -> Spec:
        """Take in the settings with which the bandit was made; returns those of the fold."""
        self._log = spec
        return self._seen()

    def configured(self, wanted: Spec) -> Spec:
        """Take in a change of settings; returns those of the fold from now on.

        Raises if the change cannot be made: two processes made one at once, differently, and the
        first one counts.
        """
        if self.superseded:
            raise ValueError("these settings are of another regime")
        self._log = self._log.changed_to(wanted)
        return self._seen()

    def promoted(self, placed: Placed) -> Spec:
        """Take in a promotion; returns the settings of the fold from now on."""
        promotion = placed.promotion
        self.ever = True
        if self.replaced_by(placed):
            self.superseded = True
            return self._seen()
        known = self._features.get(promotion.layout)  # they may have grown meanwhile
        self._log = promotion.spec if known is None else _with(promotion.spec, FEATURES, known)
        self.former, self._present = self._present, promotion.regime
        self._layouts[promotion.regime] = promotion.layout
        return self._seen()

    def replaced_by(self, placed: Placed) -> bool:
        """Returns whether a promotion begins another regime than that of the fold."""
        return placed.place > self.last and placed.promotion.regime != self.regime

    def to_keep(self) -> list[str] | None:
        """Returns regime and layout, for a snapshot; None for a bandit that was never promoted."""
        return [self.regime, self.layout] if self.ever else None

    def back(self) -> Promotion | None:
        """Returns the promotion that returns to the former regime; None if there is none."""
        if self.former is None:
            return None
        layout = self._layouts[self.former]
        spec = _with(self._log, MODEL, self._models[self.former])
        return Promotion(_with(spec, FEATURES, self._features[layout]), self.former, layout)

    def _seen(self) -> Spec:
        """Returns the settings of the fold at the present place in the log."""
        if not self.superseded:
            self._models[self._present] = self._log
            self._features[self._layouts[self._present]] = self._log
        spec = _with(self._log, MODEL, self._models[self.regime])
        return _with(spec, FEATURES, self._features[self.layout])


def _with(spec: Spec, names: Sequence[str], other: Spec) -> Spec:
    return msgspec.structs.replace(spec, **{name: getattr(other, name) for name in names})


class NoVectorError(ValueError):
    """The log does not hold what a decision's vector would have to be made of."""


def vector_again(actions: Actions, body: Decided, sparse: bool) -> bytes:
    """Returns the vector of a decision by the present features.

    Raises ``NoVectorError``, with a reason that many decisions may share.
    """
    features = actions.features
    action = actions.listed.get(body.action) if body.of_registered else None
    if action is None:
        raise NoVectorError("an action that was not registered then: the log has its vector alone")
    if not isinstance(action, Mapping):
        raise NoVectorError("an action that was registered as a vector")
    if not isinstance(features, Features):
        raise NoVectorError("features that a log cannot hold")
    needed = set(features.columns) - set(action)
    if needed and not body.context:
        raise NoVectorError("no context in the log: none was sent, or retention has taken it")
    context: Any = msgspec.json.decode(body.context) if body.context else None
    try:
        return packed(actions.vectors([action], context, sparse), 0, actions.dim)
    except (ValueError, KeyError, TypeError):
        raise NoVectorError("an action or context that the new features refuse") from None


def zeros(dim: int) -> bytes:
    """Returns the vector of a decision that says nothing: its reward changes no estimate."""
    return np.zeros(dim).tobytes()
