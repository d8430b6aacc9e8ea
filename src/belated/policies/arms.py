"""What K-armed policies share. An arm is a row of the decision set, whatever stands in it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from belated import registry
from belated.core.arguments import whole, wrong, wrong_type
from belated.core.own import is_own
from belated.core.protocols import Family, feedback_of
from belated.core.types import Integers, Matrix, Vector

BASES = {"ucb1": "delayed-ucb1", "kl-ucb": "delayed-kl-ucb", "beta-thompson": "beta-thompson"}
HALVINGS = 48  # of an interval no longer than a few units: what is left is below rounding


def outside_unit_interval(family: Family) -> str:
    """Why a policy for rewards in [0, 1] refuses this family; empty where it does not."""
    low, high, _ = family.support
    fits = low >= 0.0 and high <= 1.0
    return "" if fits else f"learns from rewards in [0, 1], not from {family.support}"


def optional_horizon(horizon: int | None) -> int | None:
    """None, which a simulation fills in, or a number of rounds."""
    return None if horizon is None else whole("horizon", horizon)


class ArmPlayer(ABC):
    """Plays a row and remembers which; learns the number of arms from the first decision set."""

    def __init__(self, policy: Any, rng: np.random.Generator) -> None:
        self.policy, self.rng = policy, rng
        self.K = 0
        self.played: dict[int, int] = {}  # by round, until the reward returns

    def meet(self, K: int) -> None:
        """The first decision set has ``K`` rows."""
        self.K = K
        self.pulls: Integers = np.zeros(K, np.int64)
        self.observed: Integers = np.zeros(K, np.int64)  # of the pulls: the reward has returned
        self.total: Vector = np.zeros(K)  # of the returned rewards

    def choose(self, actions: Matrix, t: int) -> int:
        """The row to play in round ``t``."""
        if self.K == 0:
            self.meet(len(actions))
        elif len(actions) != self.K:
            raise ValueError(
                f"actions in round {t} = {len(actions)} rows: expected {self.K}, as in the first "
                f"round: to {type(self.policy).__name__} a row is an arm"
            )
        arm = self.pick(actions, t)
        self.played[t] = arm
        self.pulls[arm] += 1
        return arm

    @abstractmethod
    def pick(self, actions: Matrix, t: int) -> int:
        """The arm to play in round ``t``."""

    def observe(self, x: Vector, y: float, t: int) -> None:
        """The reward of round ``t`` returned."""
        if not 0.0 <= y <= 1.0:
            raise wrong("reward", y, f"a number from 0 to 1 for {type(self.policy).__name__}")
        self.count(self.played.pop(t), y)

    def count(self, arm: int, y: float) -> None:
        """A reward of ``arm`` returned."""
        self.observed[arm] += 1
        self.total[arm] += y


def least_known(known: Vector | Integers, pulls: Integers) -> int:
    """Of the arms of which nothing is known, the one with the fewest pulls; -1 where none is.

    Without the pulls the first such arm would be played until its reward returns.
    """
    unknown = known <= 0.0
    if not unknown.any():
        return -1
    return int(np.argmin(np.where(unknown, pulls, np.iinfo(np.int64).max)))


def largest(divergence: Callable[[Vector], Vector], level: Vector, low: Any, high: Any) -> Vector:
    """The largest q in [low, high] with ``divergence(q) <= level``, which grows with q."""
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        inside = divergence(middle) <= level
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.asarray(low)


def bernoulli_divergence(p: Vector) -> Callable[[Vector], Vector]:
    """``q -> kl(p, q) = p log(p / q) + (1 - p) log((1 - p) / (1 - q))`` for q inside (0, 1)."""
    entropy = _x_log_x(p) + _x_log_x(1.0 - p)
    return lambda q: entropy - p * np.log(q) - (1.0 - p) * np.log1p(-q)


def poisson_divergence(p: Vector) -> Callable[[Vector], Vector]:
    """``q -> p log(p / q) + q - p`` for q above 0."""
    constant = _x_log_x(p) - p
    return lambda q: constant - p * np.log(q) + q


def _x_log_x(x: Vector) -> Vector:
    return np.asarray(x * np.log(np.where(x > 0.0, x, 1.0)))


def base_policy(name: str, base: Any) -> Any:
    """The policy in plain Python that the argument ``name`` stands for."""
    expected = f"{', '.join(BASES)} or a policy in plain Python that learns from single rewards"
    policy = base
    if isinstance(base, str):
        known, colon, rest = base.partition(":")
        try:
            policy = registry.parse(registry.POLICIES, BASES.get(known, known) + colon + rest)
        except ValueError as error:
            raise wrong(name, base, f"{expected} ({error})") from None
    if isinstance(policy, type) or not is_own(policy):
        raise wrong_type(name, base, expected)
    if feedback_of(policy) != "identified":
        raise wrong(name, base, expected)
    return policy
