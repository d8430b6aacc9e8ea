"""A million rows that stand for a log of any length.

All rows are kept up to a million. Of more, those are kept whose number, from 0, has the smallest
hash: an even draw that is the same in every run, whatever the chunks.
"""

from typing import Any, NamedTuple

import numpy as np

from belated.core.types import Integers, Vector
from belated.logs.chunks import Chunk
from belated.logs.hashes import mixed

CAPACITY = 1_000_000


class Sampled(NamedTuple):
    """The rows that were kept, in their order; fields as in ``Chunk``."""

    decided: Integers
    returned: Integers
    reward: Vector
    action: Any
    segment: Any

    def only(self, use: Any) -> "Sampled":
        """Returns some of the rows."""
        kept: list[Any] = [None if column is None else column[use] for column in self]
        return Sampled(*kept)


class LogSample:
    """Keeps rows of chunks.

    Parameters
    ----------
    capacity
        The number of rows to keep.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.n = 0  # rows seen
        self._below = np.iinfo(np.uint64).max  # rows with a larger hash are not kept
        self._hashes: list[Integers] = []
        self._parts: list[Sampled] = []
        self._held = 0

    def add(self, chunk: Chunk) -> None:
        """Take in the rows of a chunk."""
        hashes = mixed(np.arange(self.n, self.n + chunk.decided.size, dtype=np.uint64))
        self.n += hashes.size
        use = hashes <= self._below
        rows = Sampled(chunk.decided, chunk.returned, chunk.reward, chunk.action, chunk.segment)
        self._parts.append(rows.only(use))
        self._hashes.append(hashes[use])
        self._held += int(use.sum())
        if self._held > 2 * self.capacity:
            self._cut()

    def _cut(self) -> None:
        """Bring the rows back to the capacity."""
        hashes, rows = np.concatenate(self._hashes), _joined(self._parts)
        if hashes.size > self.capacity:
            self._below = np.partition(hashes, self.capacity - 1)[self.capacity - 1]
            use = hashes <= self._below
            hashes, rows = hashes[use], rows.only(use)
        self._hashes, self._parts, self._held = [hashes], [rows], hashes.size

    def rows(self) -> Sampled:
        """Returns the rows that stand for all."""
        if not self._parts:
            nothing = np.empty(0, np.int64)
            return Sampled(nothing, nothing, np.empty(0), None, None)
        self._cut()
        return self._parts[0]


def _joined(parts: list[Sampled]) -> Sampled:
    columns = zip(*parts, strict=True)
    whole: list[Any] = [None if c[0] is None else np.concatenate(c) for c in columns]
    return Sampled(*whole)
