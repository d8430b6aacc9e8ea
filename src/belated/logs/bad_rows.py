"""Rows of a log that cannot be used: counted by reason, shown with their lines, put aside."""

import csv
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from belated.core.arguments import shown
from belated.core.wording import counted

SHOWN = 3  # rows for each reason


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
        The CSV file in which all of them are written, anew with every log; None for no file.
    """

    def __init__(self, aside: Path | None = None) -> None:
        self.aside = aside
        self.counts: Counter[str] = Counter()  # rows by reason
        self.first: list[Bad] = []  # of each reason the first few
        self._new: list[Bad] = []
        if aside is not None:
            aside.unlink(missing_ok=True)

    def add(self, lines: Iterable[int], reason: str, values: Iterable[Any]) -> None:
        """Take in rows that are bad for one reason; ``values`` are the cells to blame."""
        bad = [
            Bad(int(line), reason, "" if value is None else shown(value))
            for line, value in zip(lines, values, strict=True)
        ]
        self.first += bad[: max(0, SHOWN - self.counts[reason])]
        self.counts[reason] += len(bad)
        self._new += bad

    def flush(self) -> None:
        """Write the rows that were added since the last call into the side file, by line."""
        if self._new and self.aside is not None:
            is_new = not self.aside.exists()
            with self.aside.open("a", encoding="utf-8", newline="") as file:
                writer = csv.writer(file)
                if is_new:
                    writer.writerow(Bad._fields)
                writer.writerows(sorted(self._new))
        self._new = []

    @property
    def total(self) -> int:
        """Returns the number of bad rows."""
        return self.counts.total()

    @property
    def words(self) -> str:
        """Returns how many rows were left out, for which reasons, and where they are."""
        if not self.total:
            return "none"
        reasons = "; ".join(f"{n:,}: {reason}" for reason, n in self.counts.items())
        where = "" if self.aside is None else f". All of them are in {self.aside}"
        return f"{counted(self.total, 'row')} ({reasons}){where}"

    def facts(self) -> dict[str, Any]:
        """Returns the same as data, with the first rows of each reason."""
        return {
            "rows_left_out": self.words,
            "bad_rows": dict(self.counts),
            "first_bad_rows": [bad._asdict() for bad in sorted(self.first)],
            "bad_file": None if self.aside is None or not self.total else str(self.aside),
        }

    def refuse(self) -> None:
        """Raise where there are bad rows: what ``--strict`` asks for."""
        if self.total:
            reasons = "; ".join(f"{reason}: {n:,}" for reason, n in self.counts.items())
            where = "" if self.aside is None else f"; they are in {self.aside}"
            line = min(bad.line for bad in self.first)
            raise ValueError(
                f"{counted(self.total, 'bad row')}, the first in line {line:,} ({reasons}){where}"
            )
