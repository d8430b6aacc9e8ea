"""What the paper says of its experiments, measured on results and judged.

All lanes of one world, a (dimension, run), share their random numbers, so every difference here is
taken run by run. Intervals are Student's over runs, and the jackknife's where a statistic is not
linear in the regret. The rule of each verdict stands in its claim's ``method``.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from belated.experiments.claim_texts import EQUAL, FEW_RUNS, GROWTH_LIMIT, SETTLED, TEXTS
from belated.experiments.figures import OFU, family_name, law_name
from belated.experiments.intervals import (
    UNKNOWN,
    Estimate,
    clopper_pearson,
    jackknife,
    mean_interval,
    student_quantile,
)

HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be judged"
HEAVY = ("lomax", "pareto")  # within any horizon their delays are far below their mean

Row = dict[str, Any]
Measured = tuple[list[Row], list[Row], str, str]  # summary, rows, verdict, reason


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, how it was measured, and what came out."""

    number: int
    title: str
    paper: str
    method: str
    summary: list[Row]
    rows: list[Row]
    verdict: str
    reason: str


class Lane(NamedTuple):
    """Policy and setting whose runs are compared with those of another lane."""

    policy: str
    family: str
    dim: int
    n_actions: int
    law: str
    expected: float

    @property
    def delayed(self) -> bool:
        """Whether rewards come late at all."""
        return self.law != "constant" or self.expected > 0.0

    def undelayed(self) -> "Lane":
        """Same lane without delay."""
        return self._replace(law="constant", expected=0.0)

    def setting(self) -> Row:
        """Columns that name the lane in a table."""
        named = {"family": family_name(self.family), "law": law_name(self.law)}
        return self._asdict() | named


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
        In the order of the paper; a verdict is "holds", "does not hold" or "cannot be judged".
    """
    frame = frame[np.isfinite(frame["expected"])]
    if frame.empty:
        raise ValueError("there is nothing to judge: no rows with a finite expected delay")
    curves = curves_of(frame)
    measured = [
        _lower_than_ducb(curves),
        _additive_penalty(curves),
        _at_most_linear(curves),
        _pareto_costs_less(curves, frame),
        _coverage(frame, delta),
    ]
    return [
        Claim(i + 1, *TEXTS[i], summary, rows, verdict, reason)
        for i, (summary, rows, verdict, reason) in enumerate(measured)
    ]


def curves_of(frame: pd.DataFrame) -> dict[Lane, Any]:
    """Regret of each lane: a table with a row for each run and a column for each checkpoint."""
    keys = list(Lane._fields)
    if frame.duplicated([*keys, "run", "t"]).any():
        raise ValueError(
            "some rows share policy, family, dim, n_actions, law, expected, run and t: "
            "give policies that differ in their parameters different names"
        )
    table = frame.pivot(index=[*keys, "run"], columns="t", values="regret")
    curves = {_lane(key): part.droplevel(keys) for key, part in table.groupby(level=keys)}
    return dict(sorted(curves.items(), key=lambda item: _order(item[0])))


def _order(lane: Lane) -> tuple[Any, ...]:
    """Rows of a table: the paper's policy first, families by the name they are shown under."""
    return lane.policy != OFU, lane.policy, family_name(lane.family), *lane[2:]


def _lane(key: Any) -> Lane:
    """Lane of a group, in plain Python numbers, which can be written as JSON."""
    policy, family, dim, n_actions, law, expected = key
    return Lane(policy, family, int(dim), int(n_actions), law, float(expected))


def _difference(lane: Lane, names: tuple[str, str], one: Any, other: Any) -> Row:
    """Paired difference in final regret of two lanes, as a row of a table."""
    pairs = pd.concat([one.iloc[:, -1], other.iloc[:, -1]], axis=1, keys=names).dropna()
    gap = mean_interval(pairs[names[0]] - pairs[names[1]])
    means = {f"regret, {name}": float(pairs[name].mean()) for name in names}
    interval = {"difference": gap.value, "low": gap.low, "high": gap.high}
    finding = _finding(gap, means[f"regret, {names[1]}"])
    return lane.setting() | means | interval | {"finding": finding, "runs": len(pairs)}


def _finding(gap: Estimate, regret: float) -> str:
    """What a difference to ``regret`` shows, with 95% confidence."""
    if gap.high < 0.0:
        return "lower"
    if gap.low > 0.0:
        return "higher"
    return "equal" if max(-gap.low, gap.high) <= EQUAL * regret else "unclear"


def _tally(rows: list[Row]) -> Row:
    """How many differences show what, and how many stay lower by Bonferroni's correction."""
    sure = 0
    for row in rows:
        if row["runs"] > 1:
            usual = student_quantile(0.975, row["runs"] - 1)
            wide = student_quantile(1.0 - 0.025 / len(rows), row["runs"] - 1)
            reach = (row["high"] - row["difference"]) * wide / usual
            sure += row["difference"] + reach < 0.0
    findings = [row["finding"] for row in rows]
    counts = {word: findings.count(word) for word in ("lower", "unclear", "equal", "higher")}
    spread = [row["difference"] for row in rows]
    limits = {"least difference": min(spread), "greatest difference": max(spread)}
    return {"settings": len(rows)} | counts | {"lower, Bonferroni": sure} | limits


def _all_lower(rows: list[Row], what: str) -> tuple[str, str]:
    """Verdict and reason for the claim that every difference is negative."""
    if not rows:
        return OPEN, f"{what}: the results hold no pair of lanes to compare."
    tally = _tally(rows)
    n, lower, higher, equal = (tally[key] for key in ("settings", "lower", "higher", "equal"))
    verdict = HOLDS if lower == n else FAILS if higher or equal else OPEN
    named = in_brackets([_place(row) for row in rows if row["finding"] == "higher"])
    return verdict, (
        f"{what}: lower with 95% confidence in {lower} of {n} settings ({lower / n:.0%}), unclear "
        f"in {tally['unclear']}, equal in {equal}, higher in {higher}{named}; mean differences run "
        f"from {tally['least difference']:.4g} to {tally['greatest difference']:.4g}, and "
        f"{tally['lower, Bonferroni']} settings remain lower after Bonferroni's correction."
    )


def _place(row: Row) -> str:
    """Setting of a row in words; rows on a whole law have no expected delay."""
    delay = f" {row['expected']:g}" if "expected" in row else ""
    return f"{row['policy']}, {row['family']}, d = {row['dim']}, {row['law']}{delay}"


def in_brackets(places: list[str]) -> str:
    """In brackets, six at most; nothing where there are none."""
    more = ["and others"] if len(places) > 6 else []
    return f" ({'; '.join(places[:6] + more)})" if places else ""


def _lower_than_ducb(curves: dict[Lane, Any]) -> Measured:
    rows = []
    for lane, theirs in curves.items():
        ours = curves.get(lane._replace(policy=OFU))
        if lane.policy.startswith("ducb") and lane.delayed and ours is not None:
            rows.append(_difference(lane, ("ours", "theirs"), ours, theirs))
    groups = _grouped(rows, "policy", "family")
    verdict, reason = _all_lower(rows, "Regret of Delayed OFU-GLM against DUCB")
    summary = [
        {"policy": policy, "family": family} | _tally(part) for (policy, family), part in groups
    ]
    return summary, rows, verdict, reason


def _grouped(rows: list[Row], *keys: str) -> list[tuple[Any, list[Row]]]:
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    return list(groups.items())


def _slope(x: ArrayLike, y: NDArray[np.float64]) -> float:
    """Slope of log y against log x; NaN where y is not positive."""
    if len(y) < 2 or (y <= 0.0).any():
        return math.nan
    log_x = np.log(x) - np.log(x).mean()
    return float(log_x @ np.log(y) / (log_x @ log_x))


def _growth(penalty: Any, horizons: list[int]) -> Row:
    """How a penalty (runs, horizons) grows: to each horizon, at the end, and its exponent."""
    runs = penalty[horizons].dropna().to_numpy(float)
    gain = mean_interval(runs[:, -1] - runs[:, -2]) if len(horizons) > 1 else UNKNOWN
    late = horizons[-3:]
    power = jackknife(runs[:, -3:], lambda means: _slope(late, means))
    row = {"runs": len(runs), "exponent": power.value, "low": power.low, "high": power.high}
    row |= {"growth": gain.value, "growth, low": gain.low, "growth, high": gain.high}
    return row | {f"penalty at {t:,}": float(runs[:, i].mean()) for i, t in enumerate(horizons)}


def penalties(curves: dict[Lane, Any]) -> tuple[list[Row], list[Row]]:
    """How the cost of delay grows: pooled by family and policy, and lane by lane."""
    times = next(iter(curves.values())).columns.to_numpy()
    targets = times[-1] / np.array([16, 8, 4, 2, 1])
    horizons = sorted({int(times[np.abs(times - target).argmin()]) for target in targets})
    rows, pools = [], defaultdict(list)
    for lane, regret in curves.items():
        if not (lane.delayed and lane.undelayed() in curves):
            continue
        penalty = (regret - curves[lane.undelayed()]).dropna()
        if penalty.empty:
            continue
        short = times[-1] / 2 <= SETTLED * lane.expected
        judged = "heavy tail" if lane.law in HEAVY else "horizon too short" if short else "yes"
        rows.append(lane.setting() | _growth(penalty, horizons) | {"judged": judged})
        if judged == "yes":
            pools[lane.family, lane.policy].append(penalty)
    summary = []
    for (family, policy), parts in pools.items():
        pooled = (sum(parts[1:], parts[0]) / len(parts)).dropna()  # runs that all settings have
        if not pooled.empty:
            names = {"family": family_name(family), "policy": policy, "settings": len(parts)}
            summary.append(names | _growth(pooled, horizons[-3:]))
    return summary, rows


def is_additive(row: Row) -> bool | None:
    """Whether a pooled penalty does not grow with the horizon; None where one cannot tell."""
    flat = row["high"] < GROWTH_LIMIT or row["growth, high"] <= 0.0
    return True if flat else False if row["low"] > GROWTH_LIMIT else None


def exponents(summary: list[Row]) -> str:
    """Exponents of pooled penalties in words."""
    return "; ".join(
        f"{row['policy']} ({row['family']}) {row['exponent']:.2f} "
        f"[{row['low']:.2f}, {row['high']:.2f}]"
        for row in summary
    )


def _additive_penalty(curves: dict[Lane, Any]) -> Measured:
    known = {k: v for k, v in curves.items() if k.policy == OFU or k.policy.startswith("ducb")}
    summary, rows = penalties(known) if known else ([], [])
    verdict, reason = _judge_growth(summary, rows)
    return summary, rows, verdict, reason


def _judge_growth(summary: list[Row], rows: list[Row]) -> tuple[str, str]:
    """Verdict on the pooled exponents of each family."""
    if not summary:
        return OPEN, (
            "No setting has both a run without delay and a horizon that is long against its "
            f"expected delay ({len(rows)} penalties measured)."
        )
    answers: list[bool | None] = []
    for _, part in _grouped(summary, "family"):
        ours = [row for row in part if row["policy"] == OFU]
        rivals = [row for row in part if row["policy"] != OFU]
        answers += map(is_additive, ours)
        bar = max([GROWTH_LIMIT] + [row["high"] for row in ours if not math.isnan(row["high"])])
        for row in rivals:
            answers.append(
                True if row["low"] > bar else False if row["high"] < GROWTH_LIMIT else None
            )
        answers += [] if ours and rivals else [None]
    verdict = FAILS if False in answers else HOLDS if None not in answers else OPEN
    ours = [row for row in rows if row["policy"] == OFU and row["judged"] == "yes"]
    grown = sum(row["low"] > GROWTH_LIMIT for row in ours)
    skipped = sum(row["judged"] == "horizon too short" for row in rows)
    return verdict, (
        f"Exponent of the mean penalty: {exponents(summary)}; taken one by one, {grown} of "
        f"{len(ours)} settings of Delayed OFU-GLM lie above {GROWTH_LIMIT}, and {skipped} settings "
        "were left out for a short horizon."
    )


def _at_most_linear(curves: dict[Lane, Any]) -> Measured:
    rows = []
    lanes = [lane for lane in curves if lane.policy == OFU and lane.delayed]
    laws = {lane._replace(expected=0.0) for lane in lanes if lane.law not in HEAVY}
    for law in sorted(laws, key=_order):
        delays = sorted(x.expected for x in lanes if x._replace(expected=0.0) == law)
        final = {e: curves[law._replace(expected=e)].iloc[:, -1] for e in delays}
        if law.undelayed() in curves:
            final |= {0.0: curves[law.undelayed()].iloc[:, -1]}
        runs = pd.DataFrame(final).dropna().sort_index(axis=1)
        power, bend = _bending(runs)
        setting = law.setting() | {"delays": f"{delays[0]:g} to {delays[-1]:g}"}
        del setting["expected"]
        row = {"exponent": power.value, "low": power.low, "high": power.high}
        bent = {"bend": bend.value, "bend, low": bend.low, "bend, high": bend.high}
        rows.append(setting | row | bent | {"runs": len(runs)})
    verdict, reason = _judge_bending(rows)
    return [], rows, verdict, reason


def _bending(final: Any) -> tuple[Estimate, Estimate]:
    """Exponent of the penalty in the delay, and quadratic term at the largest delay."""
    delays, power, bend = final.columns.to_numpy(float), UNKNOWN, UNKNOWN
    runs = final.to_numpy(float)
    if delays[0] == 0.0 and len(delays) > 2:
        power = jackknife(runs[:, 1:] - runs[:, :1], lambda means: _slope(delays[1:], means))
    if len(delays) > 2:
        bend = mean_interval(runs @ np.linalg.pinv(np.vander(delays / delays[-1], 3))[0])
    return power, bend


def _judge_bending(rows: list[Row]) -> tuple[str, str]:
    known = [
        row
        for row in rows
        if row["low"] > 1.0
        or row["high"] < 2.0
        or (math.isnan(row["low"]) and not math.isnan(row["bend, low"]))
    ]
    if not known:
        return OPEN, (
            f"None of {len(rows)} settings has enough expected delays and runs to tell linear from "
            "quadratic growth."
        )
    steep = [
        row
        for row in known
        if row["low"] > 1.0 or (math.isnan(row["low"]) and row["bend, low"] > 0.0)
    ]
    powers = [row["exponent"] for row in known if not math.isnan(row["exponent"])]
    spread = f"from {min(powers):.2f} to {max(powers):.2f}" if powers else "undefined"
    places = in_brackets([_place(row) for row in steep])
    return FAILS if steep else HOLDS, (
        f"Growth is faster than linear with 95% confidence in {len(steep)} of {len(known)} "
        f"settings{places}; exponents run {spread}, the upper limit is at most 1 in "
        f"{sum(row['high'] <= 1.0 for row in known)}, and the curve bends upwards with 95% "
        f"confidence in {sum(row['bend, low'] > 0.0 for row in known)}."
    )


def effective_delay(law: str, expected: float, horizon: int) -> float:
    """E[min(tau, T)], the part of the delay that a horizon T can feel; NaN for other laws."""
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
    """Expected and measured delays within the horizon, and rewards missing, of each law."""
    horizon = int(frame["t"].max())
    last = frame[(frame["t"] == horizon) & (frame["expected"] > 0)]
    rows = []
    for (law, expected), part in last.groupby(["law", "expected"]):
        # Policies and families of one world share its delays: each world counts once.
        worlds = part.groupby(["dim", "n_actions", "run"])[["mean_delay", "mean_missing"]].mean()
        delay, missing = mean_interval(worlds["mean_delay"]), mean_interval(worlds["mean_missing"])
        row = {"law": law_name(law), "expected": float(expected), "worlds": len(worlds)}
        row["E[min(tau, T)]"] = effective_delay(law, expected, horizon)
        row |= {"mean delay": delay.value, "low": delay.low, "high": delay.high}
        rows.append(row | {"mean missing": missing.value})
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
    verdict, reason = _all_lower(rows, "Regret with Pareto delays against other laws")
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
    lanes = {_lane(key): part["left"] for key, part in last.groupby(list(Lane._fields))}
    for lane in sorted(lanes, key=_order):
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
    judged = [row for row in rows if row["policy"] == OFU]
    verdict, reason = _judge_coverage(judged, delta)
    return summary, rows, verdict, reason


def share_of(left: int, runs: int) -> Row:
    """Share of runs that left the set, with its exact interval, as columns of a table."""
    share = clopper_pearson(left, runs)
    return {"left the set": left, "share": share.value, "low": share.low, "high": share.high}


def _judge_coverage(rows: list[Row], delta: float) -> tuple[str, str]:
    if not rows:
        return OPEN, "No row says whether theta_star was covered by Delayed OFU-GLM's set."
    above = [_place(row) for row in rows if row["low"] > delta]
    left, runs = sum(row["left the set"] for row in rows), sum(row["runs"] for row in rows)
    worst = max(row["share"] for row in rows)
    few = all(row["runs"] < FEW_RUNS for row in rows)
    return FAILS if above else OPEN if few else HOLDS, (
        f"The share of runs that left the set is above delta = {delta:.4g} with 95% confidence in "
        f"{len(above)} of {len(rows)} settings{in_brackets(above)}; over all settings {left} of "
        f"{runs} runs left it ({left / runs:.2%}), the worst setting {worst:.2%}."
    )
