"""Numbers and times as a person would say them."""

from datetime import UTC, datetime

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def duration(seconds: float) -> str:
    """A length of time in one unit.

    >>> duration(2040), duration(7200), duration(0.25), duration(3600 * 60), duration(60)
    ('34 minutes', '2 hours', '0.25 seconds', '2 days', '1 minute')
    """
    if seconds < 10.0:
        number = f"{seconds:.2g}" if seconds >= 1e-3 else "0"
        return f"{number} second{'' if number == '1' else 's'}"
    units = [(DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"), (1.0, "second")]
    # two of a unit, or exactly one: "90 minutes" says more than "2 hours"
    fits = ((s, unit) for s, unit in units if seconds >= 2.0 * s or seconds == s)
    length, unit = next(fits)
    return counted(round(seconds / length), unit)


def counted(n: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "decision"), counted(12500, "decision")
    ('1 decision', '12,500 decisions')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def nothing_learnt(held: int, seconds: float, tick: tuple[float, int] | None = None) -> str:
    """Returns a sentence on what a conversion loop waits for that has learnt nothing.

    ``tick`` has the seconds and the decisions until one that learns from silence takes in rewards,
    whichever come first; None: it does not learn from silence.

    >>> nothing_learnt(60, 47 * 3600), nothing_learnt(1, -3.0)
    ('60 rewards held, 0 learnt; the first window closes in 47 hours', \
'1 reward held, 0 learnt; the first window is closing now')
    >>> nothing_learnt(5, 3600, (2700.0, 12)), nothing_learnt(1, 3600, (-1.0, 12))
    ('5 rewards to take in with the first decision in 45 minutes, or after 12 more decisions', \
'1 reward to take in with the next decision')
    >>> nothing_learnt(0, 3600, (2700.0, 12))
    'no reward yet; learning begins with the first one, or when the first window closes in 1 hour'
    """
    rewards = counted(held, "reward")
    if tick is not None and held:
        if tick[0] <= 0.0 or tick[1] <= 0:
            return f"{rewards} to take in with the next decision"
        more = counted(tick[1], "more decision")
        return (
            f"{rewards} to take in with the first decision in {duration(tick[0])}, or after {more}"
        )
    closes = f"closes in {duration(seconds)}" if seconds > 0.0 else "is closing now"
    if tick is not None:
        return (
            f"no reward yet; learning begins with the first one, or when the first window {closes}"
        )
    return f"{rewards} held, 0 learnt; the first window {closes}"


def heard(known: int, silent: int, failures: float, *, all_converted: bool = False) -> str:
    """Returns a sentence on what a conversion loop that learns from silence has learnt from.

    The reward of a decision is known when it has converted or its window has closed.
    ``all_converted`` is true while no window has closed without a conversion. How many conversions
    come later than the oldest decision is then a guess, and so is the level of all rates.

    >>> heard(1204, 9310, 2950.3)
    'learnt from 1,204 decisions whose reward is known; 9,310 silent ones count for 2,950 failures'
    >>> heard(1, 2, 0.3), heard(0, 5, 0.0)
    ('learnt from 1 decision whose reward is known; 2 silent ones count for 0.3 failures', \
'learnt from 0 decisions whose reward is known; 5 silent ones count for nothing')
    >>> heard(44, 100, 0.3, all_converted=True)
    'learnt from 44 decisions whose reward is known; 100 silent ones count for 0.3 failures; no \
window has closed without a conversion yet, so rates look too high, most of all where rewards \
come soon'
    """
    number = f"{failures:,.0f}" if failures >= 10.0 else f"{failures:.2g}"
    worth = f"{number} failures" if failures else "nothing"
    doubt = (
        "; no window has closed without a conversion yet, so rates look too high, most of all "
        "where rewards come soon"
    )
    learnt = f"learnt from {counted(known, 'decision')} whose reward is known"
    return f"{learnt}; {silent:,} silent ones count for {worth}" + (
        doubt if known and all_converted else ""
    )


def counted_as_zero(n: int, decided: int) -> str:
    """Returns a sentence on the decisions that a policy made for conversions counts as failures.

    >>> counted_as_zero(9310, 10_514), counted_as_zero(0, 10_514)
    ('9,310 of 10,514 decisions are open and count as zero: means are too low until their windows \
close', '')
    """
    if n == 0:
        return ""
    of = counted(decided, "decision")
    return f"{n:,} of {of} are open and count as zero: means are too low until their windows close"


def about(number: float) -> str:
    """Two digits are enough for an estimate.

    >>> about(1234.0), about(7.6), about(0.0)
    ('about 1,200', 'about 8', 'about 0')
    """
    size = 10 ** max(len(str(round(number))) - 2, 0)
    return f"about {round(number / size) * size:,}"


def percent(share: float) -> str:
    """A share, with as many digits as matter.

    >>> percent(0.123), percent(0.0345), percent(0.02), percent(0.00123), percent(0.0)
    ('12 %', '3.5 %', '2 %', '0.12 %', '0 %')
    """
    number = 100.0 * share
    if number >= 10.0:
        return f"{number:.0f} %"
    return f"{number:.2g} %"


def moment(time: float, now: float) -> str:
    """Returns a past time in words, seen from now; both are in seconds since 1970.

    >>> noon = 1_700_049_600.0  # Wednesday, 15 November 2023
    >>> moment(noon - 3600, noon), moment(noon - 86400, noon), moment(noon - 20 * 86400, noon)
    ('11:00 UTC', 'Tuesday', '26 October')
    """
    then, today = datetime.fromtimestamp(time, UTC), datetime.fromtimestamp(now, UTC)
    if now - time < 20 * HOUR:
        return f"{then:%H:%M} UTC"
    if now - time < 6.5 * DAY:
        return DAYS[then.weekday()]
    date = f"{then.day} {MONTHS[then.month - 1]}"
    return date if then.year == today.year else f"{date} {then.year}"


def grown(ratio: float) -> str:
    """Returns in words how a number changed that is now ``ratio`` times as large.

    >>> grown(1.6), grown(2.1), grown(2.9), grown(7.4)
    ('grown by half', 'doubled', 'tripled', 'grown 7-fold')
    """
    if ratio < 1.75:
        return "grown by half"
    if ratio < 2.5:
        return "doubled"
    return "tripled" if ratio < 3.5 else f"grown {ratio:,.0f}-fold"
