"""The state of a bandit as a fold over its events, which is the only way it ever changes.

Live, after a crash, on another machine and in an audit, the same events in the same order give the
same bytes. The estimate is brought up to date once per transaction that brought rewards.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import sha256
from itertools import groupby, pairwise
from math import isfinite, isnan
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from belated.core.events import Broken
from belated.core.types import Integers, Matrix
from belated.core.wording import counted_as_zero, heard, nothing_learnt
from belated.features import Features
from belated.learner import files
from belated.learner.assumptions import only_successes
from belated.learner.forgetting import forget_by, reach, weights_at
from belated.learner.heard_law import HeardLaw
from belated.learner.learner import Choice, Law, Learner
from belated.learner.rows import history_of, weights_in_room
from belated.ledger.actions import Actions
from belated.ledger.batch import Noted, Plan
from belated.ledger.events import (
    BY_PLACE,
    ActionsChange,
    Decided,
    Event,
    Kind,
    added_reward,
    is_late,
)
from belated.ledger.growth import Earlier
from belated.ledger.hearing import UNNAMED, Hearing
from belated.ledger.ids import times_of, to_text
from belated.ledger.pending import Open, OpenDecisions, Pending
from belated.ledger.promotion import NoVectorError, ToldSettings, promotion_of, vector_again, zeros
from belated.ledger.row_table import search_row
from belated.ledger.spec import Spec
from belated.ledger.sticky import Begun, Stretches, key_of
from belated.ledger.vectors import matrix_of, sparse_rows
from belated.model.protocols import feedback_of
from belated.model.state import History
from belated.model.steps import LEARN, REVISE
from belated.monitoring.histogram import AGES, Histogram
from belated.monitoring.statistics import Statistics

_decided = msgspec.msgpack.Decoder(Decided)
_change = msgspec.msgpack.Decoder(ActionsChange)


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
        self.told = ToldSettings()  # what the log says of the settings, see ``ledger/promotion.py``
        self.told.first(spec)
        # What another regime had and this one cannot take in, by reason; see ``retraining.py``.
        self.lost: Counter[str] = Counter()
        self._types = tuple(types)
        self.earlier = Earlier(spec.dim)
        self.learner: Learner = spec.learner(self._types)
        self.support = self.learner.family.support
        self._possible = spec.possible(self._types)
        self.actions = Actions(spec.dim, spec.feature_map(features))
        self.version = 0  # number of events taken in
        self.listed_since = 0  # the version from which on no action was registered or withdrawn
        self.counts = Counts()
        self.delays = Histogram(AGES)  # seconds from a decision to its reward
        self.ids = bytearray()  # 16 bytes for each row of the history
        self.pending = OpenDecisions(self.ids)
        self.played = array("H")  # for each row, the place of its action in the statistics
        self.last_context = b""  # JSON, only shown: neither in the digest nor in snapshots
        self.statistics = Statistics()
        self.stretches = Stretches()
        self.hearing = Hearing(spec.closes_after) if self.learner.hears else None
        # Whether the policy learns conversions when they come, and nothing when windows close.
        self.on_the_fly = feedback_of(self.learner.policy) == "conversions"
        self.broken: list[Broken] = []  # assumptions that the log speaks against
        self._alike: list[Broken] = []  # whether only successes seem to be reported, ...
        self._next_look = 0  # ... looked at when so many rewards and closed windows are known
        self._noted = Noted()
        self._plan = Plan()
        self._law: tuple[int, Law] | None = None  # of all actions, at the version it is of

    def apply(self, events: Iterable[Event]) -> None:
        """Take in events of this bandit, whole transactions in the order of the log."""
        for _, transaction in groupby(events, attrgetter("tx")):
            for kind, run in groupby(transaction, attrgetter("kind")):
                alike = list(run)
                _TAKE[kind](self, alike)
                self.version += len(alike)
            self._plan.end_transaction()
            if self.begins_tick(alike[-1].written):
                self._take_in(alike[-1].written)
        self._flush()
        noted, self._noted = self._noted, Noted()
        self.delays.add(*[(then - start) / 1e6 for _, start, then, _, _ in noted.returned])
        noted.tell(self.statistics, self.played)
        self._note_open()
        self._look_at_assumptions()

    def begins_tick(self, now: int) -> bool:
        """Returns whether to take in what has come and what is silent, without a decision."""
        if self.hearing is None:
            return False
        known = self.counts.rewarded + self.counts.expired
        return self.hearing.begins_without_decision(
            now, self.stretches.latest, known, len(self.pending) > 0
        )

    def _take_in(self, now: int) -> None:
        """Let a tick begin: learn what has come, and what the silence of open decisions says."""
        assert self.hearing is not None
        self._flush()
        self.hearing.take_in(self.learner, times_of(self.ids), now)

    def choose_among_all(self, rng: np.random.Generator, weighed: bool) -> Choice:
        """Chooses one of all registered actions of a bandit without features."""
        options = self.actions.options(self.learner)
        if not self.learner.is_sparse:
            return self.learner.choose_from(options, rng, weighed)
        if self._law is None or self._law[0] != self.version:
            self._law = self.version, self.learner.law_of(options)
        return self._law[1].draw(rng)

    @property
    def repeatable(self) -> bool:
        """Returns whether a decision depends only on the state and on the request."""
        spec = self.spec
        shares = spec.exploration > 0.0 or spec.holdout > 0.0
        at_random = self.learner.draws or self.spreads or shares
        return spec.mode == "live" and not at_random

    @property
    def spreads(self) -> bool:
        """True while actions are drawn uniformly: a conversion loop has learnt nothing yet.

        A loop that holds rewards learns nothing before the first window closes, one that learns
        from silence nothing before the first reward; until then, a policy that draws nothing would
        play the same action.
        """
        nothing_learnt = self.learner.n_observed == 0 and not self.on_the_fly
        return self.spec.loop == "conversion" and nothing_learnt

    @property
    def n_rows(self) -> int:
        """Number of decisions taken in."""
        return len(self.ids) // 16

    def _note_open(self) -> None:
        """Tell a learner that counts open decisions as zero how many, and how old, they are."""
        if self.on_the_fly:
            oldest = self.pending.oldest_row()
            self.learner.since_oldest_open = 0 if oldest is None else self.n_rows - 1 - oldest
            self.learner.n_counted_zero = self.pending.n_waiting

    def waiting_words(self, now: int) -> str:
        """Says what a conversion loop that has learnt nothing waits for; "" for any other."""
        due = self.pending.first_due() if self.spreads else None
        if due is None:
            return ""
        tick = None if self.hearing is None else self.hearing.next_tick(now, self.spec.dim)
        return nothing_learnt(self.pending.n_held, (due - now) / 1e6, tick)

    def heard_words(self) -> str:
        """Says what a loop that learns before windows close has learnt from; "" for any other."""
        hearing = self.hearing
        if self.on_the_fly:
            return counted_as_zero(self.learner.n_counted_zero, self.learner.n_decided)
        if hearing is None:
            return ""
        counts = self.learner.n_observed, hearing.n_open, hearing.failures
        return heard(*counts, all_converted=self.counts.expired == 0)

    def silence_of(self, id: bytes) -> float | None:
        """Returns the part of a failure that an open decision counts for; None for any other."""
        pending = self.pending.get(id)
        if self.hearing is None or pending is None or pending.held is not None:
            return None
        return float(self.learner.history.silence[pending.row])

    def broken_assumptions(self) -> dict[str, str]:
        """Returns the words on each assumption that the log speaks against, by name."""
        return {broken.name: str(broken) for broken in self.broken}

    def _look_at_assumptions(self) -> None:
        """Look when rewards are taken in, so that who asks need not wait for a look."""
        heard = [] if self.hearing is None else self.hearing.broken()
        self.broken = self.learner.broken_assumptions + heard + self._only_successes()

    def _only_successes(self) -> list[Broken]:
        """Returns that an explicit loop seems to hear of successes alone, as of the last look."""
        counts, known = self.counts, self.learner.n_observed + self.counts.expired
        if self.spec.loop == "explicit" and known >= self._next_look:
            self._next_look = known + known // 4 + 1
            since = self.stretches.latest - 2e6 * self.delays.longest
            self._alike = only_successes(
                self.learner.history.y[: self.n_rows],
                int((times_of(self.ids) < since).sum()) if self.spec.window is None else None,
                expired=counts.expired,
                late=counts.late,
                cancelled=counts.cancelled,
            )
        return self._alike

    def digest(self) -> str:
        """Returns a digest of the whole state, equal for two folds of the same events."""
        header = self.header()
        header.pop("regime", None)  # its name tells nothing of the state
        header["statistics"]["followed"].pop("actions")  # version 0.1 had none; the ids tell them
        digest = sha256(msgspec.msgpack.encode([header, self._listed()]))
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

    def _listed(self) -> dict[bytes, Pending]:
        """Returns the open decisions as version 0.1 kept them: its digests are still the same."""
        names = list(self.statistics.actions.by_name)
        return {
            id: Pending(row, time, due, names[self.played[row]], held, late, closes)
            for id, (row, time, due, closes, held, late) in self.pending.items()
        }

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
            **({"stretches": open_} if (open_ := self.stretches.listed()) else {}),
            **({} if (regime := self.told.to_keep()) is None else {"regime": regime}),
        }

    def arrays(self) -> dict[str, Any]:
        """Returns the arrays that a snapshot keeps besides the actions that were played."""
        learner = self.learner
        known = files.flatten(learner.state, learner.history)
        known.pop("history.x", None)  # dense vectors have a file of their own
        return known | {
            "ids": np.frombuffer(self.ids, np.uint8),
            "played": np.array(self.played, np.uint16),
            "latest": np.int64(self.stretches.latest),
            **self.pending.arrays(),
            **({} if self.hearing is None else self.hearing.arrays()),
            "law.within": learner.law.within,
            "law.variance": learner.law.variance,
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
        self.ids += arrays["ids"].tobytes()
        if learner.half_life is not None and self.n_rows:
            learner.tick = int(self._ticks(range(self.n_rows)).max())
        self.played = array("H", arrays["played"].tobytes())
        if not self.n_rows == len(self.played) == len(y) == learner.n_decided:
            raise ValueError(f"{self.n_rows} ids for {learner.n_decided} decisions")
        self.pending.restore(arrays)
        self.version = header["version"]
        self.counts = msgspec.convert(header["counts"], Counts)
        self.delays = msgspec.convert(header["delays"], Histogram)
        self.statistics = Statistics.from_dict(header["statistics"])
        self.actions.restore(header["actions"])
        self.listed_since = self.version  # it may be earlier: a snapshot does not say
        self.earlier = Earlier(self.spec.dim, header.get("earlier", ()))
        self.told = ToldSettings.restored(self.spec, header.get("regime"))
        if self.hearing is not None:
            self.hearing.restore(header["hearing"], arrays)
            if "law.within" in arrays:  # else intervals are without the law's error up to a tick
                groups = np.array(self.hearing.groups, np.int64)
                learner.law = HeardLaw(arrays["law.within"], arrays["law.variance"], groups)
        open_ = msgspec.convert(header.get("stretches", []), list[tuple[bytes, Begun]])
        # A snapshot from before there were stretches has no latest time: that of its ids will do.
        latest = arrays.get("latest", times_of(self.ids).max(initial=0))
        self.stretches.restore(open_, int(latest))
        self._note_open()
        self._look_at_assumptions()

    # ------------------------------------------------------------------------- kinds of events

    def _decided(self, events: list[Event]) -> None:
        there = [event for event in events if event.id]
        self.counts.erased += len(events) - len(there)
        stretches = self.stretches
        stretches.latest = max(stretches.latest, *(event.time for event in events))
        rows = range(self.n_rows, self.n_rows + len(there))
        xs: list[bytes] = []
        body, encoded, x = None, b"", None
        for row, event in zip(rows, there, strict=True):
            if body is None or event.body is not encoded:  # decisions of one moment share theirs
                body, encoded, x = _decided.decode(event.body), event.body, None
            if self.hearing is not None:
                if self.hearing.begins(event.time, self.spec.dim):
                    self._plan_decisions(range(row - len(xs), row), xs)
                    xs = []
                    self._take_in(event.time)
                end = event.due if event.closes is None else event.closes
                window = None if end is None else end - event.time
                self.hearing.decided(UNNAMED if body.naming == BY_PLACE else body.action, window)
            if x is None or body.layout != self.told.layout:  # those that are lost are counted
                x = self.present_vector(body)
            xs.append(x)
            self.ids += event.id
            if body.stretch is not None and body.subject:
                stretch = Begun(body.stretch.until, body.action, event.id)
                stretches.begin(key_of(body.subject, body.stretch.rank), stretch)
            width = body.width if isfinite(body.width) else None
            self._noted.decided.append((event.id, event.time, body.action, body.propensity, width))
        if body is not None:
            self.last_context = body.context
            times, dues, closes = zip(*((e.time, e.due, e.closes) for e in there), strict=True)
            self.pending.add_all(rows.start, times, dues, closes)
        self._plan_decisions(range(rows.stop - len(xs), rows.stop), xs)

    def present_vector(self, body: Decided) -> bytes:
        """Returns the vector of a decision by the present features.

        Whoever promotes makes sure that all decisions have one. A decision that came in at the same
        moment may have none: it is one of which nothing is learnt.
        """
        if body.layout == self.told.layout:
            return self.earlier.present(body.x)
        try:
            return vector_again(self.actions, body, self.learner.is_sparse)
        except NoVectorError as error:
            self.lost[str(error)] += 1
            return zeros(self.spec.dim)

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

    def _rewarded(self, events: list[Event]) -> None:
        returned, rows, rewards = self._noted.returned, [], []
        conversion, keep = self.spec.loop == "conversion", self.spec.late == "keep"
        opened = self.pending.get_all([event.id for event in events])
        for event in events:
            id, time, value = event.id, event.time, event.value
            if value is None or (self.told.ever and not self._can_have(value)):
                continue  # erased, or of another regime
            self.counts.rewarded += 1
            pending = opened.get(id)
            if pending is None or is_late(
                time, event.received, pending.due, pending.closes, expired=False
            ):
                self.counts.late += 1
                self._noted.late += 1
                if keep:
                    if pending is not None:
                        self.pending.mark_late(pending.row)
                    continue
            if pending is None:
                self._learn_anew(event, value)
                continue
            returned.append((id, pending.time, time, pending.row, value))
            if conversion:
                self.pending.hold(pending.row, value)
                if self.hearing is not None:
                    self.hearing.rewarded(pending.row, value, event.written - pending.time)
                elif self.on_the_fly:
                    rows.append(pending.row)
                    rewards.append(value)
            else:
                del opened[id]
                rows.append(pending.row)
                rewards.append(value)
        if not conversion:
            self.pending.close_all(rows)
        self._plan.learn(rows, rewards)

    def _can_have(self, reward: float) -> bool:
        """Returns whether the family can have a reward, which another regime may have accepted."""
        if self._possible(reward):
            return True
        self.lost["a reward that this family cannot have"] += 1
        return False

    def _expired(self, events: list[Event]) -> None:
        rows, rewards = [], []
        for event, pending in self._closed(events):
            held = pending.held
            if held is None:
                self.counts.expired += 1
                closed = event.time if pending.due is None else pending.due
                self._noted.expired.append((event.id, pending.time, closed, pending.row))
            if self.hearing is not None:
                if held is None:
                    self.hearing.closed(pending.row, self.spec.default_reward)
            elif self.spec.loop == "conversion" and not self.on_the_fly:
                rows.append(pending.row)
                rewards.append(self.spec.default_reward if held is None else held)
        self._plan.learn(rows, rewards)

    def _cancelled(self, events: list[Event]) -> None:
        for event, pending in self._closed(events):
            self.counts.cancelled += 1
            if self.hearing is not None:
                self.hearing.cancelled(pending.row)
            self._noted.cancelled.append((event.id, pending.time, event.time))

    def _revised(self, events: list[Event]) -> None:
        for event in events:
            value, pending = event.value, self.pending.get(event.id)
            if value is None or (self.told.ever and not self._can_have(value)):
                continue  # erased, or of another regime
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
                self._noted.returned.append((event.id, *times, pending.row, value))
            else:
                self._noted.revised.append((event.time, pending.row, pending.held, value))
            if self.spec.loop == "conversion":
                self.pending.hold(pending.row, value)
                if self.hearing is not None:
                    self.hearing.rewarded(pending.row, value, event.written - pending.time)
            else:
                self.pending.close(pending.row)
                self._plan.learn([pending.row], [value])

    def _closed(self, events: list[Event]) -> list[tuple[Event, Open]]:
        """Close the decisions of these events, and return those that were open.

        The others were erased, or rewarded at the same time elsewhere.
        """
        opened = self.pending.get_all([event.id for event in events])
        self.pending.close_all([pending.row for pending in opened.values()])
        return [(event, opened.pop(event.id)) for event in events if event.id in opened]

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
        if before is not None and not self.learner.can_revise:
            self.lost["a reward that was revised, which this policy cannot do"] += 1
            return
        self._plan.learn([row], [reward], LEARN if before is None else REVISE)

    def _row(self, id: bytes) -> int:
        row = search_row(self.ids, id)
        if row is None:
            raise LookupError(f"id = {to_text(id)}: expected one of a decision of {self.name!r}")
        return row

    def _configured(self, events: list[Event]) -> None:
        for event in events:
            wanted = msgspec.json.decode(event.body, type=Spec)
            try:
                new = self.told.configured(wanted)
            except ValueError:
                continue  # two processes changed it at once, differently: the first one counts
            self._change_to(new)

    def _promoted(self, events: list[Event]) -> None:
        for event in events:
            self._change_to(self.told.promoted(promotion_of(event)))

    def _change_to(self, new: Spec) -> None:
        """Go on with other settings, which give the past no other meaning."""
        if new.features != self.spec.features:
            self._exchange_features(new)
        if new.forgetting != self.spec.forgetting:
            self._flush()
            forget_by(self.learner, new.forgetting, lambda: times_of(self.ids))
        if _groups(new) != _groups(self.spec):
            self.stretches.end_all()
        self.spec, self.learner.family = new, new.law(self._types)
        self.support = self.learner.family.support

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
                    self.hearing.pass_on_silence(learner, self.learner)
                self.learner = learner
            self.actions.exchange(features)

    def _registered(self, events: list[Event]) -> None:
        for event in events:
            change = _change.decode(event.body)
            self.actions.change(change.put, change.drop)
        self.listed_since = self.version + len(events)

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


# Not in a fold: it would hold itself, and with it what was erased, after it was replaced.
_TAKE: dict[Kind, Callable[[Fold, list[Event]], None]] = {
    Kind.DECIDED: Fold._decided,
    Kind.REWARDED: Fold._rewarded,
    Kind.EXPIRED: Fold._expired,
    Kind.CANCELLED: Fold._cancelled,
    Kind.REVISED: Fold._revised,
    Kind.CONFIGURED: Fold._configured,
    Kind.ACTIONS: Fold._registered,
    Kind.FORGOTTEN: lambda fold, events: None,
    Kind.OUTCOME: lambda fold, events: None,
    Kind.PROMOTED: Fold._promoted,
    Kind.QUIET: lambda fold, events: None,  # its time is what it brings
}


def _groups(spec: Spec) -> tuple[Any, ...]:
    """Returns the settings that say who gets what; when they change, all stretches end."""
    return spec.sticky, spec.holdout, spec.baseline
