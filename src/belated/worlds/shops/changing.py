"""Shops that do not stay as they are."""

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from belated.core.types import Vector
from belated.worlds.shops.shop import DAY, Columns, Groups, Shop


class NewBanners(Shop):
    """Twelve banners on offer at 5 per cent; the oldest is replaced every 400 decisions.

    A banner has a style, of which there are six, so something is known of a new one.
    """

    decisions = 2 * DAY
    rate = 0.05
    items = 37
    on_offer, stays = 12, 400
    of_item: ClassVar[Columns] = {"style": 6}
    groups: ClassVar[Groups] = {
        ("banner",): 0.3,
        ("style",): 0.5,
        ("device",): 0.2,
        ("country",): 0.3,
        ("style", "device"): 0.4,
    }

    def offered(self, t: int) -> NDArray[np.int64]:
        """Returns the numbers of the banners on offer; after the last, old ones return."""
        return (t // self.stays + np.arange(self.on_offer)) % self.items


class Drift(Shop):
    """The shop at 5 per cent with effects that turn into others within two days."""

    decisions = 2 * DAY
    rate = 0.05
    turn = 2 * DAY  # decisions until nothing is left of the effects at the start

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.later = self.draw_theta(self.stream(3))

    def theta_at(self, t: int) -> Vector:
        """Returns effects whose standard deviation stays the same, and the same intercept."""
        angle = 0.5 * math.pi * t / self.turn
        theta = math.cos(angle) * self.theta + math.sin(angle) * self.later
        theta[-1] = self.theta[-1]
        return theta
