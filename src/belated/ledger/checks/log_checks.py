"""Checks of the log itself: what was written is read back once, in its order, by all who follow."""

from itertools import count

from belated.core.events import Status
from belated.ledger.checks.trials import NOW, SECOND, Memory, NewLedger, Writer, expect, whole_log
from belated.ledger.events import (
    START,
    Draft,
    Facts,
    Kind,
    Position,
)


def check_log_keeps_everything(new: NewLedger) -> None:
    """Events come back with every field, in the order and the batches they were written in."""
    writer = Writer(new())
    first, second = writer.decided(due=NOW + SECOND), writer.decided("other")
    about = Draft(Kind.CONFIGURED, "shop", b"", NOW - 5, body=b"\x00settings\xff")
    statuses = writer.commit(about, first, second)
    expect(statuses, [Status.ACCEPTED] * 3, "commit must write settings and new decisions")
    expect(writer.reward(first.id, -0.1), Status.ACCEPTED, "commit must write a first reward")
    log = whole_log(writer.ledger)
    reward = writer.about(Kind.REWARDED, first.id, -0.1, bandit="shop")
    drafts = [about, first, second, reward]
    expect(len(log), len(drafts), "follow must return one event for each accepted draft")
    for event, draft in zip(log, drafts, strict=True):
        for name in ("kind", "bandit", "id", "time", "value", "due", "body"):
            rule = f"follow must return the {name} that was written"
            expect(getattr(event, name), getattr(draft, name), rule)
        expect(type(event.kind), Kind, "follow must return kinds as Kind")
    expect(len({event.tx for event in log[:3]}), 1, "the events of one commit must share a tx")
    expect(log[3].tx == log[2].tx, False, "the events of two commits must not share a tx")
    order = sorted(log, key=lambda event: (event.tx, event.seq))
    expect([*log], order, "follow must return events in the order of tx and seq")
    story = writer.ledger.story(first.id)
    expect(story, [log[1], log[3]], "story must return the events of one decision, oldest first")
    expect(writer.ledger.story(b"?" * 16), [], "story of an unknown decision must be empty")


def check_follow_is_exact(new: NewLedger) -> None:
    """Whatever the limit, every event comes exactly once, and transactions come whole."""
    writer = Writer(new())
    for size in (1, 5, 1, 3):
        writer.commit(*[writer.decided() for _ in range(size)])
    whole = whole_log(writer.ledger)
    expect(len(whole), 10, "follow must return every event once")
    for limit in range(1, 12):
        rule = f"follow with limit {limit}, page by page, must return every event once"
        expect(whole_log(writer.ledger, limit), whole, rule)
        position = START
        while True:
            events, position = writer.ledger.follow(position, limit)
            if not events:
                break
            last = Position(events[-1].tx, events[-1].seq)
            expect(position, last, "follow must return the position of its last event")
            torn = [event for event in whole if event.tx == last.tx and event.seq > last.seq]
            expect(torn, [], "follow must not end within a transaction, whatever its limit")
        behind = writer.ledger.behind(position)
        expect(behind, 0, "behind must count the events after a position")
    expect(writer.ledger.behind(START), 10, "behind must count the events after a position")
    events, position = writer.ledger.follow(position)
    expect(events, [], "follow from the end of the log must return nothing")
    late = writer.decide()
    ids = [event.id for event in writer.ledger.follow(position)[0]]
    expect(ids, [late], "follow must return what was written after a position")
    expect(writer.ledger.commit([]), [], "commit of nothing must return nothing")


def check_requests(new: NewLedger) -> None:
    """A request that is made again gets the same decision; another body is a conflict."""
    writer = Writer(new())
    first = writer.decided(request="r", digest=b"1")
    again, other = (writer.decided(request="r", digest=digest) for digest in (b"1", b"2"))
    elsewhere = writer.decided("other", request="r", digest=b"2")
    outcomes = writer.ledger.commit([first, again, other])
    wanted = ["accepted", "duplicate", "conflict"]
    rule = "a request made again is a duplicate, with another digest a conflict"
    expect([outcome.status for outcome in outcomes], wanted, rule)
    statuses = writer.commit(elsewhere)
    expect(statuses, [Status.ACCEPTED], "a request is that of one bandit: another may have it too")
    (later,) = writer.ledger.commit([again])
    expect(later.status, Status.DUPLICATE, "a request of an earlier batch is a duplicate")
    log = whole_log(writer.ledger)
    rule = "a duplicate request must come with the earlier decision"
    expect(later.earlier, log[0], rule)
    within = outcomes[1].earlier  # judged before the batch had its place in the log
    expect(within and (within.id, within.body), (log[0].id, log[0].body), rule)
    found = writer.ledger.requested("shop", "r")
    expect(found, (log[0], b"1"), "requested must return the decision of a request, and its digest")
    expect(writer.ledger.requested("shop", "s"), None, "requested of an unknown request is None")
    expect(len(log), 2, "a duplicate request must not be written")


def check_stale_memory(new: NewLedger) -> None:
    """A follower's memory of a decision counts for nothing once the log has gone on."""
    writer = Writer(new())
    id = writer.decide()
    log = whole_log(writer.ledger)
    memory = Memory(Position(log[-1].tx, log[-1].seq), {id: Facts("shop", NOW, None)})
    expect(writer.reward(id, 1.0), Status.ACCEPTED, "the first reward must be written")
    rule = "judge by the log, not by what a follower remembers, once the log has gone on"
    for value, wanted in ((1.0, Status.DUPLICATE), (0.0, Status.CONFLICT)):
        outcomes = writer.ledger.commit([writer.about(Kind.REWARDED, id, value)], memory)
        expect([outcome.status for outcome in outcomes], [wanted], rule)
    second = writer.decide()
    log = whole_log(writer.ledger)
    memory = Memory(Position(log[-1].tx, log[-1].seq), {second: Facts("shop", NOW, None)})
    twice = [writer.about(Kind.REWARDED, second, value) for value in (1.0, 1.0, 0.0)]
    statuses = [outcome.status for outcome in writer.ledger.commit(twice, memory)]
    rule = "a draft must be judged in the light of those before it in the batch"
    expect(statuses, [Status.ACCEPTED, Status.DUPLICATE, Status.CONFLICT], rule)


def check_approval(new: NewLedger) -> None:
    """A follower that does not approve of the outcomes leaves the log as it was."""
    writer = Writer(new())
    id, other = writer.decide(), writer.decide()
    expect(writer.reward(id, 1.0), Status.ACCEPTED, "the first reward must be written")
    before, follower = whole_log(writer.ledger), Memory(START, {}, strict=True)
    drafts = [writer.about(Kind.REWARDED, which, 0.0) for which in (other, id)]
    try:
        writer.ledger.commit(drafts, follower)
    except RuntimeError:
        log = whole_log(writer.ledger)
        expect(log, before, "nothing may be written when follower.approve raises")
        writer.ledger.commit(drafts[:1], follower)
        added = len(whole_log(writer.ledger)) - len(before)
        expect(added, 1, "a batch after one that was not approved must be written")
    else:
        raise AssertionError("call follower.approve with all outcomes before anything is written")


def check_many(new: NewLedger) -> None:
    """A batch of thousands is one transaction."""
    writer = Writer(new())
    decisions = [writer.decided() for _ in range(3000)]
    rewards = [writer.about(Kind.REWARDED, d.id, float(k)) for k, d in zip(count(), decisions)]
    for drafts, status in (
        (decisions, Status.ACCEPTED),
        (rewards, Status.ACCEPTED),
        (rewards, Status.DUPLICATE),
    ):
        expect(set(writer.commit(*drafts)), {status}, "commit must judge each of 3000 drafts")
    log = whole_log(writer.ledger)
    ids, values = [event.id for event in log[:3000]], [event.value for event in log[3000:]]
    rule = "a batch of 3000 must be written whole and in its order"
    expect(ids, [draft.id for draft in decisions], rule)
    expect(values, [draft.value for draft in rewards], rule)
    expect(len({event.tx for event in log}), 2, "a batch of 3000 must be one transaction")


def check_batches(new: NewLedger) -> None:
    """Many batches at once are one transaction each, judged one after the other."""
    writer = Writer(new())
    first, second = writer.decided(request="r", digest=b"1"), writer.decided()
    again = writer.decided(request="r", digest=b"1")
    rewards = [writer.about(Kind.REWARDED, draft.id, 1.0) for draft in (first, second)]
    erased = [Draft(Kind.DECIDED, "shop", b"", NOW)] * 2
    batches = [[first, second], [again], [], rewards, rewards[:1], erased]
    outcomes = writer.ledger.commit_all(batches)
    statuses = [[outcome.status for outcome in of_batch] for of_batch in outcomes]
    ok, duplicate = Status.ACCEPTED, Status.DUPLICATE
    wanted = [[ok, ok], [duplicate], [], [ok, ok], [duplicate], [ok, ok]]
    expect(statuses, wanted, "commit_all must judge each batch in the light of those before it")
    log = whole_log(writer.ledger)
    ids = [first.id, second.id, first.id, second.id, b"", b""]
    expect([event.id for event in log], ids, "commit_all must write what it accepts, in order")
    pairs = [log[k].tx == log[k + 1].tx for k in range(5)]
    rule = "commit_all must write each batch as a transaction of its own"
    expect(pairs, [True, False, True, False, True], rule)
    expect(writer.ledger.commit_all([]), [], "commit_all of nothing must return nothing")
