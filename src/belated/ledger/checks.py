"""What every ledger must do: for ours, and for yours.

``check_ledger`` runs everything and raises ``AssertionError`` at the first violation;
``LEDGER_CHECKS`` lists the single checks. Each gets a function that makes an empty ledger.

>>> from belated.ledger.stores.memory import MemoryLedger
>>> check_ledger(MemoryLedger)
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import count

import msgspec
from msgspec.structs import replace

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
)
from belated.ledger.ids import Ids
from belated.ledger.protocol import Importer, Ledger

NewLedger = Callable[[], Ledger]
SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND


class _Writer:
    """Drafts with ids from a clock that only moves when told to."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.now = ledger, NOW
        self._ids = Ids(lambda: self.now, seed=1)

    def decided(
        self,
        bandit: str = "shop",
        *,
        id: bytes | None = None,
        due: int | None = None,
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
        )

    def about(
        self, kind: Kind, id: bytes, value: float | None = None, *, bandit: str = ""
    ) -> Draft:
        return Draft(kind, bandit, id, self.now, value)

    def commit(self, *drafts: Draft) -> list[Status]:
        return [outcome.status for outcome in self.ledger.commit(drafts)]

    def decide(self, bandit: str = "shop", due: int | None = None) -> bytes:
        draft = self.decided(bandit, due=due)
        assert self.commit(draft) == [Status.ACCEPTED]
        return draft.id

    def reward(self, id: bytes, value: float, *, bandit: str = "") -> Status:
        (status,) = self.commit(self.about(Kind.REWARDED, id, value, bandit=bandit))
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
    """The whole log, as a reader that starts now sees it."""
    events: list[Event] = []
    position = START
    while True:
        more, position = ledger.follow(position, limit)
        if not more:
            return events
        events += more


def check_log_keeps_everything(new: NewLedger) -> None:
    """Events come back with every field, in the order and the batches they were written in."""
    writer = _Writer(new())
    first, second = writer.decided(due=NOW + SECOND), writer.decided("other")
    about = Draft(Kind.CONFIGURED, "shop", b"", NOW - 5, body=b"\x00settings\xff")
    assert writer.commit(about, first, second) == [Status.ACCEPTED] * 3
    assert writer.reward(first.id, -0.1) == Status.ACCEPTED
    log = _log(writer.ledger)
    reward = writer.about(Kind.REWARDED, first.id, -0.1, bandit="shop")
    for event, draft in zip(log, [about, first, second, reward], strict=True):
        for name in ("kind", "bandit", "id", "time", "value", "due", "body"):
            assert getattr(event, name) == getattr(draft, name), name
        assert isinstance(event.kind, Kind)
    assert len({event.tx for event in log[:3]}) == 1
    assert log[3].tx != log[2].tx
    assert [*log] == sorted(log, key=lambda event: (event.tx, event.seq))
    assert writer.ledger.story(first.id) == [log[1], log[3]]
    assert writer.ledger.story(b"?" * 16) == []


def check_follow_is_exact(new: NewLedger) -> None:
    """Whatever the limit, every event comes exactly once, and transactions come whole."""
    writer = _Writer(new())
    for size in (1, 5, 1, 3):
        writer.commit(*[writer.decided() for _ in range(size)])
    whole = _log(writer.ledger)
    assert len(whole) == 10
    for limit in range(1, 12):
        assert _log(writer.ledger, limit) == whole
        position = START
        while True:
            events, position = writer.ledger.follow(position, limit)
            if not events:
                break
            last = Position(events[-1].tx, events[-1].seq)
            assert position == last
            assert all(event.tx != events[-1].tx for event in whole if event not in events)
        assert writer.ledger.behind(position) == 0
    assert writer.ledger.behind(START) == 10
    events, position = writer.ledger.follow(position)
    assert events == []
    late = writer.decide()
    assert [event.id for event in writer.ledger.follow(position)[0]] == [late]
    assert writer.ledger.commit([]) == []


def check_rewards(new: NewLedger) -> None:
    """Duplicates, conflicts, strangers and late comers."""
    writer = _Writer(new())
    id = writer.decide(due=NOW + SECOND)
    assert writer.reward(id, 0.5, bandit="other") == Status.UNKNOWN
    assert writer.reward(id, 0.5) == Status.ACCEPTED
    assert writer.reward(id, 0.5) == Status.DUPLICATE
    assert writer.reward(id, 0.25) == Status.CONFLICT
    late, in_time = writer.decide(due=NOW + SECOND), writer.decide(due=NOW + SECOND)
    writer.now += SECOND
    assert writer.reward(in_time, 1.0) == Status.ACCEPTED
    writer.now += 1
    assert writer.reward(late, 1.0) == Status.EXPIRED
    assert writer.reward(late, 1.0) == Status.DUPLICATE
    assert writer.reward(late, 0.0) == Status.CONFLICT
    values = [event.value for event in _log(writer.ledger) if event.kind == Kind.REWARDED]
    assert values == [0.5, 1.0, 1.0]
    old = Ids(lambda: NOW - 3600 * SECOND, seed=2)()
    assert writer.reward(old, 1.0) == Status.UNKNOWN
    assert writer.ledger.parked() == []


def check_zeros_have_no_sign(new: NewLedger) -> None:
    """A store may not keep the sign of -0.0: so it never gets one, live or read again."""
    writer = _Writer(new())
    ledger = writer.ledger
    id = writer.decide()
    _, position = ledger.follow(START)
    assert writer.reward(id, -0.0) == Status.ACCEPTED
    assert writer.reward(id, 0.0) == Status.DUPLICATE
    live, _ = ledger.follow(position)
    for event in (*live, _log(ledger)[-1]):
        assert str(event.value) == "0.0"


def check_one_batch(new: NewLedger) -> None:
    """The drafts of a batch are judged in their order, each in the light of those before it."""
    writer = _Writer(new())
    decision = writer.decided()
    same, other = (writer.about(Kind.REWARDED, decision.id, value) for value in (1.0, 2.0))
    cancel = writer.about(Kind.CANCELLED, decision.id)
    outcomes = writer.ledger.commit([decision, decision, same, same, other, cancel])
    statuses = [outcome.status for outcome in outcomes]
    assert statuses == ["accepted", "duplicate", "accepted", "duplicate", "conflict", "conflict"]
    assert outcomes[4].facts == Facts("shop", None, 1.0), "a conflict must say with what"
    assert [event.kind for event in _log(writer.ledger)] == [Kind.DECIDED, Kind.REWARDED]
    assert writer.commit(writer.decided("other", id=decision.id)) == [Status.CONFLICT]


def check_endings(new: NewLedger) -> None:
    """Expiry, cancellation and revision."""
    writer = _Writer(new())
    a, b, c = writer.decide(), writer.decide(), writer.decide()
    expire, cancel, revise = Kind.EXPIRED, Kind.CANCELLED, Kind.REVISED
    assert writer.commit(writer.about(revise, a, 1.0)) == [Status.CONFLICT]
    assert writer.commit(*[writer.about(expire, a)] * 2) == [Status.ACCEPTED, Status.DUPLICATE]
    assert writer.reward(a, 1.0) == Status.EXPIRED
    assert writer.commit(writer.about(revise, a, 1.0)) == [Status.DUPLICATE]
    assert writer.commit(writer.about(revise, a, 0.0)) == [Status.ACCEPTED]
    assert writer.commit(writer.about(revise, a, 1.0)) == [Status.ACCEPTED]
    assert writer.reward(a, 1.0) == Status.DUPLICATE
    assert writer.commit(writer.about(cancel, a)) == [Status.CONFLICT]
    assert writer.commit(*[writer.about(cancel, b)] * 2) == [Status.ACCEPTED, Status.DUPLICATE]
    assert writer.reward(b, 1.0) == Status.CONFLICT
    assert writer.commit(writer.about(expire, b)) == [Status.CONFLICT]
    assert writer.reward(c, 1.0) == Status.ACCEPTED
    assert writer.commit(writer.about(revise, c, 0.5)) == [Status.ACCEPTED]
    stranger = Ids(lambda: NOW, seed=3)()
    for kind in (expire, cancel, revise):
        assert writer.commit(writer.about(kind, stranger, 1.0)) == [Status.UNKNOWN]
    assert [event.kind for event in writer.ledger.story(a)] == [
        Kind.DECIDED,
        expire,
        Kind.REWARDED,
        revise,
        revise,
    ]


def check_parking(new: NewLedger) -> None:
    """A reward that precedes its decision waits for it."""
    writer = _Writer(new())
    early, stranger = writer.decided(due=NOW + SECOND), writer.decided()
    assert writer.reward(early.id, 1.0) == Status.PARKED
    assert writer.reward(early.id, 1.0) == Status.DUPLICATE
    assert writer.reward(early.id, 0.0) == Status.CONFLICT
    assert writer.commit(writer.about(Kind.REWARDED, stranger.id, 2.0)) == [Status.PARKED]
    assert writer.ledger.parked() == [
        (early.id, NOW, 1.0),
        (stranger.id, NOW, 2.0),
    ]
    assert _log(writer.ledger) == []
    assert writer.commit(early) == [Status.ACCEPTED]
    decision, reward = _log(writer.ledger)
    assert (decision.kind, reward.kind) == (Kind.DECIDED, Kind.REWARDED)
    assert (decision.id, reward.id, reward.value) == (early.id, early.id, 1.0)
    assert [waiting[0] for waiting in writer.ledger.parked()] == [stranger.id]
    assert writer.reward(early.id, 1.0) == Status.DUPLICATE


def check_parked_pages(new: NewLedger) -> None:
    """Parked rewards come page by page, and end when their decision can no longer be waited for."""
    writer = _Writer(new())
    ids = []
    for k in range(7):
        writer.now = NOW + k * SECOND
        ids.append(writer.decided().id)
    for id in reversed(ids):
        assert writer.reward(id, 0.5) == Status.PARKED
    pages, last = [], NOBODY
    while page := writer.ledger.parked(3, last):
        pages.append([waiting.id for waiting in page])
        last = page[-1].id
    assert pages == [ids[:3], ids[3:6], ids[6:]]
    assert [waiting.id for waiting in writer.ledger.parked()] == ids
    assert writer.ledger.end_parked(NOW) == 0
    assert writer.ledger.end_parked(NOW + 2 * SECOND) == 2
    assert [waiting.id for waiting in writer.ledger.parked()] == ids[2:]
    assert writer.ledger.end_parked(NOW + 2 * SECOND) == 0
    assert writer.ledger.end_parked(NOW + 2 * SECOND + 1) == 1


def check_requests(new: NewLedger) -> None:
    """A request that is made again gets the same decision; another body is a conflict."""
    writer = _Writer(new())
    first = writer.decided(request="r", digest=b"1")
    again, other = (writer.decided(request="r", digest=digest) for digest in (b"1", b"2"))
    elsewhere = writer.decided("other", request="r", digest=b"2")

    def outcomes(*drafts: Draft) -> list[Outcome]:
        return writer.ledger.commit(drafts)

    one, two, three, four = outcomes(first, again, other, elsewhere)
    assert (one.status, two.status, three.status) == ("accepted", "duplicate", "conflict")
    assert four.status == Status.ACCEPTED
    assert two.earlier is not None
    assert two.earlier.id == first.id
    (later,) = outcomes(again)
    assert later.status == Status.DUPLICATE
    assert later.earlier == _log(writer.ledger)[0]
    assert writer.ledger.requested("shop", "r") == (later.earlier, b"1")
    assert writer.ledger.requested("shop", "s") is None
    assert len(_log(writer.ledger)) == 2


def check_invalid_rewards(new: NewLedger) -> None:
    """A reward that a bandit cannot have leaves no trace."""
    writer = _Writer(new())
    id, other = writer.decide(), writer.decide("other")
    drafts = [writer.about(Kind.REWARDED, which, 7.0) for which in (id, other)]
    outcomes = writer.ledger.commit(drafts, Importer(lambda bandit, kind, value: bandit == "other"))
    assert [outcome.status for outcome in outcomes] == [Status.INVALID, Status.ACCEPTED]
    assert [outcome.bandit for outcome in outcomes] == ["shop", "other"]
    assert len(writer.ledger.story(id)) == 1


def check_stale_memory(new: NewLedger) -> None:
    """What a follower remembers of a decision counts for nothing once the log has gone on."""
    writer = _Writer(new())
    id = writer.decide()
    log = _log(writer.ledger)
    memory = _Memory(Position(log[-1].tx, log[-1].seq), {id: Facts("shop", None)})
    assert writer.reward(id, 1.0) == Status.ACCEPTED
    for value, expected in ((1.0, Status.DUPLICATE), (0.0, Status.CONFLICT)):
        draft = writer.about(Kind.REWARDED, id, value)
        assert [o.status for o in writer.ledger.commit([draft], memory)] == [expected]
    second = writer.decide()
    log = _log(writer.ledger)
    memory = _Memory(Position(log[-1].tx, log[-1].seq), {second: Facts("shop", None)})
    twice = [writer.about(Kind.REWARDED, second, value) for value in (1.0, 1.0, 0.0)]
    statuses = [outcome.status for outcome in writer.ledger.commit(twice, memory)]
    assert statuses == [Status.ACCEPTED, Status.DUPLICATE, Status.CONFLICT]


def check_approval(new: NewLedger) -> None:
    """A follower that does not want what would be written leaves the log as it was."""
    writer = _Writer(new())
    id, other = writer.decide(), writer.decide()
    assert writer.reward(id, 1.0) == Status.ACCEPTED
    before, follower = _log(writer.ledger), _Memory(START, {}, strict=True)
    drafts = [writer.about(Kind.REWARDED, which, 0.0) for which in (other, id)]
    try:
        writer.ledger.commit(drafts, follower)
    except RuntimeError:
        assert _log(writer.ledger) == before
        assert len(writer.ledger.commit(drafts[:1], follower)) == 1
        assert len(_log(writer.ledger)) == len(before) + 1
    else:
        raise AssertionError("the follower was not asked")


def check_forgetting(new: NewLedger) -> None:
    """What is erased cannot be found, and the log says that something was."""
    writer = _Writer(new())
    kept = writer.decide()
    gone = [writer.decided(subject="me", request=f"r{k}") for k in range(2)]
    writer.commit(*gone, writer.decided("other", subject="me"), writer.decided(subject="you"))
    assert writer.reward(gone[1].id, 0.5) == Status.ACCEPTED
    assert writer.reward(kept, 0.5) == Status.ACCEPTED
    assert writer.ledger.subject("shop", "me") == [draft.id for draft in gone]
    before = _log(writer.ledger)
    assert writer.ledger.forget("shop", "me", NOW + 9) == 2
    after = _log(writer.ledger)
    for old, now in zip(before, after[:-1], strict=True):
        if old.id in {draft.id for draft in gone}:
            assert now == replace(old, id=b"", value=None, due=None, body=b"")
        else:
            assert now == old
    assert (after[-1].kind, after[-1].bandit, after[-1].time) == (Kind.FORGOTTEN, "shop", NOW + 9)
    assert writer.ledger.rare(Kind.FORGOTTEN, START) == [after[-1]]
    assert writer.ledger.rare(Kind.FORGOTTEN, Position(after[-1].tx, after[-1].seq)) == []
    assert writer.ledger.rare(Kind.KEYS, START) == []
    assert writer.ledger.subject("shop", "me") == []
    assert writer.ledger.requested("shop", "r0") is None
    assert writer.ledger.story(gone[0].id) == []
    writer.now += 3600 * SECOND
    assert writer.reward(gone[1].id, 0.5) == Status.UNKNOWN
    assert writer.ledger.forget("shop", "nobody", NOW) == 0


def check_many(new: NewLedger) -> None:
    """A batch of thousands is one transaction."""
    writer = _Writer(new())
    decisions = [writer.decided() for _ in range(3000)]
    rewards = [writer.about(Kind.REWARDED, d.id, float(k)) for k, d in zip(count(), decisions)]
    assert set(writer.commit(*decisions)) == {Status.ACCEPTED}
    assert set(writer.commit(*rewards)) == {Status.ACCEPTED}
    assert set(writer.commit(*rewards)) == {Status.DUPLICATE}
    log = _log(writer.ledger)
    assert [event.id for event in log[:3000]] == [draft.id for draft in decisions]
    assert [event.value for event in log[3000:]] == [float(k) for k in range(3000)]
    assert len({event.tx for event in log}) == 2


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
    assert statuses == [[ok, ok], [duplicate], [], [ok, ok], [duplicate], [ok, ok]]
    log = _log(writer.ledger)
    assert [event.id for event in log] == [first.id, second.id, first.id, second.id, b"", b""]
    assert [event.tx == log[0].tx for event in log] == [True, True, False, False, False, False]
    assert len({event.tx for event in log}) == 3
    assert writer.ledger.commit_all([]) == []


def check_retention(new: NewLedger) -> None:
    """Old decisions lose what the state does not depend on, and nothing else does."""
    writer = _Writer(new())
    old = [writer.decided(subject="me", request=f"r{k}") for k in range(3)]
    plain, stranger = writer.decided(), writer.decided()
    writer.commit(*old, plain, writer.about(Kind.REWARDED, old[0].id, 0.5))
    assert writer.reward(stranger.id, 1.0) == Status.PARKED
    writer.now += SECOND
    young = writer.decided(subject="me", request="young")
    writer.commit(young)
    before = _log(writer.ledger)
    assert writer.ledger.retain(NOW + 1, dry_run=True) == (3, 3, 1)
    assert _log(writer.ledger) == before
    assert writer.ledger.requested("shop", "r0") is not None
    assert writer.ledger.retain(NOW + 1) == (3, 3, 1)
    for then, now in zip(before, _log(writer.ledger), strict=True):
        if then.kind == Kind.DECIDED and then.id in {draft.id for draft in old}:
            body = msgspec.msgpack.decode(then.body, type=Decided)
            rest = replace(body, context=b"", subject="", request="", matrix=b"")
            assert now == replace(then, body=msgspec.msgpack.encode(rest))
        else:
            assert now == then
    assert writer.ledger.retain(NOW + 1) == (0, 0, 0)
    assert writer.ledger.parked() == []
    assert writer.ledger.subject("shop", "me") == [young.id]
    assert writer.ledger.requested("shop", "r0") is None
    assert writer.ledger.requested("shop", "young") is not None
    assert writer.reward(old[1].id, 1.0) == Status.ACCEPTED
    assert writer.ledger.problems() == []


LEDGER_CHECKS = (
    check_log_keeps_everything,
    check_follow_is_exact,
    check_rewards,
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
