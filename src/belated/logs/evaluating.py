"""What would another policy have earned? The work behind ``belated evaluate``.

The log is read, the share of rewards that are seen at each age is estimated, and each target gets
its estimates, the overlap with the log, and a refusal in words where the log cannot answer.
"""

from collections.abc import Sequence
from typing import Any

from belated.logs.bad_rows import BadRows
from belated.logs.chunks import open_log
from belated.logs.evaluation_report import report
from belated.logs.policy_values import Options, policy_values
from belated.logs.seen_rewards import seen_rewards
from belated.logs.whole_log import gathered


def evaluate_log(
    source: Any,
    policies: Sequence[Any],
    *,
    columns: str = "",
    context: Sequence[str] = (),
    loop: str = "explicit",
    window: float | None = None,
    now: int | None = None,
    bandit: str | None = None,
    format: str | None = None,
    bad: BadRows | None = None,
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
    loop, window, now
        As in ``seen_rewards``.
    bad
        Collects the bad rows.
    strict
        Whether bad rows are an error.
    options
        Further choices.
    """
    bad, options = bad or BadRows(), options or Options()
    opened = open_log(
        source, columns=columns, format=format, bandit=bandit, needs=("action", "reward")
    )
    if "propensity" not in opened.columns:
        raise ValueError(
            "propensity: no column looks like it, and without the probability with which each "
            "action was played a log cannot say what another policy would have earned; say --map "
            "propensity=COLUMN"
        )
    opened = opened._replace(needs=("action", "reward", "propensity"))
    log = gathered(opened.chunks(bad, loop=loop, context=context))
    if strict:
        bad.refuse()
    now = log.now if now is None else now
    seen = seen_rewards(log, loop, window, now)
    answers = policy_values(log, seen, policies, opened.columns["action"], options)
    return report(opened, bad, seen, now, answers, options)
