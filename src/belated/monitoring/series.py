"""A running count and total over all time, remembered at a few hundred moments."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from belated.core.types import Vector

MOST_POINTS = 256
FIRST_STEP_US = 1_000_000


class Series:
    """Totals at evenly spaced moments; when there are too many, every second one is forgotten.

    The totals are added up in the order they come, one by one: other batches give the same bits.
    """

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.step_us = FIRST_STEP_US
        self.next_us = 0  # when to remember next
        self.points: list[tuple[int, int, float]] = []  # time, count and total before it

    def add(self, times_us: Iterable[int], values: Iterable[float | None]) -> None:
        """Add values, each at its time; None adds nothing."""
        count, total = self.count, self.total
        for time_us, value in zip(times_us, values, strict=True):
            if value is None:
                continue
            if time_us >= self.next_us:
                self._remember(time_us, count, total)
            count += 1
            total += value
        self.count, self.total = count, total

    def _remember(self, time_us: int, count: int, total: float) -> None:
        self.points.append((time_us, count, total))
        if len(self.points) > MOST_POINTS:
            self.points = self.points[::2]
            self.step_us *= 2
        self.next_us = (self.points[-1][0] // self.step_us + 1) * self.step_us

    def until(self, now_us: int) -> tuple[Vector, Vector, Vector]:
        """Times in seconds since 1970, counts and totals; the last ones are those of now."""
        points = [*self.points, (now_us, self.count, self.total)]
        times, counts, totals = np.array(points, np.float64).T
        return times / 1e6, counts, totals

    def to_dict(self) -> dict[str, Any]:
        """Returns the series as lists and numbers."""
        return {
            "count": self.count,
            "total": self.total,
            "step_us": self.step_us,
            "next_us": self.next_us,
            "points": [list(point) for point in self.points],
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Take over what ``to_dict`` gave."""
        self.count, self.total = saved["count"], saved["total"]
        self.step_us, self.next_us = saved["step_us"], saved["next_us"]
        self.points = [(time, count, total) for time, count, total in saved["points"]]
