"""How the story of a decision ends, as the service and exported files tell it."""

import pytest

from belated.ledger.events import Event, Kind
from belated.ledger.standing import ending_of

DUE, CLOSES = 100, 110


def story(*after):
    """A decision whose window closes at DUE, and what came after it.

    That is (kind, time, reward), and when a reward was received, where that is not its time.
    """
    first = Event(1, 1, Kind.DECIDED, "shop", b"0" * 16, 0, None, DUE, b"", closes=CLOSES)
    return [
        first,
        *(
            Event(k, k, kind, "shop", b"0" * 16, time, value, None, b"", *received)
            for k, (kind, time, value, *received) in enumerate(after, 2)
        ),
    ]


R, E, C, V = Kind.REWARDED, Kind.EXPIRED, Kind.CANCELLED, Kind.REVISED


@pytest.mark.parametrize(
    ("after", "status", "reward", "time"),
    [
        ([], "pending", None, None),
        ([(R, 100, 1.0)], "rewarded", 1.0, 100),
        ([(R, 101, 1.0)], "late", 1.0, 101),  # nobody has closed the window yet
        ([(R, 100, 1.0, 110)], "rewarded", 1.0, 100),  # handed in within the grace
        ([(R, 100, 1.0, 111)], "late", 1.0, 100),
        ([(R, 101, 1.0, 105)], "late", 1.0, 101),
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
