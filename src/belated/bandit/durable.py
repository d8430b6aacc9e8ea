"""One bandit in one process with a ledger: what ``Bandit(ledger=...)`` does differently."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
import numpy as np

from belated.core.arguments import any_number, number, positive, shown, wrong
from belated.core.events import ConflictingRewardError, Decision, Status, UnknownDecisionError
from belated.core.types import Matrix
from belated.features import FeatureMap
from belated.learner.learner import Learner
from belated.ledger import open_ledger
from belated.ledger.events import Draft, Facts, Kind, Outcome, Position
from belated.ledger.ids import from_text, to_text
from belated.ledger.proposing import Ask
from belated.ledger.protocol import Ledger
from belated.ledger.replica import Replica
from belated.ledger.rules import WRITTEN, Known, judge
from belated.ledger.spec import Spec
from belated.model.protocols import Policy

USUAL = {"window": None, "default_reward": None, "late": "keep"}  # of a new bandit
# Settings that are arguments of Bandit. Reopening leaves the others as a service may have set them.
_GIVEN = {"family", "policy", "dim", "max_norm", "features", "window", "late"}


class AsInLog(Enum):
    """The value of a setting that is not named."""

    AS_IN_LOG = "as in the log"

    def __repr__(self) -> str:  # in the signature of Bandit
        return self.name


AS_IN_LOG = AsInLog.AS_IN_LOG


class Durable:
    """A bandit whose every decision and reward goes through a ledger.

    Parameters
    ----------
    ledger
        Where to write, or its URL.
    name
        Of the bandit there; it is made where there is none.
    learner
        Of the same dimension, family and bound.
    features
        Of the bandit, as objects: a log cannot hold all of them.
    policy
        As the user gave it.
    settings
        Those of ``window``, ``default_reward`` and ``late`` that were named.
    """

    def __init__(
        self,
        ledger: str | Ledger,
        name: str,
        learner: Learner,
        features: FeatureMap | None,
        policy: Policy,
        settings: Mapping[str, Any],
    ) -> None:
        spec = Spec.of(
            learner.dim,
            learner.family,
            policy,
            max_norm=learner.max_norm,
            features=None if features is None else features.to_dict(),
            **_fields(settings),
        )
        self._own, self._closed = isinstance(ledger, str), False
        self._ledger = open_ledger(ledger) if isinstance(ledger, str) else ledger
        types = [type(learner.family), type(policy)]
        self._replica = Replica(self._ledger, only=name, types=types, features={name: features})
        self._name = name
        try:
            self._replica.catch_up()
            if name in self._replica.folds:
                spec = _as_in_log(self._replica.folds[name].spec, spec, settings)
            self._replica.configure(name, spec)
        except BaseException:
            self.close()
            raise

    def use(self, rng: np.random.Generator) -> None:
        """Draw from this stream."""
        self._replica.rng = rng

    @property
    def learner(self) -> Learner:
        """What is known."""
        return self._replica.folds[self._name].learner

    @property
    def features(self) -> FeatureMap | None:
        """Those of the log, which may have grown."""
        return self._replica.folds[self._name].actions.features

    def grow(self, features: FeatureMap) -> None:
        """Write that the bandit has these features from now on, or raise."""
        self._replica.catch_up()
        spec = self._replica.folds[self._name].spec
        new = msgspec.structs.replace(spec, features=features.to_dict(), dim=features.dim)
        self._replica.configure(self._name, new)

    def present(self) -> Learner:
        """What is known, after taking in what others wrote; once closed, what was known then."""
        if not self._closed:
            self._replica.catch_up()
        return self.learner

    def waiting(self) -> str:
        """See ``Fold.waiting_words``, as far as the log has been taken in."""
        return self._replica.folds[self._name].waiting_words(self._replica.clock())

    def follow(self) -> None:
        """Take in what others wrote, and close the windows that are over."""
        self._replica.catch_up()
        self._replica.expire()

    def decide(self, matrix: Matrix, context: Any) -> Decision:
        """Choose, and return when the decision is safe on disk; ``follow`` comes first."""
        context_json = b"" if context is None else msgspec.json.encode(context, enc_hook=_plain)
        draft, body = self._replica.propose(
            self._name, Ask(matrix=matrix, context_json=context_json)
        )
        self._replica.commit([draft])
        return Decision(to_text(draft.id), body.index, body.score, body.estimate, body.width)

    def learn(self, pairs: list[tuple[Any, Any]]) -> int:
        """Take in all rewards, or raise and take in none."""
        self.follow()
        now = self._replica.clock()
        drafts = [
            Draft(Kind.REWARDED, self._name, _id(id), now, self._reward(id, y)) for id, y in pairs
        ]
        strict = _AllOrNone(self._replica, lambda: self._check(pairs, drafts))
        outcomes = self._replica.commit(drafts, strict)
        return sum(outcome.status in WRITTEN for outcome in outcomes)

    def _check(self, pairs: list[tuple[Any, Any]], drafts: list[Draft]) -> None:
        """Raise where the log, or an earlier one of these rewards, speaks against one of them."""
        known = Known()
        for (id, y), draft in zip(pairs, drafts, strict=True):
            if draft.id not in known.facts:
                for event in self._ledger.story(draft.id):
                    known.add(draft.id, event.kind, event.bandit, event.due, event.value)
            facts = known.facts.get(draft.id)
            status = judge(draft, facts, None, 0, None)
            if status == Status.UNKNOWN or facts is None:
                raise UnknownDecisionError(
                    f"id = {shown(id)}: expected the id of a decision in this ledger"
                )
            if status == Status.CONFLICT:
                expected = "none: it was cancelled" if facts.cancelled else repr(facts.value)
                raise ConflictingRewardError(
                    f"reward = {shown(y)} for id = {id!r}: expected {expected}, the reward this "
                    "decision already has"
                )
            known.add(draft.id, draft.kind, self._name, None, draft.value)

    def close(self) -> None:
        """Let go of the ledger, unless it is the caller's."""
        self._closed = True
        if self._own:
            self._ledger.close()

    def _reward(self, id: Any, y: Any) -> float:
        support = self._replica.folds[self._name].support
        try:
            value = any_number(y)
        except (TypeError, ValueError, OverflowError):
            raise wrong(f"reward (of id = {shown(id)})", y, str(support)) from None
        if not support.contains(value):
            raise wrong(f"reward (of id = {shown(id)})", y, str(support))
        return value


@dataclass(frozen=True, slots=True)
class _AllOrNone:
    """A replica whose rewards are all taken in, or none of them."""

    replica: Replica
    explain: Callable[[], None]  # raises

    @property
    def position(self) -> Position:
        return self.replica.position

    def accepts(self, bandit: str, kind: Kind, reward: float) -> bool:
        return self.replica.accepts(bandit, kind, reward)

    def open_decisions(self, ids: Collection[bytes]) -> dict[bytes, Facts]:
        return self.replica.open_decisions(ids)

    def approve(self, outcomes: Sequence[Outcome]) -> None:
        if any(outcome.status in (Status.UNKNOWN, Status.CONFLICT) for outcome in outcomes):
            self.explain()


def _fields(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What settings of a ``Bandit`` are in a ``Spec``."""
    fields = {**USUAL, **settings}
    if fields["window"] is not None:
        fields["window"] = positive("window", fields["window"])
    default = fields.pop("default_reward")
    if default is not None:
        fields |= {"loop": "conversion", "default_reward": number("default_reward", default)}
    return fields


def _as_in_log(old: Spec, new: Spec, settings: Mapping[str, Any]) -> Spec:
    """``new``, and all that was not named as in ``old``."""
    default = old.default_reward if old.loop == "conversion" else None
    if settings.get("default_reward", default) != default:
        raise wrong(
            "default_reward",
            settings["default_reward"],
            f"{default}, as the log has it; what was learnt would mean something else. Make a "
            "bandit of another name",
        )
    kept = set(Spec.__struct_fields__) - _GIVEN | ({"window", "late"} - settings.keys())
    new = msgspec.structs.replace(new, **{name: getattr(old, name) for name in kept})
    with suppress(ValueError):
        return old.changed_to(new)
    with suppress(ValueError):  # the features have grown since they were written down here
        new.changed_to(old)
        return msgspec.structs.replace(new, features=old.features, dim=old.dim)
    return new  # which cannot be: ``configure`` says why


def _plain(value: Any) -> Any:
    """What JSON can hold of NumPy's numbers, and of whatever one's own feature map takes."""
    return value.item() if isinstance(value, np.generic) else repr(value)


def _id(id: Any) -> bytes:
    found = from_text(id) if isinstance(id, str) else None
    if found is None:
        hint = "; pass decision.id" if isinstance(id, Decision) else ""
        raise UnknownDecisionError(
            f"id = {shown(id)}: expected the id of a decision in this ledger{hint}"
        )
    return found
