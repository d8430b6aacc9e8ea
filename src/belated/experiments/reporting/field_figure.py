"""Many policies in one figure: every line is labelled where it ends, in the order of regret."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from belated.experiments.labels import family_name
from belated.experiments.reporting.figures import delay_name, draw_line, line_styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE = 0.17  # inches between two labels
LETTER = 0.068  # inches per letter of a label, about
LEFT, TOP, BOTTOM = 0.75, 0.45, 0.55  # margins in inches
WIDTH = 5.5  # inches of a panel


def draw_field(frame: pd.DataFrame) -> "Figure":
    """Draw regret against the round, one panel per delay, on a logarithmic scale.

    Parameters
    ----------
    frame : pandas.DataFrame
        Results of one family and dimension, one row per delay, policy, run and checkpoint.

    Returns
    -------
    matplotlib.figure.Figure
        One line per policy: mean over runs, band of one standard error. Beside each panel are the
        policies in the order of their regret after the last round, each tied to its line.
    """
    from matplotlib.figure import Figure

    panels = list(frame.groupby("delay", sort=False))
    if not panels:
        raise ValueError("there is nothing to draw: the frame has no rows")
    final = frame[frame["t"] == frame["t"].max()].groupby("policy")["regret"].mean()
    names = list(final.sort_values(kind="stable").index)
    high = max(3.2, 1.5 * LINE * len(names))
    wide = LEFT + WIDTH + 0.45 + LETTER * (max(map(len, names)) + 8)
    tall = len(panels) * (TOP + high + BOTTOM)
    figure = Figure(figsize=(wide, tall))
    styles = line_styles(names)
    for i, (_, part) in enumerate(panels):
        bottom = tall - (i + 1) * (TOP + high + BOTTOM) + BOTTOM
        box = (LEFT / wide, bottom / tall, WIDTH / wide, high / tall)
        _panel(figure.add_axes(box), part, styles, LINE / high)
    return figure


def _panel(axes: "Axes", frame: pd.DataFrame, styles: Any, gap: float) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    end = frame["t"].max()
    means = frame.groupby(["policy", "t"])["regret"].mean()
    first, row = frame["t"].min(), frame.iloc[0]
    axes.set_xlim(first, end)
    axes.set_yscale("log")
    top = max(means.max(), 1e-9)  # without any regret the scale still needs a number
    low = means[means.index.get_level_values("t") >= end / 20].min()
    axes.set_ylim(max(low, 1e-3 * top) / 1.3, top * 1.3)
    for i, (policy, style) in enumerate(styles.items()):
        every = (0.05 + 0.2 * i / len(styles), 0.2)
        draw_line(axes, frame[frame["policy"] == policy], "t", style | {"markevery": every})
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.5g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    runs = frame["run"].nunique()
    band = f"mean of {runs} runs, band: standard error" if runs > 1 else "one run"
    size = f"d = {row['dim']}, K = {row['n_actions']}; {band}"
    title = f"{family_name(row['family']).capitalize()} bandit, {delay_name(row)}, {size}"
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel("round t")
    axes.set_ylabel("cumulative regret, logarithmic")
    _label(axes, means.xs(end, level="t"), styles, gap)


def _label(axes: "Axes", final: Any, styles: Any, gap: float) -> None:
    """Write the policies beside the panel, tied to where their lines end."""
    final = final.sort_values(kind="stable")
    low, high = np.log(axes.get_ylim())
    ends = (np.log(np.maximum(final.to_numpy(float), np.exp(low))) - low) / (high - low)
    places = spread(ends, gap, 0.0, 1.0)
    for (policy, regret), y, place in zip(final.items(), ends, places, strict=True):
        look: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False}
        axes.plot([1.0, 1.04], [y, place], color=styles[policy]["color"], linewidth=0.8, **look)
        sample = {**styles[policy], "linewidth": 1.6, "markersize": 4.5, "markevery": [1]}
        axes.plot([1.04, 1.07, 1.10], [place] * 3, **sample, **look)
        text = f"{policy}  {regret:,.{0 if regret >= 100.0 else 1}f}"
        axes.text(1.115, place, text, transform=axes.transAxes, va="center", fontsize=8)


def spread(wanted: NDArray[Any], gap: float, low: float, high: float) -> NDArray[Any]:
    """Returns places at least ``gap`` apart, as near as possible to the increasing ``wanted``.

    Least squares under the order is isotonic regression of the places without the gaps: neighbours
    that are out of order are pooled.

    >>> spread(np.array([0.0, 0.5, 0.5]), 0.2, 0.0, 1.0).round(3).tolist()
    [0.0, 0.4, 0.6]
    """
    offsets = gap * np.arange(len(wanted))
    pools: list[list[float]] = []  # each with its sum and its size
    for value in wanted - offsets:
        pools.append([value, 1.0])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] >= pools[-1][0] / pools[-1][1]:
            last = pools.pop()
            pools[-1] = [pools[-1][0] + last[0], pools[-1][1] + last[1]]
    level = np.concatenate([np.full(int(size), total / size) for total, size in pools])
    room = max(low, high - (offsets[-1] if len(offsets) else 0.0))
    return np.clip(level, low, room) + offsets
