"""A log of decisions and rewards, read in chunks of columns and checked row by row.

>>> import pandas as pd
>>> noon, one = "2026-03-01T12:00:00Z", "2026-03-01T13:00:00Z"
>>> frame = pd.DataFrame({"ts": [noon, noon], "reward_time": [one, None], "reward": [1.0, None]})
>>> log = open_log(frame)
>>> log.spelled
'time=ts,reward=reward,reward-time=reward_time'
>>> (chunk,) = log.chunks(BadRows())
>>> (chunk.returned - chunk.decided)[0] / 3.6e9, chunk.reward.tolist()
(np.float64(1.0), [1.0, nan])
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import wrong
from belated.core.times import DAY, OLDEST
from belated.core.types import Integers, Vector
from belated.ledger.replica import system_clock
from belated.logs import values
from belated.logs.bad_rows import OURS, BadRows
from belated.logs.column_names import guessed_columns, spelled
from belated.logs.hashes import hashed
from belated.logs.seen_ids import SeenIds
from belated.logs.sources import Batch, Source, open_source
from belated.logs.values import PENDING

NO_TIME = "a reward without a time (with --loop conversion, a 0 without a time is silence)"
TEXTS = ("action", "segment", "subject")


class Chunk(NamedTuple):
    """Rows of a log, as columns; one element per decision."""

    line: Integers  # as an editor counts lines; in Parquet, frames and ledgers numbers from 1
    decided: Integers  # microseconds since 1970; 0 where the log has no times
    returned: Integers  # microseconds since 1970; PENDING where no reward has come
    reward: Vector  # NaN where no reward has come
    propensity: Vector  # NaN where the log has none
    action: Any  # texts; None where the log has no such column
    segment: Any  # the same
    subject: Any  # the same; None, too, where nobody asked for it
    context: dict[str, Any]  # further columns, by name: numbers, or texts


class Log(NamedTuple):
    """A log whose columns are known."""

    source: Source
    columns: dict[str, str]  # by field
    needs: Collection[str]  # fields that every row must have

    @property
    def spelled(self) -> str:
        """Returns the columns in the words of ``--map``."""
        return spelled(self.columns)

    def unused(self, context: Sequence[str] = ()) -> list[str]:
        """Returns the columns that are not read."""
        read = {*self.columns.values(), *context, *OURS}
        return [name for name in self.source.names if name not in read]

    def chunks(
        self, bad: BadRows, *, loop: str = "explicit", context: Sequence[str] = ()
    ) -> Iterator[Chunk]:
        """Yields the good rows; the others go to ``bad``. A log can be read once.

        Parameters
        ----------
        bad
            Collects the bad rows.
        loop
            With ``"conversion"`` a reward of 0 without a time is silence: no conversion so far.
        context
            Names of further columns.
        """
        for name in context:
            if name not in self.source.names:
                columns = f"one of the columns {', '.join(self.source.names)}"
                raise wrong("--context", name, columns)
        wanted = list(dict.fromkeys([*self.columns.values(), *context]))
        check = _Check(self.columns, self.needs, bad, loop)
        try:
            for batch in self.source.batches(wanted):
                chunk = check.chunk(batch, context)
                bad.n_good += chunk.line.size
                bad.flush(self.source.names, batch.whole)
                yield chunk
        finally:
            bad.n_cancelled = self.source.n_cancelled
            bad.finish()


def open_log(
    source: Any,
    *,
    columns: str = "",
    format: str | None = None,
    bandit: str | None = None,
    needs: Collection[str] = ("time", "reward-time"),
    subject: bool = False,
) -> Log:
    """Returns a log whose columns were found; nothing but its beginning has been read.

    Parameters
    ----------
    source
        A file (CSV, Parquet, JSON lines), the URL of a ledger, or a data frame.
    columns
        As ``--map``: ``time=...,reward=...,reward-time=...``; what is not named is guessed.
    format
        Of a file: csv, parquet, jsonl or dsjson; default by its name.
    bandit
        Of a ledger; default the only one.
    needs
        Fields without which the log is refused.
    subject
        Whether to read whose decisions they are, if the log says it.
    """
    opened = open_source(source, format, bandit)
    found = guessed_columns(opened.names, columns, needs)
    if not subject:
        found.pop("subject", None)
    return Log(opened, found, needs)


class _Check:
    """Turns batches into chunks, and tells good rows from bad ones."""

    def __init__(
        self, columns: dict[str, str], needs: Collection[str], bad: BadRows, loop: str
    ) -> None:
        self.columns, self.needs, self.bad = columns, needs, bad
        self.is_conversion = loop == "conversion"
        self.seen = SeenIds()
        self.zoned: bool | None = None  # whether the first time of the log says its zone
        self.latest = system_clock() + DAY

    def chunk(self, batch: Batch, context: Sequence[str]) -> Chunk:
        """Returns the good rows of a batch."""
        for line, problem in batch.broken:
            self.bad.add([line], "the row cannot be read", [problem])
        cells = {name: _whole(batch.table.column(name)) for name in batch.table.column_names}
        rows = _Rows(batch.lines, self.bad)
        decided, returned, reward = self._times_and_rewards(cells, rows)
        propensity = self._propensities(cells, rows)
        texts: dict[str, Any] = dict.fromkeys(TEXTS)
        for field in TEXTS:
            if field in self.columns:
                texts[field] = values.names(cells[self.columns[field]])
                if field in self.needs:
                    rows.refuse(values.empty(texts[field]), f"no {field}", texts[field])
        self._refuse_duplicates(cells, rows)
        further = {name: _of_context(cells[name]) for name in context}
        use = rows.good
        return Chunk(
            batch.lines[use],
            decided[use],
            returned[use],
            reward[use],
            propensity[use],
            **{field: None if text is None else text[use] for field, text in texts.items()},
            context={name: column[use] for name, column in further.items()},
        )

    def _times_and_rewards(
        self, cells: dict[str, Any], rows: "_Rows"
    ) -> tuple[Integers, Integers, Vector]:
        """Returns when each decision was made, when its reward came, and the reward."""
        decided = self._times("time", cells, rows)
        rows.refuse_cells(decided == PENDING, "no time", cells, self.columns.get("time"))
        has_times = "reward-time" in self.columns
        returned = self._times("reward-time", cells, rows) if has_times else None
        if "reward" not in self.columns:  # a time without more is a conversion
            returned = np.full(decided.size, PENDING) if returned is None else returned
            reward = np.where(returned == PENDING, np.nan, 1.0)
        else:
            column = self.columns["reward"]
            reward, unreadable = values.numbers(cells[column])
            came = ~np.isnan(reward) if returned is None else returned != PENDING
            wrong = unreadable | np.isinf(reward) | (came & np.isnan(reward))
            rows.refuse_cells(wrong, "the reward is not a finite number", cells, column)
            if returned is None:
                returned = np.where(came, decided, PENDING)
            elif self.is_conversion:
                reward = np.where(~came & (reward == 0.0), np.nan, reward)
            no_time = ~np.isnan(reward) & (returned == PENDING)
            rows.refuse_cells(no_time, NO_TIME, cells, column)
        early = (returned != PENDING) & (returned < decided)
        rows.refuse_cells(
            early, "the reward is before the decision", cells, self.columns.get("reward-time")
        )
        return decided, returned, reward

    def _times(self, field: str, cells: dict[str, Any], rows: "_Rows") -> Integers:
        column = self.columns.get(field)
        if column is None:
            return np.zeros(len(rows.good), np.int64)
        found, unreadable, zoned = values.times(cells[column])
        there = found != PENDING
        if self.zoned is None and there.any():
            self.zoned = bool(zoned[np.argmax(there)])
        rows.refuse_cells(unreadable, f"the {field} cannot be read", cells, column)
        first = "a zone" if self.zoned else "no zone"
        mixed = there & (zoned != self.zoned)
        rows.refuse_cells(mixed, f"mixed zones: the first time has {first}", cells, column)
        odd = there & ((found < OLDEST) | (found > self.latest))
        rows.refuse_cells(odd, f"the {field} is before 2000 or in the future", cells, column)
        return found

    def _propensities(self, cells: dict[str, Any], rows: "_Rows") -> Vector:
        column = self.columns.get("propensity")
        if column is None:
            return np.full(len(rows.good), np.nan)
        found, unreadable = values.numbers(cells[column])
        fits = (found > 0.0) & (found <= 1.0)
        missing = np.isnan(found) & ~unreadable & ("propensity" not in self.needs)
        rows.refuse_cells(~(fits | missing), "the propensity is not in (0, 1]", cells, column)
        return found

    def _refuse_duplicates(self, cells: dict[str, Any], rows: "_Rows") -> None:
        """Refuse good rows whose id an earlier good row has."""
        column = self.columns.get("id")
        if column is None:
            return
        ids = values.texts(cells[column])
        use = np.flatnonzero(rows.good & ids.is_valid().to_numpy(zero_copy_only=False))
        again = np.zeros(len(ids), bool)
        again[use] = self.seen.again(hashed(ids)[use])
        rows.refuse_cells(again, "the id was met before", cells, column)


class _Rows:
    """The rows of a batch that are still good; a row is refused for one reason."""

    def __init__(self, lines: Integers, bad: BadRows) -> None:
        self.lines, self.bad = lines, bad
        self.good = np.ones(lines.size, bool)

    def refuse_cells(
        self, wrong: Any, reason: str, cells: dict[str, Any], column: str | None
    ) -> None:
        """Refuse rows; the cells of ``column`` are to blame."""
        refused = np.flatnonzero(wrong & self.good)
        if refused.size:
            blamed = [None] * refused.size
            if column is not None:
                blamed = cells[column].take(refused).to_pylist()
            self.bad.add(self.lines[refused], reason, blamed)
            self.good[refused] = False

    def refuse(self, wrong: Any, reason: str, blamed: Any) -> None:
        """Refuse rows; their elements of ``blamed`` are to blame."""
        refused = np.flatnonzero(wrong & self.good)
        if refused.size:
            self.bad.add(self.lines[refused], reason, blamed[refused])
            self.good[refused] = False


def _whole(column: Any) -> Any:
    """Returns a column in one piece, and as plain values where it is coded by a dictionary."""
    whole = column.combine_chunks()
    return whole.dictionary_decode() if hasattr(whole, "dictionary_decode") else whole


def _of_context(column: Any) -> Any:
    """Returns numbers where all cells are numbers, else texts."""
    found, unreadable = values.numbers(column)
    return values.names(column) if unreadable.any() else found
