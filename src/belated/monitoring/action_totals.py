"""Counts and sums for each action."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

MOST_ACTIONS = 1000
OTHERS = "(other actions)"


@dataclass(slots=True)
class ActionTotals:
    """Counts and sums of one action.

    What revisions change stands apart from what rewards add: floats added up in another order
    would differ in their last bits.
    """

    place: int  # among the names
    decided: int = 0
    returned: int = 0
    expired: int = 0
    reward: float = 0.0
    reward_squares: float = 0.0
    gained: int = 0  # decisions that got a reward only by a revision
    revision: float = 0.0
    revision_squares: float = 0.0

    def known(self, default: float | None) -> tuple[int, float, float]:
        """Decisions whose reward is known, the sum of the rewards and of their squares.

        ``default`` is the reward of a decision that expired; None: it has none.
        """
        expired = 0 if default is None else self.expired
        value = default or 0.0
        return (
            self.returned + self.gained + expired,
            self.reward + self.revision + expired * value,
            self.reward_squares + self.revision_squares + expired * value * value,
        )


class AllActions:
    """Totals by name. Beyond 1,000 names, which callers may make up, new ones are put together."""

    def __init__(self) -> None:
        self.by_name: dict[str, ActionTotals] = {}

    def decided(self, actions: Sequence[str]) -> list[int]:
        """Counts actions that were played; returns the place of each among the names."""
        by_name, places = self.by_name, []
        for action in actions:
            if action not in by_name:
                action = action if len(by_name) < MOST_ACTIONS else OTHERS
                by_name.setdefault(action, ActionTotals(place=len(by_name)))
            totals = by_name[action]
            totals.decided += 1
            places.append(totals.place)
        return places

    def of(self, action: str) -> ActionTotals:
        """The totals to which an action belongs; looking at one never played adds nothing."""
        return self.by_name.get(action) or self.by_name.get(OTHERS) or ActionTotals(place=-1)

    def to_dict(self) -> dict[str, Any]:
        """Returns the counts as lists and numbers."""
        return {name: list(astuple(totals)) for name, totals in self.by_name.items()}

    def load(self, saved: dict[str, Any]) -> None:
        """Take over what ``to_dict`` gave."""
        self.by_name = {name: ActionTotals(*totals) for name, totals in saved.items()}
