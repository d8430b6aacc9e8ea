"""One bandit in one process with a ledger: what ``Bandit(ledger=...)`` does differently."""

from typing import Any

import msgspec
import numpy as np

from belated.core.arguments import any_number, shown, wrong
from belated.core.events import ConflictingRewardError, Decision, UnknownDecisionError
from belated.core.protocols import Policy
from belated.core.types import Matrix
from belated.features import FeatureMap
from belated.learner import Learner
from belated.ledger import open_ledger
from belated.ledger.events import Draft, Kind, Status
from belated.ledger.ids import from_text, to_text
from belated.ledger.loop import Ask, Loop
from belated.ledger.protocol import Ledger
from belated.ledger.settling import Known, judge
from belated.ledger.spec import Spec

# Settings that a Bandit cannot name: a service may have made it with others than the defaults.
OF_A_SERVICE = ("mode", "exploration", "baseline", "fallback", "log_actions")


class Journal:
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
        Window, default reward and what late rewards do.
    """

    def __init__(
        self,
        ledger: str | Ledger,
        name: str,
        learner: Learner,
        features: FeatureMap | None,
        policy: Policy,
        settings: dict[str, Any],
    ) -> None:
        default = settings.pop("default_reward")
        if default is not None:
            settings |= {"loop": "conversion", "default_reward": float(default)}
        spec = Spec.of(
            learner.dim,
            learner.family,
            policy,
            max_norm=learner.max_norm,
            features=None if features is None else features.to_dict(),
            **settings,
        )
        self._own = isinstance(ledger, str)
        self._ledger = open_ledger(ledger) if isinstance(ledger, str) else ledger
        types = [type(learner.family), type(policy)]
        self._loop = Loop(self._ledger, only=name, types=types, features={name: features})
        self._name = name
        try:
            self._loop.catch_up()
            if name in self._loop.folds:
                old = self._loop.folds[name].spec
                kept = {setting: getattr(old, setting) for setting in OF_A_SERVICE}
                spec = msgspec.structs.replace(spec, **kept)
            self._loop.configure(name, spec)
        except BaseException:
            self.close()
            raise

    def use(self, rng: np.random.Generator) -> None:
        """Draw from this stream."""
        self._loop.rng = rng

    @property
    def learner(self) -> Learner:
        """What is known."""
        return self._loop.folds[self._name].learner

    def decide(self, matrix: Matrix, context: Any) -> Decision:
        """Choose, and return when the decision is safe on disk."""
        self._loop.expire()
        context_json = b"" if context is None else msgspec.json.encode(context, enc_hook=_plain)
        draft, body = self._loop.propose(self._name, Ask(matrix=matrix, context_json=context_json))
        self._loop.commit([draft])
        return Decision(to_text(draft.id), body.index, body.score, body.estimate, body.width)

    def learn(self, pairs: list[tuple[Any, Any]]) -> int:
        """Take in all rewards, or raise and take in none."""
        self._loop.expire()
        now, known, drafts = self._loop.clock(), Known(), []
        for id, y in pairs:
            draft = Draft(Kind.REWARDED, self._name, _id(id), now, self._reward(id, y))
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
            drafts.append(draft)
        outcomes = self._loop.commit(drafts)
        return sum(o.status in (Status.ACCEPTED, Status.EXPIRED) for o in outcomes)

    def close(self) -> None:
        """Let go of the ledger, unless it is the caller's."""
        if self._own:
            self._ledger.close()

    def _reward(self, id: Any, y: Any) -> float:
        support = self._loop.folds[self._name].learner.family.support
        try:
            value = any_number(y)
        except (TypeError, ValueError, OverflowError):
            raise wrong(f"reward (of id = {shown(id)})", y, str(support)) from None
        if not support.contains(value):
            raise wrong(f"reward (of id = {shown(id)})", y, str(support))
        return value


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
