"""How the story of a decision ends, as the service and exported files tell it."""

import pytest

from belated.ledger.events import Event, Kind
from belated.ledger.standing import ending_of

DUE = 100


def story(*after):
    """A decision whose window closes at DUE, and (kind, time, reward) of what came after it."""
    rows = [(Kind.DECIDED, 0, None), *after]
    return [
        Event(
            k, k, kind, "shop", b"0" * 16, time, value, DUE if kind == Kind.DECIDED else None, b""
        )
        for k, (kind, time, value) in enumerate(rows, 1)
    ]


R, E, C, V = Kind.REWARDED, Kind.EXPIRED, Kind.CANCELLED, Kind.REVISED


@pytest.mark.parametrize(
    ("after", "status", "reward", "time"),
    [
        ([], "pending", None, None),
        ([(R, 100, 1.0)], "rewarded", 1.0, 100),
        ([(R, 101, 1.0)], "late", 1.0, 101),  # nobody has closed the window yet
        ([(E, 101, None)], "expired", None, None),
        ([(R, 50, 1.0), (E, 101, None)], "rewarded", 1.0, 50),
        ([(E, 101, None), (R, 90, 1.0)], "late", 1.0, 90),  # a clock that lags
        ([(C, 10, None)], "cancelled", None, None),
        ([(R, 50, 1.0), (V, 70, 0.0)], "rewarded", 0.0, 50),
        ([(E, 101, None), (R, 120, 1.0), (V, 130, 0.0)], "rewarded", 0.0, 120),
        ([(E, 101, None), (V, 130, 1.0)], "rewarded", 1.0, 130),
    ],
)
def test_how_a_story_ends(after, status, reward, time):
    ending = ending_of(story(*after))
    assert (ending.status, ending.reward, ending.time) == (status, reward, time)
