"""Lift over decisions, one panel per world; for light and dark pages, readable on a phone."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from belated.experiments.judging.lift import lift_of
from belated.experiments.reporting.figures import DASHES, MARKERS
from belated.experiments.run_intervals import mean_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Every colour has a contrast of 3 or more to white and to a dark page, whose own shows through.
INK = "#768390"
COLORS = ["#2f81f7", "#d2691e", "#3f9a4a", "#e5534b", "#9a6ee0", "#b8860b", "#2a9d9d", INK]
COLORS += ["#c2528b", "#6b8e23", "#9c6b4e"]
WIDTH = 4.6  # inches: on a phone, 9 points are about 10 pixels
COLUMNS = 2
LOWEST = -0.1  # lift at the bottom, where nothing is lower
LOWEST_BAR = -0.25  # bars of few runs may be longer: the lines matter more


def draw_lifts(frame: pd.DataFrame) -> "Figure":
    """Draw the mean lift up to each checkpoint against the number of decisions.

    Parameters
    ----------
    frame : pandas.DataFrame
        Results of the league, one row per world, player, seed and checkpoint.

    Returns
    -------
    matplotlib.figure.Figure
        One panel per world, one line per player, and its 95% interval over seeds beyond the end.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    worlds, players = list(frame["world"].unique()), list(frame["player"].unique())
    columns = min(COLUMNS, len(worlds))
    rows = -(-len(worlds) // columns)
    legend = 0.2 * -(-len(players) // 2)
    height = (3.0 if len(worlds) == 1 else 1.75 * rows) + legend + 0.3
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.patch.set_alpha(0.0)
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
    looks = {player: _look(i) for i, player in enumerate(players)}
    bottom = LOWEST
    for one, world in zip(axes.flat, worlds, strict=False):
        bottom = min(bottom, _panel(one, frame[frame["world"] == world], looks))
        one.set_title(world, fontsize=9, color=INK, loc="left")
    axes[0, 0].set_ylim(bottom, 1.0)  # that of all panels
    for one in axes.flat[len(worlds) :]:
        one.set_visible(False)
    figure.supylabel("lift so far", fontsize=9, color=INK)
    for one in axes.flat[max(0, len(worlds) - columns) : len(worlds)]:
        one.set_xlabel("decisions, in thousands", fontsize=9, color=INK)
    lines = [Line2D([], [], label=player, **look) for player, look in looks.items()]
    place: Any = "outside lower center"
    figure.legend(
        handles=lines, loc=place, ncols=2, frameon=False, fontsize=9, labelcolor=INK, handlelength=3
    )
    return figure


def _look(i: int) -> dict[str, Any]:
    return {
        "color": COLORS[i % len(COLORS)],
        "linestyle": DASHES[i % len(DASHES)],
        "marker": MARKERS[i % len(MARKERS)],
        "markersize": 4,
        "linewidth": 2.4 if i == 0 else 1.3,
    }


def _panel(axes: Any, frame: pd.DataFrame, looks: dict[str, dict[str, Any]]) -> float:
    """Draws one world and returns the lowest lift to be seen."""
    from matplotlib.ticker import MaxNLocator

    lift = frame.assign(lift=lift_of(frame)).pivot_table("lift", "t", ["player", "seed"])
    bottom = LOWEST
    for i, player in enumerate(p for p in looks if p in lift.columns):
        runs = lift[player]
        x = runs.index.to_numpy(float) / 1000.0
        every = (0.05 + 0.25 * i / len(looks), 0.3)
        line = runs.mean(axis=1)
        axes.plot(x, line, markevery=every, zorder=3 - 0.1 * i, **looks[player])
        bottom = min(bottom, float(line.min()))
        last = mean_interval(runs.iloc[-1])
        if np.isfinite(last.low):
            bottom = min(bottom, max(last.low, LOWEST_BAR))
            place = x[-1] * (1.015 + 0.012 * i)  # side by side, each beyond the end of its line
            axes.plot([place] * 2, last[1:], color=looks[player]["color"], linewidth=1.3)
    axes.patch.set_alpha(0.0)
    axes.set_xlim(left=0.0)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.tick_params(labelsize=9, colors=INK)
    axes.grid(color=INK, alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    return bottom
