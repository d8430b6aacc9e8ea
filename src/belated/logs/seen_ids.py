"""Ids that come twice, found in 8 bytes of memory per id.

Of each id a 64-bit hash is kept (``hashes.py``). Two different ids among n have the same hash, and
the later row is then called a duplicate without being one, with probability at most n^2 / 2^65: 3
in a million for a log of 10 million rows, 3 in 10,000 for 100 million.
"""

from typing import Any

import numpy as np

from belated.core.types import Integers


class SeenIds:
    """Hashes of all ids so far, in sorted arrays of which each is much smaller than the last."""

    def __init__(self) -> None:
        self._sorted: list[Integers] = []

    def again(self, hashes: Integers) -> Any:
        """Returns whether each id, given by its hash, was met before, also in calls before.

        >>> seen = SeenIds()
        >>> seen.again(np.array([5, 3, 5])).tolist(), seen.again(np.array([4, 3])).tolist()
        ([False, False, True], [False, True])
        """
        order = np.argsort(hashes, kind="stable")  # of equal ones, the first row comes first
        ranked = hashes[order]
        met = np.zeros(ranked.size, bool)
        met[1:] = ranked[1:] == ranked[:-1]
        for known in self._sorted:
            place = np.minimum(np.searchsorted(known, ranked), known.size - 1)
            met |= known[place] == ranked
        self._keep(ranked[~met])
        result = np.empty(met.size, bool)
        result[order] = met
        return result

    def _keep(self, new: Integers) -> None:
        # merged so that there are few arrays to look into, and every hash is moved seldom
        while self._sorted and self._sorted[-1].size <= 2 * new.size:
            new = np.concatenate((self._sorted.pop(), new))
            new.sort(kind="stable")  # two sorted runs: a merge, in place but for a buffer
        if new.size:
            self._sorted.append(new)
