"""The paper's claims about its experiments, measured on results and judged.

All lanes of one world, a (dimension, run), share their random numbers, so every difference here is
taken run by run. Intervals are Student's over runs, and the jackknife's where a statistic is not
linear in the regret. One rule gives all verdicts (``grading``); the ``method`` of each claim says
what is tested, setting by setting and in the pool.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from belated.experiments.judging.claim_texts import MARGIN, TEXTS
from belated.experiments.judging.curves import (
    HEAVY,
    Lane,
    Measured,
    Row,
    counted,
    curves_of,
    grouped,
    lane_of,
    order,
    with_findings,
)
from belated.experiments.judging.grading import (
    EQUAL,
    HIGHER,
    LEVEL,
    LOWER,
    NOT_JUDGED,
    OPEN,
    binomial_test,
    findings,
    graded,
    student_test,
)
from belated.experiments.judging.growth_claims import additive_penalty, at_most_linear
from belated.experiments.labels import OFU, law_name
from belated.experiments.run_intervals import (
    Estimate,
    clopper_pearson,
    mean_interval,
    stratified_mean,
)

RELATIVE = "relative differences"  # key of the runs in a row, until they are pooled


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, its measurement, and its verdict."""

    number: int
    title: str
    paper: str
    method: str
    summary: list[Row]
    rows: list[Row]
    verdict: str
    reason: str


def judge_claims(frame: pd.DataFrame, delta: float = 0.05 / 3) -> list[Claim]:
    """Judge the five claims of the paper's experiments.

    Settings whose expected delay is infinite or unknown are outside the claims and left out.

    Parameters
    ----------
    frame : pandas.DataFrame
        Results, one row per setting, run and checkpoint.
    delta : float
        Allowed probability that theta_star ever leaves the confidence set.

    Returns
    -------
    list of Claim
        In the order of the paper, each with a verdict of ``grading``.
    """
    frame = frame[np.isfinite(frame["expected"])]
    if frame.empty:
        raise ValueError("there is nothing to judge: no rows with a finite expected delay")
    curves = curves_of(frame)
    measured = [
        _lower_than_ducb(curves),
        additive_penalty(curves),
        at_most_linear(curves),
        _pareto_costs_less(curves, frame),
        _coverage(frame, delta),
    ]
    return [
        Claim(i + 1, *TEXTS[i], summary, rows, verdict, reason)
        for i, (summary, rows, verdict, reason) in enumerate(measured)
    ]


def judge_if_possible(frame: pd.DataFrame, delta: float) -> list[Claim]:
    """Returns the five claims, or none if the results are not of the paper's kind of experiment."""
    try:
        return judge_claims(frame, delta)
    except ValueError:
        return []


def _difference(lane: Lane, names: tuple[str, str], one: Any, other: Any) -> Row:
    """Returns the paired difference in final regret of two lanes, as a row; see ``_compared``."""
    pairs = pd.concat([one.iloc[:, -1], other.iloc[:, -1]], axis=1, keys=names).dropna()
    means = {f"regret, {name}": float(pairs[name].mean()) for name in names}
    gap = mean_interval(pairs[names[0]] - pairs[names[1]])
    relative = (pairs[names[0]] - pairs[names[1]]) / means[f"regret, {names[1]}"]
    share = {"per cent": 100.0 * float(relative.mean())}
    return (
        lane.setting()
        | means
        | gap.columns("difference")
        | share
        | {"runs": len(pairs), RELATIVE: relative}
    )


def _compared(rows: list[Row], what: str) -> tuple[list[Row], str, str]:
    """Returns rows with findings, verdict and reason: the claim is that differences are negative.

    The pool is the relative difference of a world, the mean over its settings; all dimensions count
    alike.
    """
    if not rows:
        return [], NOT_JUDGED, f"{what}: the results hold no pair of lanes to compare."
    tests = [student_test(mean_interval(r[RELATIVE]), r["runs"], 0.0, MARGIN) for r in rows]
    found = findings(tests)
    by_size = defaultdict(list)
    for row in rows:
        by_size[row["dim"], row["n_actions"]].append(row.pop(RELATIVE))
    worlds = [pd.concat(parts, axis=1).mean(axis=1).dropna() for parts in by_size.values()]
    pool, df = stratified_mean(worlds)
    pooled = student_test(pool, df + 1, 0.0, MARGIN).alone
    rows = [row | {"finding": finding} for row, finding in zip(rows, found, strict=True)]
    others = ", ".join(f"{word} in {counted(rows, word)}" for word in (EQUAL, HIGHER, OPEN))
    return (
        rows,
        graded(found, pooled),
        f"{what}: over {sum(map(len, worlds))} worlds {_per_cent(pool)}; of {len(rows)} settings, "
        f"Holm-adjusted, lower in {found.count(LOWER)}, {others}.",
    )


def _per_cent(pool: Estimate) -> str:
    """Returns a relative difference with its interval, in words.

    >>> _per_cent(Estimate(-0.396, -0.416, -0.376))
    '-39.6 per cent [-41.6, -37.6]'
    """
    value, low, high = (f"{100.0 * number:.1f}" for number in pool)
    return f"{value} per cent [{low}, {high}]"


def _lower_than_ducb(curves: dict[Lane, Any]) -> Measured:
    rows = []
    for lane, theirs in curves.items():
        ours = curves.get(lane._replace(policy=OFU))
        if lane.policy.startswith("ducb") and lane.delayed and ours is not None:
            rows.append(_difference(lane, ("ours", "theirs"), ours, theirs))
    rows, verdict, reason = _compared(rows, "Regret of Delayed OFU-GLM against DUCB")
    groups = grouped(rows, "policy", "family")
    summary = [
        {"policy": policy, "family": family} | _tally(part) for (policy, family), part in groups
    ]
    return summary, rows, verdict, reason


def _tally(rows: list[Row]) -> Row:
    """Returns the numbers of differences by finding, and their limits."""
    found = [row["finding"] for row in rows]
    counts = {word: found.count(word) for word in (LOWER, OPEN, EQUAL, HIGHER)}
    spread = [row["per cent"] for row in rows]
    return {"settings": len(rows)} | counts | {"from per cent": min(spread), "to": max(spread)}


def effective_delay(law: str, expected: float, horizon: int) -> float:
    """Returns E[min(tau, T)], the part of the delay within a horizon T; NaN for other laws."""
    if law in HEAVY:
        b = 1.0 / expected  # a - 1
        if law == "lomax":
            return -math.expm1(-b * math.log1p(horizon)) / b
        return 1.0 - math.expm1(-b * math.log(horizon)) / b
    if law == "exponential":
        return -expected * math.expm1(-horizon / expected)
    if law == "uniform":
        cut = min(horizon, 2.0 * expected)
        return cut - cut * cut / (4.0 * expected)
    return min(expected, horizon) if law == "constant" else math.nan


def _delay_rows(frame: pd.DataFrame) -> list[Row]:
    """Returns expected and measured delays within the horizon, and missing rewards, by law."""
    horizon = int(frame["t"].max())
    last = frame[(frame["t"] == horizon) & (frame["expected"] > 0)]
    rows = []
    for (law, expected), part in last.groupby(["law", "expected"]):
        # Policies and families of one world share its delays: each world counts once.
        worlds = part.groupby(["dim", "n_actions", "run"])[["mean_delay", "mean_missing"]].mean()
        delay, missing = mean_interval(worlds["mean_delay"]), mean_interval(worlds["mean_missing"])
        row = {"law": law_name(law), "expected": float(expected), "worlds": len(worlds)}
        row["E[min(tau, T)]"] = effective_delay(law, expected, horizon)
        rows.append(row | delay.columns("mean delay") | {"mean missing": missing.value})
    return rows


def _pareto_costs_less(curves: dict[Lane, Any], frame: pd.DataFrame) -> Measured:
    rows = []
    for lane, regret in curves.items():
        if lane.policy != OFU or lane.law not in HEAVY:
            continue
        for law in sorted({x.law for x in curves} - {"constant", *HEAVY}):
            other = curves.get(lane._replace(law=law))
            if other is not None:
                row = _difference(lane, ("Pareto", "other law"), regret, other)
                rows.append({"against": law_name(law)} | row)
    rows, verdict, reason = _compared(rows, "Regret with Pareto delays against other laws")
    delays = _delay_rows(frame)
    felt = [row["E[min(tau, T)]"] for row in delays if row["law"] in map(law_name, HEAVY)]
    seen = [row["mean delay"] for row in delays if row["law"] in map(law_name, HEAVY)]
    if felt:
        reason = (
            f"{reason[:-1]}; within the horizon a Pareto delay comes to {min(felt):.3g} to "
            f"{max(felt):.3g} rounds in theory and {min(seen):.3g} to {max(seen):.3g} as measured."
        )
    return delays, rows, verdict, reason


def _coverage(frame: pd.DataFrame, delta: float) -> Measured:
    last = frame[(frame["t"] == frame["t"].max()) & frame["covered"].notna()]
    last = last.assign(left=~last["covered"].astype(bool))
    rows, summary = [], []
    lanes = {lane_of(key): part["left"] for key, part in last.groupby(list(Lane._fields))}
    for lane in sorted(lanes, key=order):
        left, runs = int(lanes[lane].sum()), len(lanes[lane])
        rows.append(lane.setting() | share_of(left, runs) | {"runs": runs})
    for policy, part in last.groupby("policy"):
        worlds = part.groupby(["dim", "n_actions", "run"])["left"].any()
        row = {"policy": policy} | share_of(int(part["left"].sum()), len(part))
        row |= {"runs": len(part), "worlds": len(worlds)}
        rows_above = [x for x in rows if x["policy"] == policy and x["low"] > delta]
        summary.append(
            row | {"worlds left": int(worlds.sum()), "settings above delta": len(rows_above)}
        )
    worlds = last[last["policy"] == OFU].groupby(["dim", "n_actions", "run"])["left"].any()
    return summary, *_judge_coverage(rows, int(worlds.sum()), len(worlds), delta)


def share_of(left: int, runs: int) -> Row:
    """Returns the share of runs that left the set, with its exact interval, as columns."""
    return {"left the set": left} | clopper_pearson(left, runs).columns("share")


def _judge_coverage(
    rows: list[Row], left: int, worlds: int, delta: float
) -> tuple[list[Row], str, str]:
    """Returns rows with the findings on Delayed OFU-GLM, the verdict and the reason.

    ``left`` of ``worlds`` worlds left the set in any setting.
    """
    judged = [row for row in rows if row["policy"] == OFU]
    if not judged:
        reason = "No row says whether theta_star was covered by Delayed OFU-GLM's set."
        return rows, NOT_JUDGED, reason
    found = findings([binomial_test(row["left the set"], row["runs"], delta) for row in judged])
    pooled = binomial_test(left, worlds, delta).alone
    if pooled == LOWER:  # a world counts if any of its settings left, so each setting is below, too
        found = [LOWER] * len(judged)
    else:
        pooled = OPEN  # many settings together may leave more often than a single one may
    rows = with_findings(rows, judged, found)
    share = share_of(left, worlds)
    return (
        rows,
        graded(found, pooled),
        f"In {left} of {worlds} worlds theta_star was outside the set in some round of some "
        f"setting ({share['share']:.2%} [{share['low']:.2%}, {share['high']:.2%}], allowed "
        f"{delta:.2%} a setting). Of {len(judged)} settings, Holm-adjusted, the share is below "
        f"that in {found.count(LOWER)}, above it in {counted(rows, HIGHER)}, open in "
        f"{found.count(OPEN)}. To confirm it takes {_worlds_needed(delta)} worlds, none of which "
        "is left.",
    )


def _worlds_needed(delta: float) -> int:
    """Returns how many worlds without a failure refute a share of ``delta``."""
    return math.ceil(math.log(LEVEL) / math.log1p(-delta))
