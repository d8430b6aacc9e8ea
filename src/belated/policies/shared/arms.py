"""Code that K-armed policies share. An arm is a row of the decision set, whatever stands in it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from belated import registry
from belated.core.arguments import wrong, wrong_type
from belated.core.types import Integers, Matrix, Vector
from belated.model.plain_policy import is_own
from belated.model.protocols import Family, feedback_of

BASES = {"ucb1": "delayed-ucb1", "kl-ucb": "delayed-kl-ucb", "beta-thompson": "beta-thompson"}
MOST_STEPS = 100  # of Newton's method; some eight will do
BELOW_ONE = math.nextafter(1.0, 0.0)
TINY = 1e-300


def outside_unit_interval(family: Family) -> str:
    """Returns why a policy for rewards in [0, 1] refuses this family; empty where it does not."""
    low, high, _ = family.support
    fits = low >= 0.0 and high <= 1.0
    return "" if fits else f"learns from rewards in [0, 1], not from {family.support}"


class ArmPlayer(ABC):
    """Plays a row and remembers which; learns the number of arms from the first decision set."""

    def __init__(self, policy: Any, rng: np.random.Generator) -> None:
        self.policy, self.rng = policy, rng
        self.K = 0
        self.played: dict[int, int] = {}  # by round, until the reward returns

    def meet(self, K: int) -> None:
        """Prepares for ``K`` arms, the rows of the first decision set."""
        self.K = K
        self.pulls: Integers = np.zeros(K, np.int64)
        self.observed: Integers = np.zeros(K, np.int64)  # pulls whose reward has returned
        self.total: Vector = np.zeros(K)  # of the returned rewards

    def choose(self, actions: Matrix, t: int) -> int:
        """Returns the row to play in round ``t``."""
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
        """Returns the arm to play in round ``t``."""

    def observe(self, x: Vector, y: float, t: int) -> None:
        """Takes in the reward of round ``t``."""
        if not 0.0 <= y <= 1.0:
            raise wrong("reward", y, f"a number from 0 to 1 for {type(self.policy).__name__}")
        self.count(self.played.pop(t), y)

    def count(self, arm: int, y: float) -> None:
        """Counts a returned reward of ``arm``."""
        self.observed[arm] += 1
        self.total[arm] += y


def least_known(known: Vector | Integers, pulls: Integers) -> int:
    """Returns, of the arms without a returned reward, the one with the fewest pulls; or -1.

    Without the pulls the first such arm would be played until its reward returns.
    """
    unknown = known <= 0.0
    if not unknown.any():
        return -1
    return int(np.argmin(np.where(unknown, pulls, np.iinfo(np.int64).max)))


def draw_best(rng: np.random.Generator, a: Vector, b: Vector) -> int:
    """Draws once from each Beta(a_i, b_i) and returns the arm with the largest draw."""
    return int(np.argmax(rng.beta(a, b)))


def as_success(rng: np.random.Generator, y: float) -> float:
    """Returns 1 with probability ``y``, else 0: the same mean, and the posterior stays Beta."""
    return float(rng.random() < y) if 0.0 < y < 1.0 else y


Divergence = Callable[[Vector], tuple[Vector, Vector]]  # of q, and its slope there


def largest(divergence: Divergence, level: Vector, q: Vector) -> Vector:
    """Returns the largest q with ``divergence(q) <= level``; the divergence is convex in q.

    Newton's method from a point not below the root: it comes down to the root and never passes it.
    """
    for _ in range(MOST_STEPS):
        value, slope = divergence(q)
        step = np.maximum(value - level, 0.0) / slope
        q = q - step
        if (step <= 1e-15 * q).all():
            break
    return q


def bernoulli_index(p: Vector, level: Vector) -> Vector:
    """Returns ``max {q < 1 : kl(p, q) <= level}``, kl(p, q) the divergence of Bernoulli laws."""
    entropy = _x_log_x(p) + _x_log_x(1.0 - p)

    def divergence(q: Vector) -> tuple[Vector, Vector]:
        value = entropy - p * np.log(q) - (1.0 - p) * np.log1p(-q)
        return value, (q - p) / (q * (1.0 - q))

    # kl(p, q) >= 2 (q - p)^2, and kl(p, q) >= entropy - (1 - p) log(1 - q)
    near_one = -np.expm1((entropy - level) / np.maximum(1.0 - p, TINY))
    above = np.minimum(np.minimum(p + np.sqrt(0.5 * level), near_one), BELOW_ONE)
    return largest(divergence, level, above)


def poisson_index(p: Vector, level: Vector) -> Vector:
    """Returns ``max {q : p log(p / q) + q - p <= level}``, the divergence of Poisson laws."""
    constant = _x_log_x(p) - p

    def divergence(q: Vector) -> tuple[Vector, Vector]:
        return constant - p * np.log(q) + q, 1.0 - p / q

    # the divergence is at least (q - p)^2 / (2 q)
    return largest(divergence, level, p + level + np.sqrt(level * (level + 2.0 * p)))


def _x_log_x(x: Vector) -> Vector:
    return np.asarray(x * np.log(np.where(x > 0.0, x, 1.0)))


def base_policy(name: str, base: Any) -> Any:
    """Returns the policy in plain Python that the argument ``name`` stands for."""
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


def _known_base(name: str, base: Any) -> Any:
    base_policy(name, base)
    return base


Base = Annotated[Any, _known_base]
