"""Environments: each draws the decision sets of a world.

>>> import numpy as np
>>> actions = sample(UnitBall(n_actions=5), dim=3, rng=np.random.default_rng(1))
>>> actions.shape, bool((np.linalg.norm(actions, axis=1) <= 1.0).all())
((5, 3), True)
"""

import math
from typing import Any, NamedTuple, Self

import numpy as np

from belated.core.arguments import parameters, whole, wrong
from belated.core.jit import kernel
from belated.core.types import Matrix, Vector
from belated.model.protocols import Environment, draw_actions


def sample(environment: Environment, dim: int, rng: np.random.Generator) -> Matrix:
    """One decision set, (K, dim)."""
    actions = np.empty((environment.n_actions, whole("dim", dim)))
    draw_actions(environment, actions, rng)
    return actions


def of_a_run(environment: Environment, dim: int, rng: np.random.Generator) -> Environment:
    """Returns the environment of one run.

    If its decision set is drawn once per run, it is drawn now.
    """
    if isinstance(environment, UnitBallOnce):
        return FixedArms(sample(environment, dim, rng))
    return environment


def stays(environment: Environment) -> bool:
    """Returns whether every round of a run has the same decision set."""
    return isinstance(environment, FixedArms | OneHot | UnitBallOnce)


def point_in_ball(dim: int, rng: np.random.Generator) -> Vector:
    """A point uniform in the unit ball, such as theta_star of the paper's experiments."""
    return sample(UnitBall(1), dim, rng)[0]


@parameters
class FreshActions(NamedTuple):
    """K new points in every round, no direction preferred."""

    n_actions: int = 100

    def checked(self) -> Self:
        """Raises where a parameter does not fit."""
        return self._replace(n_actions=whole("n_actions", self.n_actions))

    def mean(self, dim: int) -> Vector:
        """The average action."""
        return np.zeros(dim)


class UnitBall(FreshActions):
    """K fresh points in each round, uniform in the unit ball: the paper's text on experiments."""

    __slots__ = ()

    def norm_quantile(self, dim: int, u: float) -> float:
        """Quantile of the norm of an action: P(norm <= r) = r^dim."""
        return float(u ** (1.0 / dim))


class UnitBallOnce(UnitBall):
    """K points uniform in the unit ball, drawn once for a run: what the paper's figures show."""

    __slots__ = ()


class Sphere(FreshActions):
    """K fresh points in each round, uniform on the unit sphere."""

    __slots__ = ()

    def norm_quantile(self, dim: int, u: float) -> float:
        """Quantile of the norm of an action: always 1."""
        return 1.0


@parameters
class FixedArms(NamedTuple):
    """A set of actions that stays as it is in every round.

    >>> FixedArms([[1.0, 0.0], [0.0, 1.0]]).n_actions
    2
    """

    arms: Any

    def checked(self) -> "FixedArms":
        """Raises where a parameter does not fit."""
        try:
            arms = np.array(self.arms, float)
        except (TypeError, ValueError):
            raise wrong("arms", self.arms, "an array of numbers") from None
        if arms.ndim != 2 or 0 in arms.shape or not np.isfinite(arms).all():
            raise wrong("arms", self.arms, "a (K, d) array of finite numbers, K and d at least 1")
        return self._replace(arms=arms)

    @property
    def n_actions(self) -> int:
        """K."""
        return int(self.arms.shape[0])

    def mean(self, dim: int) -> Vector:
        """The average action."""
        return np.asarray(self.arms.mean(axis=0))

    def norm_quantile(self, dim: int, u: float) -> float:
        """Quantile of the norm of an action, each arm equally likely."""
        norms = np.linalg.norm(self.arms, axis=1)
        return float(np.quantile(norms, u, method="inverted_cdf"))


@parameters
class OneHot(NamedTuple):
    """K arms without features: the unit vectors, in every round; the dimension is K.

    >>> OneHot(3).arms.shape
    (3, 3)
    """

    n_actions: int = 10

    def checked(self) -> "OneHot":
        """Raises where a parameter does not fit."""
        return self._replace(n_actions=whole("n_actions", self.n_actions))

    @property
    def arms(self) -> Matrix:
        """(K, K), the identity."""
        return np.eye(self.n_actions)

    def mean(self, dim: int) -> Vector:
        """The average action."""
        return np.full(dim, 1.0 / self.n_actions)

    def norm_quantile(self, dim: int, u: float) -> float:
        """Quantile of the norm of an action: always 1."""
        return 1.0


@kernel
def _fill(actions: Matrix, inside: float, rng: np.random.Generator) -> None:
    """Rows ``g / sqrt(|g|^2 + 2 inside E)``, g normal and E exponential: 1 ball, 0 sphere."""
    K, d = actions.shape
    for a in range(K):
        norm2 = 0.0
        for i in range(d):
            g = rng.standard_normal()
            actions[a, i] = g
            norm2 += g * g
        if inside > 0.0:
            norm2 += 2.0 * inside * rng.standard_exponential()
        scale = 1.0 / math.sqrt(norm2)
        for i in range(d):
            actions[a, i] *= scale


@draw_actions.case(UnitBall, UnitBallOnce)
def _unit_ball(environment: UnitBall, actions: Matrix, rng: np.random.Generator) -> None:
    _fill(actions, 1.0, rng)


@draw_actions.case(Sphere)
def _sphere(environment: Sphere, actions: Matrix, rng: np.random.Generator) -> None:
    _fill(actions, 0.0, rng)


@draw_actions.case(FixedArms)
def _fixed_arms(environment: FixedArms, actions: Matrix, rng: np.random.Generator) -> None:
    if actions.shape[1] != environment.arms.shape[1]:
        raise ValueError("dim must be the number of columns of arms")
    for a in range(actions.shape[0]):
        for i in range(actions.shape[1]):
            actions[a, i] = environment.arms[a, i]


@draw_actions.case(OneHot)
def _one_hot(environment: OneHot, actions: Matrix, rng: np.random.Generator) -> None:
    if actions.shape[1] != environment.n_actions:
        raise ValueError("dim must be the number of arms")
    for a in range(actions.shape[0]):
        for i in range(actions.shape[1]):
            actions[a, i] = 1.0 if a == i else 0.0
