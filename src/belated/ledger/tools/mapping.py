"""Rows of somebody's log as decisions and rewards of a bandit."""

import math
from array import array
from collections import Counter
from collections.abc import Sequence, Set
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
import numpy as np

from belated.core.arguments import NORM_ROUNDING, any_number, wrong
from belated.core.times import DAY, microseconds, plausible
from belated.features import Features, UnmatchedCounts
from belated.learner import files
from belated.ledger.events import IMPORTED, Decided, Draft, Kind
from belated.ledger.ids import from_text, time_of, to_text
from belated.ledger.tools.reading import Bandit
from belated.ledger.tools.tables import Row, is_missing, parse_map
from belated.ledger.vectors import as_sparse, packed

FIELDS = ("id", "time", "action", "reward", "reward-time", "propensity", "subject")
TEXTS = ("id", "action", "subject")
_VERSION, _VARIANT = 8 << 76, 2 << 62  # RFC 9562: for an id made by a rule of our own


class Mapping(NamedTuple):
    """The meaning of each column of a user's log."""

    columns: dict[str, str]  # column by field
    vector: tuple[str, ...] = ()  # the features of the action that was played
    context: tuple[str, ...] = ()  # empty: the columns that the bandit's features name

    def texts(self) -> frozenset[str]:
        """Returns the columns that hold names: 007 and 7 are different names."""
        return frozenset(self.columns[field] for field in TEXTS)

    def check(self, columns: list[str] | None) -> None:
        """Raises if a column is missing."""
        named = [*self.columns.values(), *self.vector, *self.context]
        given = [n for f, n in self.columns.items() if n != default_column(f)]
        needed = {self.columns["id"], self.columns["time"], *given, *self.vector, *self.context}
        for column in named:
            if columns is not None and column in needed and column not in columns:
                raise wrong("--map", column, f"one of the columns {', '.join(columns)}")


def default_column(field: str) -> str:
    """Returns the column of a field that is not mapped."""
    return field.replace("-", "_")


def parse_mapping(text: str, vector: str, context: str) -> Mapping:
    """Returns the mapping that ``--map``, ``--vector`` and ``--context`` describe."""
    columns = {field: default_column(field) for field in FIELDS} | parse_map(text, FIELDS)

    def listed(names: str) -> tuple[str, ...]:
        return tuple(name.strip() for name in names.split(",") if name.strip())

    return Mapping(columns, listed(vector), listed(context))


class Imported(NamedTuple):
    """The content of one row: a decision, and its reward if it has one."""

    line: int
    draft: Draft
    reward: float | None
    reward_time: int


class Bad(NamedTuple):
    """A row that cannot be imported, and why."""

    line: int
    reason: str


class _Cells(NamedTuple):
    """A row whose cells are all understood, before its vector is made."""

    line: int
    name: str
    time: int
    action: str
    propensity: float | None
    reward: float | None
    reward_time: int
    subject: str
    row: dict[str, Any]


class Translator:
    """Makes decisions from rows.

    Parameters
    ----------
    name, bandit
        The bandit into which to import.
    mapping
        The meaning of each column of a user's log.
    now
        The present time; no time in the log can be much later.
    """

    def __init__(self, name: str, bandit: Bandit, mapping: Mapping, now: int) -> None:
        self.name, self.spec, self.actions = name, bandit.spec, bandit.actions
        self.mapping, self.latest = mapping, now + DAY
        self.regime, self.layout = bandit.told.regime, bandit.told.layout
        self.support = files.rebuild("FAMILIES", self.spec.family, []).support
        self._is_sparse, self._bound = self.spec.is_sparse, self.spec.bound
        self.places = {action: place for place, action in enumerate(self.actions.listed)}
        self.unmatched = UnmatchedCounts(by_row=True)  # features of rows that became zeros
        self.actions.count_in(self.unmatched)
        self.retired: Counter[str] = Counter()  # rows by action, where none is registered
        self._used = self._used_columns()
        self._columns: set[str] = set()  # columns of the rows seen so far
        self._latest: Set[str] = self._columns  # those of the last row
        self._fields = [mapping.columns[field] for field in FIELDS]

    def columns_not_used(self) -> list[str]:
        """Returns the columns of the rows that nothing uses, such as a misspelt one."""
        mapping, features = self.mapping, self.actions.features
        meant = {*mapping.columns.values(), *mapping.vector, *self._used}
        return sorted(self._columns - meant - {*getattr(features, "ignore", ())})

    def _used_columns(self) -> tuple[str, ...]:
        """Returns the columns that make up the context."""
        features = self.actions.features
        if features is None and self.mapping.context:
            raise wrong("--context", ",".join(self.mapping.context), "a bandit with features")
        if self.mapping.vector or features is None:
            return self.mapping.context
        if not isinstance(features, Features):
            raise ValueError(
                f"features of {self.name!r}: the log does not hold them; name the columns of the "
                "finished vector with --vector"
            )
        return self.mapping.context or tuple(map(str, features.columns))

    def translate(self, rows: Sequence[Row]) -> tuple[list[Imported], list[Bad]]:
        """Returns the decisions of these rows, and the rows that are not decisions."""
        for row in rows:
            if row.cells.keys() != self._latest:  # the rows of a table have the same columns
                self._latest = row.cells.keys()
                self._columns.update(self._latest)
        understood, bad = [], []
        for row in rows:
            try:
                understood.append(self._cells(row))
            except (ValueError, TypeError) as error:
                bad.append(Bad(row.line, str(error)))
        imported = []
        for cells, x in zip(understood, self._vectors(understood), strict=True):
            if isinstance(x, str):
                bad.append(Bad(cells.line, x))
            else:
                draft = self._draft(cells, x)
                if cells.action not in self.places and not self.mapping.vector:
                    self.retired[cells.action] += 1
                imported.append(Imported(cells.line, draft, cells.reward, cells.reward_time))
        return imported, bad

    def _cells(self, row: Row) -> _Cells:
        if row.problem:
            raise ValueError(row.problem)
        cells = row.cells
        name, decided, action, reward, returned, propensity, subject = [
            None if is_missing(value) else value for value in map(cells.get, self._fields)
        ]
        if name is None:
            raise wrong("id", cells.get(self._fields[0]), "a name of the decision")
        if action is None and not self.mapping.vector:
            raise wrong("action", None, "the name of the action that was played, or --vector")
        time = reward_time = plausible("time", microseconds("time", decided), self.latest)
        if returned is not None:
            reward_time = plausible(
                "reward-time", microseconds("reward-time", returned), self.latest
            )
            if reward_time < time:
                raise wrong("reward-time", returned, "a time after the decision")
        return _Cells(
            row.line,
            str(name),
            time,
            "0" if action is None else str(action),
            _number("propensity", propensity, 1.0),
            self._reward(reward),
            reward_time,
            str(subject or ""),
            cells,
        )

    def _reward(self, value: Any) -> float | None:
        reward = _number("reward", value)
        if reward is not None and not self.support.contains(reward):
            raise wrong("reward", value, str(self.support))
        return reward

    def _vectors(self, rows: list[_Cells]) -> list[bytes | str]:
        """Returns the vector of each row, or the reason why it has none."""
        if self.mapping.vector:
            return [_or_reason(self._given_vector, row) for row in rows]
        if self.actions.features is None:
            return [_or_reason(self._registered_vector, row) for row in rows]
        try:  # all at once is much quicker, but reports only the first error
            actions, contexts = zip(*map(self._action_and_context, rows), strict=True)
            matrix = self.actions.features.transform(list(actions), list(contexts))
            return [x.tobytes() for x in matrix]
        except (ValueError, TypeError):
            return [_or_reason(self._transformed_vector, row) for row in rows]

    def _given_vector(self, row: _Cells) -> bytes:
        columns, dim = self.mapping.vector, self.spec.dim
        values: Any = [row.row.get(column) for column in columns]
        if len(columns) == 1 and hasattr(values[0], "__len__"):
            (values,) = values  # a column of lists
        if len(values) != dim:
            raise wrong("--vector", values, f"{dim} numbers")
        x = array("d", values)
        if not math.hypot(*x) <= self._bound * NORM_ROUNDING:
            raise wrong("--vector", values, f"finite numbers, of norm {self._bound:g} at most")
        return x.tobytes()

    def _registered_vector(self, row: _Cells) -> bytes:
        if row.action not in self.places:
            raise wrong("action", row.action, "a registered action, or --vector")
        return self.actions.matrix([row.action], None).tobytes()

    def _transformed_vector(self, row: _Cells) -> bytes:
        action, context = self._action_and_context(row)
        return self.actions.vectors([action], context).tobytes()

    def _action_and_context(self, row: _Cells) -> tuple[dict[str, Any], dict[str, Any]]:
        action = self.actions.listed.get(row.action, {})
        return action, self._context(row, action)

    def _context(self, row: _Cells, action: dict[str, Any]) -> dict[str, Any]:
        return {
            column: row.row[column]
            for column in self._used
            if column not in action and not is_missing(row.row.get(column))
        }

    def _draft(self, row: _Cells, x: bytes) -> Draft:
        registered = row.action in self.places
        action = self.actions.listed[row.action] if registered else {}
        context = self._context(row, action if isinstance(action, dict) else {})
        id = decision_id(self.name, row.name, row.time)
        if self._is_sparse:
            x = packed(as_sparse(np.frombuffer(x)[np.newaxis]), 0, len(x) // 8)
        body = Decided(
            x,
            row.action,
            self.places.get(row.action, 0),
            row.propensity,
            0,  # no model of ours had a part in it
            IMPORTED,
            math.nan,
            0.0,
            math.nan,
            msgspec.json.encode(context) if context else b"",
            names=None if registered else (row.action,),
            request="" if to_text(id) == row.name else row.name,
            subject=row.subject,
            regime=self.regime,
            layout=self.layout,
        )
        due, closes = self.spec.window_at(row.time)
        return Draft(
            Kind.DECIDED,
            self.name,
            id,
            row.time,
            due=due,
            closes=closes,
            combine=self.spec.combine,
            body=msgspec.msgpack.encode(body),
            subject=row.subject,
        )


def _number(name: str, value: Any, largest: float | None = None) -> float | None:
    if value is None:
        return None
    expected = "a number" if largest is None else f"a number above 0, {largest:g} at most"
    try:
        number = any_number(value)
    except (TypeError, ValueError, OverflowError):
        raise wrong(name, value, expected) from None
    if largest is not None and not 0.0 < number <= largest:
        raise wrong(name, value, expected)
    return number


def _or_reason(vector_of: Any, row: _Cells) -> bytes | str:
    try:
        return vector_of(row)
    except (ValueError, TypeError) as error:
        return str(error)


def decision_id(bandit: str, name: str, time: int) -> bytes:
    """Returns the id of an imported decision, the same for the same name, and sorted by time.

    An id made by belated stays the same. Any other name is hashed together with the bandit's name,
    so that a log can be imported into two bandits.

    >>> decision_id("shop", "order 17", 1_700_000_000_000_000).hex()
    '018bcfe5680084638767ae2987a41dc7'
    """
    given = from_text(name)
    if given is not None and given[6] >> 4 == 7 and abs(time_of(given) - time) <= DAY:
        return given
    hashed = int.from_bytes(blake2b(f"{bandit}\0{name}".encode(), digest_size=10).digest(), "big")
    tail = hashed & ~(15 << 76) & ~(3 << 62)
    return (time // 1000 << 80 | _VERSION | _VARIANT | tail).to_bytes(16, "big")
