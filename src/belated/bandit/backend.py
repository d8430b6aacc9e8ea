"""The backend of a ``Bandit``: a learner in memory, or one that follows the log of a ledger."""

from typing import Any, Protocol

import numpy as np

from belated.core.events import Decision
from belated.core.types import Matrix
from belated.features import FeatureMap, Features
from belated.learner.learner import Learner


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

    def present(self) -> Learner:
        """Return the state, after taking in what other processes wrote."""

    def follow(self) -> None:
        """Take in what other processes wrote, and close the windows that are over."""

    def decide(self, matrix: Matrix, context: Any) -> Decision:
        """Choose a row of ``matrix`` and record it. ``follow`` was called before."""

    def learn(self, pairs: list[tuple[Any, Any]]) -> int:
        """Take in all rewards and return how many are new, or raise and take in none."""

    def grow(self, features: Features) -> None:
        """Go on with features that have further categories, or raise."""

    def waiting(self) -> str:
        """See ``Bandit.waiting``; nothing is read from a store."""

    def close(self) -> None:
        """Let go of the store, if there is one."""
