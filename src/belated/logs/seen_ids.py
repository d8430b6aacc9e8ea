"""Ids that come twice, found in 8 bytes of memory per id.

Of each id a 64-bit hash is kept. Two different ids among n have the same hash, and the later row
is then called a duplicate without being one, with probability at most n^2 / 2^65: 3 in a million
for a log of 10 million rows, 3 in 10,000 for 100 million.
"""

from typing import Any

import numpy as np

from belated.core.extras import extra
from belated.core.types import Integers


class SeenIds:
    """Hashes of all ids so far, in sorted arrays of which each is much smaller than the last."""

    def __init__(self) -> None:
        self._sorted: list[Integers] = []

    def again(self, ids: Any) -> Any:
        """Returns for each of ``ids`` (texts) whether it was met before, here or in a call before.

        >>> seen = SeenIds()
        >>> seen.again(["a", "b", "a"]).tolist(), seen.again(["c", "b"]).tolist()
        ([False, False, True], [False, True])
        """
        hashes = hashed(ids)
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
            new = np.sort(np.concatenate((self._sorted.pop(), new)), kind="stable")
        if new.size:
            self._sorted.append(new)


def hashed(ids: Any) -> Integers:
    """Returns the 64-bit hash of each text (SipHash, with a fixed key)."""
    with extra("experiments"):
        from pandas.util import hash_array
    return hash_array(np.asarray(ids, object), categorize=False)
