"""Laws of the delay that depend on neither the action nor the reward."""

import json
import math
import os
from typing import Any, NamedTuple, Self

import numpy as np

from belated.core.arguments import (
    not_negative,
    parameters,
    positive,
    probability,
    wrong,
)
from belated.model.protocols import delay_quantile

SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86_400.0}


@parameters
class WithMean(NamedTuple):
    """The base of all laws that are named by their expected value."""

    expected: float = 100.0

    def checked(self) -> Self:
        """Raises where a parameter does not fit."""
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
        """Raises where a parameter does not fit."""
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
        """Raises where a parameter does not fit."""
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

    ``values`` may be the name of a file that ``belated delays --law`` wrote, as in
    ``empirical:law.json``: one round is then a decision of that log.

    >>> Empirical([3.0, 1.0, 2.0]).mean
    2.0
    """

    values: Any = (0.0,)

    def checked(self) -> "Empirical":
        """Raises where a parameter does not fit; keep the values sorted."""
        given = self.values
        if isinstance(given, str | os.PathLike):
            given = read_law(given).values
        try:
            values = np.sort(np.asarray(given, float))
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


def read_law(
    path: str | os.PathLike[str], unit: str = "rounds", per_day: float | None = None
) -> Empirical:
    """Returns the law in a file that ``belated delays --law`` wrote.

    Parameters
    ----------
    path
        The file. A law that does not say its unit is taken as it is.
    unit
        In which its delays are wanted: rounds, seconds, minutes, hours or days.
    per_day
        Rounds in a day, where they are wanted; default as many as the log had decisions, which the
        file says.
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        # ``never`` says how many more never return
        values = np.array([*content["values"], *[math.inf] * content["never"]], float)
        written, of_log = content.get("unit", unit), content.get("per_day")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise wrong(
            "values",
            str(path),
            f"delays, as numbers, or a file of `belated delays --law` ({error})",
        ) from None
    if written == unit:
        return Empirical(values)
    length_written = _length(written, of_log or per_day)
    length_wanted = _length(unit, per_day or of_log)
    if length_written is None or length_wanted is None:
        raise wrong(
            "values",
            str(path),
            f"delays in {unit}, and the file has {written} and does not say how many rounds a day "
            f"has (per_day): `belated delays --law FILE --law-unit {unit}` writes the other",
        )
    return Empirical(values * (length_written / length_wanted))


def _length(unit: str, per_day: float | None) -> float | None:
    """Returns the length of a unit in seconds; None for rounds where nobody says how many."""
    if unit != "rounds":
        return SECONDS.get(unit)
    return None if per_day is None else 86_400.0 / positive("per_day", per_day)


@delay_quantile.case(Empirical)
def _empirical(delay: Empirical, u: float, y: float) -> float:
    n = delay.values.shape[0]
    return delay.values[max(0, math.ceil(u * n) - 1)]
