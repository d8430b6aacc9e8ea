"""The paper's experiments beside the paper's own numbers, in one report.

A folder may hold both readings of the decision sets: drawn once per run, as the printed figures
show, and in each round, as the text says. The report is about the reading that was just played,
and puts the other beside it if that was played before.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from belated.experiments.judging.claim_texts import rule
from belated.experiments.judging.claims import Claim, judge_claims
from belated.experiments.judging.curves import Row
from belated.experiments.labels import PAPER_FAMILIES, family_name, law_name
from belated.experiments.paper import SETS
from belated.experiments.published import readings
from belated.experiments.reporting.figures import save_figures
from belated.experiments.reporting.report import section, write_report
from belated.experiments.simulation import Results
from belated.experiments.store import ABSENT, first_difference

CURVE = ["family", "law", "dim", "expected", "policy"]


def write_reproduction(
    results: Results, out: Path, sets: str, settings: dict[str, Any], delta: float
) -> list[str]:
    """Judge, then draw the figures and write ``published.csv`` and ``report.html``.

    Returns the lines to show to the user.
    """
    frames = {sets: results.frame()} | _other_readings(out, sets)
    judged = {reading: judge_claims(frame, delta) for reading, frame in frames.items()}
    beside = beside_print(frames)
    verdicts = compare_verdicts(judged)
    unlike = _unlike(out, frames)

    folder, report = out / sets, out / "report.html"
    beside.to_csv(folder / "published.csv", index=False)
    figures = save_figures(frames[sets], folder / "figures", printed=printed_numbers())
    sections = _printed_section(beside) + _verdicts_section(verdicts, unlike)
    meaning = rule(_played(folder).get("bayesian", False))
    write_report(frames[sets], judged[sets], figures, settings, report, meaning, sections)
    return [
        f"results: {folder / 'results.parquet'}, report: {report}",
        *(f"claim {c.number}: {c.verdict}. {c.title}" for c in judged[sets]),
        *_told_differences(verdicts),
        *unlike,
        *_told_ratios(beside, sets),
    ]


def printed_numbers() -> pd.DataFrame:
    """Returns all numbers of the paper's figures, under the names that results have."""
    table = pd.DataFrame(readings())
    families = {named: family for family, named in PAPER_FAMILIES.items()}
    table["family"] = table["family"].map(families)
    table["law"] = table["delays"].replace("pareto", "lomax")
    names = {"d": "dim", "mean_delay": "expected", "round": "t"}
    return table.drop(columns="delays").rename(columns=names)


def _other_readings(out: Path, sets: str) -> dict[str, pd.DataFrame]:
    """Returns the results of other readings of the decision sets that were played before."""
    paths = {other: out / other / "results.parquet" for other in SETS if other != sets}
    return {other: Results.load(path).frame() for other, path in paths.items() if path.exists()}


def _played(folder: Path) -> dict[str, Any]:
    """Returns what was played in a folder, as its manifest has it."""
    settings: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())["settings"]
    return settings


def _unlike(out: Path, frames: dict[str, pd.DataFrame]) -> list[str]:
    """Returns how two readings differ apart from the decision sets, in words."""
    runs = {sets: frame["run"].nunique() for sets, frame in frames.items()}
    played = {sets: _played(out / sets) | {"runs": int(runs[sets])} for sets in frames}
    here, *others = frames
    lines = []
    for other in others:
        keys = sorted((played[here].keys() | played[other].keys()) - {"environment", "checkpoints"})
        pairs = [(played[other].get(key, ABSENT), played[here].get(key, ABSENT)) for key in keys]
        parts = [first_difference(*pair, key) for key, pair in zip(keys, pairs, strict=True)]
        if any(parts):
            different = "; ".join(filter(None, parts))
            lines.append(f"sets {other} was played otherwise than sets {here}: {different}")
    return lines


def beside_print(frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Returns every printed number that was also measured, with mean, standard error and ratio.

    ``frames`` is by reading of the decision sets; a curve that a reading lacks is missing there.
    """
    table = printed_numbers().rename(columns={"regret": "printed"})
    keys = [*CURVE, "t"]
    seen = []
    for sets, frame in frames.items():
        frame = frame.assign(law=frame["law"].replace("pareto", "lomax"))  # readings of one law
        runs = frame.groupby(keys)["regret"].agg(["mean", "sem"]).reset_index()
        names = {"mean": f"measured, {sets}", "sem": f"standard error, {sets}"}
        table = table.merge(runs.rename(columns=names), on=keys, how="left")
        table[f"ratio, {sets}"] = table[f"measured, {sets}"] / table["printed"]
        seen.append(table[f"measured, {sets}"].notna())
    return table[pd.concat(seen, axis=1).any(axis=1)].reset_index(drop=True)


def compare_verdicts(judged: dict[str, list[Claim]]) -> list[Row]:
    """Returns one row per claim: its verdict in each reading of the sets, and whether they differ.

    There are no rows if there is one reading only.
    """
    rows: list[Row] = []
    for claims in zip(*judged.values(), strict=True) if len(judged) > 1 else ():
        verdicts = {f"sets {s}": c.verdict for s, c in zip(judged, claims, strict=True)}
        grades = {verdict.partition(",")[0] for verdict in verdicts.values()}  # without counts
        differs = "yes" if len(grades) > 1 else "no"
        title = f"{claims[0].number}. {claims[0].title}"
        rows.append({"claim": title} | verdicts | {"differs": differs})
    return rows


def _printed_section(beside: pd.DataFrame) -> str:
    title = "Printed and measured"
    if beside.empty:
        first = int(printed_numbers()["t"].min())
        return section(title, f"The printed curves were read from {first:,} rounds on: --full.", {})
    rows = []
    shown = beside.drop(columns=["band_low", "band_high"])
    for values in shown.rename(columns={"reading_error": "reading error"}).to_dict("records"):
        family, law = family_name(values.pop("family")), law_name(values.pop("law"))
        rows.append({"figure": values.pop("figure"), "family": family, "law": law} | values)
    final = [row for row in rows if row["t"] == beside["t"].max()]
    text = (
        "Numbers read off the published figures, beside the means of these runs. Crosses in the "
        "figures above are the printed ones. The paper fixes one unknown theta_star for each "
        "dimension, so levels differ by what another theta_star changes: docs/published.md."
    )
    return section(title, text, {"After the last round": final, "All rounds": rows})


def _verdicts_section(verdicts: list[Row], unlike: list[str]) -> str:
    if not verdicts:
        return ""
    differ = [*_told_differences(verdicts), *unlike]
    text = ". ".join(["Each claim in both readings of the decision sets", *differ]) + "."
    return section("As printed and as written", text, {"Verdicts": verdicts})


def _told_differences(verdicts: list[Row]) -> list[str]:
    """Returns one line per claim on which the readings of the decision sets disagree."""
    lines = []
    for row in verdicts:
        if row["differs"] == "yes":
            said = [f"{verdict} with {name}" for name, verdict in row.items() if "sets" in name]
            lines.append(f"the verdict differs on claim {row['claim']}: {', '.join(said)}")
    return lines


def _told_ratios(beside: pd.DataFrame, sets: str) -> list[str]:
    """Compares measured and printed final numbers, one line per policy and family."""
    last = beside[beside["t"] == beside["t"].max()]
    return [
        f"measured / printed, {family_name(family)}, {policy}: "
        f"{ratio.min():.2f} to {ratio.max():.2f} in {len(ratio)} settings"
        for (family, policy), part in last.groupby(["family", "policy"])
        if len(ratio := part[f"ratio, {sets}"].dropna())
    ]
