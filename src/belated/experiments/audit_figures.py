"""Figures of an audit: coverage cell by cell, worst ratios, and the penalty of delay."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from belated.experiments.audit_claims import coverage_rows, informative_rows
from belated.experiments.figures import (
    OFU,
    family_name,
    finish,
    legend_below,
    line_styles,
    mean_line,
    new_panels,
    save,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 3.0  # the largest ratio that is told from larger ones in a figure
CAPTIONS = {
    "coverage": "Share of runs in which theta_star left the confidence set in some round, with the "
    "exact 95% interval; dashed: delta. The scale is that of the square root.",
    "lemmas": "Largest ratio of left to right side of each inequality over all rounds and runs of "
    "Delayed OFU-GLM; above the dashed line it is violated. R3 is an identity: its ratio is that "
    "of rounding to what rounding may do. Ratios above 3 are drawn at 3.",
    "penalty": "What delay adds to the Bayesian regret of Thompson sampling and of Delayed "
    "OFU-GLM: after the last round against the expected delay, and against the round with the "
    "longest delay; mean over runs, band: one standard error. No theorem is claimed for Thompson "
    "sampling.",
}


def save_audit_figures(
    covered: pd.DataFrame,
    checked: pd.DataFrame,
    regret: pd.DataFrame,
    deltas: Mapping[str, float],
    folder: Path,
) -> list[Path]:
    """Draw what there are rows for, named like ``CAPTIONS``; PNG and PDF files."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = coverage_rows(covered, deltas) + informative_rows(checked, deltas.get(OFU, 0.05))
    paths = save(draw_coverage(rows), folder / "coverage")
    if len(checked):
        paths += save(draw_lemmas(checked), folder / "lemmas")
    if len(regret):
        paths += save(draw_penalty(regret), folder / "penalty")
    return paths


def draw_coverage(rows: list[dict[str, Any]]) -> "Figure":
    """Shares with their intervals: a panel for each family and dimension, a line for each delay."""
    frame = pd.DataFrame(rows)
    panels = list(frame.groupby(["family", "dim"], sort=False))
    delays, styles = list(frame["delay"].unique()), line_styles(list(frame["policy"].unique()))
    columns = min(2, len(panels))
    figure, axes = new_panels(-(-len(panels) // columns), columns, share_y=False)
    figure.set_figwidth(2.0 + 4.5 * columns)
    figure.set_figheight(1.2 + (0.6 + 0.09 * len(delays) * len(styles)) * len(axes))
    for one, ((family, dim), part) in zip(axes.flat, panels, strict=False):
        for i, (policy, style) in enumerate(styles.items()):
            cells = part[part["policy"] == policy]
            shift = 0.7 * ((i + 0.5) / len(styles) - 0.5)
            y = [delays.index(delay) + shift for delay in cells["delay"]]
            reach = [cells["share"] - cells["low"], cells["high"] - cells["share"]]
            look = style | {"linestyle": "none"}
            one.errorbar(cells["share"], y, xerr=reach, markersize=4.5, elinewidth=1.2, **look)
        for delta in part["delta"].unique():
            one.axvline(delta, color="black", linestyle="--", linewidth=1)
        one.set_title(f"{family_name(family)}, d = {dim}", fontsize=11)
        one.set_xscale("function", functions=(_root, np.square))
        one.set_xlim(0.0, 1.02)
        one.set_xticks([0.0, 0.01, 0.05, 0.25, 0.5, 1.0], ["0", "1%", "5%", "25%", "50%", "100%"])
        one.set_yticks(range(len(delays)), delays)
        one.set_ylim(len(delays) - 0.5, -0.5)
        one.grid(axis="x", color="#dddddd", linewidth=0.6)
        one.set_axisbelow(True)
        one.spines[["top", "right"]].set_visible(False)
    for one in axes.flat:
        one.set_visible(one.has_data())
        one.set_xlabel("share of runs that left the set")
    legend_below(figure, {k: v | {"linestyle": "none"} for k, v in styles.items()})
    return figure


def _root(x: Any) -> Any:
    return np.sqrt(np.maximum(x, 0.0))  # margins may lie below 0


def draw_lemmas(checked: pd.DataFrame) -> "Figure":
    """Worst ratio of each inequality, a panel for each family and dimension."""
    cells = checked.groupby(["family", "dim", "delay", "statement"], sort=False)["ratio"]
    worst = cells.max().clip(upper=MOST)
    panels = list(worst.groupby(level=["family", "dim"], sort=False))
    names, styles = (
        sorted(checked["statement"].unique()),
        line_styles(list(checked["delay"].unique())),
    )
    columns = min(2, len(panels))
    figure, axes = new_panels(-(-len(panels) // columns), columns, share_y=True)
    figure.set_figwidth(1.0 + 4.5 * columns)
    for one, ((family, dim), part) in zip(axes.flat, panels, strict=False):
        for i, (delay, style) in enumerate(styles.items()):
            ratios = part[part.index.get_level_values("delay") == delay]
            shift = 0.6 * ((i + 0.5) / len(styles) - 0.5)
            x = [names.index(name) + shift for name in ratios.index.get_level_values("statement")]
            one.plot(x, ratios, markersize=4.5, **style | {"linestyle": "none"})
        one.axhline(1.0, color="black", linestyle="--", linewidth=1)
        one.set_ylim(bottom=0.0)
        one.set_title(f"{family_name(family)}, d = {dim}", fontsize=11)
        one.set_xticks(range(len(names)), names)
        one.grid(axis="y", color="#dddddd", linewidth=0.6)
        one.set_axisbelow(True)
        one.spines[["top", "right"]].set_visible(False)
    for one in axes.flat:
        one.set_visible(one.has_data())
        one.set_xlabel("inequality")
    for one in axes[:, 0]:
        one.set_ylabel("largest left / right side")
    legend_below(figure, {k: v | {"linestyle": "none"} for k, v in styles.items()})
    return figure


def draw_penalty(regret: pd.DataFrame) -> "Figure":
    """Penalty against the expected delay and against the round, a row for each family and d."""
    same = ["policy", "family", "dim", "run", "t"]
    undelayed = regret[regret["expected"] == 0.0].set_index(same)["regret"].rename("undelayed")
    penalty = regret.join(undelayed, on=same)
    penalty = penalty.assign(regret=penalty["regret"] - penalty["undelayed"])
    last = penalty[penalty["t"] == penalty["t"].max()]
    longest = penalty[penalty["expected"] == penalty["expected"].max()]
    sizes = list(regret.groupby(["family", "dim"], sort=False).groups)
    styles = line_styles(list(regret["policy"].unique()))
    figure, axes = new_panels(len(sizes), 2, share_y=True)
    figure.set_figwidth(9.0)
    for row, (family, dim) in zip(axes, sizes, strict=True):
        for one, part, over in zip(row, (last, longest), ("expected", "t"), strict=True):
            here = part[(part["family"] == family) & (part["dim"] == dim)]
            for policy, style in styles.items():
                look = style | ({"markevery": 0.2} if over == "t" else {})
                mean_line(one, here[here["policy"] == policy], over, look)
        title = f"{family_name(family)}, d = {dim}"
        row[0].set_title(f"{title}, after {last['t'].max():,} rounds", fontsize=11)
        row[1].set_title(f"{title}, E[τ] = {longest['expected'].max():g}", fontsize=11)
    finish(figure, axes, styles, "round t")
    axes[-1, 0].set_xlabel("expected delay E[τ] (rounds)")
    for one in axes[:, 0]:
        one.set_ylabel("penalty of delay (regret)")
    return figure
