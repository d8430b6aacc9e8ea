"""Checks that every delay must pass."""

import math
from collections.abc import Callable

import numpy as np

from belated.model.protocols import Delay, delay_quantile_of
from belated.worlds.delays import dim_of, is_known_in_advance

LEVELS = (1e-9, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0 - 1e-9)


def check_delay(delay: Delay) -> None:
    """Run every check of a delay; raise ``AssertionError`` at the first violation."""
    for check in DELAY_CHECKS:
        check(delay)


def check_quantiles_are_delays(delay: Delay) -> None:
    """Quantiles are never negative or NaN and grow with the level, for every reward and action."""
    for x in np.linspace(-1.0, 1.0, 3 * dim_of(delay)).reshape(3, -1):
        for y in (-1.0, 0.0, 1.0):
            values = [delay_quantile_of(delay, x, u, y) for u in LEVELS]
            assert all(v >= 0.0 for v in values), (
                f"the quantiles {values} at the levels {LEVELS} contain a negative number or NaN: "
                "delay_quantile must return 0 or more for every level strictly between 0 and 1"
            )
            assert values == sorted(values), (
                f"the quantiles {values} at the levels {LEVELS} do not grow: delay_quantile(u) is "
                "the inverse of P(delay <= t), not of P(delay > t)"
            )


def check_survival_matches_quantiles(delay: Delay) -> None:
    """P(delay > q) <= 1 - u <= P(delay >= q) at the quantile q of level u."""
    if not is_known_in_advance(delay):
        return
    for u in LEVELS:
        q = delay_quantile_of(delay, np.zeros(0), u, 0.0)
        remedy = f"but delay_quantile at {u} is {q}: make survival(t) = P(delay > t) agree with it"
        if q < math.inf:
            above = delay.survival(q * (1 + 1e-9) + 1e-9)
            assert above <= (1.0 - u) * (1 + 1e-6) + 1e-12, (
                f"survival just above {q} is {above}, more than {1.0 - u}, {remedy}"
            )
        if q > 1e-6:
            below = delay.survival(min(q * (1 - 1e-6), 1e300))
            assert below >= (1.0 - u) * (1 - 1e-6) - 1e-12, (
                f"survival just below {q} is {below}, less than {1.0 - u}, {remedy}"
            )
    assert delay.survival(-1e-9) == 1.0, (
        "survival of a negative time is not 1: every delay is longer, so return 1.0 there"
    )


def check_mean_is_the_integral_of_survival(delay: Delay) -> None:
    """E[tau] lies between the lower and the upper sum of P(tau > t), a bracket of 0.1 per cent."""
    if not is_known_in_advance(delay):
        return
    if delay.mean == math.inf:
        assert delay.survival(1e300) > 0.0, (
            "the mean is infinite and survival(1e300) is 0: return the finite mean, or a survival "
            "function with a heavier tail"
        )
        return
    lower = upper = left = 0.0
    for step in range(1, 690_000):
        right = math.expm1(step / 1000.0)
        before, after = delay.survival(left), delay.survival(right)
        lower += after * (right - left)
        upper += before * (right - left)
        if after * right <= 1e-9 * delay.mean:
            assert lower * (1 - 1e-9) <= delay.mean <= upper * (1 + 1e-6) + 1e-12, (
                f"mean is {delay.mean}, but survival integrates to a number from {lower} to "
                f"{upper}: return the mean of the law that survival describes"
            )
            return
        left = right
    assert lower <= delay.mean, (
        f"mean is {delay.mean}, but survival integrates to {lower} or more: return the mean of the "
        "law that survival describes, infinity where it has none"
    )


DELAY_CHECKS: list[Callable[[Delay], None]] = [
    check_quantiles_are_delays,
    check_survival_matches_quantiles,
    check_mean_is_the_integral_of_survival,
]
