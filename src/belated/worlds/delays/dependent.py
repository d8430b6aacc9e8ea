"""Delays that depend on the action or on the reward."""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import (
    array_of_numbers,
    not_negative,
    number,
    parameters,
    positive,
    wrong,
    wrong_type,
)
from belated.core.types import Vector
from belated.model.protocols import delay_quantile_of
from belated.numerics.lowered.products import dot
from belated.worlds.delays.laws import Constant, Never
from belated.worlds.delays.traits import dim_of, is_delay, is_informative

LARGEST_LOG_HAZARD = 700.0  # e^700 is a number, e^710 is not


def _check_law(name: str, law: object) -> None:
    if not is_delay(law):
        raise wrong_type(name, law, "a delay, such as Constant(0.0)")


@parameters
class Scaled(NamedTuple):
    """Another law in another unit of time, and ``shift`` later: ``factor * law + shift``.

    Hours at 50 decisions an hour, as rounds:

    >>> from belated.delays import Exponential
    >>> Scaled(Exponential(24.0), factor=50.0).mean
    1200.0
    """

    law: Any
    factor: float = 1.0
    shift: float = 0.0

    def checked(self) -> "Scaled":
        """Raises where a parameter does not fit."""
        _check_law("law", self.law)
        return self._replace(
            factor=positive("factor", self.factor), shift=not_negative("shift", self.shift)
        )

    @property
    def dim(self) -> int:
        """The length of the actions that the law depends on; 0 if it does not."""
        return dim_of(self.law)

    @property
    def informative(self) -> bool:
        """True if the law depends on the reward."""
        return is_informative(self.law)

    @property
    def mean(self) -> float:
        """``factor * law.mean + shift``."""
        return float(self.factor * self.law.mean + self.shift)

    def survival(self, t: float) -> float:
        """The survival of the law at ``(t - shift) / factor``."""
        return float(self.law.survival((t - self.shift) / self.factor))


@delay_quantile_of.case(Scaled)
def _scaled(delay: Scaled, x: Vector, u: float, y: float) -> float:
    return delay.factor * delay_quantile_of(delay.law, x, u, y) + delay.shift


@parameters
class Informative(NamedTuple):
    """The delay depends on the reward: one law up to ``threshold``, another above it.

    The theory excludes this. With successes at once and failures late (the default: never), the
    returned rewards are a biased sample, and none of the confidence sets here is guaranteed to
    cover theta_star. ``OPSE``, a policy on arms without such a set, allows it.
    """

    above: Any = Constant(0.0)
    below: Any = Never()
    threshold: float = 0.5

    def checked(self) -> "Informative":
        """Raises where a parameter does not fit."""
        _check_law("above", self.above)
        _check_law("below", self.below)
        return self._replace(threshold=number("threshold", self.threshold))

    @property
    def informative(self) -> bool:
        """Yes."""
        return True

    @property
    def dim(self) -> int:
        """The length of the actions that its two laws depend on; 0 if they do not."""
        return max(dim_of(self.above), dim_of(self.below))

    @property
    def mean(self) -> float:
        """Not a number: it depends on the law of the reward. See ``above.mean``, ``below.mean``."""
        return math.nan

    def survival(self, t: float) -> float:
        """Not a number, like ``mean``."""
        return math.nan


@delay_quantile_of.case(Informative)
def _informative(delay: Informative, x: Vector, u: float, y: float) -> float:
    if y > delay.threshold:
        return delay_quantile_of(delay.above, x, u, y)
    return delay_quantile_of(delay.below, x, u, y)


@parameters
class Hazard(NamedTuple):
    """Exponential with the hazard ``exp(x'weights)`` of the action x: Chapelle's delays (2014).

    With Bernoulli rewards and ``Conversions`` feedback this is the delayed feedback model: an
    action converts with probability ``sigma(x'theta_star)``, and a conversion comes after an
    exponential time of mean ``exp(-x'weights)``. See ``belated.worlds.dfm``. Exponents beyond 700
    count as 700.

    >>> from belated.delays import quantile
    >>> quantile(Hazard([0.0, -1.0]), 0.5, x=[0.0, 1.0]) == math.e * math.log(2.0)
    True
    """

    weights: Any

    def checked(self) -> "Hazard":
        """Raises where a parameter does not fit."""
        weights = array_of_numbers("weights", self.weights)
        if weights.ndim != 1 or weights.size == 0 or not np.isfinite(weights).all():
            raise wrong("weights", self.weights, "one finite number for each feature of an action")
        return self._replace(weights=weights)

    @property
    def dim(self) -> int:
        """Length of the actions."""
        return int(self.weights.shape[0])

    @property
    def mean(self) -> float:
        """Not a number: it depends on the action, ``exp(-x'weights)``."""
        return math.nan

    def survival(self, t: float) -> float:
        """Not a number, like ``mean``."""
        return math.nan


@delay_quantile_of.case(Hazard)
def _hazard(delay: Hazard, x: Vector, u: float, y: float) -> float:
    exponent = dot(x, delay.weights)
    exponent = min(max(exponent, -LARGEST_LOG_HAZARD), LARGEST_LOG_HAZARD)
    return -math.log1p(-u) * math.exp(-exponent)
