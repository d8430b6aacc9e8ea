"""Actions ranked by their estimated mean reward, with intervals. Plain data."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, TypeAlias

IntervalKind: TypeAlias = Literal["confidence", "posterior"]


@dataclass(frozen=True, slots=True)
class RankedAction:
    """An action, the mean reward that is expected of it, and what is known of it.

    Attributes
    ----------
    name
        Name of the action; its row number if it has none, see ``Bandit.decide``.
    index
        Row among the actions that were asked about.
    mean
        Estimate of its mean reward.
    low, high
        Interval for that mean; None where there is no bound, because the policy claims none yet.
    decisions
        The number of times it was played; None where that was not counted.
    rewards
        The number of these decisions whose reward is known. In a conversion loop, where a window
        that closed without a conversion has one, these are not the conversions.
    """

    name: str
    index: int
    mean: float
    low: float | None
    high: float | None
    decisions: int | None = None
    rewards: int | None = None


@dataclass(frozen=True, repr=False)
class Ranking:
    """Actions by their estimated mean reward, the best first; iterates over ``RankedAction``.

    Attributes
    ----------
    verdict
        A sentence that says which action leads, and with how many its interval overlaps.
    kind
        Kind of the intervals. "confidence": proved, for all rounds and actions at once, under the
        assumptions of the policy. "posterior": for each action by itself and at this time, from
        the posterior of the model or Laplace's approximation of it; no guarantee is claimed.
    level
        Probability with which the intervals hold; None where the policy does not say.
    actions
        The best first; equal estimates in the order in which they were given.
    """

    verdict: str
    kind: IntervalKind
    level: float | None
    actions: list[RankedAction]

    @property
    def best(self) -> RankedAction:
        """The action with the highest estimate."""
        return self.actions[0]

    def __iter__(self) -> Iterator[RankedAction]:
        return iter(self.actions)

    def __len__(self) -> int:
        return len(self.actions)

    def __getitem__(self, place: int) -> RankedAction:
        return self.actions[place]

    def __repr__(self) -> str:
        level = "" if self.level is None else f"{100.0 * self.level:g} % "
        rows = [["action", "mean", "low", "high", "decisions", "rewards known"]]
        for row in self.actions:
            numbers = (row.mean, row.low, row.high, row.decisions, row.rewards)
            rows.append([row.name, *map(_text, numbers)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join([name.ljust(widths[0]), *map(str.rjust, texts, widths[1:])])
            for name, *texts in rows
        ]
        return "\n".join([self.verdict, f"{level}{self.kind} intervals of the mean reward", *lines])


def _text(number: float | None) -> str:
    return "-" if number is None else f"{number:.4g}" if isinstance(number, float) else str(number)


def verdict(ranked: Sequence[RankedAction], n_rewards: int) -> str:
    """Returns a sentence: which action leads, and how far the intervals settle that.

    >>> verdict([RankedAction("a", 1, 0.9, 0.8, 1.0), RankedAction("b", 0, 0.5, 0.3, 0.7)], 9)
    'a is best: its interval lies above that of b.'
    """
    best, others = ranked[0], ranked[1:]
    if n_rewards == 0:
        return "No action leads: no reward has been learnt yet."
    if not others:
        return f"{_named(best)} is the only action."
    ties = sum(other.mean == best.mean for other in others)
    if ties:
        return f"No action leads: {ties + 1} have the same, highest estimate."
    low = -inf if best.low is None else best.low
    near = [other for other in others if other.high is None or other.high >= low]
    if not near:
        rest = _those_of(others, others)
        return f"{_named(best)} is best: its interval lies above {rest}."
    return f"{_named(best)} leads, but its interval overlaps with {_those_of(near, others)}."


def _named(action: RankedAction) -> str:
    return f"action {action.name}" if action.name.isdigit() else action.name


def _those_of(some: Sequence[RankedAction], others: Sequence[RankedAction]) -> str:
    if len(some) == 1:
        return f"that of {_named(some[0])}"
    if len(some) == len(others):
        return f"those of all {len(others)} others"
    return f"those of {len(some)} of {len(others)} others"
