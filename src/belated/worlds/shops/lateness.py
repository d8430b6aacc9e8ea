"""Shops whose rewards come sooner, later, by banner, or only where somebody buys."""

import math

import numpy as np

from belated.core.types import Vector
from belated.worlds.shops.shop import DAY, HOUR, Outcome, Shop, Visit


class Hours(Shop):
    """The shop with rewards one hour late on average."""

    delay = HOUR


class Days(Shop):
    """The shop with rewards two days late on average, over six days."""

    decisions = 6 * DAY
    delay = 2.0 * DAY


class SlowBanners(Shop):
    """The shop with mean delays from 0.2 to 3 days by banner, unrelated to how good it is."""

    fastest, slowest = 0.2 * DAY, 3.0 * DAY

    def draw_waits(self, rng: np.random.Generator) -> Vector:
        """Return mean delays in equal steps of their logarithms, in random order."""
        return rng.permutation(np.geomspace(self.fastest, self.slowest, self.items))


class Conversions(Shop):
    """The shop where only buyers report, a day late on average; others by a window of four days.

    A reward is 1 if the visitor buys within the window. Whether that was so is known for all
    decisions when their window closes: to take in buyers earlier than the others would overstate
    the rate.
    """

    decisions = 6 * DAY
    delay = 1.0 * DAY
    window = 4.0 * DAY

    def expected(self, scores: Vector) -> Vector:
        """Return the chance to buy within the window."""
        return super().expected(scores) * -math.expm1(-self.window / self.delay)

    def outcome(self, visit: Visit, index: int) -> Outcome:
        """Return the reward, which is known when the window closes."""
        return super().outcome(visit, index)._replace(wait=self.window)
