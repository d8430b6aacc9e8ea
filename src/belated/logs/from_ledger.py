"""The decisions of a ledger as rows of a log."""

import warnings
from collections.abc import Iterator
from typing import Any

import msgspec

from belated.core.arguments import wrong
from belated.core.times import SECOND, duration, utc
from belated.ledger.tools.joining import JoinedRow, joined
from belated.ledger.tools.reading import bandits_of, only_bandit, opened
from belated.ledger.tools.tables import Row

FIELDS = ("id", "time", "action", "propensity", "reward", "reward_time", "x", "probabilities")


def is_ledger(source: object) -> bool:
    """Returns whether a log is the URL of a ledger."""
    return isinstance(source, str) and ("://" in source or source.startswith("env:"))


def loop_of(
    source: Any, bandit: str | None, loop: str | None, window: str | float | None
) -> tuple[str, float | None]:
    """Returns the loop of a log and its window in seconds: as given, or as the ledger has them."""
    if is_ledger(source):
        settings = LedgerRows(source, bandit)
        loop, window = loop or settings.loop, window or settings.window
    if isinstance(window, str):
        window = duration("window", window) / SECOND
    if window is not None and not window > 0.0:
        raise wrong("window", window, "seconds above 0, or a text such as 7d")
    return loop or "explicit", window


def refuse_other_failures(source: Any, bandit: str | None) -> None:
    """Raises where silence in a conversion loop of a ledger counts for another reward than 0."""
    if is_ledger(source) and (default := LedgerRows(source, bandit).default_reward) != 0.0:
        raise wrong(
            "--loop",
            "conversion",
            f"a bandit whose default_reward is 0, and that of this one is {default:g}: here a "
            "decision without a conversion counts as 0",
        )


def combined_rewards(source: Any, bandit: str | None) -> str:
    """Returns a warning where several rewards of a decision become one in a ledger; else ""."""
    combine = LedgerRows(source, bandit).combine if is_ledger(source) else None
    if combine in (None, "first"):
        return ""
    return (
        f"a decision of this bandit may have several rewards (combine = {combine!r}), and its "
        "delay is that of the first: what comes later is not allowed for, and of young decisions "
        "it is missing. Where such rewards are frequent, leave out decisions whose window is open."
    )


class LedgerRows:
    """One bandit of a ledger, with its loop and its window.

    Parameters
    ----------
    url
        ``sqlite:///file.db`` or ``postgresql://...``.
    bandit
        Its name; None for the only one.
    """

    def __init__(self, url: str, bandit: str | None = None) -> None:
        self.url = url
        with opened(url) as ledger:
            bandits = bandits_of(ledger)
        self.bandit = only_bandit(bandits, bandit)
        spec = bandits[self.bandit].spec
        self.loop, self.window = spec.loop, spec.window
        self.default_reward, self.combine = spec.default_reward, spec.combine
        self.n_cancelled = 0  # decisions that ``rows`` has left out

    def rows(self) -> Iterator[Row]:
        """Yields one row per decision, numbered from 1, with the cells of its context.

        Cancelled decisions were not carried out: they are left out and counted. A conversion loop
        has closed windows without a conversion, to which the ledger gives the reward of a failure:
        here they are as silent as the open ones.
        """
        with opened(self.url) as ledger:
            base = ledger.base()
            if base is not None:
                said = f"decisions up to {utc(base.until)} were compacted: only later ones are read"
                warnings.warn(said, stacklevel=2)
            decisions = joined(
                ledger, lambda event: event.bandit == self.bandit, lambda steps: None
            )
            number = 0
            for row in decisions:
                if row.status == "cancelled":
                    self.n_cancelled += 1
                else:
                    number += 1
                    yield Row(number, cells_of(row))


def cells_of(row: JoinedRow) -> dict[str, object]:
    """Returns the cells of a decision: its fields, and those of its context."""
    context = msgspec.json.decode(row.context) if row.context else {}
    cells = {field: getattr(row, field) for field in FIELDS}
    if row.reward_time is None:
        cells["reward"] = None
    if row.repeats is not None or (row.held_out and row.propensity == 1.0):
        cells["propensity"] = None  # what was played for certain tells of no other action
    return {**context, **cells}
