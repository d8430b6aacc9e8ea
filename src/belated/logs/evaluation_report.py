"""The answer of ``belated evaluate``, as data and in words."""

from collections.abc import Sequence
from typing import Any

from belated.core.times import utc
from belated.evaluation.shares_seen import LEAST_SEEN
from belated.logs.bad_rows import BadRows
from belated.logs.policy_values import Answer, Estimated, Options
from belated.logs.seen_rewards import CONVERSION, SeenRewards
from belated.logs.targets import learns

MEANING = {
    "explicit": "every decision gets a reward some day, or has lost it for ever; a pending reward "
    "is unknown, not 0",
    "conversion": "only conversions report, and silence becomes 0 when the window closes; until "
    "then a conversion counts for those of its age that are still to come",
}
OF_ESTIMATOR = {
    "direct method": "The direct method is right only if rewards are linear in the context for "
    "each action; doubly robust estimates need that or the propensities.",
    "clipped IPS": "Clipped IPS is too low for rewards above 0 wherever a weight was clipped.",
}
OF_LEARNERS = (
    "A policy that learns was replayed on the rows in which it chose what was played: its traffic "
    "is thinned, and late rewards hurt it less than at full traffic, which `belated plan` plays. "
    "With other luck it would have learnt something else, so it was replayed several times, with "
    "rows that are near in time in another order: its interval is as wide as the luck of a single "
    "replay and that of the rows make it together."
)
OF_INTERVAL = {
    "normal": "Intervals are normal, with the uncertainty of the estimated delays in them.",
    "bootstrap": "Intervals are percentiles of a bootstrap in which delays are estimated anew; the "
    "model of rewards is moved by its first derivative.",
    "bernstein": "Intervals are empirical Bernstein bounds, for IPS and clipped IPS. The largest "
    "weight of the log is taken for the largest that there can be. Where rewards are pending they "
    "hold to first order in the estimated delays.",
    "anytime": "Intervals hold at all looks at a growing log together. That is proved for large "
    "logs of which all rewards have come; for pending rewards it was simulated.",
}


OF_UNKNOWN_RANGE = (
    "Rewards are taken for no smaller and no larger than those of the log. Where large ones are "
    "rare, a log that happens to have none has an interval that is far too narrow: say "
    "--reward-range with the smallest and the largest that there can be."
)


def assumptions(seen: SeenRewards, answers: Sequence[Answer], options: Options) -> list[str]:
    """Returns what the estimates rest on, one sentence each."""
    computed = {line.estimator for answer in answers for line in answer.estimates}
    said = [
        "The log's propensities are those with which its actions were played.",
        "Every action of the log could be played in every row.",
        "A decision has no part in the rewards of others, and rows are independent: where one "
        "subject has many, intervals are too narrow.",
    ]
    if seen.n_open:
        kind = "conversion" if seen.window is not None else "reward"
        said += [
            f"How late a {kind} comes depends on the action at most: not on its size, on the "
            "context, or on when the decision was made. `belated delays` tests that.",
            f"A {kind} that came counts for 1 / F(age of its decision), where F is the law of the "
            "delay. That is not the 1 / G(delay) of IPCW-IPS (arXiv 2603.22900), where G is the "
            "law of the age: ages are known here.",
        ]
    said += [sentence for name, sentence in OF_ESTIMATOR.items() if name in computed]
    if any(learns(answer.policy) for answer in answers):
        said.append(OF_LEARNERS)
    said.append(OF_INTERVAL[options.interval])
    if options.interval == "bernstein" and not seen.knows_range:
        said.append(OF_UNKNOWN_RANGE)
    return said


CAREFUL = ("warning", "silent_end", "combined", "late_by_reward")
BEST_FIRST = (
    *("doubly robust", "SNIPS", "replay", "IPS", "clipped IPS", "direct method"),
    "mean reward",
)


def headline(answer: Answer) -> str:
    """Returns what a policy would have earned, and whether that is more than what was played."""
    if answer.refusals:
        return f"{answer.policy}: no answer. {answer.refusals[0]}"
    best_first = sorted(answer.estimates, key=lambda line: BEST_FIRST.index(line.estimator))
    line = next((line for line in best_first if line.low is not None), best_first[0])
    name, ends = line.estimator, ""
    if line.low is not None:
        ends = f" ({line.low:.3g} to {line.high:.3g})"
    earned = f"{line.value:.3g} per decision{ends}"
    if name == "mean reward":
        return f"The policy of the log earned {earned}."
    said = f"{answer.policy} would have earned {earned}, by {name}"
    if line.gain_low is None or line.gain_high is None:
        return f"{said}."
    low, high = line.gain_low, line.gain_high
    if low <= 0.0 <= high:
        return (
            f"{said}. Whether that is more or less than what was played, the log cannot say: the "
            f"difference is between {low:+.3g} and {high:+.3g}."
        )
    if low > 0.0:
        return f"{said}: {line.gain:.3g} more than what was played ({low:.3g} to {high:.3g})."
    return f"{said}: {-line.gain:.3g} less than what was played ({-high:.3g} to {-low:.3g})."


def report(
    columns: str,
    unused: list[str],
    bad: BadRows,
    careful: dict[str, str],
    seen: SeenRewards,
    now: int,
    answers: Sequence[Answer],
    options: Options,
) -> dict[str, Any]:
    """Returns all that is known as plain data."""
    loop = "explicit" if seen.window is None else CONVERSION
    return {
        "headlines": [headline(answer) for answer in answers],
        **careful,
        "columns": columns,
        "columns_not_used": unused,
        "rows": seen.n_rows,
        **bad.facts(),
        "loop": loop,
        "meaning": MEANING[loop],
        "now": utc(now),
        **(
            {"pending": seen.n_pending}
            if loop == "explicit"
            else {"silent": seen.n_pending, "open": seen.n_open}
        ),
        "too_young": seen.n_rows - len(seen.used),
        "level": options.level,
        "interval": options.interval,
        "policies": [
            {
                "policy": answer.policy,
                "words": answer.words,
                "answered": not answer.refusals,
                "refusals": answer.refusals,
                "estimates": [_line(line) for line in answer.estimates],
                "overlap": [line._asdict() for line in answer.overlap],
                "without_support": sum(
                    line.target for line in answer.overlap if line.least_propensity is None
                ),
            }
            for answer in answers
        ],
        "assumptions": assumptions(seen, answers, options),
    }


def _line(estimated: Estimated) -> dict[str, Any]:
    rows = estimated.effective_rows
    return estimated._asdict() | {"effective_rows": None if rows is None else round(rows)}


def lines_before(said: dict[str, Any]) -> list[str]:
    """Returns the lines above the tables."""
    if "pending" in said:
        waiting = f"{said['pending']:,} of them pending"
    else:
        waiting = f"{said['silent']:,} of them without a conversion, {said['open']:,} of these with"
        waiting += " an open window"
    lines = [
        *(f"careful: {said[name]}" for name in CAREFUL if said[name]),
        *said["headlines"],
        "",
        f"columns: {said['columns']}",
        f"columns not used: {', '.join(said['columns_not_used']) or 'none'}",
        f"{said['rows']:,} decisions, {waiting}, as of {said['now']}",
        f"loop: {said['loop']}: {said['meaning']}",
    ]
    if said["too_young"]:
        lines.append(
            f"{said['too_young']:,} decisions are too young to be counted: less than "
            f"{LEAST_SEEN:.0%} of some action's rewards has come at their age"
        )
    return lines
