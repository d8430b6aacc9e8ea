"""Invariants of every log, whoever wrote it.

The rulebook is that of the stores: an event belongs into the log if ``ledger.rules`` accepts it
after the events before it.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from belated.core.arguments import NORM_ROUNDING
from belated.core.events import Status
from belated.core.times import DAY, OLDEST, iso
from belated.learner import files
from belated.ledger.events import (
    NOBODY,
    ActionsChange,
    Decided,
    Draft,
    Erasure,
    Event,
    Guardrail,
    KeyChange,
    Kind,
    Position,
)
from belated.ledger.fold import Fold
from belated.ledger.ids import time_of
from belated.ledger.promotion import promotion_of
from belated.ledger.row_table import search_row
from belated.ledger.rules import WRITTEN, Known, as_written, handed_in, judge, misdated
from belated.ledger.spec import Spec
from belated.ledger.upkeep import Base
from belated.ledger.vectors import dim_of, entries_of

_SAID = {
    Status.UNKNOWN: "is about a decision that the log does not hold before it",
    Status.DUPLICATE: "is in the log already",
    Status.CONFLICT: "contradicts what the log says of its decision",
    Status.INVALID: "is no reward that this bandit can have",
}
_WITH_VALUE = (Kind.REWARDED, Kind.REVISED, Kind.OUTCOME)
_TIMED = (7, 8)  # versions of ids that begin with a time
_decided = msgspec.msgpack.Decoder(Decided)


class _Limits(NamedTuple):
    """Limits that the decisions and rewards of a bandit must keep."""

    spec: Spec
    dims: frozenset[int]  # lengths of vectors: features may have grown
    max_norm: float
    possible: Callable[[float], bool]
    promoted: bool = False  # processes that have not read of it yet write as they did before


class Rules:
    """Checks the events of a log, one after the other.

    Parameters
    ----------
    now
        The present time; no event can be much later.
    """

    def __init__(self, now: int) -> None:
        self.latest = now + DAY
        self._known = Known()
        self._limits: dict[str, _Limits] = {}
        self._last = Position()
        # Of a compacted log: its bandits at the base, which know all ids, and the greatest of them.
        self._based: Mapping[str, Fold] = {}
        self._last_dropped = NOBODY
        # A clock may be set back. Ids then go on from the last one, ahead of the time, and rewards
        # come before their decisions. The log before them tells by how much.
        self._earliest, self._newest_id = now, 0
        self._bodies: dict[Kind, Callable[[Event], str]] = {
            Kind.DECIDED: self._decision,
            Kind.CONFIGURED: self._settings,
            Kind.ACTIONS: _body_of(ActionsChange),
            Kind.FORGOTTEN: _body_of(Erasure),
            Kind.KEYS: _body_of(KeyChange),
            Kind.OUTCOME: _body_of(Guardrail),
            Kind.PROMOTED: self._promotion,
        }

    def begin(self, base: Base, carried: Iterable[Event], folds: Mapping[str, Fold]) -> None:
        """Begin with the base of a compacted log, which is taken for sound."""
        self._last, self._based, self._last_dropped = base.position, folds, base.last_id
        self._newest_id = _made(base.last_id, 0)
        for name, fold in folds.items():
            self._limit(name, fold.spec, frozenset([fold.spec.dim, *fold.earlier.lengths]))
        for event in carried:
            if event.id:
                self._known.add_event(event)

    def problem(self, event: Event) -> str:
        """Returns what is wrong with the next event; an empty text if nothing is."""
        place, self._last = self._last, Position(event.tx, event.seq)
        if not place < self._last:
            return f"does not come after the one before it, ({place.tx}, {place.seq})"
        for time in (event.time, event.written):
            if not OLDEST <= time <= self.latest:
                return f"has the time {iso(time)}"
        if event.received is not None and event.kind not in _WITH_VALUE:
            return f"was received at {iso(event.received)}, but is no reward"
        said = self._content(event)
        if not said:  # a wrong event must not vouch for those that follow
            self._earliest = min(self._earliest, event.time)
            if event.kind == Kind.DECIDED:
                self._newest_id = max(self._newest_id, _made(event.id, event.time))
        return said

    def _content(self, event: Event) -> str:
        if event.bandit not in self._limits and event.kind not in (Kind.CONFIGURED, Kind.KEYS):
            return f"is about {event.bandit!r}, a bandit that the log has not made before it"
        about_decision = event.kind < Kind.CONFIGURED or event.kind == Kind.OUTCOME
        if not event.id and about_decision:  # erased
            return "has a value, but no decision" if event.value is not None else ""
        try:
            said = self._bodies[event.kind](event) if event.kind in self._bodies else ""
        except (msgspec.MsgspecError, ValueError, TypeError) as error:
            said = f"has a body that cannot be read ({error})"
        return said or (self._settled(event) if event.id else "")

    def _settings(self, event: Event) -> str:
        spec = msgspec.json.decode(event.body, type=Spec)
        known = self._limits.get(event.bandit)
        if known is None:
            self._limit(event.bandit, spec, frozenset([spec.dim]))
            return ""
        try:
            now = known.spec.changed_to(spec)
        except ValueError:  # two processes changed it at once, differently: the first one counts
            grows = known.spec.features is not None and spec.features is not None
            same = spec.max_norm == known.spec.max_norm and (grows or spec.dim in known.dims)
            said = "gives the bandit another dimension or another bound"
            return "" if same or known.promoted else said
        bound = now.bound * NORM_ROUNDING  # a row may hold more tags than before
        self._limits[event.bandit] = known._replace(
            spec=now, dims=known.dims | {now.dim}, max_norm=max(bound, known.max_norm)
        )
        return ""

    def _promotion(self, event: Event) -> str:
        spec, known = promotion_of(event).promotion.spec, self._limits[event.bandit]
        before, after = known.possible, _possible(spec)
        self._limits[event.bandit] = _Limits(
            spec,
            known.dims | {spec.dim},
            max(known.max_norm, spec.bound * NORM_ROUNDING),
            lambda reward: before(reward) or after(reward),
            promoted=True,
        )
        return ""

    def _limit(self, bandit: str, spec: Spec, dims: frozenset[int]) -> None:
        """Note the limits of a new bandit."""
        bound = spec.bound * NORM_ROUNDING
        self._limits[bandit] = _Limits(spec, dims, bound, _possible(spec))

    def _decision(self, event: Event) -> str:
        body, limits = _decided.decode(event.body), self._limits[event.bandit]
        if len(body.x) % 4 or len(body.x) < 4 or dim_of(body.x) not in limits.dims:
            return f"has a vector of {len(body.x)} bytes, expected {limits.spec.dim} features"
        dim, columns, values = entries_of(body.x)
        if len(columns) and not 0 <= columns.min() <= columns.max() < dim:
            return f"has a vector with a feature beyond {dim}"
        if not math.hypot(*values) <= limits.max_norm:
            return "has a vector that is not finite, or too long"
        if body.propensity is not None and not 0.0 < body.propensity <= 1.0:
            return f"has propensity {body.propensity}"
        if event.due is not None and event.due < event.time:
            return "has a window that closes before it opens"
        if event.closes is not None and not (event.due is not None and event.due < event.closes):
            return "has a window whose grace ends before it begins"
        if len(event.id) != 16:
            return f"has an id of {len(event.id)} bytes"
        made = _made(event.id, event.time)
        if not event.time - DAY <= made <= max(event.time, self._newest_id) + DAY:
            return f"has an id made at {iso(made)}, but the time {iso(event.time)}"
        return ""

    def _settled(self, event: Event) -> str:
        """Returns the judgement of the stores on the event as a draft."""
        facts = self._known.facts.get(event.id)
        if facts is None and self._was_dropped(event):
            return _SAID[Status.DUPLICATE] if event.kind == Kind.DECIDED else ""
        if event.kind == Kind.DECIDED:
            status = Status.ACCEPTED if facts is None else Status.DUPLICATE
        elif facts is None:
            status = Status.UNKNOWN
        else:
            needs_value = event.kind in _WITH_VALUE
            if needs_value is (event.value is None):
                return "has no reward" if needs_value else "has a reward"
            if event.time < min(_made(event.id, event.time), self._earliest) - DAY:
                return "comes long before its decision"
            draft = handed_in(event)
            if misdated(draft, facts):
                return f"has a wrong time: {misdated(draft, facts)}"
            possible = self._limits[facts.bandit].possible
            status = judge(draft, facts, None, 0, lambda bandit, kind, reward: possible(reward))
            if status in WRITTEN and not _is_as_written(event, as_written(draft, facts, status)):
                return "does not combine the rewards of its decision"
        if status in WRITTEN:
            self._known.add_event(event)
            return ""
        return _SAID[status]

    def _was_dropped(self, event: Event) -> bool:
        """Returns whether the base holds the decision, and nothing else is known of it."""
        if event.id > self._last_dropped or event.bandit not in self._based:
            return False
        return search_row(self._based[event.bandit].ids, event.id) is not None


def _possible(spec: Spec) -> Callable[[float], bool]:
    try:
        return spec.possible()
    except files.SnapshotError:  # a family that is not part of belated
        return math.isfinite


def _is_as_written(event: Event, draft: Draft) -> bool:
    return (event.kind, event.value, event.body) == (draft.kind, draft.value, draft.body)


def _made(id: bytes, otherwise: int) -> int:
    """Returns the time in an id, or ``otherwise`` if the id holds none."""
    return time_of(id) if id and id[6] >> 4 in _TIMED else otherwise


def _body_of(type: Any) -> Callable[[Event], str]:
    decoder = msgspec.msgpack.Decoder(type)

    def look(event: Event) -> str:
        decoder.decode(event.body)
        return ""

    return look
