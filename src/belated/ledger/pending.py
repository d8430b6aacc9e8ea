"""Open decisions, those whose story is not over, as columns of numbers.

The rows of the history are cut into blocks of 4,096. A block holds the open decisions of its rows,
oldest first; closed ones leave it when they are a fifth of it, and an empty block is dropped. So an
open decision takes 35 bytes, up to a quarter more where others were closed, and as a rule 8 to be
found by its id, 16 at most. Windows may close in any order: each block knows when its first one
does.
"""

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import isnan, nan
from typing import Any, NamedTuple

import msgspec
import numpy as np

from belated.core.types import Integers
from belated.ledger.row_table import RowTable
from belated.monitoring.histogram import AGES, Histogram

ROWS = 4_096  # of a block
MANY = 100  # decisions, from which on arrays of them pay,
SEVERAL = 8  # if there are so many of them for each block
FEW = 64  # closed decisions that a block may hold, however few of its decisions are open
NEVER = 2**63 - 1  # the closing time of a decision without a window, or of one that is closed
LATE, CLOSED = 1, 2  # flags of a decision
SECOND_US = 1_000_000


class Open(NamedTuple):
    """An open decision."""

    row: int  # in the history
    time: int
    due: int | None
    closes: int | None  # the end of the window with its grace; None: ``due``
    held: float | None  # in a conversion loop: the reward, until the window closes
    late: bool  # whether the log holds a reward that came too late


class Pending(msgspec.Struct, gc=False, omit_defaults=True):
    """An open decision as digests have it, and as snapshots had it before there were columns.

    The fields of version 0.1 have no default: a default is left out.
    """

    row: int
    time: int
    due: int | None
    action: str
    held: float | None
    late: bool
    closes: int | None = None


_pending = msgspec.msgpack.Decoder(dict[bytes, Pending])


class Columns(NamedTuple):
    """Columns of equal length, one entry per decision."""

    place: Any  # the row, counted from the first row of the block; ascending
    time: Any
    due: Any
    ends: Any  # when the window closes, grace included
    held: Any  # NaN: no reward is held
    flags: Any


TYPES = Columns("H", "q", "q", "q", "d", "B")  # for ``array`` and for NumPy


class Block:
    """The open decisions of 4,096 rows; closed ones stay in the columns for a while."""

    def __init__(self) -> None:
        self._set(Columns(*map(array, TYPES)))

    def _set(self, columns: Columns) -> None:
        """Hold these columns, of open decisions."""
        self.columns = columns
        self.n_open = len(columns.time)
        self.n_waiting = int(np.isnan(np.frombuffer(columns.held)).sum())  # open, without a reward
        times = np.frombuffer(columns.time, np.int64)
        self.oldest = int(times.min(initial=NEVER))  # among all decisions in the columns
        self.newest = int(times.max(initial=-NEVER))
        self._soonest: int | None = None  # None: must be looked up

    @property
    def soonest(self) -> int:
        """The time at which the first window closes; NEVER if none does."""
        if self._soonest is None:
            self._soonest = int(np.frombuffer(self.columns.ends, np.int64).min(initial=NEVER))
        return self._soonest

    def add_all(self, places: Sequence[int], *windows: Sequence[int]) -> None:
        """Add open decisions whose rows come after those of all others.

        ``windows``: when they were made, are due and close.
        """
        n, (times, _, ends) = len(places), windows
        numbers = places, *windows, [nan] * n, [0] * n
        for column, several in zip(self.columns, numbers, strict=True):
            column.extend(several)
        self.n_open += n
        self.n_waiting += n
        self.oldest, self.newest = min(self.oldest, *times), max(self.newest, *times)
        if self._soonest is not None:
            self._soonest = min(self._soonest, *ends)

    def find(self, place: int) -> int:
        """Returns the entry of an open decision; -1 if there is none at this place."""
        places, *_, flags = self.columns
        k = bisect_left(places, place)
        return k if k < len(places) and places[k] == place and flags[k] != CLOSED else -1

    def find_all(self, places: Integers) -> Integers:
        """Returns the entries of open decisions; -1 where there is none."""
        there = np.frombuffer(self.columns.place, np.uint16)
        k = np.minimum(np.searchsorted(there, places), len(there) - 1)
        is_open = np.frombuffer(self.columns.flags, np.uint8)[k] != CLOSED
        return np.where((there[k] == places) & is_open, k, -1)

    def close(self, k: int) -> None:
        """Close the decision of an entry."""
        columns = self.columns
        if columns.ends[k] == self._soonest:
            self._soonest = None
        self.n_open -= 1
        self.n_waiting -= isnan(columns.held[k])
        columns.ends[k], columns.held[k], columns.flags[k] = NEVER, 0.0, CLOSED
        self._pack()

    def close_all(self, ks: Integers) -> None:
        """Close the decisions of these entries, each of which is there once."""
        held = np.frombuffer(self.columns.held)
        self._soonest = None
        self.n_open -= len(ks)
        self.n_waiting -= int(np.isnan(held[ks]).sum())
        np.frombuffer(self.columns.ends, np.int64)[ks] = NEVER
        held[ks] = 0.0
        np.frombuffer(self.columns.flags, np.uint8)[ks] = CLOSED
        del held  # a column that is looked at cannot grow
        self._pack()

    def _pack(self) -> None:
        """Let go of closed decisions if they are a fifth of all."""
        columns = self.columns
        n_closed = len(columns.time) - self.n_open
        if n_closed >= FEW and 4 * n_closed > self.n_open:
            self.fill(self.arrays())

    def arrays(self) -> Columns:
        """Returns copies of the columns with open decisions only."""
        is_open = np.frombuffer(self.columns.flags, np.uint8) != CLOSED
        numbers = (np.frombuffer(column, column.typecode) for column in self.columns)
        return Columns(*(column[is_open] for column in numbers))

    def fill(self, arrays: Columns) -> None:
        """Hold open decisions only, those of ``arrays``."""
        typed = zip(TYPES, arrays, strict=True)
        self._set(Columns(*(array(kind, a.astype(kind).tobytes()) for kind, a in typed)))

    def over(self, now: int) -> list[int]:
        """Returns the places of the decisions whose window closed before ``now``, soonest first."""
        ends = np.frombuffer(self.columns.ends, np.int64)
        over = np.flatnonzero(ends < now)
        places = np.frombuffer(self.columns.place, np.uint16)
        return places[over[np.argsort(ends[over], kind="stable")]].tolist()

    def count_by_age(self, second: int, counts: list[int]) -> None:
        """Add the number of decisions that wait for a reward, by their age in whole seconds."""
        youngest = bisect_left(AGES, second - self.newest // SECOND_US)
        oldest = bisect_left(AGES, second - self.oldest // SECOND_US)
        if youngest == oldest:
            counts[oldest] += self.n_waiting
            return
        times = np.frombuffer(self.columns.time, np.int64)
        waiting = times[np.isnan(np.frombuffer(self.columns.held))]
        buckets = np.searchsorted(AGES, second - waiting // SECOND_US)
        for bucket, n in enumerate(np.bincount(buckets).tolist()):
            counts[bucket] += n


class OpenDecisions:
    """The open decisions of one bandit, oldest first.

    Parameters
    ----------
    ids
        16 bytes for each row of the history. The bandit adds to it before it calls ``add``.
    """

    def __init__(self, ids: bytearray) -> None:
        self._ids = ids
        self._blocks: dict[int, Block] = {}  # oldest first
        self._rows = RowTable(ids)
        self._n_open = 0
        self.n_held = 0  # rewards of a conversion loop that wait for their window to close

    def __len__(self) -> int:
        return self._n_open

    @property
    def n_waiting(self) -> int:
        """Open decisions without a reward."""
        return self._n_open - self.n_held

    # ---------------------------------------------------------------------------- some decisions

    def add_all(
        self,
        row: int,
        times: Sequence[int],
        dues: Iterable[int | None],
        closes: Iterable[int | None],
    ) -> None:
        """Add the decisions of ``row`` and the rows after it, the last ones of ``ids``."""
        due = [NEVER if us is None else us for us in dues]
        ends = [us or end for us, end in zip(closes, due, strict=True)]
        rows = range(row, row + len(times))
        first = 0
        while first < len(rows):
            number, place = divmod(rows[first], ROWS)
            end = min(len(rows), first + ROWS - place)
            block = self._blocks.get(number)
            if block is None:
                block = self._blocks[number] = Block()
            there, part = range(place, place + end - first), slice(first, end)
            block.add_all(there, times[part], due[part], ends[part])
            first = end
        self._n_open += len(rows)
        if self._rows.has_room(len(rows)):
            for row in rows:
                self._rows.add(self._id(row), row)
        else:
            self._rows = RowTable(self._ids, self._arrays().place)

    def get(self, id: bytes) -> Open | None:
        """Returns a decision if it is open."""
        row = self._rows.find(id)
        block = None if row is None else self._blocks.get(row // ROWS)
        if row is None or block is None:
            return None
        k = block.find(row % ROWS)
        if k < 0:
            return None
        _, times, dues, ends, held, flags = block.columns
        return _opened(row, times[k], dues[k], ends[k], held[k], flags[k])

    def close(self, row: int) -> None:
        """Remove the decision of a row, which is open."""
        block, k = self._entry(row)
        self._n_open -= 1
        self.n_held -= not isnan(block.columns.held[k])
        block.close(k)
        if not block.n_open:
            del self._blocks[row // ROWS]
        self._make_rows_suit()

    def get_all(self, ids: Collection[bytes]) -> dict[bytes, Open]:
        """Returns those of the decisions that are open, by id."""
        if not self._are_many(len(ids)):
            found = ((id, self.get(id)) for id in ids)
            return {id: opened for id, opened in found if opened is not None}
        known = [id for id in ids if len(id) == 16]  # the others are of nobody
        rows, opened = self._rows.find_all(known), {}
        for number, at in _parts(rows // ROWS):
            if number not in self._blocks:
                continue
            block = self._blocks[number]
            ks = block.find_all(rows[at] % ROWS)
            at, ks = at[ks >= 0], ks[ks >= 0]
            _, *columns = (np.frombuffer(c, c.typecode)[ks].tolist() for c in block.columns)
            for i, *numbers in zip(at.tolist(), rows[at].tolist(), *columns, strict=True):
                opened[known[i]] = _opened(*numbers)
        return opened

    def close_all(self, rows: Sequence[int]) -> None:
        """Remove the decisions of these rows, which are open, each once."""
        if not self._are_many(len(rows)):
            for row in rows:
                self.close(row)
            return
        all_rows = np.array(rows, np.int64)
        for number, at in _parts(all_rows // ROWS):
            block = self._blocks[number]
            ks = block.find_all(all_rows[at] % ROWS)
            self._n_open -= len(ks)
            self.n_held -= len(ks) - int(np.isnan(np.frombuffer(block.columns.held)[ks]).sum())
            block.close_all(ks)
            if not block.n_open:
                del self._blocks[number]
        self._make_rows_suit()

    def hold(self, row: int, reward: float) -> None:
        """Keep the reward of a decision, which is open, until its window closes."""
        block, k = self._entry(row)
        is_first = isnan(block.columns.held[k])
        block.columns.held[k] = reward
        block.n_waiting -= is_first
        self.n_held += is_first

    def mark_late(self, row: int) -> None:
        """Note that the log holds a reward of a decision, which is open, that came too late."""
        block, k = self._entry(row)
        block.columns.flags[k] = LATE

    def _are_many(self, n: int) -> bool:
        return n >= max(MANY, SEVERAL * len(self._blocks))

    def _make_rows_suit(self) -> None:
        if not self._rows.suits(self._n_open):
            self._rows = RowTable(self._ids, self._arrays().place)

    def _entry(self, row: int) -> tuple[Block, int]:
        block = self._blocks[row // ROWS]
        return block, block.find(row % ROWS)

    # ----------------------------------------------------------------------------- all decisions

    def items(self) -> Iterator[tuple[bytes, Open]]:
        """Yields the id and the content of each, oldest first."""
        for numbers in zip(*(column.tolist() for column in self._arrays()), strict=True):
            yield self._id(numbers[0]), _opened(*numbers)

    def due(self, now: int, most: int | None = None) -> list[bytes]:
        """Returns the ids of decisions whose window has closed, ``most`` of them at most.

        They stay due until they are closed.
        """
        rows: list[int] = []
        for number, block in self._blocks.items():
            if most is not None and len(rows) >= most:
                break
            if block.soonest < now:
                rows += [number * ROWS + place for place in block.over(now)]
        return [self._id(row) for row in rows[:most]]

    def oldest_row(self) -> int | None:
        """Returns the first row whose decision is open; None if none is."""
        for number, block in self._blocks.items():
            return number * ROWS + int(block.arrays().place[0])
        return None

    def first_due(self) -> int | None:
        """Returns when the first window closes; None if none does."""
        first = min((block.soonest for block in self._blocks.values()), default=NEVER)
        return None if first == NEVER else first

    def by_age(self, now: int) -> Histogram:
        """Returns the ages of decisions that wait for a reward, in whole seconds of the clock.

        Only blocks with decisions on both sides of a bound are looked through.
        """
        counts = [0] * (len(AGES) + 1)
        for block in self._blocks.values():
            block.count_by_age(now // SECOND_US, counts)
        return Histogram(AGES, counts)

    def _id(self, row: int) -> bytes:
        return bytes(self._ids[16 * row : 16 * row + 16])

    def _arrays(self) -> Columns:
        """Returns the columns of all open decisions, with rows in the column of places."""
        parts = [Columns(*(np.zeros(0, kind) for kind in TYPES))]
        for number, block in self._blocks.items():
            part = block.arrays()
            parts.append(part._replace(place=part.place.astype(np.int64) + number * ROWS))
        return Columns(*map(np.concatenate, zip(*parts, strict=True)))

    # ------------------------------------------------------------------------------- snapshots

    def arrays(self) -> dict[str, Any]:
        """Returns the arrays that ``restore`` takes, by name."""
        return {f"pending.{name}": column for name, column in self._arrays()._asdict().items()}

    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Go on where a snapshot was taken, also by a version that kept decisions as objects."""
        if "pending" in arrays:
            all_columns = _of_objects(arrays)
        else:
            all_columns = Columns(*(arrays[f"pending.{name}"] for name in Columns._fields))
        rows = all_columns.place
        borders = np.flatnonzero(np.diff(rows // ROWS)) + 1
        parts = [np.split(column, borders) for column in all_columns]
        for part in map(Columns._make, zip(*parts, strict=True)) if len(rows) else ():
            block = self._blocks[int(part.place[0]) // ROWS] = Block()
            block.fill(part._replace(place=part.place % ROWS))
        self._n_open = len(rows)
        self.n_held = self._n_open - sum(block.n_waiting for block in self._blocks.values())
        self._rows = RowTable(self._ids, rows)


def _parts(numbers: Integers) -> Iterator[tuple[int, Integers]]:
    """Yields each number with the places at which it stands."""
    order = np.argsort(numbers, kind="stable")
    borders = np.flatnonzero(np.diff(numbers[order])) + 1
    for part in np.split(order, borders):
        if len(part):
            yield int(numbers[part[0]]), part


def _opened(row: int, time: int, due: int, ends: int, held: float, flags: int) -> Open:
    return Open(
        row,
        time,
        None if due == NEVER else due,
        None if ends == due else ends,
        None if isnan(held) else held,
        flags == LATE,
    )


def _of_objects(arrays: Mapping[str, Any]) -> Columns:
    """Returns the columns of decisions that a snapshot has as objects; version 0.1: in one part."""
    encoded, start = arrays["pending"].tobytes(), 0
    found: list[tuple[float | None, ...]] = []
    for length in arrays.get("pending_parts", [len(encoded)]):
        for p in _pending.decode(encoded[start : start + int(length)]).values():
            due, held = (NEVER if p.due is None else p.due), (nan if p.held is None else p.held)
            found.append((p.row, p.time, due, p.closes or due, held, LATE if p.late else 0))
        start += int(length)
    kinds = ("q", *TYPES[1:])
    columns = zip(*found, strict=True) if found else [[]] * len(kinds)
    return Columns(*(np.array(c, kind) for c, kind in zip(columns, kinds, strict=True)))
