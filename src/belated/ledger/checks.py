"""Checks that every ledger must pass: for ours, and for yours.

``check_ledger`` runs everything and raises ``AssertionError`` at the first violation; its message
says what a store must do and what it did instead. ``LEDGER_CHECKS`` lists the single checks. Each
gets a function that makes an empty ledger.

>>> from belated.ledger.stores.memory import MemoryLedger
>>> check_ledger(MemoryLedger)
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import count

import msgspec
from msgspec.structs import replace

from belated.core.arguments import shown
from belated.core.events import Status
from belated.ledger.events import (
    NOBODY,
    START,
    Decided,
    Draft,
    Event,
    Facts,
    Kind,
    Outcome,
    Position,
    Reward,
)
from belated.ledger.ids import Ids
from belated.ledger.protocol import Importer, Ledger
from belated.ledger.rules import LEEWAY
from belated.ledger.upkeep import erased as without_trace

NewLedger = Callable[[], Ledger]
SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND


def _expect(found: object, wanted: object, rule: str) -> None:
    """Raises ``AssertionError`` with the rule if a store did not do what the rule asks for."""
    if found != wanted:
        raise AssertionError(f"{rule}: found {shown(found)}, expected {shown(wanted)}")


class _Writer:
    """Makes drafts with ids from a clock that moves only when it is told to."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.now = ledger, NOW
        self._ids = Ids(lambda: self.now, seed=1)

    def decided(
        self,
        bandit: str = "shop",
        *,
        id: bytes | None = None,
        due: int | None = None,
        closes: int | None = None,
        combine: str | None = None,
        request: str = "",
        digest: bytes = b"",
        subject: str = "",
    ) -> Draft:
        decided = Decided(
            b"x" * 8, "a", 0, 1.0, 0, "p", 0.0, 0.0, 0.0, request=request, subject=subject
        )
        return Draft(
            Kind.DECIDED,
            bandit,
            id or self._ids(),
            self.now,
            due=due,
            body=msgspec.msgpack.encode(decided),
            request=request,
            digest=digest,
            subject=subject,
            closes=closes,
            combine=combine,
        )

    def about(
        self,
        kind: Kind,
        id: bytes,
        value: float | None = None,
        *,
        bandit: str = "",
        at: int | None = None,
        event_id: str = "",
    ) -> Draft:
        time = self.now if at is None else at
        return Draft(kind, bandit, id, time, value, received=self.now, event_id=event_id)

    def commit(self, *drafts: Draft) -> list[Status]:
        return [outcome.status for outcome in self.ledger.commit(drafts)]

    def decide(self, bandit: str = "shop", due: int | None = None) -> bytes:
        draft = self.decided(bandit, due=due)
        _expect(self.commit(draft), [Status.ACCEPTED], "commit must write a decision with a new id")
        return draft.id

    def reward(self, id: bytes, value: float, *, bandit: str = "", at: int | None = None) -> Status:
        (status,) = self.commit(self.about(Kind.REWARDED, id, value, bandit=bandit, at=at))
        return status


@dataclass
class _Memory:
    """A follower that remembers decisions."""

    position: Position
    remembered: dict[bytes, Facts]
    strict: bool = False

    def accepts(self, bandit: str, kind: Kind, reward: float) -> bool:
        return True

    def open_decisions(self, ids: Collection[bytes]) -> dict[bytes, Facts]:
        return {id: self.remembered[id] for id in ids if id in self.remembered}

    def approve(self, outcomes: Sequence[Outcome]) -> None:
        if self.strict and any(outcome.status == Status.CONFLICT for outcome in outcomes):
            raise RuntimeError("a conflict")


def _log(ledger: Ledger, limit: int = 100_000) -> list[Event]:
    """Returns the whole log, as a reader that starts now sees it."""
    events: list[Event] = []
    position = START
    while True:
        more, last = ledger.follow(position, limit)
        if not more:
            return events
        _expect(last > position, True, "follow must return events after its position, and the last")
        position = last
        events += more


def check_log_keeps_everything(new: NewLedger) -> None:
    """Events come back with every field, in the order and the batches they were written in."""
    writer = _Writer(new())
    first, second = writer.decided(due=NOW + SECOND), writer.decided("other")
    about = Draft(Kind.CONFIGURED, "shop", b"", NOW - 5, body=b"\x00settings\xff")
    statuses = writer.commit(about, first, second)
    _expect(statuses, [Status.ACCEPTED] * 3, "commit must write settings and new decisions")
    _expect(writer.reward(first.id, -0.1), Status.ACCEPTED, "commit must write a first reward")
    log = _log(writer.ledger)
    reward = writer.about(Kind.REWARDED, first.id, -0.1, bandit="shop")
    drafts = [about, first, second, reward]
    _expect(len(log), len(drafts), "follow must return one event for each accepted draft")
    for event, draft in zip(log, drafts, strict=True):
        for name in ("kind", "bandit", "id", "time", "value", "due", "body"):
            rule = f"follow must return the {name} that was written"
            _expect(getattr(event, name), getattr(draft, name), rule)
        _expect(type(event.kind), Kind, "follow must return kinds as Kind")
    _expect(len({event.tx for event in log[:3]}), 1, "the events of one commit must share a tx")
    _expect(log[3].tx == log[2].tx, False, "the events of two commits must not share a tx")
    order = sorted(log, key=lambda event: (event.tx, event.seq))
    _expect([*log], order, "follow must return events in the order of tx and seq")
    story = writer.ledger.story(first.id)
    _expect(story, [log[1], log[3]], "story must return the events of one decision, oldest first")
    _expect(writer.ledger.story(b"?" * 16), [], "story of an unknown decision must be empty")


def check_follow_is_exact(new: NewLedger) -> None:
    """Whatever the limit, every event comes exactly once, and transactions come whole."""
    writer = _Writer(new())
    for size in (1, 5, 1, 3):
        writer.commit(*[writer.decided() for _ in range(size)])
    whole = _log(writer.ledger)
    _expect(len(whole), 10, "follow must return every event once")
    for limit in range(1, 12):
        rule = f"follow with limit {limit}, page by page, must return every event once"
        _expect(_log(writer.ledger, limit), whole, rule)
        position = START
        while True:
            events, position = writer.ledger.follow(position, limit)
            if not events:
                break
            last = Position(events[-1].tx, events[-1].seq)
            _expect(position, last, "follow must return the position of its last event")
            torn = [event for event in whole if event.tx == last.tx and event.seq > last.seq]
            _expect(torn, [], "follow must not end within a transaction, whatever its limit")
        behind = writer.ledger.behind(position)
        _expect(behind, 0, "behind must count the events after a position")
    _expect(writer.ledger.behind(START), 10, "behind must count the events after a position")
    events, position = writer.ledger.follow(position)
    _expect(events, [], "follow from the end of the log must return nothing")
    late = writer.decide()
    ids = [event.id for event in writer.ledger.follow(position)[0]]
    _expect(ids, [late], "follow must return what was written after a position")
    _expect(writer.ledger.commit([]), [], "commit of nothing must return nothing")


def check_rewards(new: NewLedger) -> None:
    """Duplicates, conflicts, unknown decisions and late rewards get their statuses."""
    writer = _Writer(new())
    id = writer.decide(due=NOW + SECOND)
    foreign = writer.reward(id, 0.5, bandit="other")
    _expect(foreign, Status.UNKNOWN, "a bandit must not learn of the decisions of another")
    _expect(writer.reward(id, 0.5), Status.ACCEPTED, "the first reward must be written")
    _expect(writer.reward(id, 0.5), Status.DUPLICATE, "the same reward again is a duplicate")
    _expect(writer.reward(id, 0.25), Status.CONFLICT, "another reward than before is a conflict")
    late, in_time = writer.decide(due=NOW + SECOND), writer.decide(due=NOW + SECOND)
    writer.now += SECOND
    _expect(writer.reward(in_time, 1.0), Status.ACCEPTED, "a reward when it is due is in time")
    writer.now += 1
    _expect(writer.reward(late, 1.0), Status.EXPIRED, "a reward after it was due has expired")
    again = "a reward that came late must be written: "
    _expect(writer.reward(late, 1.0), Status.DUPLICATE, f"{again}the same again is a duplicate")
    _expect(writer.reward(late, 0.0), Status.CONFLICT, f"{again}another one is a conflict")
    values = [event.value for event in _log(writer.ledger) if event.kind == Kind.REWARDED]
    _expect(values, [0.5, 1.0, 1.0], "write accepted and late rewards, and no others")
    old = Ids(lambda: NOW - 3600 * SECOND, seed=2)()
    status = writer.reward(old, 1.0)
    _expect(status, Status.UNKNOWN, "a reward of an old, unknown decision must not be parked")
    _expect(writer.ledger.parked(), [], "a reward of an old, unknown decision must not be parked")


def check_event_time(new: NewLedger) -> None:
    """A reward is judged by when it happened, and by when it was handed in."""
    writer = _Writer(new())
    ledger, due, closes = writer.ledger, NOW + 10 * SECOND, NOW + 15 * SECOND
    drafts = [writer.decided(due=due, closes=closes) for _ in range(6)]
    statuses = writer.commit(*drafts)
    _expect(statuses, [Status.ACCEPTED] * 6, "decisions with a grace must be written")
    before, after, on_time, too_late, not_handed_in, now = (draft.id for draft in drafts)
    rule = "follow must return the end of a grace"
    _expect([event.closes for event in _log(ledger)], [closes] * 6, rule)
    writer.now = closes
    rule = f"a reward more than {LEEWAY} us before its decision, or after now, is invalid"
    for id, at in ((before, NOW - LEEWAY - 1), (after, closes + LEEWAY + 1)):
        _expect(writer.reward(id, 1.0, at=at), Status.INVALID, rule)
    rule = "the clocks of callers may disagree with ours a little"
    for id, at, wanted in (
        (before, NOW - LEEWAY, Status.ACCEPTED),
        (after, closes + LEEWAY, Status.EXPIRED),
    ):
        _expect(writer.reward(id, 1.0, at=at), wanted, rule)
    rule = "a reward of the window that is handed in within its grace is on time"
    _expect(writer.reward(on_time, 1.0, at=due), Status.ACCEPTED, rule)
    _expect(writer.reward(on_time, 1.0, at=NOW), Status.DUPLICATE, "the same reward again")
    rule = "a reward that happened after the window is late, also within the grace"
    _expect(writer.reward(too_late, 1.0, at=due + 1), Status.EXPIRED, rule)
    _expect(writer.reward(now, 1.0), Status.EXPIRED, rule)
    writer.now += 1
    rule = "a reward of the window that is handed in after its grace is late"
    _expect(writer.reward(not_handed_in, 1.0, at=NOW), Status.EXPIRED, rule)
    found = [(event.time, event.received) for event in _log(ledger)[6:]]
    wanted_times = [
        *((NOW - LEEWAY, closes), (closes + LEEWAY, closes), (due, closes)),
        *((due + 1, closes), (closes, None), (NOW, closes + 1)),
    ]
    rule = "follow must return when a reward happened, and when it was handed in, if it differs"
    _expect(found, wanted_times, rule)
    early = writer.decided()
    _expect(writer.reward(early.id, 1.0, at=closes), Status.PARKED, "park by the time of receipt")
    waiting = [(early.id, closes, 1.0, closes + 1, "")]
    _expect(ledger.parked(), waiting, "parked must return when a reward was handed in")
    writer.commit(early)
    last = ledger.story(early.id)[-1]
    rule = "a parked reward must be written with both its times"
    _expect((last.time, last.received), (closes, closes + 1), rule)
    _expect(ledger.problems(), [], "a ledger with event times must have no problems")


def check_several_rewards(new: NewLedger) -> None:
    """Rewards that are combined become one, each once, by the time they happened."""
    writer = _Writer(new())
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
        _expect(writer.commit(draft), [ok], "a decision that combines rewards must be written")
        writer.now = closes
        statuses = []
        for event_id, value, at in (
            *(("a", 2.0, due), ("b", 3.0, NOW + 3), ("c", 4.0, due), ("c", 4.0, due)),
            *(("c", 5.0, due), ("", 9.0, due + 1), ("", 9.0, NOW), ("d", 5.0, NOW)),
        ):
            about = writer.about(Kind.REWARDED, draft.id, value, at=at, event_id=event_id)
            statuses += writer.commit(about)
        rule = "an event id again is a duplicate, with another value a conflict"
        _expect(statuses, [ok, ok, ok, duplicate, conflict, late, duplicate, ok], rule)
        story = writer.ledger.story(draft.id)[1:]
        kinds = [event.kind for event in story]
        rule = "a further reward must be written as a revision"
        _expect(kinds, [Kind.REWARDED, *[Kind.REVISED] * 4], rule)
        rule = f"each must be written with the {combine} of the rewards that are on time"
        _expect([event.value for event in story], reached, rule)
        parts = [msgspec.msgpack.decode(event.body, type=Reward) for event in story]
        wanted = [("a", 2.0), ("b", 3.0), ("c", 4.0), ("", 9.0), ("d", 5.0)]
        rule = "each must be written with what was handed in"
        _expect([(part.event_id, part.value) for part in parts], wanted, rule)
        _expect([part.late for part in parts], [False] * 3 + [True, False], "late ones are kept")
        revise = writer.commit(writer.about(Kind.REVISED, draft.id, 7.0))
        _expect(revise, [Status.INVALID], "rewards that are combined must not be revised")
        sums = Importer(lambda bandit, kind, value: value < 15.0)
        more = writer.about(Kind.REWARDED, draft.id, 6.0, at=NOW + 1, event_id="e")
        (outcome,) = writer.ledger.commit([more], sums)
        wanted_status = Status.INVALID if combine == "sum" else ok
        rule = "ask follower.accepts about what rewards amount to together"
        _expect(outcome.status, wanted_status, rule)
    early, name = writer.decided(combine="sum"), "an order"
    parked = writer.about(Kind.REWARDED, early.id, 1.0, event_id=name)
    _expect(writer.commit(parked), [Status.PARKED], "park a reward whose decision is to come")
    other = writer.about(Kind.REWARDED, early.id, 1.0, event_id="another")
    rule = "one reward of a decision can be parked, and no second one"
    _expect(writer.commit(parked, other), [duplicate, Status.UNKNOWN], rule)
    _expect(writer.commit(early, other), [ok, ok], "a decision and a further reward")
    values = [event.value for event in writer.ledger.story(early.id)[1:]]
    _expect(values, [1.0, 2.0], "a parked reward must be combined with later ones")
    single = writer.decide()
    named = writer.about(Kind.REWARDED, single, 1.0, event_id=name)
    _expect(writer.commit(named, named, other), [ok, duplicate, duplicate], "one reward is one")


def check_zeros_have_no_sign(new: NewLedger) -> None:
    """No sign of -0.0 is written, live or read again: a store may be unable to keep it."""
    writer = _Writer(new())
    ledger = writer.ledger
    id = writer.decide()
    _, position = ledger.follow(START)
    _expect(writer.reward(id, -0.0), Status.ACCEPTED, "a reward of -0.0 must be written")
    _expect(writer.reward(id, 0.0), Status.DUPLICATE, "0.0 must be the same reward as -0.0")
    live, _ = ledger.follow(position)
    for event in (*live, _log(ledger)[-1]):
        _expect(str(event.value), "0.0", "write 0.0 for -0.0, or a replay will differ")


def check_one_batch(new: NewLedger) -> None:
    """The drafts of a batch are judged in their order, each in the light of those before it."""
    writer = _Writer(new())
    decision = writer.decided()
    same, other = (writer.about(Kind.REWARDED, decision.id, value) for value in (1.0, 2.0))
    cancel = writer.about(Kind.CANCELLED, decision.id)
    outcomes = writer.ledger.commit([decision, decision, same, same, other, cancel])
    rule = "a draft must be judged in the light of those before it in the batch"
    wanted = ["accepted", "duplicate", "accepted", "duplicate", "conflict", "conflict"]
    _expect([outcome.status for outcome in outcomes], wanted, rule)
    facts = Facts("shop", NOW, None, value=1.0)
    _expect(outcomes[4].facts, facts, "the outcome of a conflict must carry the facts against it")
    kinds = [event.kind for event in _log(writer.ledger)]
    _expect(kinds, [Kind.DECIDED, Kind.REWARDED], "write what was accepted and nothing else")
    statuses = writer.commit(writer.decided("other", id=decision.id))
    _expect(statuses, [Status.CONFLICT], "an id of another bandit's decision is a conflict")


def check_endings(new: NewLedger) -> None:
    """Expiry, cancellation and revision end a decision as the rules say."""
    writer = _Writer(new())
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
        _expect(writer.commit(writer.about(kind, id, value)), [wanted], rule)
    kinds = [event.kind for event in writer.ledger.story(a)]
    wanted_kinds = [Kind.DECIDED, expire, reward, revise, revise]
    _expect(kinds, wanted_kinds, "story must hold what was accepted and nothing else")


def check_parking(new: NewLedger) -> None:
    """A reward that precedes its decision waits for it."""
    writer = _Writer(new())
    early, stranger = writer.decided(due=NOW + SECOND), writer.decided()
    parked, again = Status.PARKED, "a parked reward must be remembered: "
    _expect(writer.reward(early.id, 1.0), parked, "park a reward whose decision is to come")
    _expect(writer.reward(early.id, 1.0), Status.DUPLICATE, f"{again}the same is a duplicate")
    _expect(writer.reward(early.id, 0.0), Status.CONFLICT, f"{again}another one is a conflict")
    _expect(writer.reward(stranger.id, 2.0), parked, "park a reward whose decision is to come")
    waiting = [(early.id, NOW, 1.0, None, ""), (stranger.id, NOW, 2.0, None, "")]
    _expect(writer.ledger.parked(), waiting, "parked must return id, time and value, by id")
    _expect(_log(writer.ledger), [], "a parked reward must not be in the log")
    _expect(writer.commit(early), [Status.ACCEPTED], "a decision after its reward must be written")
    log = [(event.kind, event.id, event.value) for event in _log(writer.ledger)]
    wanted = [(Kind.DECIDED, early.id, None), (Kind.REWARDED, early.id, 1.0)]
    _expect(log, wanted, "a decision must be written together with the reward parked for it")
    left = [waiting[0] for waiting in writer.ledger.parked()]
    _expect(left, [stranger.id], "a reward that was written must not stay parked")
    status = writer.reward(early.id, 1.0)
    _expect(status, Status.DUPLICATE, "a reward that was parked and written must be remembered")


def check_parked_pages(new: NewLedger) -> None:
    """Parked rewards come page by page, and end when their decision can no longer be waited for."""
    writer = _Writer(new())
    ids = []
    for k in range(7):
        writer.now = NOW + k * SECOND
        ids.append(writer.decided().id)
    for id in reversed(ids):
        _expect(writer.reward(id, 0.5), Status.PARKED, "park a reward whose decision is to come")
    pages: list[list[bytes]] = []
    last = NOBODY
    while len(pages) < len(ids) and (page := writer.ledger.parked(3, last)):
        pages.append([waiting.id for waiting in page])
        last = page[-1].id
    rule = "parked(limit, after) must return the next rewards after an id, by id"
    _expect(pages, [ids[:3], ids[3:6], ids[6:]], rule)
    _expect([waiting.id for waiting in writer.ledger.parked()], ids, rule)
    rule = "end_parked(before) must remove the rewards of decisions made before a time, and count"
    for before, count_, left in ((0, 0, 0), (2 * SECOND, 2, 2), (2 * SECOND, 0, 2)):
        _expect(writer.ledger.end_parked(NOW + before), count_, rule)
        _expect([waiting.id for waiting in writer.ledger.parked()], ids[left:], rule)
    _expect(writer.ledger.end_parked(NOW + 2 * SECOND + 1), 1, rule)


def check_requests(new: NewLedger) -> None:
    """A request that is made again gets the same decision; another body is a conflict."""
    writer = _Writer(new())
    first = writer.decided(request="r", digest=b"1")
    again, other = (writer.decided(request="r", digest=digest) for digest in (b"1", b"2"))
    elsewhere = writer.decided("other", request="r", digest=b"2")
    outcomes = writer.ledger.commit([first, again, other])
    wanted = ["accepted", "duplicate", "conflict"]
    rule = "a request made again is a duplicate, with another digest a conflict"
    _expect([outcome.status for outcome in outcomes], wanted, rule)
    statuses = writer.commit(elsewhere)
    _expect(statuses, [Status.ACCEPTED], "a request is that of one bandit: another may have it too")
    (later,) = writer.ledger.commit([again])
    _expect(later.status, Status.DUPLICATE, "a request of an earlier batch is a duplicate")
    log = _log(writer.ledger)
    rule = "a duplicate request must come with the earlier decision"
    _expect(later.earlier, log[0], rule)
    within = outcomes[1].earlier  # judged before the batch had its place in the log
    _expect(within and (within.id, within.body), (log[0].id, log[0].body), rule)
    found = writer.ledger.requested("shop", "r")
    _expect(
        found, (log[0], b"1"), "requested must return the decision of a request, and its digest"
    )
    _expect(writer.ledger.requested("shop", "s"), None, "requested of an unknown request is None")
    _expect(len(log), 2, "a duplicate request must not be written")


def check_invalid_rewards(new: NewLedger) -> None:
    """A reward that a bandit cannot have leaves no trace."""
    writer = _Writer(new())
    id, other = writer.decide(), writer.decide("other")
    drafts = [writer.about(Kind.REWARDED, which, 7.0) for which in (id, other)]
    outcomes = writer.ledger.commit(drafts, Importer(lambda bandit, kind, value: bandit == "other"))
    judged = [(outcome.status, outcome.bandit) for outcome in outcomes]
    wanted = [(Status.INVALID, "shop"), (Status.ACCEPTED, "other")]
    _expect(judged, wanted, "ask follower.accepts about each reward, and name the bandit")
    _expect(len(writer.ledger.story(id)), 1, "a reward that is not accepted must not be written")


def check_stale_memory(new: NewLedger) -> None:
    """A follower's memory of a decision counts for nothing once the log has gone on."""
    writer = _Writer(new())
    id = writer.decide()
    log = _log(writer.ledger)
    memory = _Memory(Position(log[-1].tx, log[-1].seq), {id: Facts("shop", NOW, None)})
    _expect(writer.reward(id, 1.0), Status.ACCEPTED, "the first reward must be written")
    rule = "judge by the log, not by what a follower remembers, once the log has gone on"
    for value, wanted in ((1.0, Status.DUPLICATE), (0.0, Status.CONFLICT)):
        outcomes = writer.ledger.commit([writer.about(Kind.REWARDED, id, value)], memory)
        _expect([outcome.status for outcome in outcomes], [wanted], rule)
    second = writer.decide()
    log = _log(writer.ledger)
    memory = _Memory(Position(log[-1].tx, log[-1].seq), {second: Facts("shop", NOW, None)})
    twice = [writer.about(Kind.REWARDED, second, value) for value in (1.0, 1.0, 0.0)]
    statuses = [outcome.status for outcome in writer.ledger.commit(twice, memory)]
    rule = "a draft must be judged in the light of those before it in the batch"
    _expect(statuses, [Status.ACCEPTED, Status.DUPLICATE, Status.CONFLICT], rule)


def check_approval(new: NewLedger) -> None:
    """A follower that does not approve of the outcomes leaves the log as it was."""
    writer = _Writer(new())
    id, other = writer.decide(), writer.decide()
    _expect(writer.reward(id, 1.0), Status.ACCEPTED, "the first reward must be written")
    before, follower = _log(writer.ledger), _Memory(START, {}, strict=True)
    drafts = [writer.about(Kind.REWARDED, which, 0.0) for which in (other, id)]
    try:
        writer.ledger.commit(drafts, follower)
    except RuntimeError:
        log = _log(writer.ledger)
        _expect(log, before, "nothing may be written when follower.approve raises")
        writer.ledger.commit(drafts[:1], follower)
        added = len(_log(writer.ledger)) - len(before)
        _expect(added, 1, "a batch after one that was not approved must be written")
    else:
        raise AssertionError("call follower.approve with all outcomes before anything is written")


def check_forgetting(new: NewLedger) -> None:
    """Erased events cannot be found, and the log says that something was erased."""
    writer = _Writer(new())
    kept = writer.decide()
    gone = [writer.decided(subject="me", request=f"r{k}") for k in range(2)]
    writer.commit(*gone, writer.decided("other", subject="me"), writer.decided(subject="you"))
    for id in (gone[1].id, kept):
        _expect(writer.reward(id, 0.5), Status.ACCEPTED, "the first reward must be written")
    ledger, erased = writer.ledger, {draft.id for draft in gone}
    found = ledger.subject("shop", "me")
    _expect(found, [draft.id for draft in gone], "subject must return the decisions of a person")
    before = _log(ledger)
    _expect(ledger.forget("shop", "me", NOW + 9), 2, "forget must count the decisions it erases")
    *after, last = _log(ledger)
    wanted = [without_trace(event) if event.id in erased else event for event in before]
    _expect(after, wanted, "forget must blank the events of one person's decisions, and no others")
    note = (last.kind, last.bandit, last.time)
    _expect(note, (Kind.FORGOTTEN, "shop", NOW + 9), "forget must write that something was erased")
    rule = "rare must return the events of one kind after a position"
    _expect(ledger.rare(Kind.FORGOTTEN, START), [last], rule)
    _expect(ledger.rare(Kind.FORGOTTEN, Position(last.tx, last.seq)), [], rule)
    _expect(ledger.rare(Kind.KEYS, START), [], rule)
    _expect(ledger.subject("shop", "me"), [], "an erased person must not be found")
    _expect(ledger.requested("shop", "r0"), None, "an erased request must not be found")
    _expect(ledger.story(gone[0].id), [], "an erased decision must not be found")
    writer.now += 3600 * SECOND
    _expect(writer.reward(gone[1].id, 0.5), Status.UNKNOWN, "an erased decision must be unknown")
    _expect(ledger.forget("shop", "nobody", NOW), 0, "forget must count the decisions it erases")


def check_many(new: NewLedger) -> None:
    """A batch of thousands is one transaction."""
    writer = _Writer(new())
    decisions = [writer.decided() for _ in range(3000)]
    rewards = [writer.about(Kind.REWARDED, d.id, float(k)) for k, d in zip(count(), decisions)]
    for drafts, status in (
        (decisions, Status.ACCEPTED),
        (rewards, Status.ACCEPTED),
        (rewards, Status.DUPLICATE),
    ):
        _expect(set(writer.commit(*drafts)), {status}, "commit must judge each of 3000 drafts")
    log = _log(writer.ledger)
    ids, values = [event.id for event in log[:3000]], [event.value for event in log[3000:]]
    rule = "a batch of 3000 must be written whole and in its order"
    _expect(ids, [draft.id for draft in decisions], rule)
    _expect(values, [draft.value for draft in rewards], rule)
    _expect(len({event.tx for event in log}), 2, "a batch of 3000 must be one transaction")


def check_batches(new: NewLedger) -> None:
    """Many batches at once are one transaction each, judged one after the other."""
    writer = _Writer(new())
    first, second = writer.decided(request="r", digest=b"1"), writer.decided()
    again = writer.decided(request="r", digest=b"1")
    rewards = [writer.about(Kind.REWARDED, draft.id, 1.0) for draft in (first, second)]
    erased = [Draft(Kind.DECIDED, "shop", b"", NOW)] * 2
    batches = [[first, second], [again], [], rewards, rewards[:1], erased]
    outcomes = writer.ledger.commit_all(batches)
    statuses = [[outcome.status for outcome in of_batch] for of_batch in outcomes]
    ok, duplicate = Status.ACCEPTED, Status.DUPLICATE
    wanted = [[ok, ok], [duplicate], [], [ok, ok], [duplicate], [ok, ok]]
    _expect(statuses, wanted, "commit_all must judge each batch in the light of those before it")
    log = _log(writer.ledger)
    ids = [first.id, second.id, first.id, second.id, b"", b""]
    _expect([event.id for event in log], ids, "commit_all must write what it accepts, in order")
    pairs = [log[k].tx == log[k + 1].tx for k in range(5)]
    rule = "commit_all must write each batch as a transaction of its own"
    _expect(pairs, [True, False, True, False, True], rule)
    _expect(writer.ledger.commit_all([]), [], "commit_all of nothing must return nothing")


def check_retention(new: NewLedger) -> None:
    """Old decisions lose what the state does not depend on; nothing else is lost."""
    writer = _Writer(new())
    ledger = writer.ledger
    old = [writer.decided(subject="me", request=f"r{k}") for k in range(3)]
    plain, stranger = writer.decided(), writer.decided()
    writer.commit(*old, plain, writer.about(Kind.REWARDED, old[0].id, 0.5))
    _expect(writer.reward(stranger.id, 1.0), Status.PARKED, "park a reward before its decision")
    writer.now += SECOND
    young = writer.decided(subject="me", request="young")
    writer.commit(young)
    before, ids = _log(ledger), {draft.id for draft in old}
    counts = "retain must count the decisions, requests and parked rewards that it blanks"
    _expect(ledger.retain(NOW + 1, dry_run=True), (3, 3, 1), counts)
    _expect(_log(ledger), before, "retain must change nothing in a dry run")
    found = ledger.requested("shop", "r0") is not None
    _expect(found, True, "retain must change nothing in a dry run")
    _expect(ledger.retain(NOW + 1), (3, 3, 1), counts)
    wanted = []
    for event in before:
        if event.kind == Kind.DECIDED and event.id in ids:
            body = msgspec.msgpack.decode(event.body, type=Decided)
            rest = replace(body, context=b"", subject="", request="", matrix=b"")
            event = replace(event, body=msgspec.msgpack.encode(rest))
        wanted.append(event)
    rule = "retain must blank context, subject, request and matrix of old decisions, and no more"
    _expect(_log(ledger), wanted, rule)
    _expect(ledger.retain(NOW + 1), (0, 0, 0), "retain must find nothing the second time")
    _expect(ledger.parked(), [], "retain must remove old parked rewards")
    _expect(
        ledger.subject("shop", "me"), [young.id], "retain must forget subjects of old decisions"
    )
    _expect(ledger.requested("shop", "r0"), None, "retain must forget requests of old decisions")
    found = ledger.requested("shop", "young") is not None
    _expect(found, True, "retain must keep requests of young decisions")
    _expect(writer.reward(old[1].id, 1.0), Status.ACCEPTED, "an old decision can still be rewarded")
    _expect(ledger.problems(), [], "a ledger that was retained must have no problems")


LEDGER_CHECKS = (
    check_log_keeps_everything,
    check_follow_is_exact,
    check_rewards,
    check_event_time,
    check_several_rewards,
    check_zeros_have_no_sign,
    check_one_batch,
    check_endings,
    check_parking,
    check_parked_pages,
    check_requests,
    check_invalid_rewards,
    check_stale_memory,
    check_approval,
    check_forgetting,
    check_many,
    check_batches,
    check_retention,
)


def check_ledger(new: NewLedger) -> None:
    """Run every check, each on an empty ledger that ``new`` makes."""
    for check in LEDGER_CHECKS:
        check(new)
