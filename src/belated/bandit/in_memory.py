"""A bandit that is gone with its process, unless it is saved."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from belated.bandit.backend import Asked
from belated.bandit.inputs import Returned
from belated.core.arguments import any_number, refuse_wide, shown, wrong, wrong_type
from belated.core.events import Broken, ConflictingRewardError, Decision, UnknownDecisionError
from belated.core.sparse import count_rows, without_row
from belated.core.top import Places
from belated.core.types import Vector
from belated.features import FeatureMap, Features, bound_on_rows, fitting
from belated.features.growing import grown, places_in
from belated.learner.forgetting import decide_at
from belated.learner.learner import Learner
from belated.learner.weighing import weighs_cheaply


class InMemory:
    """A learner, its features, its random stream and its clock in microseconds; see ``Backend``."""

    def __init__(
        self,
        learner: Learner,
        features: FeatureMap | None,
        rng: np.random.Generator,
        clock: Callable[[], int],
    ) -> None:
        self.learner, self.features, self.rng, self.clock = learner, features, rng, clock

    @property
    def n_late(self) -> int:
        """Zero: there are no windows."""
        return 0

    def present(self) -> Learner:
        """Returns the learner: nobody else writes."""
        return self.learner

    def to_save(self) -> Learner:
        """Returns the learner, which is all there is."""
        return self.learner

    def follow(self) -> None:
        """Do nothing: nobody else writes."""

    def decide(self, asked: Sequence[Asked], *, probabilities: bool | None) -> list[Decision]:
        """Choose one of the rows of each and record it; its id is the round, counted from 1."""
        weighed = probabilities is not False or weighs_cheaply(self.learner.policy)
        now = 0 if self.learner.half_life is None else self.clock()  # nothing else goes by time
        return [decide_at(now, self.learner, rows, self.rng, weighed) for rows, *_ in asked]

    def chances(self, asked: Asked) -> Vector:
        """Returns the probability with which each row would be played; nothing is recorded."""
        choice = self.learner.choose(asked.rows, np.random.default_rng(0), weighed=True)
        return np.asarray(choice.probabilities)

    def decide_top(self, asked: Asked, top: int, *, probabilities: bool | None) -> list[Decision]:
        """Choose ``top`` different rows, one after the other, and record all."""
        places, ranked = Places(count_rows(asked.rows)), []
        for _ in range(top):
            (decision,) = self.decide([asked], probabilities=probabilities)
            asked = asked._replace(rows=without_row(asked.rows, decision.index))
            place, chances = places.take(decision.index, decision.probabilities)
            ranked.append(replace(decision, index=place, probabilities=chances))
        return ranked

    def learn(self, rewards: list[Returned]) -> int:
        """Take in all rewards and return how many are new, or raise and take in none."""
        new = _new_rewards(rewards, self.learner)
        if new:
            self.learner.learn(new)
        return len(new)

    def note_outcome(self, id: Any, name: Any, value: Any, at: Any, event_id: Any) -> bool:
        """Raise: there is no log into which an outcome could be written."""
        raise TypeError(f"note_outcome({shown(id)}, ...): expected with window= or ledger= only")

    def grow(self, features: Features) -> None:
        """Take in the whole history again with longer vectors."""
        old, known = self.features, self.learner
        if not isinstance(old, Features):
            raise wrong_type("features", old, "Features(...) from the start, for grow")
        new = grown(old, fitting(features, known.policy, old.to_dict()))
        refuse_wide(new.dim)
        norm = bound_on_rows(new, known.policy, known.max_norm)
        learner = Learner(
            *(new.dim, known.family, known.given, norm, new.groups),
            half_life=known.half_life,
        )
        learner.take_over(known, places_in(old, new))
        new.unmatched = old.unmatched
        self.learner, self.features = learner, new

    def waiting(self) -> str:
        """Returns nothing: rewards are learnt at once."""
        return ""

    def broken(self) -> list[Broken]:
        """Returns the assumptions that the rewards speak against."""
        return self.learner.broken_assumptions

    def close(self) -> None:
        """Do nothing: there is no store."""


def _new_rewards(rewards: list[Returned], learner: Learner) -> dict[int, float]:
    """Returns the rewards that their rows of the history do not have yet, by row."""
    new: dict[int, float] = {}
    for id, y, at, event_id in rewards:
        for name, given in (("at", at), ("event_id", event_id)):
            if given is not None:  # nothing that is learnt would depend on it
                raise TypeError(f"{name} = {shown(given)}: expected with window= or ledger= only")
        row, value = _row_and_reward(id, y, learner)
        known = new.get(row, learner.history.y[row])
        if known != known:  # NaN: not returned yet
            new[row] = value
        elif known != value:
            raise ConflictingRewardError(
                f"reward = {shown(y)} for id = {id!r}: expected {float(known)!r}, the reward "
                "this decision already has"
            )
    return new


def _row_and_reward(id: Any, y: Any, learner: Learner) -> tuple[int, float]:
    support, n_decided = learner.family.support, learner.n_decided
    try:
        if isinstance(id, bool):
            raise TypeError
        row, value = id.__index__() - 1, any_number(y)
    except OverflowError:
        raise wrong(f"reward (of id = {id!r})", y, str(support)) from None
    except (AttributeError, TypeError, ValueError):
        hint = "; pass decision.id" if isinstance(id, Decision) else ""
        raise TypeError(
            f"learn({shown(id)}, {shown(y)}): expected the id of a decision, a whole number, "
            f"and a reward, a number{hint}"
        ) from None
    if not 0 <= row < n_decided:
        raise UnknownDecisionError(
            f"id = {shown(id)}: expected the id of a decision this bandit made, "
            + (f"1 to {n_decided}" if n_decided else "and it has made none yet")
        )
    if not support.contains(value):
        raise wrong(f"reward (of id = {id!r})", y, str(support))
    return row, value
