"""Counts of events in each slice of recent time."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from belated.core.types import Integers


class Buckets:
    """Counts by kind and slice of time, for the last ``length`` slices; older ones are forgotten.

    Adding in another order, or in other batches, gives the same counts.
    """

    def __init__(self, width_us: int, length: int, kinds: int) -> None:
        self.width_us = width_us
        self.length = length
        self.newest = 0  # number of the latest slice
        self.counts = [[0] * length for _ in range(kinds)]  # a ring: slice s is at s % length

    def add(self, kind: int, times_us: Mapping[int, int]) -> None:
        """Add counts, given by time."""
        width = self.width_us
        self.advance(max(times_us, default=0) // width)
        row, oldest = self.counts[kind], self.newest - self.length
        for time, n in times_us.items():
            if time // width > oldest:
                row[time // width % self.length] += n

    def advance(self, newest: int) -> None:
        """Forget the slices that ``newest`` pushes out."""
        for number in range(max(self.newest, newest - self.length) + 1, newest + 1):
            for row in self.counts:
                row[number % self.length] = 0
        self.newest = max(self.newest, newest)

    def until(self, now_us: int, kind: int) -> Integers:
        """Counts of the last ``length`` slices up to the one of now, oldest first."""
        last = max(now_us // self.width_us, self.newest)
        held = np.array(self.counts[kind], np.int64)
        numbers = np.arange(last - self.length + 1, last + 1)
        return np.where(numbers <= self.newest, held[numbers % self.length], 0)

    def starts(self, now_us: int) -> Integers:
        """Start of each of those slices, in microseconds since 1970."""
        last = max(now_us // self.width_us, self.newest)
        return np.arange(last - self.length + 1, last + 1) * self.width_us

    def to_dict(self) -> dict[str, Any]:
        """Returns the counts as lists and numbers."""
        return {"newest": self.newest, "counts": [list(row) for row in self.counts]}

    def load(self, saved: dict[str, Any]) -> None:
        """Take over what ``to_dict`` gave."""
        self.newest = saved["newest"]
        self.counts = [list(row) for row in saved["counts"]]
