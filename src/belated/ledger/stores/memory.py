"""A ledger that is gone with its process: for tests, and to try things out."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from uuid import uuid4

from msgspec.structs import replace

from belated.ledger.events import NOBODY, Draft, Event, Kind, Outcome, Position, Waiting
from belated.ledger.ids import first_id
from belated.ledger.protocol import PAGE, Follower, Ledger, LedgerError
from belated.ledger.rules import Known, mentioned, settle
from belated.ledger.upkeep import Retained, blanked, erased, erasure

PARK_FOR = 120_000_000  # two minutes


class MemoryLedger(Ledger):
    """The simplest store there is: lists and dicts."""

    def __init__(self, park_for: int = PARK_FOR) -> None:
        self.park_for = park_for
        self.identity = str(uuid4())
        self._events: list[Event] = []  # an event's seq is its place in this list, from 1
        self._places: dict[bytes, list[int]] = {}  # places of the events of each decision
        self._requests: dict[tuple[str, str], tuple[bytes, bytes]] = {}
        self._subjects: dict[tuple[str, str], list[bytes]] = {}
        self._parked: dict[bytes, Waiting] = {}

    def commit(self, drafts: Sequence[Draft], follower: Follower | None = None) -> list[Outcome]:
        known = Known()
        for id in mentioned(drafts):
            for event in self.story(id):
                known.add_event(event)
            if id in self._parked:
                known.parked[id] = self._parked[id]
        for draft in drafts:
            earlier = self.requested(draft.bandit, draft.request) if draft.request else None
            if earlier is not None:
                known.requests[draft.bandit, draft.request] = earlier
        first = len(self._events) + 1
        settled = settle(drafts, known, first, count(first), self.park_for, follower)
        for event in settled.events:
            self._events.append(event)
            if event.id:
                self._places.setdefault(event.id, []).append(len(self._events) - 1)
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
        events = self._events[after.seq : after.seq + limit]
        while events and (more := self._events[events[-1].seq : events[-1].seq + 1]):
            if more[0].tx != events[-1].tx:
                break
            events += more
        return events, Position(events[-1].tx, events[-1].seq) if events else after

    def story(self, id: bytes) -> list[Event]:
        return [self._events[place] for place in self._places.get(id, [])]

    def requested(self, bandit: str, request: str) -> tuple[Event, bytes] | None:
        if (bandit, request) not in self._requests:
            return None
        id, digest = self._requests[bandit, request]
        return self.story(id)[0], digest

    def subject(self, bandit: str, subject: str) -> list[bytes]:
        return list(self._subjects.get((bandit, subject), []))

    def forget(self, bandit: str, subject: str, time: int) -> int:
        ids = self._subjects.pop((bandit, subject), [])
        requests, draft = erasure(bandit, time, [self.story(id)[0] for id in ids])
        for request in requests:
            self._requests.pop((bandit, request), None)
        for place in [place for id in ids for place in self._places.pop(id)]:
            event = self._events[place]
            self._events[place] = erased(event)
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
        return [event for event in self._events[after.seq :] if event.kind == kind]

    def behind(self, after: Position) -> int:
        return len(self._events) - after.seq

    def retain(self, before: int, *, dry_run: bool = False) -> Retained:
        old = [waiting.id for waiting in self._parked.values() if waiting.time < before]
        decisions = requests = 0
        for place, event in enumerate(self._events):
            mine = event.kind == Kind.DECIDED and event.id and event.time < before
            rest = blanked(event.body) if mine else None
            if rest is None:
                continue
            decisions += 1
            request, subject = (event.bandit, rest.request), (event.bandit, rest.subject)
            requests += request in self._requests
            if not dry_run:
                self._events[place] = replace(event, body=rest.body)
                self._requests.pop(request, None)
                if subject in self._subjects:
                    self._subjects[subject].remove(event.id)
        if not dry_run:
            for id in old:
                del self._parked[id]
        return Retained(decisions, requests, len(old))

    def problems(self) -> list[str]:
        return []

    def backup(self, target: Path) -> None:
        raise LedgerError("memory://: expected a ledger that is in a file")

    def close(self) -> None:
        pass
