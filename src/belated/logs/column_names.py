"""The columns of a log: which of them is the time, the reward and so on, guessed or as told."""

import re
from collections.abc import Collection, Mapping, Sequence

from belated.core.arguments import wrong
from belated.ledger.tools.tables import parse_map

# The fields of a log in the words of --map, each with names that logs give it; the first is ours.
FIELDS = {
    "id": ("id", "decision_id", "impression_id", "request_id", "event_id"),
    "time": (
        *("time", "decision_time", "decided_at", "decided", "timestamp", "ts", "click_time"),
        *("decision_timestamp", "impression_time", "impression_timestamp", "shown_at"),
        "click_timestamp",
    ),
    "action": ("action", "arm", "variant", "chosen_action", "treatment", "item_id"),
    "reward": ("reward", "outcome", "converted", "conversion", "clicked", "click", "sale"),
    "reward-time": (
        *("reward_time", "reward_timestamp", "rewarded_at", "reward_at", "returned_at"),
        *("conversion_time", "conversion_timestamp", "converted_at", "clicked_at", "sold_at"),
    ),
    "propensity": ("propensity", "propensity_score", "pscore", "probability", "action_prob"),
    "subject": ("subject", "user", "user_id", "customer_id", "visitor_id"),
    "segment": ("segment",),
}


def guessed_columns(
    names: Sequence[str], given: str = "", needs: Collection[str] = ("time",)
) -> dict[str, str]:
    """Returns the column of each field that the log has, by field.

    Parameters
    ----------
    names
        The columns of the log.
    given
        The user's ``--map``, such as ``time=shown,reward=sale``. The other fields are guessed.
    needs
        The fields that must be there.

    Examples
    --------
    >>> guessed_columns(["Decision Time", "outcome", "city"], "segment=city")
    {'time': 'Decision Time', 'reward': 'outcome', 'segment': 'city'}
    """
    told = parse_map(given, FIELDS)
    for field, column in told.items():
        if column not in names:
            raise wrong(f"--map {field}", column, f"one of the columns {', '.join(names)}")
    free = [name for name in dict.fromkeys(names) if name not in told.values()]
    columns = {}
    for field in FIELDS:
        found = told.get(field) or _guess(field, free)
        if found is not None:
            if (alike := list(names).count(found)) > 1:
                raise ValueError(
                    f"{field}: {alike} columns are called {found!r}: rename one of them"
                )
            columns[field] = found
        elif field in needs:
            raise ValueError(
                f"{field}: no column looks like it; say --map {field}=COLUMN, with one of the "
                f"columns {', '.join(names)}"
            )
    return columns


def _guess(field: str, free: Sequence[str]) -> str | None:
    ours, *others = FIELDS[field]
    found = _alike(ours, free) or [name for other in others for name in _alike(other, free)]
    if len(found) > 1:
        choices = " or ".join(f"--map {field}={name}" for name in found)
        raise ValueError(f"{field}: the columns {' and '.join(found)} look like it; say {choices}")
    return found[0] if found else None


def _alike(ours: str, free: Sequence[str]) -> list[str]:
    """Returns the column of this very name, or else those whose names differ in signs alone."""
    return [ours] if ours in free else [name for name in free if _plain(name) == ours]


def _plain(name: str) -> str:
    """Returns a name in small letters, with one underscore wherever it has other signs."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def spelled(columns: Mapping[str, str]) -> str:
    """Returns the columns in the words of ``--map``.

    >>> spelled({"time": "shown", "reward": "sale"})
    'time=shown,reward=sale'
    """
    return ",".join(f"{field}={column}" for field, column in columns.items())
