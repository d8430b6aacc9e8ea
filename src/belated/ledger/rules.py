"""The rulebook of all stores: the outcome of each draft, given what the log already says."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from belated.core.events import Status
from belated.core.times import iso
from belated.ledger.events import (
    NOBODY,
    Draft,
    Erasure,
    Event,
    Facts,
    Kind,
    Outcome,
    Reward,
    Waiting,
    is_late,
)
from belated.ledger.ids import time_of
from belated.ledger.protocol import (
    Accepts,
    Follower,
    LedgerError,
    StoreUnavailableError,
    TooOldError,
)
from belated.ledger.upkeep import Base

WRITTEN = (Status.ACCEPTED, Status.EXPIRED)
# Looking these up in their enum costs as much as comparing them.
_DECIDED, _REWARDED, _REVISED = Kind.DECIDED, Kind.REWARDED, Kind.REVISED
_OUTCOME = Kind.OUTCOME
_ACCEPTED, _LATE, _PARKED = Status.ACCEPTED, Status.EXPIRED, Status.PARKED
_CONFLICT, _INVALID = Status.CONFLICT, Status.INVALID
_reward, encode = msgspec.msgpack.Decoder(Reward), msgspec.msgpack.encode
LARGEST_OUTCOME = 1e12  # of a guardrail, so that no sum over a log overflows
_erasure, _base = msgspec.msgpack.Decoder(Erasure), msgspec.msgpack.Decoder(Base)
LEEWAY = 60_000_000  # microseconds by which the clocks of callers may disagree with ours


@dataclass(slots=True)
class Known:
    """The facts of the log about everything that a batch of drafts mentions."""

    facts: dict[bytes, Facts] = field(default_factory=dict)
    requests: dict[tuple[str, str], tuple[Event, bytes]] = field(default_factory=dict)
    parked: dict[bytes, Waiting] = field(default_factory=dict)
    last_dropped: bytes = NOBODY  # decisions up to this id may have been dropped, see ``Base``

    def add_event(self, event: Event) -> None:
        """Take in an event about a decision, as ``add``."""
        self.add(
            event.id,
            event.kind,
            event.bandit,
            event.time,
            event.due,
            event.closes,
            event.value,
            event.received,
            event.combine,
            event.body,
        )

    def add(
        self,
        id: bytes,
        kind: int,
        bandit: str,
        time: int,
        due: int | None,
        closes: int | None,
        value: float | None,
        received: int | None,
        combine: str | None,
        body: bytes | None,
    ) -> None:
        """Take in an event about a decision; its events come in the order of the log."""
        facts = self.facts.get(id)
        if kind == _DECIDED:
            self.facts[id] = Facts(bandit, time, due, closes, combine=combine)
        elif facts is None:
            pass  # erased, or dropped
        elif kind == _REWARDED or kind == _REVISED:  # noqa: SIM109 -- `in` is slower
            if facts.combine is not None and value is not None:
                _count_in(facts, time, value, received, body)
            elif body and kind == _REWARDED:
                facts.rewards = {_reward.decode(body).event_id: value or 0.0}
            facts.value = value
        elif kind == Kind.EXPIRED:
            facts.expired = True
        elif kind == Kind.CANCELLED:
            facts.cancelled = True
        elif kind == _OUTCOME and value is not None and body is not None:
            facts.guardrails = facts.guardrails | {body: value}


def _count_in(
    facts: Facts, time: int, value: float, received: int | None, body: bytes | None
) -> None:
    """Take in a reward that is combined with others; ``value`` is what they amount to."""
    reward = _reward.decode(body) if body else Reward("", value)
    facts.rewards = facts.rewards | {reward.event_id: reward.value}
    if not is_late(time, received, facts.due, facts.closes, facts.expired):
        if facts.combined is None or _takes_place(facts, time):
            facts.chosen = time
        facts.combined = value


def _takes_place(facts: Facts, time: int) -> bool:
    """Returns whether a reward at ``time`` comes before the chosen one, or, for "last", after it.

    Where both happened at once, the order of the log decides.
    """
    return time < facts.chosen if facts.combine == "first" else time >= facts.chosen


def combination(facts: Facts, time: int, value: float) -> float:
    """Returns what the rewards of a decision amount to together with one that is on time."""
    known = facts.combined
    if known is None:
        return value
    if facts.combine == "sum":
        return known + value
    if facts.combine == "max":
        return max(known, value)
    return value if _takes_place(facts, time) else known


def as_written(draft: Draft, facts: Facts | None, status: Status) -> Draft:
    """Returns a draft as it is written: a further reward revises what the decision has."""
    if draft.kind is not _REWARDED or draft.value is None:
        return draft
    body = encode(Reward(draft.event_id, draft.value)) if draft.event_id else b""
    if facts is None or facts.combine is None or facts.value is None:
        return replace(draft, body=body) if body else draft
    late = status is _LATE
    value = facts.value if late else combination(facts, draft.time, draft.value)
    changes = not late and value != facts.combined
    body = encode(Reward(draft.event_id, draft.value, late, changes))
    return replace(draft, kind=_REVISED, value=value, body=body)


def handed_in(event: Event) -> Draft:
    """Returns the draft of an event as it was handed in: the inverse of ``as_written``."""
    kind, value, event_id = event.kind, event.value, ""
    more: dict[str, Any] = {"received": event.received}
    if kind is _OUTCOME:
        more["body"] = event.body
    elif event.body and value is not None:
        reward = _reward.decode(event.body)
        kind, value, event_id = _REWARDED, reward.value, reward.event_id
    return Draft(kind, event.bandit, event.id, event.time, value, event_id=event_id, **more)


@dataclass(slots=True)
class Settled:
    """The events to write, and the outcomes to return."""

    outcomes: list[Outcome] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    requests: list[tuple[str, str, bytes, bytes]] = field(default_factory=list)
    subjects: list[tuple[str, str, bytes]] = field(default_factory=list)
    park: list[Waiting] = field(default_factory=list)
    unpark: list[bytes] = field(default_factory=list)
    alone: bool = False  # whether no other writer may write at the same time


def mentioned(drafts: Iterable[Draft], kind: Kind | None = None) -> set[bytes]:
    """Returns the decisions that drafts, of one kind or of all, are about."""
    return {draft.id for draft in drafts if kind is None or draft.kind is kind} - {NOBODY}


def settle(
    drafts: Sequence[Draft],
    known: Known,
    tx: int,
    seqs: Iterator[int],
    park_for: int,
    follower: Follower | None,
) -> Settled:
    """Judge the drafts in their order, each in the light of those before it.

    Raises ``TooOldError`` for a decision that may have been dropped: it must not be learnt twice.
    """
    settled, accepts = Settled(), None if follower is None else follower.accepts
    events, outcomes = settled.events, settled.outcomes

    def write(draft: Draft, bandit: str) -> Event:
        kind, id, value, due, time = draft.kind, draft.id, draft.value, draft.due, draft.time
        if value == 0.0:
            value = 0.0  # SQLite does not keep the sign of -0.0, and live must equal replayed
        received = None if draft.received == time else draft.received
        closes = None if draft.closes == due else draft.closes
        body, combine = draft.body, draft.combine
        later = received, closes, combine
        event = Event(tx, next(seqs), kind, bandit, id, time, value, due, body, *later)
        events.append(event)
        known.add(id, kind, bandit, time, due, closes, value, received, combine, body)
        return event

    judged = Outcome(Status.ACCEPTED)
    for draft in drafts:
        if not draft.id:  # about no decision, or about one that was erased
            write(draft, draft.bandit)
            outcome = Outcome(Status.ACCEPTED, draft.bandit)
        elif draft.kind is _DECIDED:
            outcome = _decide(draft, known, settled, write, park_for, accepts)
        else:
            facts = known.facts.get(draft.id)
            waiting = known.parked.get(draft.id) if facts is None else None
            if facts is None and draft.id <= known.last_dropped:
                status = Status.UNKNOWN
            else:
                status = judge(draft, facts, waiting, park_for, accepts)
            bandit = draft.bandit if facts is None else facts.bandit
            if status is _ACCEPTED or status is _LATE:
                written = as_written(draft, facts, status)
                # Two writers at once would both combine with too little, or write an outcome.
                settled.alone |= written.kind is not draft.kind or draft.kind is _OUTCOME
                write(written, bandit)
            elif status is _PARKED and draft.value is not None:
                received = None if draft.received == draft.time else draft.received
                waiting = Waiting(draft.id, draft.time, draft.value, received, draft.event_id)
                known.parked[draft.id] = waiting
                settled.park.append(waiting)
            if status is _CONFLICT or status is _INVALID:
                judged = Outcome(status, bandit, facts=copy(facts))  # later drafts change the facts
            elif not (status is judged.status and bandit == judged.bandit):  # else as before
                judged = Outcome(status, bandit)
            outcome = judged
        outcomes.append(outcome)
    if follower is not None:
        follower.approve(outcomes)
    return settled


def _decide(
    draft: Draft,
    known: Known,
    settled: Settled,
    write: Callable[[Draft, str], Event],
    park_for: int,
    accepts: Accepts | None,
) -> Outcome:
    earlier = known.requests.get((draft.bandit, draft.request)) if draft.request else None
    if earlier is not None:
        event, digest = earlier
        status = Status.DUPLICATE if digest == draft.digest else Status.CONFLICT
        return Outcome(status, draft.bandit, event)
    facts = known.facts.get(draft.id)
    if facts is not None:
        same = facts.bandit == draft.bandit
        return Outcome(Status.DUPLICATE if same else Status.CONFLICT, draft.bandit)
    if draft.id <= known.last_dropped:
        raise TooOldError(draft.id)
    event = write(draft, draft.bandit)
    if draft.request:
        known.requests[draft.bandit, draft.request] = event, draft.digest
        settled.requests.append((draft.bandit, draft.request, draft.id, draft.digest))
    if draft.subject:
        settled.subjects.append((draft.bandit, draft.subject, draft.id))
    waiting = known.parked.get(draft.id)
    if waiting is not None:
        _, time, value, received, event_id = waiting
        reward = Draft(
            Kind.REWARDED, "", draft.id, time, value, received=received, event_id=event_id
        )
        status = judge(reward, known.facts[draft.id], None, park_for, accepts)
        if status in WRITTEN:
            write(as_written(reward, known.facts[draft.id], status), draft.bandit)
            del known.parked[draft.id]
            settled.unpark.append(draft.id)
    return Outcome(Status.ACCEPTED, draft.bandit)


def judge(
    draft: Draft,
    facts: Facts | None,
    waiting: Waiting | None,
    park_for: int,
    accepts: Accepts | None,
) -> Status:
    """Returns the status of a reward, expiry, cancellation or revision."""
    if facts is None:
        # A caller who may reward only one bandit must not wait for the decision of another.
        parkable = draft.kind is _REWARDED and not draft.bandit
        if not parkable or abs((draft.received or draft.time) - time_of(draft.id)) > park_for:
            return Status.UNKNOWN
        if misdated(draft, None):
            return _INVALID
        if waiting is not None:
            if waiting.event_id != draft.event_id:
                return Status.UNKNOWN  # one reward of a decision is parked, and no second
            return Status.DUPLICATE if waiting.value == draft.value else Status.CONFLICT
        return Status.PARKED
    if draft.bandit and draft.bandit != facts.bandit:
        return Status.UNKNOWN  # the caller may not know whether another bandit has it
    if draft.kind is _OUTCOME:
        return _judge_outcome(draft, facts)
    reward = draft.value
    if not (reward is None or accepts is None or accepts(facts.bandit, draft.kind, reward)):
        return _INVALID
    if draft.received is not None and misdated(draft, facts):
        return _INVALID
    if draft.kind is _REWARDED:
        if facts.value is not None:
            if second_event(draft, facts):
                return _CONFLICT
            several = facts.combine is not None
            earlier = facts.rewards.get(draft.event_id) if several else facts.value
            if earlier is not None:
                return Status.DUPLICATE if earlier == draft.value else Status.CONFLICT
        if facts.cancelled:
            return Status.CONFLICT
        due, closes, expired = facts.due, facts.closes, facts.expired
        if is_late(draft.time, draft.received, due, closes, expired):
            return _LATE
        if facts.combined is not None and reward is not None and accepts is not None:
            together = combination(facts, draft.time, reward)
            if not accepts(facts.bandit, draft.kind, together):
                return _INVALID
        return _ACCEPTED
    if draft.kind == Kind.EXPIRED:
        if facts.cancelled:
            return Status.CONFLICT
        return Status.DUPLICATE if facts.expired else Status.ACCEPTED
    if draft.kind == Kind.CANCELLED:
        if facts.cancelled:
            return Status.DUPLICATE
        learnt = facts.value is not None or facts.expired
        return Status.CONFLICT if learnt else Status.ACCEPTED
    if facts.combine is not None:
        return _INVALID  # a further reward is how such a decision gets another one
    if facts.cancelled or (facts.value is None and not facts.expired):
        return Status.CONFLICT  # nothing to revise
    return Status.DUPLICATE if facts.value == draft.value else Status.ACCEPTED


def _judge_outcome(draft: Draft, facts: Facts) -> Status:
    """Returns the status of a guardrail outcome, which no family bounds."""
    possible = draft.value is not None and abs(draft.value) <= LARGEST_OUTCOME
    if not possible or misdated(draft, facts):
        return _INVALID
    earlier = facts.guardrails.get(draft.body)
    if earlier is not None:
        return Status.DUPLICATE if earlier == draft.value else _CONFLICT
    if facts.cancelled:
        return _CONFLICT
    window = facts.due, facts.closes, facts.expired
    return _LATE if is_late(draft.time, draft.received, *window) else _ACCEPTED


def second_event(draft: Draft, facts: Facts | None) -> str:
    """Says that a reward is of a second event where a decision has one reward; "" if it is not."""
    if facts is None or facts.combine is not None or not draft.event_id or not facts.rewards:
        return ""
    (known,) = facts.rewards
    if draft.kind is not _REWARDED or draft.event_id == known:
        return ""
    return (
        f"event_id = {draft.event_id!r}: expected {known!r}, since combine is None and a decision "
        "has one reward; combine = 'first', 'last', 'sum' or 'max' makes one of several"
    )


def refusal(draft: Draft, facts: Facts | None, support: Any, family: str) -> str:
    """Says why a reward of a bandit of this family is INVALID; "" if nothing here is against it.

    ``support`` is the set of rewards that the family has.
    """
    said, reward = misdated(draft, facts), draft.value
    if said or reward is None:
        return said
    if draft.kind is _OUTCOME:
        return f"value = {reward!r}: expected a number of at most {LARGEST_OUTCOME:g} in size"
    if not support.contains(reward):
        return f"reward = {reward!r}: expected {support} ({family})"
    if facts is None or facts.combine is None:
        return ""
    if draft.kind is _REVISED:
        return f"revise = True: expected no revision, rewards are combined ({facts.combine})"
    together = combination(facts, draft.time, reward)
    said = f"reward = {reward!r} makes the {facts.combine} {together!r}"
    return f"{said}: expected {support} ({family})"


def misdated(draft: Draft, facts: Facts | None) -> str:
    """Says what is wrong with the time at which a reward is said to have happened; "" if nothing.

    A reward without a time of its own happened when it was handed in, and is never refused for
    that: our own clock may have been set back since the decision.
    """
    time, received = draft.time, draft.received
    if received is None or received == time:
        return ""
    if time > received + LEEWAY:
        return f"at = {iso(time)}: expected no time after now, {iso(received)}"
    if facts is not None and time < facts.time - LEEWAY:
        return f"at = {iso(time)}: expected no time before the decision, {iso(facts.time)}"
    return ""


def refuse_base(base: Base, present: Base | None, forgotten: Iterable[Event]) -> None:
    """Raises ``StoreUnavailableError`` if the log has changed since the base was folded.

    ``present`` is the base that the log has, ``forgotten`` are the erasures since.
    """
    if base.previous != ("" if present is None else present.digest):
        raise StoreUnavailableError("another process has compacted the log meanwhile: try again")
    firsts = (_erasure.decode(event.body).first for event in forgotten)
    if any(first is not None and first <= base.position for first in firsts):
        raise StoreUnavailableError("a subject was erased meanwhile: try again")


def checked_base(tx: int, seq: int, last_id: bytes, digest: str, body: bytes) -> Base | None:
    """Returns the base that a store keeps in these columns; None if it has none.

    Raises ``LedgerError`` if the base is not what was written.
    """
    if (tx, seq, last_id, digest, body) == (0, 0, NOBODY, "", b""):
        return None
    try:
        base = _base.decode(body)
    except msgspec.MsgspecError:
        base = None
    if base is None or (base.position, base.last_id, base.digest) != ((tx, seq), last_id, digest):
        raise LedgerError("the base of this compacted ledger is damaged: restore it from a backup")
    return base
