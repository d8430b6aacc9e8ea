"""The claims of the theory, judged on the runs of an audit. Each claim states its rule.

Every function below takes measured rows and returns all of a ``Claim`` but its number.
"""

from collections.abc import Mapping

import pandas as pd

from belated.experiments import paper
from belated.experiments.judging.claim_texts import GROWTH_LIMIT, SETTLED
from belated.experiments.judging.claims import Claim, share_of
from belated.experiments.judging.curves import Row, curves_of, in_brackets
from belated.experiments.judging.growth_claims import exponents, is_additive, penalties
from belated.experiments.labels import OFU, family_name, law_name
from belated.experiments.run_intervals import mean_interval
from belated.families import Bernoulli, Gaussian
from belated.policies import DelayedOFUGLM
from belated.theory import STATEMENTS, regret_bound
from belated.worlds.delays import expected_missing

HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be judged"

NumberlessClaim = tuple[str, str, str, list[Row], list[Row], str, str]


def judge_audit(
    covered: pd.DataFrame,
    checked: pd.DataFrame,
    regret: pd.DataFrame,
    deltas: Mapping[str, float],
) -> list[Claim]:
    """Judge coverage policy by policy, informative delays, the lemmas, the bound, and Thompson.

    Parameters
    ----------
    covered, checked, regret
        Frames of ``auditing.Measured``; a claim whose frame has no rows cannot be judged.
    deltas
        The delta of each policy, by its label in ``covered``.
    """
    rows = coverage_rows(covered, deltas)
    claims = [_coverage(policy, [r for r in rows if r["policy"] == policy]) for policy in deltas]
    claims += [
        _informative(informative_rows(checked)),
        _lemmas(checked),
        _bound(bound_rows()),
        judge_thompson(regret),
    ]
    return [Claim(i + 1, *claim) for i, claim in enumerate(claims)]


def overall(findings: list[str]) -> str:
    """Returns the verdict on all cells: failed if one fails, open if none fails and one is open."""
    if FAILS in findings:
        return FAILS
    return HOLDS if findings and OPEN not in findings else OPEN


# ------------------------------------------------------------------------------------- coverage


def coverage_rows(covered: pd.DataFrame, deltas: Mapping[str, float]) -> list[Row]:
    """Returns the share of runs that left the set by cell, and whether it is at most delta."""
    last = covered[covered["t"] == covered["t"].max()]
    cells = last.groupby(["policy", "family", "dim", "delay"], sort=False)["covered"]
    rows = []
    for (policy, family, dim, delay), inside in cells:
        cell = {"policy": policy, "family": family, "dim": int(dim), "delay": delay}
        rows.append(cell | _judged_share(int((~inside).sum()), len(inside), deltas[policy]))
    return rows


def informative_rows(checked: pd.DataFrame) -> list[Row]:
    """Returns the same for Delayed OFU-GLM with informative delays: R1 failed in some round."""
    delta = DelayedOFUGLM().delta  # the audit runs it with its defaults
    informative = checked["delay"].astype(str).str.startswith("informative")
    first = checked[informative & (checked["statement"] == "R1")]
    rows = []
    cells = first.groupby(["family", "dim", "delay"], sort=False)["ratio"]
    for (family, dim, delay), ratio in cells:
        cell = {"policy": OFU, "family": family, "dim": int(dim), "delay": delay}
        rows.append(cell | _judged_share(int((ratio > 1.0).sum()), len(ratio), delta))
    return rows


def _judged_share(left: int, runs: int, delta: float) -> Row:
    row = share_of(left, runs) | {"runs": runs, "delta": delta}
    finding = FAILS if row["low"] > delta else HOLDS if row["high"] <= delta else OPEN
    return row | {"coverage": finding}


def _place(row: Row) -> str:
    return f"{row['family']}, d = {row['dim']}, {row['delay']}: {row['share']:.1%}"


def _coverage(policy: str, rows: list[Row]) -> NumberlessClaim:
    findings = [row["coverage"] for row in rows]
    above = in_brackets([_place(row) for row in rows if row["coverage"] == FAILS])
    worst = max(rows, key=lambda row: row["share"])
    reason = (
        f"The share of runs that left the set is at most delta = {worst['delta']:.4g} with 95% "
        f"confidence in {findings.count(HOLDS)} of {len(rows)} cells, above it in "
        f"{findings.count(FAILS)}{above}; {findings.count(OPEN)} need more runs to tell. The "
        f"largest share is {worst['share']:.1%}, at most {worst['high']:.1%}."
    )
    return (
        f"theta_star stays in the confidence set of {policy} (R1)",
        "With probability 1 - delta theta_star is in the set in all rounds at once, whatever the "
        "delays, as long as they do not depend on the reward.",
        "Share of runs in which theta_star was outside the set in some round, with the exact "
        "(Clopper-Pearson) 95% interval. A cell holds if the interval ends at or below delta, does "
        "not hold if it begins above, and cannot be judged otherwise. The claim holds if all cells "
        "do, and does not hold if one does not. Each interval stands for itself: were the share "
        "equal to delta, 1 cell in 40 would seem above it by chance.",
        [],
        rows,
        overall(findings),
        reason,
    )


def _informative(rows: list[Row]) -> NumberlessClaim:
    # The claim is that coverage fails, so a cell that holds contradicts it.
    opposite = {HOLDS: FAILS, FAILS: HOLDS, OPEN: OPEN}
    verdict = overall([opposite[row["coverage"]] for row in rows])
    reason = "No run had delays that depend on the reward."
    if rows:
        places = in_brackets([_place(row) for row in rows])
        broken = sum(row["coverage"] == FAILS for row in rows)
        reason = (
            f"theta_star left the set more often than delta allows in {broken} of {len(rows)} "
            f"cells{places}."
        )
    return (
        "Delays that depend on the reward break coverage",
        "The paper does not say that delays must not depend on rewards, but its proof needs it "
        "(docs/erratum.md, section 3).",
        "As above, for Delayed OFU-GLM, where good rewards return at once and bad ones never. Here "
        "the claim holds if every interval begins above delta, and does not hold if one ends at or "
        "below it.",
        [],
        rows,
        verdict,
        reason,
    )


# --------------------------------------------------------------------------------------- lemmas


def _lemmas(checked: pd.DataFrame) -> NumberlessClaim:
    checks = checked[checked["t"] > 0]
    cells = checks.groupby(["family", "dim", "delay", "statement"], sort=False)
    rows = [_worst_row(part) for _, part in cells]
    summary = [
        _worst_row(part) | {"says": STATEMENTS[str(name)]}
        for name, part in checks.groupby("statement")
    ]
    judged = [row for row in rows if row["statement"] != "R1"]
    broken = [row for row in judged if row["holds"] == FAILS]
    places = in_brackets(
        [f"{r['statement']}, {r['family']}, {r['delay']}: {r['worst ratio']:.4g}" for r in broken]
    )
    reason = "No inequality was checked."
    if judged:
        closest = max(judged, key=lambda row: row["worst ratio"])
        reason = (
            f"Violated in {len(broken)} of {len(judged)} pairs of a cell and an inequality"
            f"{places}; the largest ratio of left to right side is "
            f"{closest['worst ratio']:.4g}, of {closest['statement']}."
        )
    return (
        "The inequalities R2 to R9 hold in every round",
        "The lemmas of the paper, as repaired in docs/erratum.md. R3 to R8 hold for any sequence "
        "of actions and delays; R2 and R9 as long as theta_star has been in the set.",
        "Both sides in every round of every run of Delayed OFU-GLM, delays that depend on the "
        "reward included; R4 for all directions in every eighth round. The largest ratio of left "
        "to right side, and where it was. Holds if none is above 1. R1 is shown beside them; it is "
        "judged above, as it may fail with probability delta.",
        summary,
        rows,
        overall([row["holds"] for row in judged]),
        reason,
    )


def _worst_row(part: pd.DataFrame) -> Row:
    """Returns the largest ratio of one inequality and its place."""
    worst = part.loc[part["ratio"].idxmax()]
    ratio = float(worst["ratio"])
    holds = HOLDS if ratio <= 1.0 else FAILS
    where = {"family": worst["family"], "dim": int(worst["dim"]), "delay": worst["delay"]}
    row = {"statement": worst["statement"], "worst ratio": ratio, "holds": holds}
    return row | where | {"run": int(worst["run"]), "round": int(worst["t"])}


# ---------------------------------------------------------------------------------------- bound


def bound_rows() -> list[Row]:
    """Returns the bound of Theorem 1 in each of the paper's settings."""
    T, rows = paper.FULL["horizon"], []
    for law, mean in ((law, mean) for law in paper.LAWS for mean in paper.MEANS):
        delay = paper.LAWS[law](mean)
        missing = expected_missing(delay, T)  # once for all families and dimensions: it is slow
        for family in (Gaussian(), Bernoulli()):
            for dim in paper.DIMS:
                bound = regret_bound(
                    family, delay, dim=dim, horizon=T, delta=paper.DELTA, mean_missing=missing
                )
                corrected = min(bound.additive, bound.multiplicative)
                rows.append(
                    {
                        "family": family_name(type(family).__name__.lower()),
                        "dim": dim,
                        "law": law_name("lomax" if law == "pareto" else law),
                        "expected": mean,
                        "as printed": bound.printed,
                        "additive, corrected": bound.additive,
                        "multiplicative": bound.multiplicative,
                        "trivial": bound.trivial,
                        "smaller corrected / trivial": corrected / bound.trivial,
                    }
                )
    return rows


def _bound(rows: list[Row]) -> NumberlessClaim:
    T = paper.FULL["horizon"]
    ratios = [row["smaller corrected / trivial"] for row in rows]
    empty = sum(ratio >= 1.0 for ratio in ratios)
    reason = (
        f"In {empty} of {len(rows)} settings the bounds say nothing: they allow more regret than "
        f"any policy can have. The corrected ones come to {min(ratios):.3g} to {max(ratios):.3g} "
        "times the largest possible regret. That is a matter of constants: how regret grows with "
        "T and E[τ] is measured by belated reproduce."
    )
    return (
        f"Theorem 1's bound is below the trivial one after {T:,} rounds",
        "Regret is at most 2 L_mu sqrt(beta) (sqrt(2 d T L) + d L (1 + 2 E[τ] + D + psi)) with "
        "probability 1 - 3 delta.",
        "The bounds as numbers (belated.theory.regret_bound), as printed and as corrected, for the "
        "paper's settings; the trivial bound is T times the largest gap between two mean rewards. "
        "A dash: the paper's constants are not defined for this law. Holds if the smaller of the "
        "corrected bounds is below the trivial one in every setting.",
        [],
        rows,
        FAILS if empty else HOLDS,
        reason,
    )


# ------------------------------------------------------------------------------------- Thompson


def judge_thompson(regret: pd.DataFrame) -> NumberlessClaim:
    """Returns whether the penalty of delay is additive for Thompson sampling."""
    summary, rows = penalties(curves_of(regret)) if len(regret) else ([], [])
    answers = {True: HOLDS, False: FAILS, None: OPEN}
    pooled = [row for row in summary if row["policy"] != OFU]
    reason = "Nothing was played."
    if summary:
        reason = (
            f"Exponent of the mean penalty: {exponents(summary)}. Mean regret with the longest "
            f"delay: {'; '.join(_longest(regret))}. No theorem is claimed."
        )
    return (
        "The penalty of delay is additive for Thompson sampling on returned rewards, too",
        "Left open by the paper.",
        "Bayesian regret: theta_star is drawn anew in every run, and the mean over runs averages "
        "over it. Penalty: regret minus that of the same policy without delay, run by run. "
        "Exponent: slope of log mean penalty against log rounds over T/4, T/2 and T, with the "
        "jackknife's 95% interval. Holds, in these settings, if in each family the exponent of "
        f"Thompson sampling lies below {GROWTH_LIMIT}, or its last growth at or below 0, upper "
        f"limit included; does not hold if one lies above {GROWTH_LIMIT} with 95% confidence. "
        f"Settings with T/2 up to {SETTLED} expected delays are left out. The prior is normal with "
        "mean and covariance of the uniform law in the ball that theta_star comes from.",
        summary,
        rows,
        overall([answers[is_additive(row)] for row in pooled]),
        reason,
    )


def _longest(regret: pd.DataFrame) -> list[str]:
    """Returns the mean final regret with the longest delays, in words."""
    last = regret[(regret["t"] == regret["t"].max())]
    last = last[last["expected"] == last["expected"].max()]
    texts = []
    for key, values in last.groupby(["policy", "family", "dim"], sort=False)["regret"]:
        policy, family, dim = key
        mean = mean_interval(values)
        limits = f"{mean.value:.1f} [{mean.low:.1f}, {mean.high:.1f}]"
        texts.append(f"{policy} ({family_name(family)}, d = {dim}) {limits}")
    return texts
