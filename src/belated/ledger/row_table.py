"""The row of the history in which a decision lies, found by its id.

Open decisions are found by a hash table of numbers, all others by a search: nobody asks for them
but late rewards and revisions.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from belated.core.types import Integers

LEAST = 64  # places of the smallest table
NEARBY = 16 * 10_000  # bytes: ids of several machines, whose clocks differ a little, may be mixed


class RowTable:
    """A hash table from ids to rows, with linear probing: 8 bytes per row, and no ids.

    Rows are only added. Whoever uses a table makes another one, of the rows that still matter,
    when this one does not suit their number any more.

    Parameters
    ----------
    ids
        16 bytes for each row of the history. It is kept, not copied.
    rows
        The rows that can be found.

    References
    ----------
    Knuth, The Art of Computer Programming, volume 3, section 6.4, algorithm L.
    """

    def __init__(self, ids: bytearray, rows: Sequence[int] = ()) -> None:
        self._ids, self._n = ids, len(rows)
        self._size = max(2 * len(rows), LEAST)
        self._table = array("I", bytes(4 * self._size + 4))  # a row plus one; 0: free, as the last
        if not self._n:
            return
        halves = np.frombuffer(ids, ">u8")[1::2]  # the second half of an id is random
        homes = (halves[rows] % np.uint64(self._size)).astype(np.int64)
        order, n = np.argsort(homes, kind="stable"), np.arange(self._n)
        places = np.maximum.accumulate(homes[order] - n) + n  # each after the one before it
        table = np.zeros(max(self._size, int(places[-1]) + 1) + 1, np.uint32)
        table[places] = np.asarray(rows)[order] + 1
        self._table = array("I", table.tobytes())

    def has_room(self, n: int) -> bool:
        """Returns whether a third of the places will be free when ``n`` more rows are added."""
        return 3 * (self._n + n) <= 2 * self._size

    def suits(self, n: int) -> bool:
        """Returns whether the table does not have too many places for ``n`` rows."""
        return 2 * self._size <= max(8 * n, 2 * LEAST)

    def add(self, id: bytes, row: int) -> None:
        """Let a row be found by its id."""
        table, place = self._table, self._home(id)
        while table[place]:
            place += 1
        table[place] = row + 1
        if place == len(table) - 1:
            table.append(0)
        self._n += 1

    def find(self, id: bytes) -> int | None:
        """Returns the row of an id, if it was added."""
        ids, table = self._ids, self._table
        place = self._home(id)
        while row := table[place]:  # plus one
            if ids[16 * row - 16 : 16 * row] == id:
                return row - 1
            place += 1
        return None

    def find_all(self, ids: Sequence[bytes]) -> Integers:
        """Returns the row of each id, which has 16 bytes; -1 where it was not added."""
        wanted = np.frombuffer(b"".join(ids), ">u8").reshape(-1, 2)
        there = np.frombuffer(self._ids, ">u8").reshape(-1, 2)
        table = np.frombuffer(self._table, np.uint32)
        found, places = np.full(len(ids), -1), (wanted[:, 1] % self._size).astype(np.int64)
        left = np.arange(len(ids))  # those that may stand further on
        while len(left):
            rows = table[places[left]].astype(np.int64) - 1
            left, rows = left[rows >= 0], rows[rows >= 0]
            is_here = (there[rows] == wanted[left]).all(axis=1)
            found[left[is_here]] = rows[is_here]
            left = left[~is_here]
            places[left] += 1
        return found

    def _home(self, id: bytes) -> int:
        return int.from_bytes(id[8:], "big") % self._size


def search_row(ids: bytearray, id: bytes) -> int | None:
    """Returns the row of an id. Ids and rows sort by time, nearly: the search begins nearby."""
    near = 16 * bisect_left(
        range(len(ids) // 16), id, key=lambda k: bytes(ids[16 * k : 16 * k + 16])
    )
    for start, end in ((max(0, near - NEARBY), near + NEARBY), (0, len(ids))):
        place = ids.find(id, start, end)
        while place > 0 and place % 16:  # a match across two ids
            place = ids.find(id, place + 1, end)
        if place >= 0:
            return place // 16
    return None
