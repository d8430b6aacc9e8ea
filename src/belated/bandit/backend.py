"""The backend of a ``Bandit``: a learner in memory, or one that follows the log of a ledger."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from belated.bandit.inputs import Returned
from belated.core.events import Broken, Decision
from belated.core.types import Vector
from belated.features import FeatureMap, Features
from belated.learner.learner import Learner, Rows


class Asked(NamedTuple):
    """Checked vectors of the actions to choose from, context and actions as they came, names."""

    rows: Rows
    context: Any
    actions: Any
    names: Sequence[str] | None = None  # of the rows; None: the caller gave none


class Backend(Protocol):
    """Decides, learns and holds the state. ``Bandit`` holds its lock during every call."""

    @property
    def learner(self) -> Learner:
        """The state as it is; nothing is read from a store."""

    @property
    def features(self) -> FeatureMap | None:
        """The features, which turn raw actions into vectors; None where actions are vectors."""

    @property
    def rng(self) -> np.random.Generator:
        """The stream from which the policy draws."""

    @property
    def n_late(self) -> int:
        """See ``Bandit.n_late``; nothing is read from a store."""

    def present(self) -> Learner:
        """Returns the state, after taking in what other processes wrote."""

    def to_save(self) -> Learner:
        """Returns the state as ``present`` does; raises where a file would not hold all of it."""

    def follow(self) -> None:
        """Take in what other processes wrote, and close the windows that are over."""

    def decide(self, asked: Sequence[Asked], *, probabilities: bool | None) -> list[Decision]:
        """Choose one of the rows of each and record all. ``follow`` was called before.

        With ``probabilities`` False they are left out if they cost thousands of decisions; not in
        a log.
        """

    def chances(self, asked: Asked) -> Vector:
        """Returns the probability with which each row would be played now; nothing is recorded."""

    def decide_top(self, asked: Asked, top: int, *, probabilities: bool | None) -> list[Decision]:
        """Choose ``top`` different rows, one after the other, and record all; see ``decide``."""

    def learn(self, rewards: list[Returned]) -> int:
        """Take in all rewards and return how many are new, or raise and take in none."""

    def note_outcome(self, id: Any, name: Any, value: Any, at: Any, event_id: Any) -> bool:
        """Write a guardrail outcome and return whether it is new; raise without a log."""

    def grow(self, features: Features) -> None:
        """Go on with features that have further categories, or raise."""

    def waiting(self) -> str:
        """See ``Bandit.waiting``; nothing is read from a store."""

    def broken(self) -> list[Broken]:
        """See ``Bandit.broken_assumptions``; nothing is read from a store."""

    def close(self) -> None:
        """Let go of the store, if there is one."""
