"""Rows of a log that cannot be used: counted by reason, shown with their lines, put aside.

Rows that are as they should be, and yet not used, are counted beside them.
"""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from belated.core.arguments import shown
from belated.core.files import replacing
from belated.core.side_files import csv_cell, refuse_source
from belated.core.wording import counted

SHOWN = 3  # rows for each reason
NO_ROWS = "log: expected decisions, and it has no rows"
OURS = ("bad_line", "bad_reason", "bad_value")  # columns of the side file before those of the log


class Bad(NamedTuple):
    """A row that was left out, and why."""

    line: int
    reason: str
    value: str = ""


class BadRows:
    """Collects the bad rows of one log.

    Parameters
    ----------
    aside
        The CSV file in which all of them are written, whole; None for no file. It takes its place
        when the log has been read, and only where there are bad rows.
    source
        The log, which ``aside`` must not be.
    """

    def __init__(self, aside: Path | None = None, source: Any = None) -> None:
        if aside is not None:
            refuse_source("--bad", aside, source)
        self.aside = aside
        self.counts: Counter[str] = Counter()  # rows by reason
        self.n_good = 0  # rows that were not left out
        self.n_after_now = 0  # of these, decisions later than --now, which are not used
        self.n_cancelled = 0  # decisions of a ledger that were not carried out, which are no rows
        self.first: list[Bad] = []  # of each reason the first few
        self._new: list[Bad] = []
        self._writer: Any = None  # of the side file, which has its name only when it is whole
        self._open = ExitStack()

    def add(self, lines: Iterable[int], reason: str, values: Iterable[Any]) -> None:
        """Take in rows that are bad for one reason; ``values`` are the cells to blame."""
        bad = [
            Bad(int(line), reason, "" if value is None else shown(value))
            for line, value in zip(lines, values, strict=True)
        ]
        self.first += bad[: max(0, SHOWN - self.counts[reason])]
        self.counts[reason] += len(bad)
        self._new += bad

    def flush(
        self,
        columns: Sequence[str] = (),
        whole: Callable[[list[int]], Sequence[Sequence[Any]]] | None = None,
    ) -> None:
        """Write down the rows that were added since the last call, by line.

        Parameters
        ----------
        columns
            Those of the log.
        whole
            Gets lines and returns all cells of these rows, so that they can be mended.
        """
        if self._new and self.aside is not None:
            if self._writer is None:
                file = self._open.enter_context(replacing(self.aside))
                text = io.TextIOWrapper(file, encoding="utf-8", newline="")
                self._open.callback(text.detach)  # which flushes; the file has further steps to go
                self._writer = csv.writer(text)
                self._writer.writerow([*OURS, *columns])
            bad = sorted(self._new)
            rows: Sequence[Sequence[Any]] = [()] * len(bad)
            if whole is not None:
                rows = whole([row.line for row in bad])
            self._writer.writerows(
                [*why, *map(csv_cell, cells)] for why, cells in zip(bad, rows, strict=True)
            )
        self._new = []

    def finish(self) -> None:
        """Put the side file in its place: no more of the log is read."""
        self._open.close()
        self._writer = None

    @property
    def total(self) -> int:
        """Returns the number of bad rows."""
        return self.counts.total()

    @property
    def warning(self) -> str:
        """Returns a sentence where most of the log was left out; else ""."""
        if self.total <= self.n_good:
            return ""
        rows = self.total + self.n_good
        return (
            f"Most of the log was left out: {self.total:,} of {counted(rows, 'row')}. What follows "
            f"is of the other {self.n_good:,}."
        )

    @property
    def words(self) -> str:
        """Returns how many rows were left out, for which reasons, and where they are."""
        if not self.total:
            return "none"
        reasons = "; ".join(f"{n:,}: {reason}" for reason, n in self.counts.items())
        where = "" if self.aside is None else f". All of them are in {self.aside}"
        return f"{counted(self.total, 'row')} ({reasons}){where}"

    @property
    def not_used(self) -> str:
        """Returns how many decisions were not used, though nothing is wrong with them."""
        counts = ((self.n_after_now, "made after --now"), (self.n_cancelled, "cancelled"))
        return ", ".join(f"{n:,} {what}" for n, what in counts if n) or "none"

    def facts(self) -> dict[str, Any]:
        """Returns the same as data, with the first rows of each reason."""
        return {
            "warning": self.warning,
            "rows_left_out": self.words,
            "bad_rows": dict(self.counts),
            "first_bad_rows": [bad._asdict() for bad in sorted(self.first)],
            "decisions_not_used": self.not_used,
            "decisions_after_now": self.n_after_now,
            "cancelled_decisions": self.n_cancelled,
            "bad_file": None if self.aside is None or not self.total else str(self.aside),
        }

    @contextmanager
    def told_in_errors(self) -> Iterator[None]:
        """Adds the rows that were left out to errors raised inside: they may be the reason."""
        try:
            yield
        except ValueError as error:
            if not self.total:
                raise
            raise ValueError(f"{error}. Rows left out of the log: {self.words}") from error

    def refuse(self) -> None:
        """Raises where there are bad rows: what ``--strict`` asks for."""
        if self.total:
            reasons = "; ".join(f"{reason}: {n:,}" for reason, n in self.counts.items())
            where = "" if self.aside is None else f"; they are in {self.aside}"
            line = min(bad.line for bad in self.first)
            raise ValueError(
                f"{counted(self.total, 'bad row')}, the first in line {line:,} ({reasons}){where}"
            )
