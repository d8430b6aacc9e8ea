"""Figures of an audit: coverage cell by cell, worst ratios, and the penalty of delay."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from belated.experiments.judging.claims import Claim
from belated.experiments.labels import family_name
from belated.experiments.reporting.figures import (
    draw_line,
    file_name,
    finish,
    legend_below,
    line_styles,
    new_panels,
    plain_grid,
    save_figure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 3.0  # larger ratios look the same in a figure
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
    claims: Sequence[Claim], checked: pd.DataFrame, regret: pd.DataFrame, folder: Path
) -> list[Path]:
    """Draw the figures that have rows; the first word of a file's name is a key of ``CAPTIONS``.

    Coverage is drawn from the rows of the claims about it; ``checked`` and ``regret`` are frames
    of ``auditing.Measured``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = [row for claim in claims for row in claim.rows if "coverage" in row]
    frame, paths = pd.DataFrame(rows), []
    styles = line_styles(list(frame["policy"].unique()))
    for family, part in frame.groupby("family", sort=False):
        paths += save_figure(
            draw_coverage(part, styles), folder / file_name("coverage", str(family))
        )
    if len(checked):
        paths += save_figure(draw_lemmas(checked), folder / "lemmas")
    if len(regret):
        paths += save_figure(draw_penalty(regret), folder / "penalty")
    return paths


def draw_coverage(rows: pd.DataFrame, styles: dict[str, dict[str, Any]]) -> "Figure":
    """Draw shares of one family with their intervals: one panel per dimension, delays down."""
    dims, delays = list(rows["dim"].unique()), list(rows["delay"].unique())
    policies = [policy for policy in styles if policy in set(rows["policy"])]
    figure, axes = new_panels(1, len(dims), share_y=True)
    height = 1.6 + len(delays) * (0.2 + 0.1 * len(policies))
    figure.set_size_inches(2.0 + 4.5 * len(dims), height)
    for one, dim in zip(axes[0], dims, strict=True):
        for i, policy in enumerate(policies):
            cells = rows[(rows["policy"] == policy) & (rows["dim"] == dim)]
            shift = 0.7 * ((i + 0.5) / len(policies) - 0.5)
            y = [delays.index(delay) + shift for delay in cells["delay"]]
            reach = [cells["share"] - cells["low"], cells["high"] - cells["share"]]
            look = styles[policy] | {"linestyle": "none", "markersize": 4.5, "clip_on": False}
            one.errorbar(cells["share"], y, xerr=reach, elinewidth=1.2, **look)
        for delta in rows["delta"].unique():
            one.axvline(delta, color="black", linestyle="--", linewidth=1)
        one.set_title(f"{family_name(rows['family'].iloc[0])}, d = {dim}", fontsize=11)
        one.set_xscale("function", functions=(_root, np.square))
        one.set_xlim(0.0, 1.02)
        one.set_xticks([0.0, 0.01, 0.05, 0.25, 0.5, 1.0], ["0", "1%", "5%", "25%", "50%", "100%"])
        one.set_xlabel("share of runs that left the set")
        one.set_yticks(range(len(delays)), delays)
        one.set_ylim(len(delays) - 0.5, -0.5)
        plain_grid(one, "x")
    axes[0, 0].set_ylabel("delay")
    legend_below(figure, {name: styles[name] | {"linestyle": "none"} for name in policies})
    return figure


def _root(x: Any) -> Any:
    return np.sqrt(np.maximum(x, 0.0))  # margins may lie below 0


def draw_lemmas(checked: pd.DataFrame) -> "Figure":
    """Draw the worst ratio of each inequality, one panel per family and dimension."""
    cells = checked[checked["t"] > 0].groupby(["family", "dim", "delay", "statement"], sort=False)[
        "ratio"
    ]
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
        plain_grid(one, "y")
    for one in axes.flat:
        one.set_visible(one.has_data())
        one.set_xlabel("inequality")
    for one in axes[:, 0]:
        one.set_ylabel("largest left / right side")
    legend_below(figure, {k: v | {"linestyle": "none"} for k, v in styles.items()})
    return figure


def draw_penalty(regret: pd.DataFrame) -> "Figure":
    """Draw the penalty against the expected delay and the round, one row per family and d."""
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
                draw_line(one, here[here["policy"] == policy], over, look)
        title = f"{family_name(family)}, d = {dim}"
        row[0].set_title(f"{title}, after {last['t'].max():,} rounds", fontsize=11)
        row[1].set_title(f"{title}, E[τ] = {longest['expected'].max():g}", fontsize=11)
    finish(figure, axes, styles, "round t")
    axes[-1, 0].set_xlabel("expected delay E[τ] (rounds)")
    for one in axes[:, 0]:
        one.set_ylabel("penalty of delay (regret)")
    return figure
