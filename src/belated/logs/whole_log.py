"""A log that fits into memory, as one array per column; actions are numbers."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import wrong
from belated.core.times import iso
from belated.core.types import Integers, Matrix, Vector
from belated.core.wording import duration
from belated.logs.bad_rows import NO_ROWS, BadRows
from belated.logs.chunks import Chunk
from belated.logs.values import PENDING

DUE = 30  # rewards of a stretch of time; that none comes in the next as long is no luck
LEVELS = 20  # values of a text column with a feature of their own: the most frequent ones


class WholeLog(NamedTuple):
    """All good rows of a log, one element per decision."""

    decided: Integers  # as in ``Chunk``
    returned: Integers
    reward: Vector
    propensity: Vector
    action: Integers  # places in ``names``
    names: list[str]  # of actions, in alphabetical order
    context: dict[str, Any]  # columns of numbers, or of texts
    now: int  # when the log was written: its latest time, in microseconds since 1970
    subject: Integers | None = None  # numbers from 0; None: nobody says whose a decision is
    has_delays: bool = True  # False: the log has no column for one of both times

    @property
    def age(self) -> Vector:
        """The age of each decision in seconds."""
        return (self.now - self.decided) / 1e6

    @property
    def waited(self) -> Vector:
        """The seconds that each reward took, or that its decision has waited."""
        until = np.where(self.returned == PENDING, self.now, self.returned)
        return (until - self.decided) / 1e6

    def silent_end(self) -> str:
        """Returns a warning where rewards stop well before the end of the log; else ""."""
        came = self.returned[self.returned != PENDING]
        if not came.size or not self.decided.any():
            return ""
        last = int(came.max())
        before = int((came > last - (self.now - last)).sum())
        if before < DUE:
            return ""
        silent = duration((self.now - last) / 1e6)
        return (
            f"no reward has come in the last {silent}, and {before:,} came in as long before that. "
            "If rewards are handed in from time to time, those of the end are missing, and what "
            f"follows is off: say --now with the time of the last delivery, such as {iso(last)}."
        )

    def as_of(self, now: int) -> "WholeLog":
        """Returns the log as it was at a time: later decisions and rewards are not known yet."""
        known = self.decided <= now
        if not known.any():
            first = iso(int(self.decided.min()))
            raise wrong("now", iso(now), f"a time after the first decision, {first}")
        later = self.returned[known] > now
        return self._replace(
            decided=self.decided[known],
            returned=np.where(later, PENDING, self.returned[known]),
            reward=np.where(later, np.nan, self.reward[known]),
            propensity=self.propensity[known],
            action=self.action[known],
            context={name: column[known] for name, column in self.context.items()},
            now=now,
            subject=None if self.subject is None else self.subject[known],
        )


def gathered(chunks: Iterable[Chunk], bad: BadRows) -> WholeLog:
    """Returns the rows of all chunks, which give their bad rows to ``bad``."""
    known: dict[str, int] = {}
    parts, codes, columns, subjects = [], [], [], []
    for chunk in chunks:
        numbers = (known.setdefault(name, len(known)) for name in chunk.action)
        codes.append(np.fromiter(numbers, np.int64, len(chunk.action)))
        parts.append((chunk.decided, chunk.returned, chunk.reward, chunk.propensity))
        columns.append(chunk.context)
        subjects.append(chunk.subject)
    if not known:
        bad.refuse()
        raise ValueError(NO_ROWS)
    names = sorted(known)
    places = {name: place for place, name in enumerate(names)}
    place = np.array([places[name] for name in known])  # of the k-th name that was met
    context = {name: _joined([part[name] for part in columns]) for name in columns[0]}
    decided, returned, reward, propensity = (np.concatenate(c) for c in zip(*parts, strict=True))
    action = place[np.concatenate(codes)]
    now = int(max(decided.max(), returned.max()))
    subject = None if subjects[0] is None else _numbered(np.concatenate(subjects))
    return WholeLog(decided, returned, reward, propensity, action, names, context, now, subject)


def _numbered(subjects: Any) -> Integers:
    """Returns a number from 0 for each subject; a decision without one has a number of its own."""
    import pandas as pd

    numbers = pd.factorize(subjects)[0].astype(np.int64)
    nobody = np.flatnonzero(numbers < 0)
    numbers[nobody] = numbers.max() + 1 + np.arange(len(nobody))
    return numbers


def _joined(parts: list[Any]) -> Any:
    """Returns one column; it is text if any of its parts is."""
    if any(part.dtype == object for part in parts):
        parts = [part if part.dtype == object else part.astype(str) for part in parts]
    return np.concatenate(parts)


def context_features(context: dict[str, Any], n: int) -> Matrix:
    """Returns features of contexts for a linear model, with a constant.

    Numbers become their distance from the mean in standard deviations, 0 where they are missing. A
    text becomes one feature for each of its 20 most frequent values.
    """
    columns = [np.ones(n)]
    for column in context.values():
        if column.dtype == object:
            texts = column.astype(str)
            levels, sizes = np.unique(texts, return_counts=True)
            frequent = levels[np.argsort(-sizes, kind="stable")[:LEVELS]]
            columns += [(texts == level).astype(np.float64) for level in frequent]
        else:
            there = np.isfinite(column)
            numbers = np.where(there, column, column[there].mean() if there.any() else 0.0)
            spread = float(numbers.std())
            if spread > 0.0:
                columns.append((numbers - numbers.mean()) / spread)
    return np.column_stack(columns)
