"""Checks of what becomes of rewards: accepted, repeated, in conflict, late or combined."""

import msgspec

from belated.core.events import Status
from belated.ledger.checks.trials import NOW, SECOND, Memory, NewLedger, Writer, expect, whole_log
from belated.ledger.events import (
    START,
    Facts,
    Kind,
    Position,
    Reward,
)
from belated.ledger.ids import Ids
from belated.ledger.protocol import Importer
from belated.ledger.rules import LARGEST_OUTCOME, LEEWAY


def check_rewards(new: NewLedger) -> None:
    """Duplicates, conflicts, unknown decisions and late rewards get their statuses."""
    writer = Writer(new())
    id = writer.decide(due=NOW + SECOND)
    foreign = writer.reward(id, 0.5, bandit="other")
    expect(foreign, Status.UNKNOWN, "a bandit must not learn of the decisions of another")
    expect(writer.reward(id, 0.5), Status.ACCEPTED, "the first reward must be written")
    expect(writer.reward(id, 0.5), Status.DUPLICATE, "the same reward again is a duplicate")
    expect(writer.reward(id, 0.25), Status.CONFLICT, "another reward than before is a conflict")
    late, in_time = writer.decide(due=NOW + SECOND), writer.decide(due=NOW + SECOND)
    writer.now += SECOND
    expect(writer.reward(in_time, 1.0), Status.ACCEPTED, "a reward when it is due is in time")
    writer.now += 1
    expect(writer.reward(late, 1.0), Status.EXPIRED, "a reward after it was due has expired")
    again = "a reward that came late must be written: "
    expect(writer.reward(late, 1.0), Status.DUPLICATE, f"{again}the same again is a duplicate")
    expect(writer.reward(late, 0.0), Status.CONFLICT, f"{again}another one is a conflict")
    values = [event.value for event in whole_log(writer.ledger) if event.kind == Kind.REWARDED]
    expect(values, [0.5, 1.0, 1.0], "write accepted and late rewards, and no others")
    old = Ids(lambda: NOW - 3600 * SECOND, seed=2)()
    status = writer.reward(old, 1.0)
    expect(status, Status.UNKNOWN, "a reward of an old, unknown decision must not be parked")
    expect(writer.ledger.parked(), [], "a reward of an old, unknown decision must not be parked")


def check_event_time(new: NewLedger) -> None:
    """A reward is judged by when it happened, and by when it was handed in."""
    writer = Writer(new())
    ledger, due, closes = writer.ledger, NOW + 10 * SECOND, NOW + 15 * SECOND
    drafts = [writer.decided(due=due, closes=closes) for _ in range(6)]
    statuses = writer.commit(*drafts)
    expect(statuses, [Status.ACCEPTED] * 6, "decisions with a grace must be written")
    before, after, on_time, too_late, not_handed_in, now = (draft.id for draft in drafts)
    rule = "follow must return the end of a grace"
    expect([event.closes for event in whole_log(ledger)], [closes] * 6, rule)
    writer.now = closes
    rule = f"a reward more than {LEEWAY} us before its decision, or after now, is invalid"
    for id, at in ((before, NOW - LEEWAY - 1), (after, closes + LEEWAY + 1)):
        expect(writer.reward(id, 1.0, at=at), Status.INVALID, rule)
    rule = "the clocks of callers may disagree with ours a little"
    for id, at, wanted in (
        (before, NOW - LEEWAY, Status.ACCEPTED),
        (after, closes + LEEWAY, Status.EXPIRED),
    ):
        expect(writer.reward(id, 1.0, at=at), wanted, rule)
    rule = "a reward of the window that is handed in within its grace is on time"
    expect(writer.reward(on_time, 1.0, at=due), Status.ACCEPTED, rule)
    expect(writer.reward(on_time, 1.0, at=NOW), Status.DUPLICATE, "the same reward again")
    rule = "a reward that happened after the window is late, also within the grace"
    expect(writer.reward(too_late, 1.0, at=due + 1), Status.EXPIRED, rule)
    expect(writer.reward(now, 1.0), Status.EXPIRED, rule)
    writer.now += 1
    rule = "a reward of the window that is handed in after its grace is late"
    expect(writer.reward(not_handed_in, 1.0, at=NOW), Status.EXPIRED, rule)
    found = [(event.time, event.received) for event in whole_log(ledger)[6:]]
    wanted_times = [
        *((NOW - LEEWAY, closes), (closes + LEEWAY, closes), (due, closes)),
        *((due + 1, closes), (closes, None), (NOW, closes + 1)),
    ]
    rule = "follow must return when a reward happened, and when it was handed in, if it differs"
    expect(found, wanted_times, rule)
    early = writer.decided()
    expect(writer.reward(early.id, 1.0, at=closes), Status.PARKED, "park by the time of receipt")
    waiting = [(early.id, closes, 1.0, closes + 1, "")]
    expect(ledger.parked(), waiting, "parked must return when a reward was handed in")
    writer.commit(early)
    last = ledger.story(early.id)[-1]
    rule = "a parked reward must be written with both its times"
    expect((last.time, last.received), (closes, closes + 1), rule)
    expect(ledger.problems(), [], "a ledger with event times must have no problems")


def check_several_rewards(new: NewLedger) -> None:
    """Rewards that are combined become one, each once, by the time they happened."""
    writer = Writer(new())
    due, closes = NOW + 10 * SECOND, NOW + 20 * SECOND
    ok, conflict, duplicate, late = (
        *(Status.ACCEPTED, Status.CONFLICT),
        *(Status.DUPLICATE, Status.EXPIRED),
    )
    for combine, reached in (
        ("first", [2.0, 3.0, 3.0, 3.0, 5.0]),
        ("last", [2.0, 2.0, 4.0, 4.0, 4.0]),
        ("sum", [2.0, 5.0, 9.0, 9.0, 14.0]),
        ("max", [2.0, 3.0, 4.0, 4.0, 5.0]),
    ):
        writer.now = NOW
        draft = writer.decided(due=due, closes=closes, combine=combine)
        expect(writer.commit(draft), [ok], "a decision that combines rewards must be written")
        writer.now = closes
        statuses = []
        for event_id, value, at in (
            *(("a", 2.0, due), ("b", 3.0, NOW + 3), ("c", 4.0, due), ("c", 4.0, due)),
            *(("c", 5.0, due), ("", 9.0, due + 1), ("", 9.0, NOW), ("d", 5.0, NOW)),
        ):
            about = writer.about(Kind.REWARDED, draft.id, value, at=at, event_id=event_id)
            statuses += writer.commit(about)
        rule = "an event id again is a duplicate, with another value a conflict"
        expect(statuses, [ok, ok, ok, duplicate, conflict, late, duplicate, ok], rule)
        story = writer.ledger.story(draft.id)[1:]
        kinds = [event.kind for event in story]
        rule = "a further reward must be written as a revision"
        expect(kinds, [Kind.REWARDED, *[Kind.REVISED] * 4], rule)
        rule = f"each must be written with the {combine} of the rewards that are on time"
        expect([event.value for event in story], reached, rule)
        parts = [msgspec.msgpack.decode(event.body, type=Reward) for event in story]
        wanted = [("a", 2.0), ("b", 3.0), ("c", 4.0), ("", 9.0), ("d", 5.0)]
        rule = "each must be written with what was handed in"
        expect([(part.event_id, part.value) for part in parts], wanted, rule)
        expect([part.late for part in parts], [False] * 3 + [True, False], "late ones are kept")
        revise = writer.commit(writer.about(Kind.REVISED, draft.id, 7.0))
        expect(revise, [Status.INVALID], "rewards that are combined must not be revised")
        sums = Importer(lambda bandit, kind, value: value < 15.0)
        more = writer.about(Kind.REWARDED, draft.id, 6.0, at=NOW + 1, event_id="e")
        (outcome,) = writer.ledger.commit([more], sums)
        wanted_status = Status.INVALID if combine == "sum" else ok
        rule = "ask follower.accepts about what rewards amount to together"
        expect(outcome.status, wanted_status, rule)
    early, name = writer.decided(combine="sum"), "an order"
    parked = writer.about(Kind.REWARDED, early.id, 1.0, event_id=name)
    expect(writer.commit(parked), [Status.PARKED], "park a reward whose decision is to come")
    other = writer.about(Kind.REWARDED, early.id, 1.0, event_id="another")
    rule = "one reward of a decision can be parked, and no second one"
    expect(writer.commit(parked, other), [duplicate, Status.UNKNOWN], rule)
    expect(writer.commit(early, other), [ok, ok], "a decision and a further reward")
    values = [event.value for event in writer.ledger.story(early.id)[1:]]
    expect(values, [1.0, 2.0], "a parked reward must be combined with later ones")
    single = writer.decide()
    named = writer.about(Kind.REWARDED, single, 1.0, event_id=name)
    expect(writer.commit(named, named, other), [ok, duplicate, duplicate], "one reward is one")


def check_guardrails(new: NewLedger) -> None:
    """A decision has one guardrail outcome for each name and event id, beside its reward."""
    writer = Writer(new())
    ledger, due = writer.ledger, NOW + SECOND
    id, other = writer.decide(due=due), writer.decide("other")
    ok, duplicate, conflict = Status.ACCEPTED, Status.DUPLICATE, Status.CONFLICT
    (one, again), stranger = ((b"one", b"again"), Ids(lambda: NOW, seed=3)())

    def note(id: bytes, value: float, body: bytes = one, bandit: str = "") -> Status:
        (status,) = writer.commit(writer.about(Kind.OUTCOME, id, value, body=body, bandit=bandit))
        return status

    rule = "the outcome of an unknown decision must be neither written nor parked"
    expect(note(stranger, 1.0), Status.UNKNOWN, rule)
    expect(ledger.parked(), [], rule)
    foreign = note(id, 1.0, bandit="other")
    expect(foreign, Status.UNKNOWN, "a bandit must not learn of the decisions of another")
    log = whole_log(ledger)
    expect(note(id, -7.5), ok, "an outcome may be negative")
    memory = Memory(Position(log[-1].tx, log[-1].seq), {id: Facts("shop", NOW, due)})
    for value, body, wanted in (
        *((-7.5, one, duplicate), (2.0, one, conflict), (2.0, again, ok)),
        *((2.0, again, duplicate), (float("nan"), b"nan", Status.INVALID)),
        *((LARGEST_OUTCOME, b"most", ok), (2 * LARGEST_OUTCOME, b"more", Status.INVALID)),
    ):
        last = whole_log(ledger)[-1]
        memory.position = Position(last.tx, last.seq)  # up to date, and knows no outcomes
        draft = writer.about(Kind.OUTCOME, id, value, body=body)
        (outcome,) = ledger.commit([draft], memory)
        rule = "an outcome is one by its body: again a duplicate, with another value a conflict"
        expect(outcome.status, wanted, rule)
    expect(writer.reward(id, 1.0), ok, "a decision with outcomes takes its reward")
    expect(note(other, 1.0), ok, "outcomes of several bandits must be written")
    writer.now = due + 1
    expect(note(id, 3.0, b"late"), Status.EXPIRED, "an outcome after the window is late")
    expect(note(id, 3.0, b"late"), duplicate, "a late outcome must be written")
    writer.commit(writer.about(Kind.CANCELLED, other))
    expect(note(other, 1.0, again), conflict, "a cancelled decision takes no outcome")
    story = [(event.kind, event.value, event.body) for event in ledger.story(id)[1:]]
    noted = [(Kind.OUTCOME, -7.5, one), (Kind.OUTCOME, 2.0, again)]
    noted.append((Kind.OUTCOME, LARGEST_OUTCOME, b"most"))
    wanted_story = [*noted, (Kind.REWARDED, 1.0, b""), (Kind.OUTCOME, 3.0, b"late")]
    expect(story, wanted_story, "story must hold outcomes with their values and bodies")


def check_zeros_have_no_sign(new: NewLedger) -> None:
    """No sign of -0.0 is written, live or read again: a store may be unable to keep it."""
    writer = Writer(new())
    ledger = writer.ledger
    id = writer.decide()
    _, position = ledger.follow(START)
    expect(writer.reward(id, -0.0), Status.ACCEPTED, "a reward of -0.0 must be written")
    expect(writer.reward(id, 0.0), Status.DUPLICATE, "0.0 must be the same reward as -0.0")
    live, _ = ledger.follow(position)
    for event in (*live, whole_log(ledger)[-1]):
        expect(str(event.value), "0.0", "write 0.0 for -0.0, or a replay will differ")


def check_one_batch(new: NewLedger) -> None:
    """The drafts of a batch are judged in their order, each in the light of those before it."""
    writer = Writer(new())
    decision = writer.decided()
    same, other = (writer.about(Kind.REWARDED, decision.id, value) for value in (1.0, 2.0))
    cancel = writer.about(Kind.CANCELLED, decision.id)
    outcomes = writer.ledger.commit([decision, decision, same, same, other, cancel])
    rule = "a draft must be judged in the light of those before it in the batch"
    wanted = ["accepted", "duplicate", "accepted", "duplicate", "conflict", "conflict"]
    expect([outcome.status for outcome in outcomes], wanted, rule)
    facts = Facts("shop", NOW, None, value=1.0)
    expect(outcomes[4].facts, facts, "the outcome of a conflict must carry the facts against it")
    kinds = [event.kind for event in whole_log(writer.ledger)]
    expect(kinds, [Kind.DECIDED, Kind.REWARDED], "write what was accepted and nothing else")
    statuses = writer.commit(writer.decided("other", id=decision.id))
    expect(statuses, [Status.CONFLICT], "an id of another bandit's decision is a conflict")


def check_endings(new: NewLedger) -> None:
    """Expiry, cancellation and revision end a decision as the rules say."""
    writer = Writer(new())
    a, b, c = writer.decide(), writer.decide(), writer.decide()
    stranger = Ids(lambda: NOW, seed=3)()
    expire, cancel, revise, reward = Kind.EXPIRED, Kind.CANCELLED, Kind.REVISED, Kind.REWARDED
    ok, duplicate, conflict = Status.ACCEPTED, Status.DUPLICATE, Status.CONFLICT
    for kind, id, value, wanted, rule in (
        (revise, a, 1.0, conflict, "an open decision has no reward to revise"),
        (expire, a, None, ok, "an open decision can expire"),
        (expire, a, None, duplicate, "a decision expires once"),
        (reward, a, 1.0, Status.EXPIRED, "a reward after the expiry is late"),
        (revise, a, 1.0, duplicate, "revising to the same reward changes nothing"),
        (revise, a, 0.0, ok, "a reward can be revised"),
        (revise, a, 1.0, ok, "a reward can be revised again"),
        (reward, a, 1.0, duplicate, "the reward that a revision left is a duplicate"),
        (cancel, a, None, conflict, "a decision that was rewarded cannot be cancelled"),
        (cancel, b, None, ok, "an open decision can be cancelled"),
        (cancel, b, None, duplicate, "a decision is cancelled once"),
        (reward, b, 1.0, conflict, "a cancelled decision takes no reward"),
        (expire, b, None, conflict, "a cancelled decision cannot expire"),
        (reward, c, 1.0, ok, "an open decision takes a reward"),
        (revise, c, 0.5, ok, "a reward can be revised"),
        (expire, stranger, 1.0, Status.UNKNOWN, "an unknown decision cannot expire"),
        (cancel, stranger, 1.0, Status.UNKNOWN, "an unknown decision cannot be cancelled"),
        (revise, stranger, 1.0, Status.UNKNOWN, "an unknown decision cannot be revised"),
    ):
        expect(writer.commit(writer.about(kind, id, value)), [wanted], rule)
    kinds = [event.kind for event in writer.ledger.story(a)]
    wanted_kinds = [Kind.DECIDED, expire, reward, revise, revise]
    expect(kinds, wanted_kinds, "story must hold what was accepted and nothing else")


def check_invalid_rewards(new: NewLedger) -> None:
    """A reward that a bandit cannot have leaves no trace."""
    writer = Writer(new())
    id, other = writer.decide(), writer.decide("other")
    drafts = [writer.about(Kind.REWARDED, which, 7.0) for which in (id, other)]
    outcomes = writer.ledger.commit(drafts, Importer(lambda bandit, kind, value: bandit == "other"))
    judged = [(outcome.status, outcome.bandit) for outcome in outcomes]
    wanted = [(Status.INVALID, "shop"), (Status.ACCEPTED, "other")]
    expect(judged, wanted, "ask follower.accepts about each reward, and name the bandit")
    expect(len(writer.ledger.story(id)), 1, "a reward that is not accepted must not be written")
