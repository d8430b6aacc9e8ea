"""A log read whole, with the loop that it is of: what ``evaluate`` and ``plan`` begin with."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from belated.core.arguments import wrong
from belated.core.extras import extra
from belated.core.times import microseconds
from belated.logs.bad_rows import BadRows
from belated.logs.chunks import Log, open_log
from belated.logs.from_ledger import combined_rewards, loop_of, refuse_other_failures
from belated.logs.seen_rewards import EXPLICIT
from belated.logs.whole_log import WholeLog, gathered


class Read(NamedTuple):
    """A log and how it was read."""

    log: WholeLog
    loop: str  # "explicit" or "conversion"
    window: float | None  # seconds; only a conversion loop needs one
    opened: Log  # with the meaning of its columns
    bad: BadRows
    combined: str  # a warning where several rewards of a decision become one; else ""


def read_whole(
    source: Any,
    *,
    needs: Collection[str],
    checked: Callable[[Log], Log] = lambda log: log,
    columns: str = "",
    context: Sequence[str] = (),
    loop: str | None = None,
    window: str | float | None = None,
    now: Any = None,
    bandit: str | None = None,
    format: str | None = None,
    bad: Path | None = None,
    strict: bool = False,
    subject: bool = False,
) -> Read:
    """Returns all good rows of a log.

    Parameters
    ----------
    source, columns, format, bandit, needs, subject
        As in ``open_log``.
    checked
        Gets the log when its columns are known, and returns it or raises.
    context
        Columns of the context.
    loop
        ``"explicit"`` if every decision gets a reward some day, or loses it for ever.
        ``"conversion"`` if only conversions report, within the window. Default that of the ledger,
        or explicit.
    window
        How long a conversion counts: seconds, or a text such as ``"7d"``.
    now
        When the log was written; default the latest time in it. What is later is not known yet.
    bad
        A file for the rows that cannot be used; None for none.
    strict
        Whether bad rows are an error.
    """
    with extra("experiments"):
        import pyarrow  # noqa: F401
    loop, seconds = loop_of(source, bandit, loop, window)
    if loop == EXPLICIT:
        if window is not None:
            raise wrong(
                "--window",
                window,
                "--loop conversion with it: in an explicit loop a reward counts however late it is",
            )
    else:
        refuse_other_failures(source, bandit)
    found = open_log(
        source, columns=columns, format=format, bandit=bandit, needs=needs, subject=subject
    )
    opened = checked(found)
    bad_rows = BadRows(bad, source)
    log = gathered(opened.chunks(bad_rows, loop=loop, context=context), bad_rows)
    log = log._replace(has_delays={"time", "reward-time"} <= opened.columns.keys())
    if strict:
        bad_rows.refuse()
    if now is not None:
        with bad_rows.told_in_errors():
            known = log.as_of(microseconds("now", now))
        bad_rows.n_after_now = len(log.action) - len(known.action)
        log = known
    return Read(log, loop, seconds, opened, bad_rows, combined_rewards(source, bandit))
