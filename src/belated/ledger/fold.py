"""The state of a bandit as a fold over its events, which is the only way it ever changes.

Live, after a crash, on another machine and in an audit, the same events in the same order give the
same bytes. The estimate is brought up to date once per transaction that brought rewards.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from heapq import heappop, heappush
from itertools import groupby, islice, pairwise
from math import isfinite, isnan
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from belated.core.types import Integers, Matrix
from belated.features import Features
from belated.learner import files
from belated.learner.forgetting import forget_by, reach, weights_at
from belated.learner.learner import Learner
from belated.learner.rows import history_of, weights_in_room
from belated.ledger.actions import Actions
from belated.ledger.batch import Noted, Plan
from belated.ledger.events import ActionsChange, Decided, Event, Kind, added_reward, is_late
from belated.ledger.growth import Earlier
from belated.ledger.hearing import Hearing
from belated.ledger.ids import times_of, to_text
from belated.ledger.spec import Spec
from belated.ledger.vectors import matrix_of, sparse_rows
from belated.model.protocols import feedback_of
from belated.model.state import History
from belated.model.steps import LEARN, REVISE
from belated.monitoring.histogram import AGES, Histogram
from belated.monitoring.moments import SECOND_US, Moments
from belated.monitoring.statistics import Statistics
from belated.monitoring.words import nothing_learnt

PART = 1_000  # decisions per step of writing or reading a snapshot: other threads want to run, too
NEARBY = 16 * 10_000  # bytes: ids of several machines, whose clocks differ a little, may be mixed


_decided = msgspec.msgpack.Decoder(Decided)
_change = msgspec.msgpack.Decoder(ActionsChange)


class Pending(msgspec.Struct, gc=False, omit_defaults=True):
    """A decision whose story is not over.

    The fields of version 0.1 have no default: a default is left out of digests and snapshots.
    """

    row: int  # in the history
    time: int
    due: int | None
    action: str
    held: float | None  # in a conversion loop: the reward, until the window closes
    late: bool  # whether the log holds a reward that came too late
    closes: int | None = None  # the end of the window with its grace; None: ``due``


_pending = msgspec.msgpack.Decoder(dict[bytes, Pending])


class Counts(msgspec.Struct):
    """The number of events of each kind."""

    rewarded: int = 0
    expired: int = 0
    late: int = 0
    cancelled: int = 0
    revised: int = 0
    erased: int = 0


class Fold:
    """One bandit, as far as its log has been taken in.

    Parameters
    ----------
    name
        Name of the bandit.
    spec
        Settings from the event that made the bandit.
    types, features
        Parts of the settings that a log cannot hold: see ``Replica``.
    """

    def __init__(
        self, name: str, spec: Spec, types: Iterable[type] = (), features: Any = None
    ) -> None:
        self.name, self.spec = name, spec
        self._types = tuple(types)
        self.earlier = Earlier(spec.dim)
        self.learner: Learner = spec.learner(self._types)
        self.support = self.learner.family.support
        self.actions = Actions(spec.dim, spec.feature_map(features))
        self.version = 0  # number of events taken in
        self.pending: dict[bytes, Pending] = {}  # oldest first
        self._waiting_since = Moments()  # times of the pending decisions without a reward
        self.counts = Counts()
        self.delays = Histogram(AGES)  # seconds from a decision to its reward
        self.ids = bytearray()  # 16 bytes for each row of the history
        self.played = array("H")  # for each row, the place of its action in the statistics
        self.last_context = b""  # JSON, only shown: neither in the digest nor in snapshots
        self._windows: list[tuple[int, bytes]] = []  # a heap of closing times, soonest first
        self.n_held = 0  # rewards of a conversion loop that wait for their window to close
        self.statistics = Statistics()
        self.hearing = Hearing(spec.closes_after) if self.learner.hears else None
        # Whether the policy learns conversions when they come, and nothing when windows close.
        self.on_the_fly = feedback_of(self.learner.policy) == "conversions"
        self._noted = Noted()
        self._plan = Plan()
        self._take: dict[Kind, Callable[[list[Event]], None]] = {
            Kind.DECIDED: self._decided,
            Kind.REWARDED: self._rewarded,
            Kind.EXPIRED: self._expired,
            Kind.CANCELLED: self._cancelled,
            Kind.REVISED: self._revised,
            Kind.CONFIGURED: self._configured,
            Kind.ACTIONS: self._registered,
            Kind.FORGOTTEN: lambda events: None,
        }

    def apply(self, events: Iterable[Event]) -> None:
        """Take in events of this bandit, whole transactions in the order of the log."""
        for _, transaction in groupby(events, attrgetter("tx")):
            for kind, run in groupby(transaction, attrgetter("kind")):
                alike = list(run)
                self._take[kind](alike)
                self.version += len(alike)
            self._plan.end_transaction()
        self._flush()
        noted, self._noted = self._noted, Noted()
        self.delays.add(*[(then - start) / 1e6 for _, start, then, _, _ in noted.returned])
        self._waiting_since.add([decided[1] for decided in noted.decided])
        self._waiting_since.remove(noted.settled)
        noted.tell(self.statistics, self.played)
        if self.on_the_fly:
            self.learner.outlived = self._outlived()

    @property
    def repeatable(self) -> bool:
        """Returns whether a decision depends only on the state and on the request."""
        spec = self.spec
        at_random = self.learner.draws or self.spreads or spec.exploration > 0.0
        return spec.mode == "live" and not at_random

    @property
    def spreads(self) -> bool:
        """True while actions are drawn uniformly: a conversion loop has learnt nothing yet.

        A conversion loop learns nothing before the first window closes, and a policy that draws
        nothing would play the same action until then.
        """
        nothing_learnt = self.learner.n_observed == 0 and not self.on_the_fly
        return self.spec.loop == "conversion" and nothing_learnt

    @property
    def n_rows(self) -> int:
        """Number of decisions taken in."""
        return len(self.ids) // 16

    def pending_by_age(self, now: int) -> Histogram:
        """Returns the ages of decisions that wait for a reward, in whole seconds of the clock.

        This takes the same time however many are pending.
        """
        total, second = len(self.pending) - self.n_held, now // SECOND_US
        younger = [self._waiting_since.since(second - int(bound)) for bound in AGES]
        counts = [n - before for n, before in zip([*younger, total], [0, *younger], strict=True)]
        return Histogram(AGES, counts)

    def due(self, now: int, most: int | None = None) -> list[bytes]:
        """Returns pending decisions whose window has closed, ``most`` of them at most."""
        found: list[tuple[int, bytes]] = []
        while self._windows and self._windows[0][0] < now and len(found) != most:
            window = heappop(self._windows)
            if window[1] in self.pending:
                found.append(window)
        for window in found:  # they stay due until the log says that they have expired
            heappush(self._windows, window)
        return [id for _, id in found]

    def first_due(self) -> int | None:
        """Returns when the first window of a pending decision closes; None if none does."""
        while self._windows and self._windows[0][1] not in self.pending:
            heappop(self._windows)
        return self._windows[0][0] if self._windows else None

    def _outlived(self) -> int:
        """Returns how many decisions were made after the oldest one whose window is open."""
        if self.first_due() is None:
            return 0
        return self.n_rows - 1 - self.pending[self._windows[0][1]].row

    def waiting_words(self, now: int) -> str:
        """Says what a conversion loop that has learnt nothing waits for; "" for any other."""
        due = self.first_due() if self.spreads else None
        return "" if due is None else nothing_learnt(self.n_held, (due - now) / 1e6)

    def broken_assumptions(self) -> dict[str, str]:
        """Returns the words on each assumption that the learnt rewards speak against, by name."""
        return {broken.name: str(broken) for broken in self.learner.broken_assumptions}

    def digest(self) -> str:
        """Returns a digest of the whole state, equal for two folds of the same events."""
        digest = sha256(msgspec.msgpack.encode([self.header(), self.pending]))
        digest.update(self.ids)
        digest.update(self.played)
        learner = self.learner
        for name, numbers in files.flatten(learner.state, learner.history).items():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(numbers).tobytes())
        if self.hearing is not None:
            digest.update(self.hearing.codes)
            digest.update(self.hearing.groups)
        return digest.hexdigest()

    def header(self) -> dict[str, Any]:
        """Returns everything but the arrays, as JSON can hold it."""
        return {
            "name": self.name,
            "spec": self.spec.as_kept(),
            "actions": self.actions.listed,
            "version": self.version,
            "counts": self.counts,
            "delays": self.delays,
            "statistics": self.statistics.to_dict(),
            **({"earlier": earlier} if (earlier := self.earlier.listed()) else {}),
            **({} if self.hearing is None else {"hearing": self.hearing.header()}),
        }

    def arrays(self) -> dict[str, Any]:
        """Returns the arrays that a snapshot keeps besides the actions that were played."""
        learner = self.learner
        known = files.flatten(learner.state, learner.history)
        known.pop("history.x", None)  # dense vectors have a file of their own
        waiting = iter(self.pending.items())
        parts = []
        while part := dict(islice(waiting, PART)):
            parts.append(msgspec.msgpack.encode(part))
        return known | {
            "ids": np.frombuffer(self.ids, np.uint8),
            "played": np.array(self.played, np.uint16),
            "pending": np.frombuffer(b"".join(parts), np.uint8),
            "pending_parts": np.array([len(part) for part in parts], np.int64),
            **({} if self.hearing is None else self.hearing.arrays()),
        }

    def restore(self, header: dict[str, Any], arrays: dict[str, Any], x: Matrix) -> None:
        """Go on where a snapshot was taken.

        ``x`` holds dense vectors, and has room for more of them; it is empty where they are sparse.
        """
        learner, y = self.learner, arrays["history.y"]
        state = files.flatten(learner.state, learner.history)
        in_state = [name for name in state if not name.startswith("history.")]
        files.copy_into({name: state[name] for name in in_state}, arrays)
        if not len(y):
            pass  # the empty history of a new learner has room, and weights if it forgets
        elif learner.is_sparse:
            learner.history = history_of(arrays, learner.dim)
        else:
            room = np.full(len(x), np.nan)
            room[: len(y)] = y
            learner.history = History(x, room, weights_in_room(arrays, len(x)))
        self.ids = bytearray(arrays["ids"].tobytes())
        if learner.half_life is not None and self.n_rows:
            learner.tick = int(self._ticks(range(self.n_rows)).max())
        self.played = array("H", arrays["played"].tobytes())
        if not self.n_rows == len(self.played) == len(y) == learner.n_decided:
            raise ValueError(f"{self.n_rows} ids for {learner.n_decided} decisions")
        for waiting in _parts(arrays):
            for id, pending in waiting.items():
                self._wait_for(id, pending)
            self._waiting_since.add([p.time for p in waiting.values() if p.held is None])
        self.version = header["version"]
        self.counts = msgspec.convert(header["counts"], Counts)
        self.delays = msgspec.convert(header["delays"], Histogram)
        self.statistics = Statistics.from_dict(header["statistics"])
        self.actions.restore(header["actions"])
        self.earlier = Earlier(self.spec.dim, header.get("earlier", ()))
        if self.hearing is not None:
            self.hearing.restore(header["hearing"], arrays)

    def let_go(self) -> None:
        """Free pending decisions bit by bit: to free a million at once would stop all threads."""
        while self.pending:
            self.pending.popitem()
        while self._windows:
            self._windows.pop()

    # ------------------------------------------------------------------------- kinds of events

    def _decided(self, events: list[Event]) -> None:
        there = [event for event in events if event.id]
        self.counts.erased += len(events) - len(there)
        rows = range(self.n_rows, self.n_rows + len(there))
        xs: list[bytes] = []
        body, encoded = None, b""
        for row, event in zip(rows, there, strict=True):
            if body is None or event.body is not encoded:  # decisions of one moment share theirs
                body, encoded = _decided.decode(event.body), event.body
            if self.hearing is not None:
                if self.hearing.begins(event.time, self.spec.dim):
                    self._plan_decisions(range(row - len(xs), row), xs)
                    xs = []
                    self._flush()
                    self.hearing.take_in(self.learner, times_of(self.ids), event.time)
                self.hearing.decided(body.action)
            xs.append(self.earlier.present(body.x))
            self.ids += event.id
            window = event.due, body.action, None, False, event.closes
            self._wait_for(event.id, Pending(row, event.time, *window))
            width = body.width if isfinite(body.width) else None
            self._noted.decided.append((event.id, event.time, body.action, body.propensity, width))
        if body is not None:
            self.last_context = body.context
        self._plan_decisions(range(rows.stop - len(xs), rows.stop), xs)

    def _plan_decisions(self, rows: range, xs: list[bytes]) -> None:
        """Plan to take in decisions; where one begins a new tick, all before it is taken in."""
        learner = self.learner
        if learner.half_life is None or not xs:
            self._plan.decide(rows, xs)
            return
        ticks = self._ticks(rows)
        latest = np.maximum.accumulate(np.maximum(ticks, learner.tick))
        weights = weights_at(latest - ticks)
        begins = np.flatnonzero(np.diff(latest, prepend=learner.tick))
        for first, end in pairwise([0, *begins.tolist(), len(xs)]):
            if latest[first] > learner.tick:
                self._flush()
                reach(learner, int(latest[first]))
            self._plan.decide(rows[first:end], xs[first:end])
            self._plan.weights += weights[first:end].tolist()

    def _ticks(self, rows: range) -> Integers:
        """Returns the ticks of decisions. The time of a decision is the one in its id."""
        assert self.learner.half_life is not None
        times = times_of(self.ids[16 * rows.start : 16 * rows.stop])
        return self.learner.half_life.tick(np.array(rows), times)

    def _wait_for(self, id: bytes, pending: Pending) -> None:
        self.pending[id] = pending
        self.n_held += pending.held is not None
        if pending.due is not None:
            heappush(self._windows, (pending.closes or pending.due, id))

    def _rewarded(self, events: list[Event]) -> None:
        waiting, returned, rows, rewards = self.pending, self._noted.returned, [], []
        settled = self._noted.settled
        conversion, keep = self.spec.loop == "conversion", self.spec.late == "keep"
        for event in events:
            id, time, value = event.id, event.time, event.value
            if value is None:
                continue  # erased
            self.counts.rewarded += 1
            pending = waiting.get(id)
            if pending is None or is_late(
                time, event.received, pending.due, pending.closes, expired=False
            ):
                self.counts.late += 1
                self._noted.late += 1
                if keep:
                    if pending is not None:
                        pending.late = True
                    continue
            if pending is None:
                self._learn_anew(event, value)
                continue
            returned.append((id, pending.time, time, pending.action, value))
            if conversion:
                self._hold(pending, value)
                if self.hearing is not None:
                    self.hearing.rewarded(pending.row, value, event.written - pending.time)
                elif self.on_the_fly:
                    rows.append(pending.row)
                    rewards.append(value)
            else:
                del waiting[id]
                settled.append(pending.time)
                rows.append(pending.row)
                rewards.append(value)
        self._plan.learn(rows, rewards)

    def _expired(self, events: list[Event]) -> None:
        rows, rewards = [], []
        for event in events:
            pending = self._done_with(event.id)
            if pending is None:
                continue  # erased, or rewarded at the same time elsewhere
            held = pending.held
            if held is None:
                self.counts.expired += 1
                closed = event.time if pending.due is None else pending.due
                self._noted.expired.append((event.id, pending.time, closed, pending.action))
            if self.hearing is not None:
                if held is None:
                    self.hearing.closed(pending.row, self.spec.default_reward)
            elif self.spec.loop == "conversion" and not self.on_the_fly:
                rows.append(pending.row)
                rewards.append(self.spec.default_reward if held is None else held)
        self._plan.learn(rows, rewards)

    def _cancelled(self, events: list[Event]) -> None:
        for event in events:
            pending = self._done_with(event.id)
            if pending is not None:
                self.counts.cancelled += 1
                if self.hearing is not None:
                    self.hearing.cancelled(pending.row)
                self._noted.cancelled.append((event.id, pending.time, event.time))

    def _revised(self, events: list[Event]) -> None:
        for event in events:
            value, pending = event.value, self.pending.get(event.id)
            if value is None:
                continue  # erased
            self.counts.revised += 1
            added = added_reward(event)
            if added is not None and not added.changes:
                self.counts.late += added.late
                self._noted.late += added.late
                continue
            if pending is None:
                self._learn_anew(event, value)
                continue
            if pending.held is None:  # a late reward was only kept
                times = pending.time, event.time
                self._noted.returned.append((event.id, *times, pending.action, value))
            else:
                self._noted.revised.append((event.time, pending.row, pending.held, value))
            if self.spec.loop == "conversion":
                self._hold(pending, value)
                if self.hearing is not None:
                    self.hearing.closed(pending.row, value)
            else:
                del self.pending[event.id]
                self._noted.settled.append(pending.time)
                self._plan.learn([pending.row], [value])

    def _hold(self, pending: Pending, value: float) -> None:
        """Keep a reward until the window of its decision closes."""
        if pending.held is None:
            self.n_held += 1
            self._noted.settled.append(pending.time)
        pending.held = value

    def _done_with(self, id: bytes) -> Pending | None:
        """Remove a decision from the pending ones, and return it if it was one."""
        pending = self.pending.pop(id, None)
        if pending is not None:
            if pending.held is None:
                self._noted.settled.append(pending.time)
            else:
                self.n_held -= 1
        return pending

    def _learn_anew(self, event: Event, reward: float) -> None:
        """Learn another reward for a row, or the first one for a row that had been given up."""
        self._flush()  # the reward in the history must be the present one
        row = self._row(event.id)
        heard = None if self.hearing is None else self.hearing.rewards.get(row)
        known = float(self.learner.history.y[row]) if heard is None else heard
        before = None if isnan(known) else known
        self._noted.revised.append((event.time, row, before, reward))
        if self.hearing is not None and heard is not None:
            self.hearing.closed(row, reward)
            return
        self._plan.learn([row], [reward], LEARN if before is None else REVISE)

    def _row(self, id: bytes) -> int:
        """Returns the row of an id. Ids and rows sort by time, nearly: the search begins nearby."""
        ids = self.ids
        near = 16 * bisect_left(
            range(self.n_rows), id, key=lambda k: bytes(ids[16 * k : 16 * k + 16])
        )
        for start, end in ((max(0, near - NEARBY), near + NEARBY), (0, len(ids))):
            place = ids.find(id, start, end)
            while place > 0 and place % 16:  # a match across two ids
                place = ids.find(id, place + 1, end)
            if place >= 0:
                return place // 16
        raise LookupError(f"id = {to_text(id)}: expected one of a decision of {self.name!r}")

    def _configured(self, events: list[Event]) -> None:
        for event in events:
            wanted = msgspec.json.decode(event.body, type=Spec)
            try:
                new = self.spec.changed_to(wanted)
            except ValueError:
                continue  # two processes changed it at once, differently: the first one counts
            if new.features != self.spec.features:
                self._exchange_features(new)
            if new.forgetting != self.spec.forgetting:
                self._flush()
                forget_by(self.learner, new.forgetting, lambda: times_of(self.ids))
            self.spec, self.support = new, new.support(self._types)

    def _exchange_features(self, new: Spec) -> None:
        """Go on with features that notice other things, or that have grown."""
        old, features = self.actions.features, new.feature_map()
        if isinstance(features, Features) and isinstance(old, Features):
            if features.dim != old.dim:
                self._flush()
                learner = new.learner(self._types)
                # This depends on the history alone, so it is the same wherever the log is read.
                learner.take_over(self.learner, self.earlier.grow(old, features))
                if self.hearing is not None:
                    self.hearing.hear_again(learner, self.learner)
                self.learner = learner
            self.actions.exchange(features)

    def _registered(self, events: list[Event]) -> None:
        for event in events:
            change = _change.decode(event.body)
            self.actions.change(change.put, change.drop)

    def _flush(self) -> None:
        """Make the moves that were planned."""
        plan = self._plan
        if not plan.moves:
            return
        sparse = self.learner.is_sparse
        self.learner.fold(
            np.array(plan.moves, np.int64),
            sparse_rows(plan.xs) if sparse else matrix_of(plan.xs, self.learner.dim),
            np.array(plan.rows, np.int64),
            np.array(plan.rewards),
            np.array(plan.last, np.int64),
            np.array(plan.weights) if plan.weights else None,
        )
        self._plan = Plan()


def _parts(arrays: Mapping[str, Any]) -> Iterator[dict[bytes, Pending]]:
    """Yields the pending decisions of a snapshot; in version 0.1 they were one part."""
    encoded = arrays["pending"].tobytes()
    start = 0
    for length in arrays.get("pending_parts", [len(encoded)]):
        part = encoded[start : start + int(length)]
        yield _pending.decode(part)
        start += int(length)
