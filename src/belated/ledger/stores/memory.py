"""A ledger that is gone with its process: for tests, and to try things out."""

from collections.abc import Iterable, Sequence
from itertools import chain, count, takewhile
from pathlib import Path
from uuid import uuid4

from msgspec.structs import replace

from belated.ledger.events import NOBODY, Draft, Event, Kind, Outcome, Position, Waiting
from belated.ledger.ids import first_id
from belated.ledger.protocol import PAGE, CompactedError, Follower, Ledger, LedgerError
from belated.ledger.rules import Known, mentioned, refuse_base, settle
from belated.ledger.upkeep import Base, Retained, blanked, erased, erasure

PARK_FOR = 120_000_000  # two minutes


class MemoryLedger(Ledger):
    """The simplest store there is: lists and dicts."""

    def __init__(self, park_for: int = PARK_FOR) -> None:
        self.park_for = park_for
        self.identity = str(uuid4())
        self._last = 0  # the seq of the last event
        self._events: dict[int, Event] = {}  # by seq, without gaps after the base
        self._places: dict[bytes, list[int]] = {}  # seqs of the events of each decision
        self._requests: dict[tuple[str, str], tuple[bytes, bytes]] = {}
        self._subjects: dict[tuple[str, str], list[bytes]] = {}
        self._parked: dict[bytes, Waiting] = {}
        # A log that was compacted; see ``Ledger.compact``.
        self._base: Base | None = None
        self._contents: dict[str, bytes] = {}
        self._carried: list[Event] = []

    def commit(self, drafts: Sequence[Draft], follower: Follower | None = None) -> list[Outcome]:
        known = Known() if self._base is None else Known(last_dropped=self._base.last_id)
        for id in mentioned(drafts):
            for event in self.story(id):
                known.add_event(event)
            if id in self._parked:
                known.parked[id] = self._parked[id]
        for draft in drafts:
            earlier = self.requested(draft.bandit, draft.request) if draft.request else None
            if earlier is not None:
                known.requests[draft.bandit, draft.request] = earlier
        first = self._last + 1
        settled = settle(drafts, known, first, count(first), self.park_for, follower)
        for event in settled.events:
            self._events[event.seq] = event
            self._last = event.seq
            if event.id:
                self._places.setdefault(event.id, []).append(event.seq)
        for bandit, request, id, digest in settled.requests:
            self._requests[bandit, request] = id, digest
        for bandit, subject, id in settled.subjects:
            self._subjects.setdefault((bandit, subject), []).append(id)
        self._parked |= {waiting.id: waiting for waiting in settled.park}
        for id in settled.unpark:
            del self._parked[id]
        return settled.outcomes

    def commit_all(
        self, batches: Sequence[Sequence[Draft]], follower: Follower | None = None
    ) -> list[list[Outcome]]:
        return [self.commit(drafts, follower) for drafts in batches]

    def follow(self, after: Position, limit: int = 100_000) -> tuple[list[Event], Position]:
        if self._base is not None and after < self._base.position:
            raise CompactedError(self._base.position)
        events = [self._events[k] for k in range(after.seq, self._last + 1)[1 : limit + 1]]
        rest = (self._events[k] for k in range(after.seq + len(events) + 1, self._last + 1))
        events += takewhile(lambda event: event.tx == events[-1].tx, rest)
        return events, Position(events[-1].tx, events[-1].seq) if events else after

    def story(self, id: bytes) -> list[Event]:
        old = self._base is not None and id <= self._base.last_id
        events = [event for event in self._carried if event.id == id] if old else []
        events += [self._events[k] for k in self._places.get(id, []) if k > self._begins]
        return events if events and events[0].kind is Kind.DECIDED else []

    def requested(self, bandit: str, request: str) -> tuple[Event, bytes] | None:
        if (bandit, request) not in self._requests:
            return None
        id, digest = self._requests[bandit, request]
        return self._events[self._places[id][0]], digest

    def subject(self, bandit: str, subject: str) -> list[bytes]:
        return list(self._subjects.get((bandit, subject), []))

    def forget(self, bandit: str, subject: str, time: int) -> int:
        ids = self._subjects.pop((bandit, subject), [])
        ids = [id for id in ids if self._places[id][0] > self._begins]
        requests, draft = erasure(bandit, time, [self.story(id)[0] for id in ids])
        for request in requests:
            self._requests.pop((bandit, request), None)
        for seq in [seq for id in ids for seq in self._places.pop(id)]:
            self._events[seq] = erased(self._events[seq])
        self.commit([draft])
        return len(ids)

    def parked(self, limit: int = PAGE, after: bytes = NOBODY) -> list[Waiting]:
        return sorted(waiting for waiting in self._parked.values() if waiting.id > after)[:limit]

    def end_parked(self, before: int) -> int:
        ended = [id for id in self._parked if id < first_id(before)]
        for id in ended:
            del self._parked[id]
        return len(ended)

    def rare(self, kind: Kind, after: Position) -> list[Event]:
        carried = (event for event in self._carried if event.seq > after.seq)
        later = (self._events[k] for k in range(max(after.seq, self._begins), self._last + 1)[1:])
        return [event for event in chain(carried, later) if event.kind == kind]

    def behind(self, after: Position) -> int:
        return self._last - max(after.seq, self._begins)

    def retain(self, before: int, *, dry_run: bool = False) -> Retained:
        old = [waiting.id for waiting in self._parked.values() if waiting.time < before]
        decisions = requests = 0
        latest = {event.bandit: 0 for event in self._events.values()}
        for event in self._events.values():
            if event.kind == Kind.DECIDED:
                latest[event.bandit] = max(latest[event.bandit], event.time)
        for seq, event in self._events.items():
            mine = event.kind == Kind.DECIDED and event.id and event.time < before
            rest = blanked(event.body, latest[event.bandit]) if mine else None
            if rest is None:
                continue
            decisions += 1
            request, subject = (event.bandit, rest.request), (event.bandit, rest.subject)
            requests += request in self._requests
            if not dry_run:
                self._events[seq] = replace(event, body=rest.body)
                self._requests.pop(request, None)
                if subject in self._subjects:
                    self._subjects[subject].remove(event.id)
        if not dry_run:
            for id in old:
                del self._parked[id]
        return Retained(decisions, requests, len(old))

    @property
    def _begins(self) -> int:
        return 0 if self._base is None else self._base.position.seq

    def base(self) -> Base | None:
        return self._base

    def base_content(self, base: Base, bandit: str) -> bytes:
        return self._contents.get(bandit, b"")

    def carried(self) -> Iterable[Event]:
        return list(self._carried)

    def compact(
        self,
        base: Base,
        contents: Iterable[tuple[str, bytes]],
        carried: Iterable[Event],
        seen: Position,
    ) -> None:
        refuse_base(base, self._base, self.rare(Kind.FORGOTTEN, seen))
        self._contents, self._carried = dict(contents), list(carried)
        self._base = base

    def drop(self) -> int:
        old = [seq for seq in self._events if seq <= self._begins]
        gone = {id for seq in old if (id := self._events.pop(seq).id)}
        for id in gone:
            self._places[id] = [seq for seq in self._places[id] if seq > self._begins]
        self._requests = {k: v for k, v in self._requests.items() if v[0] not in gone}
        subjects = {k: [id for id in v if id not in gone] for k, v in self._subjects.items()}
        self._subjects = {k: v for k, v in subjects.items() if v}
        return len(old)

    def problems(self) -> list[str]:
        return []

    def backup(self, target: Path) -> None:
        raise LedgerError("memory://: expected a ledger that is in a file")

    def close(self) -> None:
        pass
