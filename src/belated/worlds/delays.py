"""How long a reward takes to return, in rounds or any other unit of time.

A delay is a NamedTuple with ``mean``, ``survival`` and a ``delay_quantile`` kernel; ``sample``
draws from any of them. One uniform number a decision, pushed through the quantile function, gives
the delay, so that different laws can be compared on the same luck.

Confidence sets hold for delays that do not depend on the reward. ``Informative`` ones do, on
purpose: they show what then breaks. ``Hazard`` delays depend on the action.

>>> import numpy as np
>>> rng = np.random.default_rng(1)
>>> sample(Exponential(100.0), 3, rng).round(1)
array([ 71.7, 300.5,  15.6])
>>> quantile(Uniform(100.0), 0.5)
100.0
>>> round(expected_missing(Exponential(100.0), 100_000), 5)
100.50083
"""

import math
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from belated.core.arguments import (
    array_of_numbers,
    not_negative,
    number,
    parameters,
    positive,
    probability,
    whole,
    wrong,
    wrong_type,
)
from belated.core.types import Vector
from belated.model.protocols import Delay, delay_quantile, delay_quantile_of
from belated.numerics.lowered.products import dot

LARGEST_LOG_HAZARD = 700.0  # e^700 is a number, e^710 is not


def quantile(delay: Delay, u: float, y: float = math.nan, x: ArrayLike = ()) -> float:
    """Inverse distribution function at ``u`` in [0, 1), of a delay with reward ``y``, action ``x``.

    What the delay does not depend on may be left out.
    """
    if not 0.0 <= u < 1.0:
        raise wrong("u", u, "a number in [0, 1)")
    if is_informative(delay) and math.isnan(y):
        raise wrong("y", y, f"a reward: {type(delay).__name__} delays depend on it")
    action = array_of_numbers("x", x)
    if dim_of(delay) not in (0, action.size):
        raise wrong("x", x, f"an action of {dim_of(delay)} numbers, which the delay depends on")
    return float(delay_quantile_of(delay, action, u, y))


def sample(
    delay: Delay,
    size: int,
    rng: np.random.Generator,
    y: ArrayLike = math.nan,
    x: ArrayLike = (),
) -> Vector:
    """``size`` delays, of decisions with rewards ``y`` and the action ``x`` where that matters."""
    rewards = np.broadcast_to(np.asarray(y, float), (size,))
    pairs = zip(rng.random(size), rewards, strict=True)
    return np.array([quantile(delay, u, r, x) for u, r in pairs])


def is_delay(value: object) -> bool:
    """Whether ``value`` is the law of a delay."""
    return type(value) in delay_quantile.cases or type(value) in delay_quantile_of.cases


def is_informative(delay: object) -> bool:
    """Whether the delay depends on the reward, which every confidence set here excludes."""
    return bool(getattr(delay, "informative", False))


def dim_of(delay: object) -> int:
    """Length of the actions that the delay depends on; 0 where it does not depend on them."""
    return int(getattr(delay, "dim", 0))


def is_known_in_advance(delay: object) -> bool:
    """Whether the delay depends on neither reward nor action, so that it can be drawn before."""
    return not is_informative(delay) and dim_of(delay) == 0


def check_dim(delay: object, dim: int) -> None:
    """Raise where the delay depends on actions of another length."""
    if dim_of(delay) not in (0, dim):
        raise wrong("delay", delay, f"weights for actions of {dim} numbers, not {dim_of(delay)}")


def arrival(row: int, tau: float) -> float:
    """Round at whose end the reward of round ``row`` is delivered: ``row + ceil(tau)``.

    The sum is taken on integers; ``row + tau`` could round to the wrong side.
    """
    return math.inf if tau == math.inf else row + math.ceil(tau)


def expected_missing(delay: Delay, rounds: int) -> float:
    """E[G_t] after ``rounds`` rounds: E[min(ceil tau, t)], the sum of P(tau > i) over i < t."""
    if not is_known_in_advance(delay):
        raise wrong("delay", delay, "one that depends on neither the reward nor the action")
    return math.fsum(delay.survival(i) for i in range(whole("rounds", rounds, least=0)))


@parameters
class WithMean(NamedTuple):
    """What the laws that are named by their expected value have in common."""

    expected: float = 100.0

    def checked(self) -> Self:
        """Raise where a parameter does not fit."""
        return self._replace(expected=positive("expected", self.expected))

    @property
    def mean(self) -> float:
        """``expected``."""
        return self.expected


class Exponential(WithMean):
    """Exponential with the given expected value."""

    __slots__ = ()

    def survival(self, t: float) -> float:
        """exp(-t / expected)."""
        return math.exp(-max(t, 0.0) / self.expected)


@delay_quantile.case(Exponential)
def _exponential(delay: Exponential, u: float, y: float) -> float:
    return -delay.expected * math.log1p(-u)


class Uniform(WithMean):
    """Uniform on [0, 2 expected]."""

    __slots__ = ()

    def survival(self, t: float) -> float:
        """1 - t / (2 expected)."""
        return min(1.0, max(0.0, 1.0 - t / (2.0 * self.expected)))


@delay_quantile.case(Uniform)
def _uniform(delay: Uniform, u: float, y: float) -> float:
    return 2.0 * delay.expected * u


class Lomax(WithMean):
    """Pareto as NumPy draws it: P(tau > t) = (1 + t)^-a with a = (1 + expected) / expected.

    The reading of the paper's Pareto delays whose mean is the number on its axis. The variance is
    infinite for ``expected`` of 1 or more.
    """

    __slots__ = ()

    @property
    def shape(self) -> float:
        """Tail exponent a."""
        return (1.0 + self.expected) / self.expected

    def survival(self, t: float) -> float:
        """(1 + t)^-a."""
        return float((1.0 + max(t, 0.0)) ** -self.shape)


@delay_quantile.case(Lomax)
def _lomax(delay: Lomax, u: float, y: float) -> float:
    exponent = -delay.expected / (1.0 + delay.expected)
    return math.expm1(exponent * math.log1p(-u))


class Pareto(WithMean):
    """Pareto of type I, as the paper words it: P(tau > t) = t^-a for t >= 1, same a as ``Lomax``.

    No delay is below 1, and the mean is 1 + expected, not ``expected``.
    """

    __slots__ = ()

    @property
    def shape(self) -> float:
        """Tail exponent a."""
        return (1.0 + self.expected) / self.expected

    @property
    def mean(self) -> float:
        """1 + ``expected``, which is a / (a - 1)."""
        return 1.0 + self.expected

    def survival(self, t: float) -> float:
        """t^-a from 1 on."""
        return float(max(t, 1.0) ** -self.shape)


@delay_quantile.case(Pareto)
def _pareto(delay: Pareto, u: float, y: float) -> float:
    exponent = -delay.expected / (1.0 + delay.expected)
    return math.exp(exponent * math.log1p(-u))


class Geometric(WithMean):
    """Whole numbers 0, 1, 2, ... with P(tau > t) = q^(t+1), q = expected / (1 + expected)."""

    __slots__ = ()

    def survival(self, t: float) -> float:
        """q^(floor(t) + 1)."""
        q = self.expected / (1.0 + self.expected)
        return 1.0 if t < 0.0 else float(q ** (math.floor(t) + 1))


@delay_quantile.case(Geometric)
def _geometric(delay: Geometric, u: float, y: float) -> float:
    log_q = -math.log1p(1.0 / delay.expected)
    return max(0.0, math.ceil(math.log1p(-u) / log_q) - 1.0)


@parameters
class Constant(NamedTuple):
    """Always the same delay."""

    value: float = 0.0

    def checked(self) -> "Constant":
        """Raise where a parameter does not fit."""
        return self._replace(value=not_negative("value", self.value))

    @property
    def mean(self) -> float:
        """``value``."""
        return self.value

    def survival(self, t: float) -> float:
        """A step at ``value``."""
        return 1.0 if t < self.value else 0.0


@delay_quantile.case(Constant)
def _constant(delay: Constant, u: float, y: float) -> float:
    return delay.value


@parameters
class PacketLoss(NamedTuple):
    """At once with probability ``arrive``, otherwise never (Lancewicki et al. 2021)."""

    arrive: float = 0.9

    def checked(self) -> "PacketLoss":
        """Raise where a parameter does not fit."""
        return self._replace(arrive=probability("arrive", self.arrive))

    @property
    def mean(self) -> float:
        """Infinite."""
        return math.inf

    def survival(self, t: float) -> float:
        """1 - arrive."""
        return 1.0 if t < 0.0 else 1.0 - self.arrive


@delay_quantile.case(PacketLoss)
def _packet_loss(delay: PacketLoss, u: float, y: float) -> float:
    return 0.0 if u <= delay.arrive else math.inf


@parameters
class Never(NamedTuple):
    """No reward ever returns."""

    @property
    def mean(self) -> float:
        """Infinite."""
        return math.inf

    def survival(self, t: float) -> float:
        """1."""
        return 1.0


@delay_quantile.case(Never)
def _never(delay: Never, u: float, y: float) -> float:
    return math.inf


@parameters
class Empirical(NamedTuple):
    """Delays as they were seen: each of ``values`` equally likely; infinity means never.

    >>> Empirical([3.0, 1.0, 2.0]).mean
    2.0
    """

    values: Any = (0.0,)

    def checked(self) -> "Empirical":
        """Raise where a parameter does not fit; keep the values sorted."""
        try:
            values = np.sort(np.asarray(self.values, float))
        except (TypeError, ValueError):
            raise wrong("values", self.values, "delays, as numbers") from None
        if values.ndim != 1 or values.size == 0 or not values[0] >= 0.0 or np.isnan(values).any():
            raise wrong("values", self.values, "one or more delays, 0 or more, none of them NaN")
        return self._replace(values=values)

    @property
    def mean(self) -> float:
        """Average of the values."""
        return float(self.values.mean())

    def survival(self, t: float) -> float:
        """Share of values above t."""
        return float((self.values > t).mean())


@delay_quantile.case(Empirical)
def _empirical(delay: Empirical, u: float, y: float) -> float:
    n = delay.values.shape[0]
    return delay.values[max(0, math.ceil(u * n) - 1)]


def _check_law(name: str, law: object) -> None:
    if not is_delay(law):
        raise wrong_type(name, law, "a delay, such as Constant(0.0)")


@parameters
class Scaled(NamedTuple):
    """Another law in another unit of time, and ``shift`` later: ``factor * law + shift``.

    Hours at 50 decisions an hour, as rounds:

    >>> Scaled(Exponential(24.0), factor=50.0).mean
    1200.0
    """

    law: Any
    factor: float = 1.0
    shift: float = 0.0

    def checked(self) -> "Scaled":
        """Raise where a parameter does not fit."""
        _check_law("law", self.law)
        return self._replace(
            factor=positive("factor", self.factor), shift=not_negative("shift", self.shift)
        )

    @property
    def dim(self) -> int:
        """Of the actions it depends on, as the law is."""
        return dim_of(self.law)

    @property
    def informative(self) -> bool:
        """As the law is."""
        return is_informative(self.law)

    @property
    def mean(self) -> float:
        """``factor * law.mean + shift``."""
        return float(self.factor * self.law.mean + self.shift)

    def survival(self, t: float) -> float:
        """That of the law at ``(t - shift) / factor``."""
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
        """Raise where a parameter does not fit."""
        _check_law("above", self.above)
        _check_law("below", self.below)
        return self._replace(threshold=number("threshold", self.threshold))

    @property
    def informative(self) -> bool:
        """Yes."""
        return True

    @property
    def dim(self) -> int:
        """Of its two laws."""
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

    >>> quantile(Hazard([0.0, -1.0]), 0.5, x=[0.0, 1.0]) == math.e * math.log(2.0)
    True
    """

    weights: Any

    def checked(self) -> "Hazard":
        """Raise where a parameter does not fit."""
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
