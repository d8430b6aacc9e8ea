"""The base of all adapters: it keeps a decision until its reward returns."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from belated.core.arguments import wrong
from belated.core.types import Matrix, Vector

PLAIN = bool | int | float | str | None


class Adapter(ABC):
    """A policy of another library behind ``start``, ``choose`` and ``observe``."""

    def __init__(self, policy: Any, name: str, shared: Sequence[int] | None = None) -> None:
        self.policy = policy  # as given, and never played: runs play ``self.live``
        self.name = name
        self.shared = shared

    @abstractmethod
    def begin(self, seed: int) -> None:
        """Make ``self.live``, which knows nothing yet and draws from ``seed`` alone."""

    @abstractmethod
    def pick(self, actions: Matrix, t: int) -> tuple[int, Any]:
        """Returns the row to play, and what ``learn`` needs to know of this decision."""

    @abstractmethod
    def learn(self, row: int, kept: Any, y: float) -> None:
        """Learns the reward of a decision."""

    def start(self, dim: int, rng: np.random.Generator) -> None:
        """Starts a run: called before its first round."""
        self.rng = rng
        self.pending: dict[int, tuple[int, Any]] = {}
        self.begin(int(rng.integers(2**31)))

    def choose(self, actions: Matrix, t: int) -> int:
        """Returns the row to play in round ``t``."""
        row, kept = self.pick(actions, t)
        self.pending[t] = row, kept
        return row

    def observe(self, x: Vector, y: float, t: int) -> None:
        """Learns the reward of round ``t``."""
        row, kept = self.pending.pop(t)
        self.learn(row, kept, y)

    def context_of(self, actions: Matrix) -> Vector:
        """Returns the context of a round for a library with a model per arm.

        It is made of the columns that all actions share, where these are given, and else the whole
        decision set, K x d numbers in a row.
        """
        return actions.ravel() if self.shared is None else actions[0, self.shared]

    def _asdict(self) -> dict[str, Any]:
        """Returns the settings by name: for labels, and to tell one experiment from another."""
        shared = {} if self.shared is None else {"shared": list(self.shared)}
        return {"policy": described(self.policy), **shared}


def library(module: str, package: str = "belated[peers]") -> Any:
    """Returns the module of a peer; ``package`` is what to install where it is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error}: pip install '{package}'") from error


def zero_or_one(y: float, who: str) -> float:
    """Returns a reward that is 0 or 1; raises for any other."""
    if y not in (0.0, 1.0):
        raise wrong("reward", y, f"0 or 1, all that {who} learns from (the family bernoulli)")
    return y


def as_many_arms(name: str, arms: int, actions: Matrix) -> None:
    """Raises where a decision set does not have one row per arm."""
    if len(actions) != arms:
        raise wrong(name, arms, f"{len(actions)}, one arm for each action of a round")


def described(thing: Any) -> str:
    """Returns type and public values; for an object with parts only its type, not its address."""
    fields = thing._asdict() if hasattr(thing, "_asdict") else vars(thing)
    values = [
        f"{key}={value if isinstance(value, PLAIN) else type(value).__name__}"
        for key, value in fields.items()
        if not key.startswith("_")
    ]
    return f"{type(thing).__name__}({', '.join(values)})"
