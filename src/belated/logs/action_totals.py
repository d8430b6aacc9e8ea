"""What was counted of each action."""

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

    def decided(self, actions: Sequence[str]) -> None:
        """These were played."""
        by_name = self.by_name
        for action in actions:
            if action not in by_name:
                action = action if len(by_name) < MOST_ACTIONS else OTHERS
                by_name.setdefault(action, ActionTotals())
            by_name[action].decided += 1

    def of(self, action: str) -> ActionTotals:
        """The totals to which an action that was played belongs."""
        return self.by_name.get(action) or self.by_name.setdefault(OTHERS, ActionTotals())

    def to_dict(self) -> dict[str, Any]:
        """As lists and numbers."""
        return {name: list(astuple(totals)) for name, totals in self.by_name.items()}

    def load(self, saved: dict[str, Any]) -> None:
        """Take over what ``to_dict`` gave."""
        self.by_name = {name: ActionTotals(*totals) for name, totals in saved.items()}
