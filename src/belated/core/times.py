"""Times as people and files write them, and as a ledger holds them: microseconds since 1970."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from belated.core.arguments import any_number, wrong

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SECOND = 1_000_000
DAY = 86_400 * SECOND
OLDEST = 946_684_800 * SECOND  # the year 2000: an earlier time is a mistake
LATEST = 1e17  # the year 5138; milliseconds taken for seconds are far beyond
EXPECTED = "an ISO time such as 2026-03-31T12:00:00Z, or seconds since 1970"
COUNTED = re.compile(r"(?!\d{8}$)\d+(\.\d*)?", re.ASCII).fullmatch  # texts that are numbers
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def microseconds(name: str, value: Any) -> int:
    """Returns a time given in any form that logs have; ``name`` is what errors call it.

    Numbers are seconds, milliseconds or microseconds, told apart by their size. A time without
    zone is in UTC. A text of digits is a number, too, whatever ISO 8601 makes of it, unless there
    are eight: those are a date, since as seconds they are in 1970, where no log is.

    >>> microseconds("time", "2023-11-14T22:13:20Z") == microseconds("time", 1_700_000_000)
    True
    >>> microseconds("time", 1_700_000_000_500)
    1700000000500000
    >>> microseconds("time", "1700000000.5")
    1700000000500000
    >>> microseconds("time", "20231114") == microseconds("time", "2023-11-14")
    True
    """
    try:
        moment = float(value) if isinstance(value, str) and COUNTED(value) else _read(value)
        if isinstance(moment, datetime):
            aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return (aware - EPOCH) // MICROSECOND
        number = any_number(moment)
        for unit in (SECOND, 1000, 1):
            if abs(number) * unit < LATEST:
                return round(number * unit)
    except (TypeError, ValueError, OverflowError):
        pass
    raise wrong(name, value, EXPECTED)


def _read(value: Any) -> Any:
    """Returns a text as a ``datetime``, anything else as it is; RFC 3339 allows small t and z."""
    return datetime.fromisoformat(value.upper()) if isinstance(value, str) else value


def moment(name: str, value: Any) -> int:
    """Returns the time at which something happened, which has to name its zone.

    >>> moment("at", "2023-11-14T23:13:20+01:00") == moment("at", 1_700_000_000.0)
    True
    >>> moment("at", "2023-11-14t22:13:20z") == moment("at", 1_700_000_000.0)
    True
    """
    try:
        parsed = _read(value)
    except ValueError:
        raise wrong(name, value, EXPECTED) from None
    if isinstance(parsed, datetime) and parsed.tzinfo is None:
        raise wrong(name, str(value), f"{EXPECTED}, with its zone")
    return microseconds(name, parsed)


def utc(time: int) -> str:
    """Returns a time in microseconds since 1970 as people write it.

    >>> utc(1_700_000_000_000_000)
    '2023-11-14 22:13 UTC'
    """
    return f"{EPOCH + time * MICROSECOND:%Y-%m-%d %H:%M} UTC"


def plausible(name: str, time: int, latest: int) -> int:
    """Returns ``time``; raises if it is before 2000 or after ``latest``."""
    if not OLDEST <= time <= latest:
        raise wrong(name, iso(time), f"a time from 2000 to {iso(latest)[:10]}")
    return time


def iso(time: int) -> str:
    """Returns a time in ISO 8601, to the microsecond.

    >>> iso(1_700_000_000_500_000)
    '2023-11-14T22:13:20.500000Z'
    """
    try:
        return (EPOCH + time * MICROSECOND).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    except OverflowError:
        return f"{time} microseconds since 1970"


def duration(name: str, text: str) -> int:
    """Returns the microseconds of a duration such as 90d, 12h or 30m.

    >>> duration("older-than", "90d") == 90 * DAY
    True
    """
    found = re.fullmatch(r"(\d{1,6})([smhdw])", text.strip())
    if found is None:
        raise wrong(name, text, "a number and a unit (s, m, h, d or w), such as 90d")
    return int(found[1]) * UNITS[found[2]] * SECOND
