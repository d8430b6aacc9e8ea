"""A batch of events as moves for the learner and rows for the statistics."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from belated.model.steps import DECIDE, LEARN
from belated.monitoring.statistics import Statistics


@dataclass(slots=True)
class Plan:
    """Moves of ``fold_step`` that wait to be made together."""

    moves: list[int] = field(default_factory=list)
    xs: list[bytes] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)  # of xs; none where nothing is forgotten
    rows: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    rewarded: int = -1  # the move that brought the last reward of the present transaction

    def decide(self, rows: Sequence[int], xs: Iterable[bytes]) -> None:
        """Plan to take in decisions."""
        self.xs += xs
        self._add(DECIDE, rows, [0.0] * len(rows))

    def learn(self, rows: Sequence[int], rewards: Iterable[float], move: int = LEARN) -> None:
        """Plan to take in rewards."""
        self._add(move, rows, rewards)
        self.rewarded = len(self.moves) - 1 if rows else self.rewarded

    def _add(self, move: int, rows: Sequence[int], rewards: Iterable[float]) -> None:
        self.moves += [move] * len(rows)
        self.rows += rows
        self.rewards += rewards
        self.last += [0] * len(rows)

    def end_transaction(self) -> None:
        """Let the learner learn the rewards of this transaction together."""
        if self.rewarded >= 0:
            self.last[self.rewarded] = 1
            self.rewarded = -1


@dataclass(slots=True)
class Noted:
    """Rows of arguments that the statistics are given at the end of a batch.

    Before they are given, rows of the history are exchanged for what was played there.
    """

    decided: list[tuple[bytes, int, str, float | None, float | None]] = field(default_factory=list)
    returned: list[tuple[bytes, int, int, int, float]] = field(default_factory=list)
    expired: list[tuple[bytes, int, int, int]] = field(default_factory=list)
    cancelled: list[tuple[bytes, int, int]] = field(default_factory=list)
    revised: list[tuple[int, int, float | None, float]] = field(default_factory=list)
    late: int = 0

    def tell(self, statistics: Statistics, played: "array[int]") -> None:
        """Pass the rows on, decisions first: a batch may hold a decision and what became of it."""
        if self.decided:
            played.extend(statistics.decided(*zip(*self.decided, strict=True)))
        names = list(statistics.actions.by_name)
        if self.returned:
            ids, decided, times, rows, rewards = zip(*self.returned, strict=True)
            actions = [names[played[row]] for row in rows]
            statistics.returned(ids, decided, times, actions, rewards)
        if self.expired:
            ids, decided, times, rows = zip(*self.expired, strict=True)
            statistics.expired(ids, decided, times, [names[played[row]] for row in rows])
        if self.cancelled:
            statistics.cancelled(*zip(*self.cancelled, strict=True))
        if self.revised:
            times, rows, before, after = zip(*self.revised, strict=True)
            statistics.revised(times, [played[row] for row in rows], before, after)
        if self.late:
            statistics.late(self.late)
