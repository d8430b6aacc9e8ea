"""Shops whose rewards come sooner, later, by banner, or only where somebody buys."""

import math

import numpy as np

from belated.core.types import Vector
from belated.worlds.shops.shop import DAY, HOUR, Outcome, Shop, Visit


class Hours(Shop):
    """The shop at 5 per cent with rewards one hour late on average."""

    decisions = DAY
    rate = 0.05
    delay = HOUR


class Days(Shop):
    """The shop at 5 per cent with rewards one day late on average, over two days."""

    decisions = 2 * DAY
    rate = 0.05
    delay = 1.0 * DAY


class SlowBanners(Shop):
    """The shop at 5 per cent, late by 0.2 to 3 days by banner, unrelated to how good it is."""

    decisions = 2 * DAY
    rate = 0.05
    fastest, slowest = 0.2 * DAY, 3.0 * DAY

    def draw_waits(self, rng: np.random.Generator) -> Vector:
        """Returns mean delays in equal steps of their logarithms, in random order."""
        return rng.permutation(np.geomspace(self.fastest, self.slowest, self.items))


class Conversions(Shop):
    """The shop at 5 per cent where only buyers report, six hours late, in a window of a day.

    A reward is 1 if the visitor buys within the window, and is reported then; a 0 never is. A
    bandit of ours hears of buyers when they buy and closes windows itself. Peers cannot do that:
    they are told of every decision when its window closes, since buyers without the others would
    overstate the rate.
    """

    decisions = 2 * DAY
    rate = 0.05
    delay = 6.0 * HOUR
    window = 1.0 * DAY

    def expected(self, scores: Vector) -> Vector:
        """Returns the chance to buy within the window."""
        return super().expected(scores) * -math.expm1(-self.window / self.delay)

    def outcome(self, visit: Visit, index: int) -> Outcome:
        """Returns the reward; the delay of a 1 is exponential, given that it is in the window."""
        (u, v), mean = visit.luck, visit.waits[index]
        if u >= visit.expected[index]:
            return Outcome(0.0, math.inf)
        return Outcome(1.0, -mean * math.log1p(v * math.expm1(-self.window / mean)))
