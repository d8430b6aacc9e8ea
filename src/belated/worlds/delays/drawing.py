"""Numbers drawn from a delay or derived from it: quantiles, samples, arrivals."""

import math

import numpy as np
from numpy.typing import ArrayLike

from belated.core.arguments import (
    array_of_numbers,
    whole,
    wrong,
)
from belated.core.types import Vector
from belated.model.protocols import Delay, delay_quantile_of
from belated.worlds.delays.traits import dim_of, is_informative, is_known_in_advance


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
