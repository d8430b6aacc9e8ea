"""Rebuilding state from the log, and the choices of another policy on the same log."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from belated import registry
from belated.core.times import iso
from belated.features import Features
from belated.learner import files
from belated.ledger import Ledger
from belated.ledger.base import described as described_base
from belated.ledger.base import refuse_compacted
from belated.ledger.events import START, ActionsChange, Decided, Event, Kind, Position
from belated.ledger.fold import Fold
from belated.ledger.promotion import Placed, Promotion, promotions_of
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.tools.progress import progress
from belated.ledger.tools.reading import events_of, only_bandit, rebuilt
from belated.ledger.tools.side_by_side import options_of
from belated.ledger.vectors import dim_of, vector_of

COMPARED = 10_000  # decisions for which the other policy is asked
THETA = 5  # components of theta that are shown
AT_THE_END = Position(2**62, 0)  # of the log, however long it is
_decided = msgspec.msgpack.Decoder(Decided)


def replay(ledger: Ledger, bandit: str | None) -> dict[str, Any]:
    """Rebuild all bandits, or one of them, from zero."""
    started = time.perf_counter()
    with progress("replaying", ledger.behind(START)) as told:
        replica = rebuilt(ledger, told)
    seconds = time.perf_counter() - started
    events = sum(fold.version for fold in replica.folds.values())
    names = list(replica.folds) if bandit is None else [only_bandit(replica.folds, bandit)]
    return {
        "events": events,
        "seconds": round(seconds, 3),
        "events_per_second": round(events / seconds),
        "bandits": [described(replica.fold(name)) for name in names],
        **described_base(ledger.base()),
    }


def described(fold: Fold) -> dict[str, Any]:
    """Returns the state of a fold in a few numbers."""
    theta = fold.learner.state.theta[:THETA]
    return {
        "bandit": fold.name,
        "policy": fold.spec.policy["type"],
        "events": fold.version,
        "decisions": fold.n_rows,
        "rewards": fold.counts.rewarded,
        "pending": len(fold.pending),
        "expired": fold.counts.expired,
        "late": fold.counts.late,
        "theta": [round(float(value), 6) for value in theta],
        "digest": fold.digest(),
    }


def other_spec(spec: Spec, policy: str | None, family: str | None) -> Spec:
    """Returns the checked settings of a bandit with another policy or family.

    Where these learn nothing from silence, open decisions are held.
    """
    parts: dict[str, Any] = {}
    if policy is not None:
        parts["policy"] = files.describe("POLICIES", registry.parse(registry.POLICIES, policy))
    if family is not None:
        parts["family"] = files.describe("FAMILIES", registry.parse(registry.FAMILIES, family))
    spec = msgspec.structs.replace(spec, **parts)
    if spec.open == "silence" and not spec.can_hear():
        spec = msgspec.structs.replace(spec, open="hold")
    spec.learner()  # raises where they do not fit together
    return spec


def compare(
    ledger: Ledger, bandit: str | None, policy: str | None, family: str | None, until: int | None
) -> dict[str, Any]:
    """Compare a bandit's live model with another one from the same log. Nothing is written."""
    events = ledger.behind(START)
    with progress("replaying", events) as told:
        replica = rebuilt(ledger, told)
    live = replica.fold(only_bandit(replica.folds, bandit))
    refuse_compacted(ledger, live.name, "another model")
    spec = other_spec(live.spec, policy, family)  # raises where they do not fit together
    shrink = 1.0 if live.spec.bound <= spec.bound else _shrink(ledger, live, spec.bound)
    promotion = Promotion(spec, "other", live.told.layout)
    other = Other(as_if_promoted(replica, live.name, promotion), shrink)
    stride = max(1, events // COMPARED)
    with progress("replaying the other", events) as told:
        for transaction in transactions(events_of(ledger, told), live.name):
            kept = [event for event in transaction if until is None or event.written < until]
            other.take(kept, stride)
    other.finish()
    return {
        "bandits": [
            {"model": "live", **described(live)},
            {"model": "other", **described(other.fold)},
        ],
        "until": None if until is None else iso(until),
        "vectors_shrunk_by": shrink,
        "compared": other.compared,
        "chosen_differently": other.different,
        "share": other.different / other.compared if other.compared else None,
    }


def _shrink(ledger: Ledger, live: Fold, bound: float) -> float:
    """Returns the factor that brings all vectors of a bandit to a bound, 1 at most."""
    features = live.actions.features
    if isinstance(features, Features):
        longest = features.longest
    else:
        longest = max(
            (_longest(e) for e in events_of(ledger) if e.bandit == live.name), default=0.0
        )
    return min(1.0, bound / longest) if longest else 1.0


def _longest(event: Event) -> float:
    """Returns the norm of the longest vector that an event holds, 0 if it holds none."""
    if event.kind == Kind.ACTIONS:
        rows = list(msgspec.msgpack.decode(event.body, type=ActionsChange).put.values())
    elif event.kind == Kind.DECIDED and event.id:
        body = _decided.decode(event.body)
        rows = [vector_of(body.x)]
        if body.matrix:
            rows += list(np.frombuffer(body.matrix).reshape(-1, dim_of(body.x)))
    else:
        return 0.0
    return max((math.hypot(*row) for row in rows if not isinstance(row, Mapping)), default=0.0)


def as_if_promoted(replica: Replica, name: str, promotion: Promotion | None) -> Fold:
    """Returns a bandit before its first event, as it will be if it is promoted at the end."""
    first = next(event for event in events_of(replica.ledger) if event.bandit == name)
    known = promotions_of(replica.ledger, name)
    wanted = [] if promotion is None else [Placed(AT_THE_END, promotion)]
    return replica.new_fold(name, first, known + wanted)


def transactions(events: Iterable[Event], bandit: str) -> Iterator[list[Event]]:
    """Yields the events of a bandit, one list per transaction."""
    together: list[Event] = []
    for event in events:
        if event.bandit == bandit and event.kind != Kind.KEYS:
            if together and together[-1].tx != event.tx:
                yield together
                together = []
            together.append(event)
    if together:
        yield together


@dataclass(slots=True)
class Other:
    """A model beside the live one, asked now and then what it would have chosen.

    It is asked before it takes in the transaction of a decision, as the live one was. Every vector
    is multiplied by ``shrink``.
    """

    fold: Fold
    shrink: float = 1.0
    compared: int = 0
    different: int = 0
    _decisions: int = 0
    _held: list[Event] = field(default_factory=list)
    _rng: Any = field(default_factory=lambda: np.random.Generator(np.random.PCG64(0)))

    def take(self, transaction: list[Event], stride: int) -> None:
        """Take in a transaction; ask about every ``stride``-th decision in it first."""
        for event in transaction:
            if event.kind == Kind.DECIDED and event.id:
                self._decisions += 1
                if self._decisions % stride == 0:
                    self._ask(_decided.decode(event.body))
        self._held += [self._seen(event) for event in transaction]

    def finish(self) -> None:
        """Take in the events that were held back."""
        self.fold.apply(self._held)
        self._held = []

    def _seen(self, event: Event) -> Event:
        """Returns the event, with a vector that was shrunk."""
        if event.kind == Kind.DECIDED and event.id and self.shrink < 1.0:
            body = _decided.decode(event.body)
            shrunk = msgspec.structs.replace(body, x=(self.shrink * vector_of(body.x)).tobytes())
            return msgspec.structs.replace(event, body=msgspec.msgpack.encode(shrunk))
        return event

    def _ask(self, body: Decided) -> None:
        self.finish()
        matrix = options_of(self.fold, body)
        if matrix is None or body.held_out or body.repeats:  # nobody's choice
            return
        choice = self.fold.learner.choose(self.shrink * matrix, self._rng)
        self.compared += 1
        self.different += choice.index != body.index
