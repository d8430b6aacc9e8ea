"""A bandit with a log of its decisions and rewards: in a ledger, or in memory for it alone."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

import msgspec
import numpy as np

from belated.bandit.backend import Asked
from belated.bandit.inputs import USUAL, Returned, made_names
from belated.core.arguments import any_number, not_negative, number, positive, shown, wrong
from belated.core.events import (
    Broken,
    ConflictingRewardError,
    Decision,
    Status,
    UnknownDecisionError,
)
from belated.core.times import moment
from belated.core.types import Vector
from belated.features import FeatureMap, fitting
from belated.learner.assumptions import AssumptionWarning
from belated.learner.learner import Learner, resolved
from belated.ledger import open_ledger, proposing
from belated.ledger.base import too_old
from belated.ledger.events import BY_FEATURES, Decided, Draft, Outcome
from belated.ledger.fold import Fold
from belated.ledger.ids import from_text, to_text
from belated.ledger.proposing import Ask, in_place
from belated.ledger.protocol import Ledger
from belated.ledger.replica import Proposal, Replica, outcome_draft, reward_draft
from belated.ledger.rules import WRITTEN, second_event
from belated.ledger.spec import Spec, vectors_in
from belated.model.protocols import Family, Policy

# Settings that are arguments of Bandit. Reopening leaves the others as a service may have set them.
_OPTIONAL = USUAL.keys() - {"default_reward"}
_GIVEN = {"family", "policy", "dim", "max_norm", "features", *_OPTIONAL}
_ONLY_HERE = (
    "a bandit in memory that waits for windows cannot be copied or saved, since its open windows "
    "would be lost: keep it in a ledger, such as ledger='sqlite:///file.db'"
)

_LATE = (
    "{late} of these rewards came after the window: kept in the log, and not learnt. n_late counts "
    "them. If they happened in time, say when (at=) and let grace= wait for uploads; late='revise' "
    "learns late rewards, and a longer window waits for them"
)


class Logged:
    """One bandit in this process over a log, of a ledger or in memory; see ``Backend``.

    Parameters
    ----------
    ledger
        The ledger to write into, or its URL; None: a log in memory, of this bandit alone.
    name
        Name of the bandit in the ledger; the bandit is made if there is none.
    dim, family, policy, max_norm, groups
        As in ``Bandit``; ``policy`` is what a new bandit gets.
    features
        Feature map of the bandit, as an object: a log cannot hold every feature map.
    rng
        The stream from which the ids of decisions, and with them all draws, are made.
    settings
        Those of ``policy`` and of the settings in ``USUAL`` that were given.
    clock
        Tells the time in microseconds.
    """

    def __init__(
        self,
        ledger: str | Ledger | None,
        name: str,
        dim: int,
        family: Family,
        policy: Policy,
        max_norm: float,
        groups: Mapping[str, int] | None,
        features: FeatureMap | None,
        rng: np.random.Generator,
        settings: Mapping[str, Any],
        clock: Callable[[], int],
    ) -> None:
        resolved(dim, family, policy, max_norm)  # raises before a file is made
        self._private, self._closed = ledger is None, False
        self._warned_of_late = False
        self._own = ledger is None or isinstance(ledger, str)
        ledger = "memory://" if ledger is None else ledger
        self._ledger = open_ledger(ledger) if isinstance(ledger, str) else ledger
        types = [type(family), type(policy)]
        self._replica = Replica(
            self._ledger, only={name}, clock=clock, types=types, features={name: features}
        )
        self._name, self._replica.rng = name, rng
        try:
            self._replica.catch_up()
            known = self._replica.folds.get(name)
            if known is not None and "policy" not in settings:
                policy = known.learner.given
            own = fitting(features, policy, None if known is None else known.spec.features)
            spec = Spec.of(
                dim,
                family,
                policy,
                max_norm=max_norm,
                features=vectors_in(groups) if own is None else own.to_dict(),
                **_fields(settings),
            )
            if known is not None:
                spec = _as_in_log(known.spec, spec, settings)
            self._replica.configure(name, spec)
        except BaseException:
            self.close()
            raise

    @property
    def rng(self) -> np.random.Generator:
        """The stream from which ids, and with them all draws, are made."""
        return self._replica.rng

    @property
    def _fold(self) -> Fold:
        return self._replica.folds[self._name]

    @property
    def learner(self) -> Learner:
        """The state, as far as the log has been taken in."""
        return self._fold.learner

    @property
    def features(self) -> FeatureMap | None:
        """The features of the log, which may have grown."""
        return self._fold.actions.features

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            _ONLY_HERE
            if self._private
            else "a bandit with a ledger cannot be copied: open the ledger again"
        )

    def grow(self, features: FeatureMap) -> None:
        """Write that the bandit has these features from now on, or raise."""
        self._replica.catch_up()
        spec = self._fold.spec
        features = fitting(features, self.learner.policy, spec.features)
        new = msgspec.structs.replace(spec, features=features.to_dict(), dim=features.dim)
        self._replica.configure(self._name, new)

    def present(self) -> Learner:
        """Returns the state, after taking in what others wrote; once closed, the last state."""
        if not self._closed and self._private:
            self.follow()  # nobody else closes windows, and nothing is written anywhere
        elif not self._closed:
            self._replica.catch_up()
        return self.learner

    def to_save(self) -> Learner:
        """Returns the state; raises where there is no ledger to keep what is still waited for."""
        if self._private:
            raise TypeError(_ONLY_HERE)
        return self.present()

    def waiting(self) -> str:
        """See ``Fold.waiting_words``, as far as the log has been taken in."""
        return self._fold.waiting_words(self._replica.clock())

    def broken(self) -> list[Broken]:
        """Returns what was found as far as the log has been taken in."""
        return self._fold.broken

    @property
    def n_late(self) -> int:
        """Number of late rewards, as far as the log has been taken in."""
        return self._fold.counts.late

    def follow(self) -> None:
        """Take in what others wrote, and close the windows that are over."""
        self._replica.catch_up()
        self._replica.expire()

    def decide(self, asked: Sequence[Asked], *, probabilities: bool | None) -> list[Decision]:
        """Choose, and return when all decisions are safe on disk; ``follow`` comes first.

        They are one transaction, and all are made on the state that was there before it.
        """
        asks = [self._ask(one, probabilities) for one in asked]
        return self._written([self._replica.propose(self._name, ask) for ask in asks])

    def chances(self, asked: Asked) -> Vector:
        """Returns the probability with which each row would be played; ``follow`` comes first."""
        ask, stream = self._ask(asked, probabilities=True), np.random.default_rng(0)
        answer = proposing.decide(self._fold, ask, stream)
        return np.array(answer.probabilities)

    def decide_top(self, asked: Asked, top: int, *, probabilities: bool | None) -> list[Decision]:
        """Choose ``top`` different rows, one after the other; one transaction, as ``decide``."""
        ask = self._ask(asked, probabilities)
        proposals = self._replica.propose_top(self._name, ask, top)
        bodies = in_place([body for _, body in proposals])
        return self._written(list(map(Proposal, (draft for draft, _ in proposals), bodies)))

    def _ask(self, asked: Asked, probabilities: bool | None) -> Ask:
        rows, context, actions, names = asked
        made = made_names(actions, self.features) if names is None else None
        return Ask(
            matrix=rows,
            context_json=b"" if context is None else msgspec.json.encode(context, enc_hook=_plain),
            names=names if made is None else made,
            naming="" if made is None else BY_FEATURES,
            probabilities=bool(probabilities),
        )

    def _written(self, proposals: Sequence[Proposal]) -> list[Decision]:
        """Write decisions in one transaction, and return them as they are returned to users."""
        self._replica.commit([draft for draft, _ in proposals])
        return [_decision(draft.id, body) for draft, body in proposals]

    def learn(self, rewards: list[Returned]) -> int:
        """Take in all rewards and return how many are new, or raise and take in none."""
        self.follow()
        replica, now = self._replica, self._replica.clock()
        drafts = [
            reward_draft(
                self._name,
                now,
                _id(id),
                self._reward(id, y),
                None if at is None else moment(f"at (of id = {shown(id)})", at),
                _event_id(event_id),
            )
            for id, y, at, event_id in rewards
        ]
        strict = replica.approving(partial(_refuse, replica, rewards, drafts))
        outcomes = replica.commit(drafts, strict)
        late = sum(outcome.status is Status.EXPIRED for outcome in outcomes)
        if late and self._fold.spec.late == "keep" and not self._warned_of_late:
            self._warned_of_late = True
            warnings.warn(_LATE.format(late=late), AssumptionWarning, stacklevel=3)
        return sum(outcome.status in WRITTEN for outcome in outcomes)

    def note_outcome(self, id: Any, name: Any, value: Any, at: Any, event_id: Any) -> bool:
        """Write a guardrail outcome and return whether it is new."""
        self.follow()
        draft = outcome_draft(
            self._name,
            self._replica.clock(),
            _id(id),
            _label("name", name),
            number("value", value),
            None if at is None else moment("at", at),
            _event_id(event_id),
        )
        (outcome,) = self._replica.commit([draft])
        facts = outcome.facts
        if outcome.status == Status.INVALID:
            raise ValueError(f"{self._replica.refusal(draft, outcome)} (id = {shown(id)})")
        if outcome.status == Status.UNKNOWN:
            raise _unknown(id)
        if outcome.status == Status.CONFLICT and facts is not None:
            known = facts.guardrails.get(draft.body)
            expected = "none: it was cancelled" if known is None else repr(known)
            raise ConflictingRewardError(
                f"value = {shown(value)} of {name!r} for id = {id!r}: expected {expected}, the "
                "outcome this decision already has"
            )
        return outcome.status in WRITTEN

    def close(self) -> None:
        """Let go of the ledger, unless it is the caller's."""
        self._closed = True
        if self._own:
            self._ledger.close()

    def _reward(self, id: Any, y: Any) -> float:
        support = self._fold.support
        try:
            value = any_number(y)
        except (TypeError, ValueError, OverflowError):
            raise wrong(f"reward (of id = {shown(id)})", y, str(support)) from None
        if not support.contains(value):
            raise wrong(f"reward (of id = {shown(id)})", y, str(support))
        return value


def _decision(id: bytes, body: Decided) -> Decision:
    numbers = body.index, body.score, body.estimate, body.width
    propensity = math.nan if body.propensity is None else body.propensity
    chances = None if body.probabilities is None else np.array(body.probabilities)
    return Decision(to_text(id), *numbers, propensity, chances)


def _fields(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a ``Spec`` that the settings of a ``Bandit`` stand for."""
    fields = {**USUAL, **{name: value for name, value in settings.items() if name in USUAL}}
    if fields["window"] is not None:
        fields["window"] = positive("window", fields["window"])
    fields["grace"] = not_negative("grace", fields["grace"])
    default = fields.pop("default_reward")
    if default is not None:
        fields |= {"loop": "conversion", "default_reward": number("default_reward", default)}
    return fields


def _as_in_log(old: Spec, new: Spec, settings: Mapping[str, Any]) -> Spec:
    """Returns ``new``, with everything that was not given as in ``old``."""
    default = old.default_reward if old.loop == "conversion" else None
    if settings.get("default_reward", default) != default:
        raise wrong(
            "default_reward",
            settings["default_reward"],
            f"{default}, as the log has it; what was learnt would mean something else. Make a "
            "bandit of another name",
        )
    kept = set(Spec.__struct_fields__) - _GIVEN | (_OPTIONAL - settings.keys())
    new = msgspec.structs.replace(new, **{name: getattr(old, name) for name in kept})
    new = old.noise_kept(new)
    with suppress(ValueError):
        return old.changed_to(new)
    with suppress(ValueError):  # the features have grown since they were written down here
        new.changed_to(old)
        return msgspec.structs.replace(new, features=old.features, dim=old.dim)
    return new  # this change cannot be made: ``configure`` says why


def _plain(value: Any) -> Any:
    """Returns NumPy's numbers, and the input of a user's own feature map, as JSON can hold them."""
    return value.item() if isinstance(value, np.generic) else repr(value)


def _refuse(
    replica: Replica,
    rewards: list[Returned],
    drafts: Sequence[Draft],
    outcomes: Sequence[Outcome],
) -> None:
    """Raises if the log, or an earlier reward of the same call, contradicts a reward."""
    for (id, y, *_), draft, outcome in zip(rewards, drafts, outcomes, strict=True):
        if outcome.status == Status.INVALID:
            raise ValueError(f"{replica.refusal(draft, outcome)} (id = {shown(id)})")
        if outcome.status == Status.UNKNOWN:
            why = too_old(replica.ledger, draft.id)
            raise _unknown(id, f"; {why}" if why else "")
        if outcome.status == Status.CONFLICT:
            facts = outcome.facts
            second = second_event(draft, facts)
            if second:
                raise ConflictingRewardError(f"{second} (id = {shown(id)})")
            several = facts is not None and facts.combine is not None
            known = {} if facts is None or not several else facts.rewards
            value = None if facts is None else known.get(draft.event_id, facts.value)
            expected = "none: it was cancelled" if value is None else repr(value)
            raise ConflictingRewardError(
                f"reward = {shown(y)} for id = {id!r}: expected {expected}, the reward this "
                "decision already has"
            )


def _event_id(given: Any) -> str:
    return "" if given is None else _label("event_id", given)


def _label(name: str, given: Any) -> str:
    if not isinstance(given, str) or not 0 < len(given) <= 200 or "\0" in given:
        raise wrong(name, given, "a text of 1 to 200 characters, without NUL")
    return given


def _unknown(id: Any, hint: str = "") -> UnknownDecisionError:
    expected = f"expected the id of a decision in this ledger{hint}"
    return UnknownDecisionError(f"id = {shown(id)}: {expected}")


def _id(id: Any) -> bytes:
    found = from_text(id) if isinstance(id, str) else None
    if found is None:
        hint = "; pass decision.id" if isinstance(id, Decision) else ""
        raise _unknown(id, hint)
    return found
