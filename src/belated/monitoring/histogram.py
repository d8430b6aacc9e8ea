"""Counts below bounds: all that a monitoring system needs of many numbers."""

from bisect import bisect_left
from itertools import accumulate
from math import inf

import msgspec

AGES = (1.0, 10.0, 60.0, 600.0, 3600.0, 21_600.0, 86_400.0, 604_800.0)  # seconds


class Histogram(msgspec.Struct):
    """For each bound, the count of numbers that were at most that large, and their sum.

    >>> histogram = Histogram((1.0, 10.0))
    >>> histogram.add(0.5, 10.0, 11.0)
    >>> histogram.buckets()
    [('1.0', 1.0), ('10.0', 2.0), ('+Inf', 3.0)]
    """

    bounds: tuple[float, ...]
    counts: list[int] = []
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, *numbers: float) -> None:
        """Count these, too; one by one, so that batches make no difference."""
        bounds, counts, total = self.bounds, self.counts, self.sum
        for number in numbers:
            counts[bisect_left(bounds, number)] += 1
            total += number
        self.sum = total

    @property
    def longest(self) -> float:
        """The smallest bound that no number exceeded; infinite where there is none, or no number.

        >>> histogram = Histogram((1.0, 10.0))
        >>> histogram.add(0.5, 2.0)
        >>> histogram.longest
        10.0
        """
        used = [k for k, count in enumerate(self.counts) if count]
        return (*self.bounds, inf)[max(used, default=len(self.bounds))]

    def buckets(self) -> list[tuple[str, float]]:
        """Bounds as texts, and how many numbers there were up to each."""
        names = [*map(str, self.bounds), "+Inf"]
        return list(zip(names, map(float, accumulate(self.counts)), strict=True))
