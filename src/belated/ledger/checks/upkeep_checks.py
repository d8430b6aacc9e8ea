"""Checks of what is kept and for how long: parked rewards, erasure, retention, compaction."""

from collections.abc import Callable
from functools import partial

import msgspec
from msgspec.structs import replace

from belated.core.events import Status
from belated.ledger.base import as_carried, digest_of
from belated.ledger.checks.trials import NOW, SECOND, NewLedger, Writer, expect, whole_log
from belated.ledger.events import (
    NOBODY,
    START,
    Decided,
    Draft,
    Event,
    Kind,
    Position,
    Stretch,
)
from belated.ledger.protocol import CompactedError, StoreUnavailableError, TooOldError
from belated.ledger.upkeep import Base, BasedBandit
from belated.ledger.upkeep import erased as without_trace


def check_parking(new: NewLedger) -> None:
    """A reward that precedes its decision waits for it."""
    writer = Writer(new())
    early, stranger = writer.decided(due=NOW + SECOND), writer.decided()
    parked, again = Status.PARKED, "a parked reward must be remembered: "
    expect(writer.reward(early.id, 1.0), parked, "park a reward whose decision is to come")
    expect(writer.reward(early.id, 1.0), Status.DUPLICATE, f"{again}the same is a duplicate")
    expect(writer.reward(early.id, 0.0), Status.CONFLICT, f"{again}another one is a conflict")
    expect(writer.reward(stranger.id, 2.0), parked, "park a reward whose decision is to come")
    waiting = [(early.id, NOW, 1.0, None, ""), (stranger.id, NOW, 2.0, None, "")]
    expect(writer.ledger.parked(), waiting, "parked must return id, time and value, by id")
    expect(whole_log(writer.ledger), [], "a parked reward must not be in the log")
    expect(writer.commit(early), [Status.ACCEPTED], "a decision after its reward must be written")
    log = [(event.kind, event.id, event.value) for event in whole_log(writer.ledger)]
    wanted = [(Kind.DECIDED, early.id, None), (Kind.REWARDED, early.id, 1.0)]
    expect(log, wanted, "a decision must be written together with the reward parked for it")
    left = [waiting[0] for waiting in writer.ledger.parked()]
    expect(left, [stranger.id], "a reward that was written must not stay parked")
    status = writer.reward(early.id, 1.0)
    expect(status, Status.DUPLICATE, "a reward that was parked and written must be remembered")


def check_parked_pages(new: NewLedger) -> None:
    """Parked rewards come page by page, and end when their decision can no longer be waited for."""
    writer = Writer(new())
    ids = []
    for k in range(7):
        writer.now = NOW + k * SECOND
        ids.append(writer.decided().id)
    for id in reversed(ids):
        expect(writer.reward(id, 0.5), Status.PARKED, "park a reward whose decision is to come")
    pages: list[list[bytes]] = []
    last = NOBODY
    while len(pages) < len(ids) and (page := writer.ledger.parked(3, last)):
        pages.append([waiting.id for waiting in page])
        last = page[-1].id
    rule = "parked(limit, after) must return the next rewards after an id, by id"
    expect(pages, [ids[:3], ids[3:6], ids[6:]], rule)
    expect([waiting.id for waiting in writer.ledger.parked()], ids, rule)
    rule = "end_parked(before) must remove the rewards of decisions made before a time, and count"
    for before, count_, left in ((0, 0, 0), (2 * SECOND, 2, 2), (2 * SECOND, 0, 2)):
        expect(writer.ledger.end_parked(NOW + before), count_, rule)
        expect([waiting.id for waiting in writer.ledger.parked()], ids[left:], rule)
    expect(writer.ledger.end_parked(NOW + 2 * SECOND + 1), 1, rule)


def check_forgetting(new: NewLedger) -> None:
    """Erased events cannot be found, and the log says that something was erased."""
    writer = Writer(new())
    kept = writer.decide()
    gone = [writer.decided(subject="me", request=f"r{k}") for k in range(2)]
    writer.commit(*gone, writer.decided("other", subject="me"), writer.decided(subject="you"))
    for id in (gone[1].id, kept):
        expect(writer.reward(id, 0.5), Status.ACCEPTED, "the first reward must be written")
    outcome = writer.about(Kind.OUTCOME, gone[0].id, 2.0, body=b"outcome")
    expect(writer.commit(outcome), [Status.ACCEPTED], "the first outcome must be written")
    ledger, erased = writer.ledger, {draft.id for draft in gone}
    found = ledger.subject("shop", "me")
    expect(found, [draft.id for draft in gone], "subject must return the decisions of a person")
    before = whole_log(ledger)
    expect(ledger.forget("shop", "me", NOW + 9), 2, "forget must count the decisions it erases")
    *after, last = whole_log(ledger)
    wanted = [without_trace(event) if event.id in erased else event for event in before]
    expect(after, wanted, "forget must blank the events of one person's decisions, and no others")
    note = (last.kind, last.bandit, last.time)
    expect(note, (Kind.FORGOTTEN, "shop", NOW + 9), "forget must write that something was erased")
    rule = "rare must return the events of one kind after a position"
    expect(ledger.rare(Kind.FORGOTTEN, START), [last], rule)
    expect(ledger.rare(Kind.FORGOTTEN, Position(last.tx, last.seq)), [], rule)
    expect(ledger.rare(Kind.KEYS, START), [], rule)
    expect(ledger.subject("shop", "me"), [], "an erased person must not be found")
    expect(ledger.requested("shop", "r0"), None, "an erased request must not be found")
    expect(ledger.story(gone[0].id), [], "an erased decision must not be found")
    writer.now += 3600 * SECOND
    expect(writer.reward(gone[1].id, 0.5), Status.UNKNOWN, "an erased decision must be unknown")
    expect(ledger.forget("shop", "nobody", NOW), 0, "forget must count the decisions it erases")


def check_retention(new: NewLedger) -> None:
    """Old decisions lose what the state does not depend on; nothing else is lost."""
    writer = Writer(new())
    ledger = writer.ledger
    old = [writer.decided(subject="me", request=f"r{k}") for k in range(3)]
    plain, stranger = writer.decided(), writer.decided()
    writer.commit(*old, plain, writer.about(Kind.REWARDED, old[0].id, 0.5))
    expect(writer.reward(stranger.id, 1.0), Status.PARKED, "park a reward before its decision")
    writer.now += SECOND
    young = writer.decided(subject="me", request="young")
    writer.commit(young)
    before, ids = whole_log(ledger), {draft.id for draft in old}
    counts = "retain must count the decisions, requests and parked rewards that it blanks"
    expect(ledger.retain(NOW + 1, dry_run=True), (3, 3, 1), counts)
    expect(whole_log(ledger), before, "retain must change nothing in a dry run")
    found = ledger.requested("shop", "r0") is not None
    expect(found, True, "retain must change nothing in a dry run")
    expect(ledger.retain(NOW + 1), (3, 3, 1), counts)
    wanted = []
    for event in before:
        if event.kind == Kind.DECIDED and event.id in ids:
            body = msgspec.msgpack.decode(event.body, type=Decided)
            rest = replace(body, context=b"", subject="", request="", matrix=b"")
            event = replace(event, body=msgspec.msgpack.encode(rest))
        wanted.append(event)
    rule = "retain must blank context, subject, request and matrix of old decisions, and no more"
    expect(whole_log(ledger), wanted, rule)
    expect(ledger.retain(NOW + 1), (0, 0, 0), "retain must find nothing the second time")
    expect(ledger.parked(), [], "retain must remove old parked rewards")
    expect(ledger.subject("shop", "me"), [young.id], "retain must forget subjects of old decisions")
    expect(ledger.requested("shop", "r0"), None, "retain must forget requests of old decisions")
    found = ledger.requested("shop", "young") is not None
    expect(found, True, "retain must keep requests of young decisions")
    expect(writer.reward(old[1].id, 1.0), Status.ACCEPTED, "an old decision can still be rewarded")
    expect(ledger.problems(), [], "a ledger that was retained must have no problems")
    rule = "retain must keep the subject of a decision while its stretch is open, and no more"
    until = Stretch(writer.now + 2 * SECOND)
    sticky = writer.decided(subject="me", request="sticky", stretch=until)
    later = writer.decided("other", subject="me")
    writer.commit(sticky, later)
    for late, left in ((0, [young.id, sticky.id]), (1, [sticky.id]), (1, [])):
        writer.now += late * SECOND
        writer.commit(writer.decided())
        ledger.retain(writer.now)
        expect(ledger.subject("shop", "me"), left, rule)
        found = ledger.requested("shop", "sticky") is not None
        expect(found, late == 0, "retain must forget requests of old decisions")
        body = msgspec.msgpack.decode(ledger.story(sticky.id)[0].body, type=Decided)
        expect(body.subject, "me" if left else "", rule)


def check_compaction(new: NewLedger) -> None:
    """A log begins with its base: what is carried is known, the rest is gone for good."""
    writer = Writer(new())
    ledger, key = writer.ledger, Draft(Kind.KEYS, "", NOBODY, NOW, body=b"key")
    closed, open_, gone = (writer.decided(subject="me", request=f"r{k}") for k in range(3))
    writer.commit(key, closed, open_, gone)
    writer.commit(writer.about(Kind.REWARDED, closed.id, 0.5))
    before = whole_log(ledger)
    end = Position(before[-1].tx, before[-1].seq)
    writer.now += SECOND
    young = writer.decided(subject="me", request="young")
    writer.commit(young, writer.about(Kind.REWARDED, gone.id, 1.0))
    expect(ledger.base(), None, "base must return None where nothing was compacted")
    carried = [as_carried(e) for e in before if e.id == open_.id or e.kind is Kind.KEYS]
    base = _compact(writer, end, gone.id, carried)
    expect(ledger.base(), base, "base must return what compact was given")
    expect(ledger.base_content(base, "shop"), b"state", "base_content must return the arrays")
    expect(list(ledger.carried()), carried, "carried must return what compact was given")
    expect(ledger.drop(), len(before), "drop must delete the events before the base, and count")
    expect(ledger.drop(), 0, "drop must find nothing the second time")
    rule = "follow must raise CompactedError for events that were dropped"
    for at in (START, Position(end.tx, end.seq - 1)):
        expect(_raises(CompactedError, partial(ledger.follow, at)), True, rule)
    log = ledger.follow(end)[0]
    expect([event.id for event in log], [young.id, gone.id], "the log must go on after the base")
    expect(ledger.behind(START), 2, "behind must count from the base on")
    expect(ledger.story(open_.id), carried[1:], "story must find a decision that is carried")
    for id in (closed.id, gone.id):
        expect(ledger.story(id), [], "story must find nothing of a decision that was dropped")
        rule = "a decision that was dropped must be unknown, whatever happens to it"
        expect(writer.reward(id, 0.5), Status.UNKNOWN, rule)
    rule = "a decision that was dropped must not be written again"
    expect(_raises(TooOldError, lambda: writer.commit(gone)), True, rule)
    expect(writer.commit(open_), [Status.DUPLICATE], "a decision that is carried must be known")
    expect(writer.reward(open_.id, 1.0), Status.ACCEPTED, "a decision that is carried is open")
    expect(writer.reward(open_.id, 1.0), Status.DUPLICATE, "a decision has one reward")
    kinds = [event.kind for event in ledger.story(open_.id)]
    expect(kinds, [Kind.DECIDED, Kind.REWARDED], "story must begin with what is carried")
    expect(ledger.rare(Kind.KEYS, START), carried[:1], "rare must find keys that are carried")
    expect(ledger.requested("shop", "r0"), None, "drop must forget requests")
    expect(ledger.subject("shop", "me"), [young.id], "drop must forget subjects")
    expect(ledger.forget("shop", "me", NOW), 1, "forget must reach what was not compacted")
    last = ledger.follow(end)[0][-2]
    more = partial(_compact, writer, Position(last.tx, last.seq), young.id, [])
    rule = "compact must refuse a base that may hold what was erased meanwhile"
    expect(_raises(StoreUnavailableError, partial(more, previous=base.digest)), True, rule)
    rule = "compact must refuse a base that does not follow on the present one"
    expect(_raises(StoreUnavailableError, more), True, rule)
    expect(ledger.base(), base, "compact must leave the log as it was if it raises")
    expect(ledger.problems(), [], "a ledger that was compacted must have no problems")


def _compact(
    writer: Writer, end: Position, last_id: bytes, carried: list[Event], previous: str = ""
) -> Base:
    """Compact a log up to a position, as if it had led to a state of five bytes."""
    bandits, counts = (BasedBandit("shop", b"{}", "", ""),), (len(carried), digest_of(carried))
    base = Base(end, NOW, end.seq, last_id, *counts, bandits, previous)
    writer.ledger.compact(base, [("shop", b"state")], carried, START)
    return base


def _raises(error: type[Exception], call: Callable[[], object]) -> bool:
    try:
        call()
    except error:
        return True
    return False
