"""Growth of the cost of delay, with the horizon and with the expected delay: claims 2 and 3."""

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from belated.experiments.judging.claim_texts import GROWTH_LIMIT, MARGIN, SETTLED
from belated.experiments.judging.curves import (
    HEAVY,
    Lane,
    Measured,
    Row,
    counted,
    grouped,
    order,
    with_findings,
)
from belated.experiments.judging.grading import (
    CONTRADICTED,
    EQUAL,
    HIGHER,
    LOWER,
    NOT_JUDGED,
    OPEN,
    Evidence,
    findings,
    graded,
    student_test,
)
from belated.experiments.labels import OFU, family_name
from belated.experiments.run_intervals import UNKNOWN, Estimate, jackknife, mean_interval

# The test of DUCB is the reverse of the test of Delayed OFU-GLM.
IN_WORDS = {LOWER: "as claimed", HIGHER: "not as claimed", OPEN: OPEN}


def _slope(x: ArrayLike, y: NDArray[np.float64]) -> float:
    """Returns the slope of log y against log x; NaN if y is not positive."""
    if len(y) < 2 or (y <= 0.0).any():
        return math.nan
    log_x = np.log(x) - np.log(x).mean()
    return float(log_x @ np.log(y) / (log_x @ log_x))


def _growth(penalty: Any, horizons: list[int]) -> Row:
    """Returns how a penalty (runs, horizons) grows: to each horizon, at the end, its exponent."""
    runs = penalty[horizons].dropna().to_numpy(float)
    gain = mean_interval(runs[:, -1] - runs[:, -2]) if len(horizons) > 1 else UNKNOWN
    late = horizons[-3:]
    power = jackknife(runs[:, -3:], lambda means: _slope(late, means))
    row = {"runs": len(runs)} | power.columns("exponent") | gain.columns("growth", "growth, ")
    return row | {f"penalty at {t:,}": float(runs[:, i].mean()) for i, t in enumerate(horizons)}


def penalties(curves: dict[Lane, Any]) -> tuple[list[Row], list[Row]]:
    """Returns the growth of the cost of delay: pooled by family and policy, and lane by lane."""
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
    """Returns whether a pooled penalty does not grow with the horizon; None if one cannot tell."""
    flat = row["high"] < GROWTH_LIMIT or row["growth, high"] <= 0.0
    return True if flat else False if row["low"] > GROWTH_LIMIT else None


def exponents(summary: list[Row]) -> str:
    """Returns the exponents of pooled penalties in words."""
    return "; ".join(
        f"{row['policy']} ({row['family']}) {_with_interval(Estimate.of(row, 'exponent'))}"
        for row in summary
    )


def _with_interval(power: Estimate) -> str:
    """Returns an exponent in words.

    >>> _with_interval(Estimate(0.5, 0.4, 0.6)), _with_interval(UNKNOWN)
    ('0.50 [0.40, 0.60]', 'undefined')
    """
    if math.isnan(power.low):
        return "undefined" if math.isnan(power.value) else f"{power.value:.2f} [unknown]"
    return f"{power.value:.2f} [{power.low:.2f}, {power.high:.2f}]"


def additive_penalty(curves: dict[Lane, Any]) -> Measured:
    """Claim 2: with the horizon the penalty of Delayed OFU-GLM does not grow, and DUCB's does."""
    known = {k: v for k, v in curves.items() if k.policy == OFU or k.policy.startswith("ducb")}
    return _judge_growth(*penalties(known)) if known else _judge_growth([], [])


def _judge_growth(summary: list[Row], rows: list[Row]) -> Measured:
    """Judge the exponents of the settings and of each family's pool; rows gain their findings."""
    judged = [row for row in rows if row["judged"] == "yes"]
    whose = {row["policy"] == OFU for row in summary}
    if whose != {True, False}:
        return (
            summary,
            rows,
            NOT_JUDGED,
            "No setting has both policies, a run without delay and a horizon that is long against "
            f"its expected delay ({len(rows)} penalties measured).",
        )
    found = findings([_growth_test(row) for row in judged])
    pools = [_growth_test(row).alone for row in summary]
    apart = all(
        rival["low"] > row["high"] or math.isnan(row["high"])
        for _, part in grouped(summary, "family")
        for row in part
        for rival in part
        if row["policy"] == OFU and rival["policy"] != OFU
    )
    verdict = graded(found, _together(pools) if apart or HIGHER in pools else OPEN)
    for ours in (True, False):  # the claim has two halves, and fails with either
        settings = [
            its for its, row in zip(found, judged, strict=True) if (row["policy"] == OFU) is ours
        ]
        families = [
            its for its, row in zip(pools, summary, strict=True) if (row["policy"] == OFU) is ours
        ]
        if graded(settings, _together(families)) == CONTRADICTED:
            verdict = CONTRADICTED
    skipped = sum(row["judged"] == "horizon too short" for row in rows)
    rows = with_findings(rows, judged, [IN_WORDS[finding] for finding in found])
    return (
        summary,
        rows,
        verdict,
        f"Exponent of the mean penalty: {exponents(summary)}; of {len(judged)} settings, "
        f"Holm-adjusted, as claimed (below {GROWTH_LIMIT}, DUCB above) in {found.count(LOWER)}, "
        f"not as claimed in {counted(rows, IN_WORDS[HIGHER])}, open in {counted(rows, OPEN)}; "
        f"{skipped} were left out for a short horizon.",
    )


def _together(pools: list[str]) -> str:
    """Returns the finding of several pools on a claim that is about all of them."""
    return HIGHER if HIGHER in pools else LOWER if set(pools) == {LOWER} else OPEN


def _growth_test(row: Row) -> Evidence:
    """Tests whether a penalty grows as claimed: not at all for Delayed OFU-GLM, else it does."""
    power = Estimate.of(row, "exponent")
    test = student_test(power, row["runs"], GROWTH_LIMIT)
    if row["policy"] != OFU:
        return Evidence(test.p_higher, test.p_lower)
    if math.isnan(power.low):  # a mean penalty is not positive: test whether it still grows
        gain = Estimate.of(row, "growth", "growth, ")
        return Evidence(student_test(gain, row["runs"], 0.0).p_lower, math.nan)
    return test


def at_most_linear(curves: dict[Lane, Any]) -> Measured:
    """Claim 3: the penalty grows at most linearly with the expected delay."""
    rows, pool = [], []
    lanes = [lane for lane in curves if lane.policy == OFU and lane.delayed]
    laws = {lane._replace(expected=0.0) for lane in lanes if lane.law not in HEAVY}
    for law in sorted(laws, key=order):
        delays = sorted(x.expected for x in lanes if x._replace(expected=0.0) == law)
        final = {e: curves[law._replace(expected=e)].iloc[:, -1] for e in delays}
        if law.undelayed() in curves:
            final |= {0.0: curves[law.undelayed()].iloc[:, -1]}
        runs = pd.DataFrame(final).dropna().sort_index(axis=1)
        power, bend = _bending(runs)
        setting = law.setting() | {"delays": f"{delays[0]:g} to {delays[-1]:g}"}
        del setting["expected"]
        grown = power.columns("exponent") | bend.columns("bend", "bend, ")
        rows.append(setting | grown | {"runs": len(runs)})
        pool.append(runs / runs.iloc[:, 0].mean())  # each setting counts alike
    return _judge_bending(rows, pool)


def _bending(final: Any) -> tuple[Estimate, Estimate]:
    """Returns the penalty's exponent in the delay, and its quadratic term at the largest delay."""
    delays, power, bend = final.columns.to_numpy(float), UNKNOWN, UNKNOWN
    runs = final.to_numpy(float)
    if delays[0] == 0.0 and len(delays) > 2:
        power = jackknife(runs[:, 1:] - runs[:, :1], lambda means: _slope(delays[1:], means))
    if len(delays) > 2:
        bend = mean_interval(runs @ np.linalg.pinv(np.vander(delays / delays[-1], 3))[0])
    return power, bend


def _judge_bending(rows: list[Row], pool: list[Any]) -> Measured:
    """Judge how settings and the pool grow with the delay; rows gain their findings."""
    if not rows:
        return [], rows, NOT_JUDGED, "The results hold no sub-exponential delays."
    found = findings([_bending_test(row) for row in rows])
    means = sum(pool[1:], pool[0]) / len(pool)  # runs and delays that all settings have
    power, bend = _bending(means.dropna(axis=1, how="all").dropna())
    together = power.columns("exponent") | bend.columns("bend", "bend, ")
    pooled = _bending_test(together | {"runs": len(means)}).alone
    known = [row["exponent"] for row in rows if not math.isnan(row["exponent"])]
    spread = f"from {min(known):.2f} to {max(known):.2f}" if known else "undefined"
    rows = with_findings(rows, rows, found)
    at_most = found.count(LOWER) + found.count(EQUAL)
    return (
        [],
        rows,
        graded(found, pooled, supports=(LOWER, EQUAL)),
        f"Exponent of the mean relative penalty over all settings: {_with_interval(power)}; one "
        f"by one they run {spread}, at most linear in {at_most} of {len(rows)} settings, "
        f"Holm-adjusted, faster in {counted(rows, HIGHER)}, open in {counted(rows, OPEN)}.",
    )


def _bending_test(row: Row) -> Evidence:
    """Tests whether the penalty grows more slowly than linearly, or the regret bends downwards."""
    power = Estimate.of(row, "exponent")
    if math.isnan(power.low):  # a mean penalty is not positive, or there is none
        return student_test(Estimate.of(row, "bend", "bend, "), row["runs"], 0.0)
    return student_test(power, row["runs"], 1.0, MARGIN)
