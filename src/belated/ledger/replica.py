"""All bandits of a ledger, kept up to date with its log; they decide, learn and close windows.

Data flows one way: a decision is drawn up from the present state, written into the log, and
changes the state only when it is read back from there. A process that follows the log of others
learns the same way; being behind is one more delay.
"""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from belated.core.arguments import refuse_wide, shown, wrong
from belated.core.events import Status
from belated.features import UnmatchedCounts
from belated.ledger.base import load
from belated.ledger.draws import Draws
from belated.ledger.events import (
    NOBODY,
    START,
    ActionsChange,
    Decided,
    Draft,
    Erasure,
    Event,
    Facts,
    Guardrail,
    KeyChange,
    Kind,
    Outcome,
    Position,
)
from belated.ledger.holdout import is_held_out
from belated.ledger.ids import DRAWN, Clock, Ids
from belated.ledger.promotion import Placed, Promotion, ToldSettings, promotion_of, promotions_of
from belated.ledger.proposing import NOTHING_SAID, Ask, decide, names_of, others, rank_request
from belated.ledger.protocol import (
    Accepts,
    CompactedError,
    Follower,
    Ledger,
    NewBanditError,
    StoreUnavailableError,
)
from belated.ledger.rules import misdated, refusal
from belated.ledger.spec import Spec
from belated.ledger.sticky import Begun, key_of
from belated.ledger.upkeep import Base

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.ledger.fold import Fold

MOST_SEARCHED = 16  # bandits to search for a decision: with more of them the store is faster
AT_ONCE = 100_000  # events
NAME = r"[\w-]{1,100}"  # of a bandit
# Looking these up in their enum costs as much as comparing them.
_REVISED, _FORGOTTEN, _KEYS = Kind.REVISED, Kind.FORGOTTEN, Kind.KEYS
_PROMOTED = Kind.PROMOTED
_SETTINGS = (Kind.CONFIGURED, Kind.ACTIONS, Kind.PROMOTED)
Approve = Callable[[Sequence[Outcome]], None]  # raises where nothing must be written
Handed = (
    tuple[bytes, float] | tuple[bytes, float, int | None] | tuple[bytes, float, int | None, str]
)
Progress = Callable[[int], None]  # called with the number of events taken in, or of other steps


def system_clock() -> int:
    """Returns the time in microseconds since 1970."""
    return time.time_ns() // 1000


def reward_draft(
    bandit: str, now: int, id: bytes, value: float, at: int | None = None, event_id: str = ""
) -> Draft:
    """Returns the draft of a reward that is handed in now."""
    time = now if at is None else at
    return Draft(Kind.REWARDED, bandit, id, time, float(value), received=now, event_id=event_id)


def outcome_draft(
    bandit: str,
    now: int,
    id: bytes,
    name: str,
    value: float,
    at: int | None = None,
    event_id: str = "",
) -> Draft:
    """Returns the draft of a guardrail outcome that is handed in now."""
    body = msgspec.msgpack.encode(Guardrail(name, event_id))
    time = now if at is None else at
    return Draft(Kind.OUTCOME, bandit, id, time, float(value), body=body, received=now)


class Proposal(NamedTuple):
    """A decision that is drawn up but not yet written."""

    draft: Draft
    body: Decided


class _Approving(NamedTuple):
    """A follower that may refuse what was judged, so that nothing is written."""

    position: Position
    accepts: Accepts
    open_decisions: Callable[[Collection[bytes]], dict[bytes, Facts]]
    approve: Approve


@dataclass(slots=True, eq=False)
class Rebuild:
    """A bandit that has to be rebuilt beside the live one: without what was erased, or promoted.

    The rebuilder replays the log up to ``end``, applies ``since`` and calls ``Replica.swap``.
    """

    end: Position
    since: list[list[Event]] = field(default_factory=list)  # events that the live one took in since


class Replica:
    """All bandits of one ledger in one process; see the module.

    Parameters
    ----------
    ledger
        The ledger that holds the log.
    clock
        Tells the time in microseconds.
    seed
        Seed of ids and of all draws, for runs that must repeat exactly.
    only
        Names of the bandits to follow; all of them by default.
    types
        Policy and family types that are not part of belated.
    features
        Feature maps, by name of the bandit, that a log cannot hold.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        only: Set[str] | None = None,
        clock: Clock = system_clock,
        seed: int | None = None,
        types: Iterable[type] = (),
        features: Mapping[str, Any] | None = None,
    ) -> None:
        self.ledger, self.clock = ledger, clock
        self.ids = Ids(clock, seed)
        self.rng = np.random.Generator(np.random.PCG64(seed))  # of the part of ids that is drawn
        self._draws = Draws()
        self.folds: dict[str, Fold] = {}
        self.keys: dict[str, KeyChange] = {}
        self.keys_changed = False
        self.position = START
        # Counts of zeros by bandit: a fold may be rebuilt, and its counts must go on.
        self.unmatched: dict[str, UnmatchedCounts] = {}
        self.at_once = AT_ONCE  # events that are read and taken in at a time
        self.rebuilds_beside = False  # whether a caller acts on ``rebuilding``; else at once
        self.rebuilding: dict[str, Rebuild] = {}
        # Where this replica began to read, and the last erasure that had been made by then.
        self._began, self._erased_by_then = START, START
        self._reads = False
        self._kept: dict[str, tuple[int, Decided, bytes]] = {}
        # Says whether a new bandit can take in decisions and rewards now; if not, it is released.
        self.prepare: Callable[[Fold], bool] = lambda fold: True
        self.held: dict[str, Position] = {}  # bandits that cannot, and where their events begin
        self.released: set[str] = set()  # held bandits that can now, from the next step on
        self._torn: set[str] = set()  # bandits that may have taken in a part of the next events
        self._only = only
        self._types, self._features = tuple(types), dict(features or {})

    # ------------------------------------------------------------------------ following the log

    def catch_up(self, progress: Progress | None = None) -> int:
        """Take in what is new in the log; returns how many events."""
        total = 0
        while n := self.take_in_next():
            total += n
            if progress is not None:
                progress(n)
        return total

    def take_in_next(self) -> int:
        """Take in the next ``at_once`` events of the log, about; returns how many there were."""
        if not self._reads:
            self.begin()
        try:
            events, position = self.ledger.follow(self.position, self.at_once)
        except CompactedError:
            self.begin()
            return self.take_in_next()
        if events or self.released:
            self.take_in(events, position)
        return len(events)

    def begin(self) -> None:
        """Get ready to read on; where the log begins later than that, everything starts anew."""
        began, base = self.position, self.ledger.base()
        if base is not None and began < base.position:
            self._start_from(base)
            began = START  # a base holds nothing that had been erased when it was made
        told = self.ledger.rare(_FORGOTTEN, self.position)
        self._began = began
        self._erased_by_then = max((Position(e.tx, e.seq) for e in told), default=START)
        self._reads = True

    def _start_from(self, base: Base) -> None:
        """Be as if everything up to the base had been taken in."""
        folds = [
            load(self.ledger, base, bandit, self.empty_fold)
            for bandit in base.bandits
            if self.follows(bandit.name)
        ]
        keys = [e for e in self.ledger.rare(_KEYS, START) if (e.tx, e.seq) <= base.position]
        self.folds = {fold.name: fold for fold in folds}
        self._take_keys(keys)
        self.held = dict.fromkeys(self.held, START)
        self.rebuilding, self._kept, self._torn = {}, {}, set()
        self.position = base.position

    def _take_keys(self, events: Iterable[Event]) -> None:
        for event in events:
            key = msgspec.msgpack.decode(event.body, type=KeyChange)
            self.keys[key.id] = key
            self.keys_changed = True

    def take_in(self, events: Sequence[Event], position: Position) -> None:
        """Take in events that follow on the present position and end at ``position``."""
        by_bandit: dict[str, list[Event]] = defaultdict(list)
        keys = [event for event in events if event.kind is _KEYS]
        others = [event for event in events if event.kind is not _KEYS] if keys else events
        for name, run in groupby(others, attrgetter("bandit")):
            if self.follows(name):
                by_bandit[name] += run
        self._take_keys(keys)
        erased = {e.bandit for e in events if e.kind is _FORGOTTEN and self._took_in_what(e)}
        stale = erased | self._promoted_in(events)
        stale -= self.held.keys()  # held bandits have taken in nothing yet
        at_once = self._torn if self.rebuilds_beside else stale | self._torn
        to_replay = (at_once & by_bandit.keys()) - self.held.keys() | self.released
        # This comes first: the store may fail here, and then nothing must have changed.
        anew = {
            name: self.replayed(name, position, position=self.held.get(name, START))
            for name in to_replay
        }
        self._torn |= by_bandit.keys()  # until all is done: memory may run out, Ctrl-C may come
        for name, fold in anew.items():
            self.swap(name, fold)
            self.held.pop(name, None)
            self.released.discard(name)
        for name, its_events in by_bandit.items():
            if name in anew:
                continue
            if name not in self.folds:
                fold = self.new_fold(name, its_events[0])
                if not self.prepare(fold):
                    self.held[name] = self.position
                self.folds[name] = fold
            if name in self.held:
                its_events = [event for event in its_events if event.kind in _SETTINGS]
            self.folds[name].apply(its_events)
            if name in stale:
                self.rebuilding[name] = Rebuild(position)  # in the place of an earlier one
            elif name in self.rebuilding:
                self.rebuilding[name].since.append(its_events)
        self.position = position
        self._torn -= by_bandit.keys()

    def follows(self, name: str) -> bool:
        """Returns whether a bandit of this name is taken in."""
        return self._only is None or name in self._only

    def release(self, name: str) -> None:
        """Let a bandit that was held take in everything from its beginning, in the next step."""
        self.released.add(name)

    def _promoted_in(self, events: Sequence[Event]) -> set[str]:
        """Returns the bandits to which these events give another regime than they have here."""
        return {
            event.bandit
            for event in events
            if event.kind is _PROMOTED
            and event.bandit in self.folds
            and self.folds[event.bandit].told.replaced_by(promotion_of(event))
        }

    def new_fold(
        self, name: str, first: Event, promotions: Sequence[Placed] | None = None
    ) -> "Fold":
        """Returns the bandit that its first event describes, as of its last promotion."""
        told = ToldSettings(promotions_of(self.ledger, name) if promotions is None else promotions)
        fold = self.empty_fold(name, told.first(msgspec.json.decode(first.body, type=Spec)))
        fold.told = told
        return fold

    def empty_fold(self, name: str, spec: Spec) -> "Fold":
        """Returns a bandit that has taken in nothing yet."""
        from belated.ledger.fold import Fold

        fold = Fold(name, spec, self._types, self._features.get(name))
        fold.actions.count_in(self.unmatched.setdefault(name, UnmatchedCounts(clock=self.clock)))
        return fold

    def _took_in_what(self, erasure: Event) -> bool:
        """Returns whether this replica may have taken in decisions before they were erased."""
        first = msgspec.msgpack.decode(erasure.body, type=Erasure).first
        if first is None:
            return False  # there were none of the subject
        read_later = (erasure.tx, erasure.seq) <= self._erased_by_then and first > self._began
        return not read_later

    def swap(self, name: str, fold: "Fold") -> None:
        """Replaces a bandit by ``fold``, which must have taken in the same events."""
        fold.actions.count_in(self.unmatched[name])  # another replica may have made it
        self.folds[name] = fold
        self._kept.pop(name, None)
        self.rebuilding.pop(name, None)

    def replayed(
        self, name: str, end: Position, fold: "Fold | None" = None, position: Position = START
    ) -> "Fold":
        """Returns a bandit as the log up to ``end`` has it, as if what was erased had never been.

        With ``fold``, which has taken in the log up to ``position``, only the rest is replayed.
        Raises ``CompactedError`` if the log begins later than ``end``.
        """
        base = self.ledger.base()
        if base is not None and position < base.position:
            if end < base.position:
                raise CompactedError(base.position)
            fold, position = self._at(base, name), base.position
        while position < end:
            events, position = self.ledger.follow(position, self.at_once)
            mine = [e for e in events if e.bandit == name and (e.tx, e.seq) <= end]
            if mine:
                fold = fold or self.new_fold(name, mine[0], promotions_of(self.ledger, name, end))
                fold.apply(mine)
        assert fold is not None
        return fold

    def _at(self, base: Base, name: str) -> "Fold | None":
        """Returns a bandit as the base of a compacted log has it; None if it was made later."""
        for bandit in base.bandits:
            if bandit.name == name:
                return load(self.ledger, base, bandit, self.empty_fold)
        return None

    def fold(self, name: str) -> "Fold":
        """Returns the bandit of this name."""
        if name not in self.folds:
            known = ", ".join(self.folds) or "none yet"
            raise KeyError(f"bandit = {shown(name)}: expected one of this ledger ({known})")
        return self.folds[name]

    # -------------------------------------------------------------------------- writing the log

    def commit(self, drafts: Sequence[Draft], follower: Follower | None = None) -> list[Outcome]:
        """Write drafts, then take in what is new."""
        outcomes = self.ledger.commit(drafts, follower or self)
        # A commit is final: a caller who is told otherwise acts against what the log says.
        # Events that cannot be read back now are taken in by the next call.
        with suppress(StoreUnavailableError):
            while self.take_in_next() >= AT_ONCE:
                pass  # up to these; to look for more would cost another query
        return outcomes

    def accepts(self, bandit: str, kind: Kind, reward: float) -> bool:
        """Returns whether a bandit can have such a reward, or revision."""
        if not self.follows(bandit):
            return True  # nothing is known of it here: who serves some bandits must look himself
        fold = self.folds.get(bandit)
        if fold is None:
            raise NewBanditError(bandit)
        if kind is _REVISED and not fold.learner.can_revise:
            return False
        return fold.support.contains(reward)

    def refusal(self, draft: Draft, outcome: Outcome) -> str:
        """Says why a reward, or a revision, is INVALID, in words."""
        if not outcome.bandit:  # its time was wrong, and its decision is not known
            return misdated(draft, None)
        fold = self.folds[outcome.bandit]
        said = refusal(draft, outcome.facts, fold.support, fold.spec.family["type"])
        if said:
            return said
        policy = type(fold.learner.policy).__name__
        return f"revise = True: {policy} learns in one pass and cannot take a reward back"

    def open_decisions(self, ids: Collection[bytes]) -> dict[bytes, Facts]:
        """See ``Follower.open_decisions``."""
        found: dict[bytes, Facts] = {}
        # This is read before the bandits are: another thread may be about to swap one of them.
        stale = set(self.rebuilding)
        for name, fold in islice(self.folds.items(), MOST_SEARCHED):
            if name in stale:
                continue  # it still holds what was erased
            for id, waiting in fold.pending.get_all(ids).items():
                if waiting.held is None and not waiting.late:
                    window = waiting.time, waiting.due, waiting.closes
                    found[id] = Facts(name, *window, combine=fold.spec.combine)
            if len(found) == len(ids):
                break
        return found

    def approve(self, outcomes: Sequence[Outcome]) -> None:
        """See ``Follower.approve``: every draft is judged by itself, so nothing is refused here."""

    def approving(self, approve: Approve) -> Follower:
        """Returns this replica as a follower whose ``approve`` is another one."""
        return _Approving(self.position, self.accepts, self.open_decisions, approve)

    def configure(self, name: str, spec: Spec) -> bool:
        """Make a bandit, or change its settings; returns whether anything changed."""
        self.catch_up()
        draft = self.settings_draft(name, spec)
        if draft is not None:
            self.commit([draft])
            self.catch_up()  # raises where the bandit could be written but not be read back
        return draft is not None

    def settings_draft(self, name: str, spec: Spec) -> Draft | None:
        """Returns the draft that makes or changes a bandit; None if it is like that already."""
        if not re.fullmatch(NAME, name):
            raise wrong("name", name, "1 to 100 letters, digits, - or _")
        known = self.folds[name].spec if name in self.folds else None
        if known is not None:
            spec = known.changed_to(spec)
        if known is None or known.dim != spec.dim:
            refuse_wide(spec.dim)
        spec.learner(self._types)  # checks everything
        if known == spec:
            return None
        body = msgspec.json.encode(spec.as_kept())
        return Draft(Kind.CONFIGURED, name, NOBODY, self.clock(), body=body)

    def promote(self, name: str, promotion: Promotion) -> None:
        """Let a bandit go on as one that had these settings all along; see ``retraining.py``."""
        self.commit([Draft(_PROMOTED, name, NOBODY, self.clock(), body=promotion.encoded())])

    def register(self, name: str, put: Mapping[str, Any], drop: Iterable[str] = ()) -> None:
        """Register actions by name, with their features, and withdraw others."""
        self.commit([self.actions_draft(name, put, drop)])

    def actions_draft(self, name: str, put: Mapping[str, Any], drop: Iterable[str]) -> Draft:
        """Returns the draft that registers and withdraws actions."""
        fold = self.fold(name)
        fold.actions.check(put, fold.learner.longest)
        body = msgspec.msgpack.encode(ActionsChange(dict(put), tuple(drop)))
        return Draft(Kind.ACTIONS, name, NOBODY, self.clock(), body=body)

    def expire(self) -> int:
        """Close the windows that are over, and let time pass; returns how many were closed."""
        now = self.clock()
        drafts = [
            Draft(Kind.EXPIRED, fold.name, id, now)
            for fold in self.folds.values()
            for id in fold.pending.due(now)
        ]
        outcomes = self.commit(drafts) if drafts else []
        quiet = self.quiet_drafts(now)
        if quiet:
            self.commit(quiet)
        return sum(outcome.status == Status.ACCEPTED for outcome in outcomes)

    def quiet_drafts(self, now: int) -> list[Draft]:
        """Returns an event for each bandit for whose open decisions time is to pass."""
        return [
            Draft(Kind.QUIET, fold.name, NOBODY, now)
            for fold in self.folds.values()
            if len(fold.pending) and fold.begins_tick(now)
        ]

    def reward(self, rewards: Iterable[Handed], bandit: str = "") -> list[Status]:
        """Hand in rewards; a late reward that revises gets the status of one in time.

        Each is a decision, its reward, when it happened (None for now), and its event id.
        """
        now = self.clock()
        drafts = [reward_draft(bandit, now, *given) for given in rewards]
        return [self.answer(outcome) for outcome in self.commit(drafts)]

    def answer(self, outcome: Outcome) -> Status:
        """Returns the caller's status: a late reward that revises is as good as one in time."""
        late = outcome.status == Status.EXPIRED
        if late and self.folds[outcome.bandit].spec.late == "revise":
            return Status.ACCEPTED
        return outcome.status

    # -------------------------------------------------------------------------------- deciding

    def propose(self, name: str, ask: Ask, begun: dict[bytes, Begun] | None = None) -> Proposal:
        """Draw up a decision; nothing is written.

        ``begun`` holds the stretches that decisions to be written together with this one begin.
        """
        fold, now = self.fold(name), self.clock()
        id = self.ids(self.rng.bit_generator.random_raw() >> 64 - DRAWN)
        kept = self._kept.get(name) if ask is NOTHING_SAID else None
        if kept is not None and kept[0] == fold.version:
            _, body, encoded = kept
        else:
            zeros = self.unmatched[name].total
            held_out = is_held_out(name, ask.subject.encode() or id, fold.spec.holdout)
            key, until = b"", fold.spec.sticky_until(now) if ask.subject else None
            again = None
            if until is not None:
                key = key_of(ask.subject, ask.rank)
                again = (begun or {}).get(key) or fold.stretches.get(key, now)
            drawn = self._draws.of(id)
            body = decide(fold, ask, drawn, held_out=held_out, again=again, until=until)
            if begun is not None and body.stretch is not None:
                begun[key] = Begun(body.stretch.until, body.action, id)
            encoded = msgspec.msgpack.encode(body)
            counted = self.unmatched[name].total > zeros  # the next time must count the same
            if ask is NOTHING_SAID and fold.repeatable and not counted:
                self._kept[name] = fold.version, body, encoded  # valid until something is learnt
        due, closes = fold.spec.window_at(now)
        draft = Draft(
            Kind.DECIDED,
            name,
            id,
            now,
            None,
            due,
            encoded,
            ask.request,
            ask.digest,
            ask.subject,
            closes=closes,
            combine=fold.spec.combine,
        )
        return Proposal(draft, body)

    def propose_top(self, name: str, ask: Ask, top: int) -> list[Proposal]:
        """Draw up ``top`` decisions, each among the actions that the ones before it left.

        Each has a request id of its own, see ``rank_request``.
        """
        fold = self.fold(name)
        if fold.spec.mode == "shadow":
            raise wrong("top", top, "a bandit that is not in shadow mode, where the caller plays")
        n = len(names_of(fold, ask))
        if top > n:
            raise wrong("top", top, f"at most {n}, the number of actions")
        request, proposals = ask.request, [self.propose(name, ask)]
        for rank in range(2, top + 1):
            ask = others(fold, ask, proposals[-1].body.index)
            ask = ask._replace(request=rank_request(request, rank), rank=rank)
            proposals.append(self.propose(name, ask))
        return proposals
