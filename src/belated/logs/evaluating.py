"""The work behind ``belated evaluate``: what would another policy have earned?

The log is read, the share of rewards that are seen at each age is estimated, and each target gets
its estimates, the overlap with the log, and a refusal in words where the log cannot answer.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from belated.core.extras import extra
from belated.core.times import duration, microseconds
from belated.logs.bad_rows import BadRows
from belated.logs.chunks import Log, open_log
from belated.logs.evaluation_report import report
from belated.logs.from_ledger import LedgerRows, is_ledger
from belated.logs.policy_values import Options, policy_values
from belated.logs.seen_rewards import EXPLICIT, seen_rewards
from belated.logs.whole_log import gathered

NEEDS = ("action", "reward")


def evaluate_log(
    source: Any,
    policies: Sequence[Any],
    *,
    columns: str = "",
    context: Sequence[str] = (),
    loop: str | None = None,
    window: str | float | None = None,
    now: Any = None,
    bandit: str | None = None,
    format: str | None = None,
    bad: Path | None = None,
    strict: bool = False,
    options: Options | None = None,
) -> dict[str, Any]:
    """Returns what ``policies`` would have earned, as plain data.

    Parameters
    ----------
    source, columns, format, bandit
        As in ``open_log``.
    policies
        As ``--policy`` of ``belated evaluate``, or functions of contexts and actions.
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
    options
        Further choices.
    """
    with extra("experiments"):
        import pyarrow  # noqa: F401
    options = (options or Options()).checked()
    if is_ledger(source):
        settings = LedgerRows(source, bandit)
        loop, window = loop or settings.loop, window or settings.window
    loop = loop or EXPLICIT
    opened = _with_propensities(
        open_log(source, columns=columns, format=format, bandit=bandit, needs=NEEDS)
    )
    bad_rows = BadRows(bad)
    log = gathered(opened.chunks(bad_rows, loop=loop, context=context))
    if strict:
        bad_rows.refuse()
    if now is not None:
        log = log.as_of(microseconds("now", now))
    seconds = duration("window", window) / 1e6 if isinstance(window, str) else window
    seen = seen_rewards(log, loop, seconds)
    answers = policy_values(log, seen, policies, opened.columns["action"], options)
    return report(opened.spelled, bad_rows, seen, log.now, answers, options)


def _with_propensities(log: Log) -> Log:
    """Returns a log that needs propensities, or raises where it has none."""
    if "propensity" not in log.columns:
        raise ValueError(
            "propensity: no column looks like it, and without the probability with which each "
            "action was played a log cannot say what another policy would have earned; say --map "
            "propensity=COLUMN"
        )
    return log._replace(needs=(*NEEDS, "propensity"))
