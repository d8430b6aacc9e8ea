"""The work behind ``belated evaluate``: what would another policy have earned?

The log is read, the share of rewards that are seen at each age is estimated, and each target gets
its estimates, the overlap with the log, and a refusal in words where the log cannot answer.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from belated.logs.chunks import Log
from belated.logs.evaluation_report import report
from belated.logs.late_by_reward import late_by_reward
from belated.logs.policy_values import Options, policy_values
from belated.logs.reading_whole import read_whole
from belated.logs.seen_rewards import seen_rewards

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
    source, columns, context, loop, window, now, bandit, format, bad, strict
        As in ``read_whole``.
    policies
        As ``--policy`` of ``belated evaluate``, or functions of contexts and actions.
    options
        Further choices.
    """
    options = (options or Options()).checked()
    read = read_whole(
        source,
        needs=NEEDS,
        checked=_with_propensities,
        columns=columns,
        context=context,
        loop=loop,
        window=window,
        now=now,
        bandit=bandit,
        format=format,
        bad=bad,
        strict=strict,
        subject=True,
    )
    with read.bad.told_in_errors():
        seen = seen_rewards(read.log, read.loop, read.window, options.reward_range)
        answers = policy_values(read.log, seen, policies, read.opened.columns["action"], options)
    careful = {
        "silent_end": read.log.silent_end(),
        "combined": read.combined,
        "late_by_reward": late_by_reward(read.log, seen.window),
    }
    opened = read.opened
    return report(
        *(opened.spelled, opened.unused(context), read.bad, careful),
        *(seen, read.log.now, answers, options),
    )


def _with_propensities(log: Log) -> Log:
    """Returns a log that needs propensities, or raises where it has none."""
    if "propensity" not in log.columns:
        raise ValueError(
            "propensity: no column looks like it, and without the probability with which each "
            "action was played a log cannot say what another policy would have earned; say --map "
            "propensity=COLUMN"
        )
    return log._replace(needs=(*NEEDS, "propensity"))
