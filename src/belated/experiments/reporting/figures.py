"""Figures of regret, drawn from a frame of results alone.

The frame is tidy: one row per setting, run and checkpoint. Lines are told apart by dashes, markers
and lightness as well as by hue, so that a grey print can be read.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from belated.experiments.labels import OFU, family_name, law_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 48
NOT_IN_PDF = ["Creator", "Producer", "CreationDate"]
# The colours go from dark to light and back, so that neighbours differ in grey too.
COLORS = ["#0b2a5b", "#e07b39", "#2a7f62", "#c9a227", "#8c1c3f", "#7aa6d8", "#555555"]
DASHES: list[Any] = ["-", "--", "-.", ":", (0, (7, 1, 1, 1, 1, 1))]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]


def save_figures(
    frame: pd.DataFrame, folder: Path, printed: pd.DataFrame | None = None
) -> list[Path]:
    """Draw the paper's figures for whatever part of its grid the frame holds.

    Parameters
    ----------
    frame : pandas.DataFrame
        Results, one row per setting, run and checkpoint.
    folder : Path
        Where the files go; made if absent.
    printed : pandas.DataFrame, optional
        Numbers of another source, drawn as crosses: family, law, dim, expected, policy, t, regret.

    Returns
    -------
    list of Path
        A PNG and a PDF file per figure, named like the keys of ``captions``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, part, _ in _plan(frame):
        crosses = _matching(printed, part)
        figure = _final(part, crosses) if name.startswith("final") else _grid(part, crosses)
        paths += save_figure(figure, folder / name)
    return paths


def _matching(printed: pd.DataFrame | None, frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of another source that belong to the settings and rounds of a frame."""
    if printed is None:
        return frame.iloc[:0]
    keys = ["family", "law", "dim", "expected", "policy", "t"]
    wanted = frame.assign(law=frame["law"].replace("pareto", "lomax"))[keys].drop_duplicates()
    return printed.merge(wanted, on=keys)


def save_figure(figure: "Figure", path: Path) -> list[Path]:
    """Write ``path`` as PNG and as PDF; the same figure gives the same bytes."""
    png, pdf = (path.parent / f"{path.name}.{suffix}" for suffix in ("png", "pdf"))
    figure.savefig(png, dpi=150, metadata={"Software": None})  # no date, no version in the files
    figure.savefig(pdf, metadata=dict.fromkeys(NOT_IN_PDF))
    return [png, pdf]


def captions(frame: pd.DataFrame) -> dict[str, str]:
    """Returns the caption of each figure of ``save_figures``, by its name without suffix."""
    return {name: caption for name, _, caption in _plan(frame)}


def draw(frame: pd.DataFrame) -> "Figure":
    """Draw regret against the round, one panel per family, dimension and delay.

    Parameters
    ----------
    frame : pandas.DataFrame
        Results, one row per setting, run and checkpoint. With one run there are no bands.

    Returns
    -------
    matplotlib.figure.Figure
        One line per policy: mean over runs, band of one standard error.
    """
    keys = ["family", "dim", "n_actions", "delay"]
    panels = dict(list(frame.groupby(keys)))
    if not panels:
        raise ValueError("there is nothing to draw: the frame has no rows")
    if len(panels) > MOST_PANELS:
        raise ValueError(
            f"{len(panels)} panels are too many to read, {MOST_PANELS} is the most: "
            "filter the frame first, for example frame[frame['dim'] == 5]"
        )
    delays = frame.drop_duplicates("delay").sort_values(["law", "expected"])["delay"]
    sizes = sorted({key[:3] for key in panels}, key=lambda size: (family_name(size[0]), *size))
    places = _places(sizes, list(delays))
    rows, columns = np.max([places[key] for key in panels], axis=0) + 1
    figure, axes = new_panels(rows, columns, share_y=False)
    styles = line_styles(_policies(frame))
    for key, part in panels.items():
        one, first = axes[places[key]], part.iloc[0]
        _curves(one, part, styles)
        size = _size_name(frame, first["dim"], first["n_actions"])
        title = f"{family_name(first['family'])}, {size}\n{delay_name(first)}"
        one.set_title(title, fontsize=10)
    finish(figure, axes, styles, "round t")
    return figure


def _plan(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, str]]:
    """Yields file name, rows and caption of each figure that the frame has rows for."""
    families = list(frame.groupby(frame["family"].map(family_name)))
    for named, part in families:
        runs = part["run"].nunique()
        band = f"mean of {runs} runs, band: one standard error" if runs > 1 else "one run"
        for law, rows in part[part["law"] != "constant"].groupby("law"):
            caption = f"{named.capitalize()} bandit, {law_name(law)} delays: cumulative regret"
            yield file_name("regret", named, law), rows, f"{caption} against the round; {band}."
    for named, part in families:
        policies = part["policy"].unique()
        if (part["expected"] > 0).any():
            ours = part[part["policy"] == OFU] if OFU in policies else part
            whose = "of Delayed OFU-GLM" if OFU in policies else "of each policy"
            caption = f"{named.capitalize()} bandit: regret {whose} after {part['t'].max():,} "
            yield (
                file_name("final-regret", named),
                ours,
                f"{caption}rounds against the expected delay; mean over runs, band: one standard "
                "error. The point at 0 is no delay, which all laws share; the regret axis need "
                "not start at 0.",
            )


def file_name(*parts: str) -> str:
    """Joins the parts to a name that every file system takes."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")


def _grid(frame: pd.DataFrame, printed: pd.DataFrame) -> "Figure":
    """Draw panels in the paper's layout, rows by dimension and columns by expected delay."""
    sizes = sorted(set(zip(frame["dim"], frame["n_actions"], strict=True)))
    delays = sorted(frame["expected"].unique())
    figure, axes = new_panels(len(sizes), len(delays), share_y=True)
    styles = line_styles(_policies(frame))
    for i, (dim, n_actions) in enumerate(sizes):
        for j, expected in enumerate(delays):
            here = (frame["dim"] == dim) & (frame["n_actions"] == n_actions)
            _curves(axes[i, j], frame[here & (frame["expected"] == expected)], styles)
            crosses = printed[(printed["dim"] == dim) & (printed["expected"] == expected)]
            for policy, points in crosses.groupby("policy"):
                _crosses(axes[i, j], points["t"], points["regret"], styles[policy])
            size = _size_name(frame, dim, n_actions)
            axes[i, j].set_title(f"{size}, E[τ] = {expected:g}", fontsize=11)
    family, law = frame["family"].iloc[0], frame["law"].iloc[0]
    figure.suptitle(f"{family_name(family).capitalize()} bandit, {law_name(law)} delays")
    finish(figure, axes, styles | _cross_style(printed), "round t")
    return figure


def _final(frame: pd.DataFrame, printed: pd.DataFrame) -> "Figure":
    """Draw regret after the last round against the expected delay, one panel per dimension."""
    last = frame[frame["t"] == frame["t"].max()]
    sizes = sorted(set(zip(last["dim"], last["n_actions"], strict=True)))
    columns = min(4, len(sizes))
    figure, axes = new_panels(-(-len(sizes) // columns), columns, share_y=False)
    several = last["policy"].nunique() > 1
    delayed = last[last["expected"] > 0]
    pairs = list(delayed.groupby(["policy", "law"]).groups)
    names = [f"{policy}, {law_name(law)}" if several else law_name(law) for policy, law in pairs]
    styles = line_styles(names)
    for one, (dim, n_actions) in zip(axes.flat, sizes, strict=False):
        here = last[(last["dim"] == dim) & (last["n_actions"] == n_actions)]
        for (policy, law), name in zip(pairs, names, strict=True):
            undelayed = (here["law"] == "constant") & (here["expected"] == 0)
            rows = here[(here["policy"] == policy) & ((here["law"] == law) | undelayed)]
            draw_line(one, rows, "expected", styles[name])
            points = printed[(printed["dim"] == dim) & (printed["t"] == last["t"].iloc[0])]
            points = points[points["law"] == ("lomax" if law == "pareto" else law)]
            points = points[points["policy"] == policy]
            _crosses(one, points["expected"], points["regret"], styles[name])
        one.set_title(_size_name(last, dim, n_actions), fontsize=11)
    family, rounds = family_name(last["family"].iloc[0]), last["t"].iloc[0]
    whose = "" if several else f", {last['policy'].iloc[0]}"
    figure.suptitle(f"{family.capitalize()} bandit{whose}: regret after {rounds:,} rounds")
    styles |= _cross_style(printed)
    finish(figure, axes, styles, "expected delay (rounds)", from_zero=False)
    return figure


def new_panels(rows: int, columns: int, *, share_y: bool) -> tuple["Figure", Any]:
    """Returns an empty figure and its axes, (rows, columns)."""
    from matplotlib.figure import Figure

    width, height = max(5.5, 0.6 + 2.9 * columns), 1.5 + 2.4 * rows
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey="row" if share_y else "none")
    return figure, axes


def _places(sizes: list[Any], delays: list[str]) -> dict[Any, tuple[int, int]]:
    """Returns row and column of each panel: delays across, or down if they are many, or wrapped."""
    pairs = [(i, j) for i in range(len(sizes)) for j in range(len(delays))]
    if 1 < len(delays) <= 5:
        places = pairs
    elif 1 < len(sizes) <= 5:
        places = [(j, i) for i, j in pairs]
    else:
        places = [divmod(k, 4) for k in range(len(pairs))]
    return {(*sizes[i], delays[j]): place for (i, j), place in zip(pairs, places, strict=True)}


def _policies(frame: pd.DataFrame) -> list[str]:
    """Returns the policies of the frame, the paper's own first."""
    return sorted(frame["policy"].unique(), key=lambda name: (name != OFU, name))


def line_styles(names: list[str]) -> dict[str, dict[str, Any]]:
    """Returns the look of each line; lists of lengths 7, 5 and 8 repeat only after 280 lines."""
    return {
        name: {
            "color": COLORS[i % len(COLORS)],
            "linestyle": DASHES[i % len(DASHES)],
            "marker": MARKERS[i % len(MARKERS)],
            "fillstyle": "none" if i else "full",  # lines below a marker stay in sight
            "label": name,
        }
        for i, name in enumerate(names)
    }


def _size_name(frame: pd.DataFrame, dim: int, n_actions: int) -> str:
    """Returns the dimension in words, and the number of actions if the frame has several."""
    return f"d = {dim}, K = {n_actions}" if frame["n_actions"].nunique() > 1 else f"d = {dim}"


def delay_name(row: Any) -> str:
    """Returns the delay of a row of results, in words."""
    if row["law"] == "constant" and row["expected"] == 0:
        return "no delay"
    if not np.isfinite(row["expected"]):
        return str(row["delay"])
    return f"{law_name(row['law'])}, E[τ] = {row['expected']:g}"


def _curves(axes: "Axes", frame: pd.DataFrame, styles: dict[str, dict[str, Any]]) -> None:
    """Draw one line per policy, with its markers apart from those of the others."""
    for i, (policy, style) in enumerate(styles.items()):
        shift = 0.05 + 0.2 * i / len(styles)
        draw_line(axes, frame[frame["policy"] == policy], "t", style | {"markevery": (shift, 0.2)})


def _crosses(axes: "Axes", x: Any, y: Any, style: dict[str, Any]) -> None:
    """Draw printed numbers, in the colour of the line they belong to."""
    axes.plot(x, y, linestyle="none", marker="x", markersize=6, color=style["color"], zorder=3)


def _cross_style(printed: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Returns the entry of the legend, if anything is printed."""
    if printed.empty:
        return {}
    return {"printed": {"color": "#000000", "linestyle": "none", "marker": "x", "label": "printed"}}


def draw_line(axes: "Axes", frame: pd.DataFrame, over: str, style: dict[str, Any]) -> None:
    """Draw the mean over runs, and a band of one standard error if there are several runs."""
    if frame.empty:
        return
    regret = frame.groupby(over)["regret"].agg(["mean", "std", "count"])
    x, middle = regret.index.to_numpy(float), regret["mean"].to_numpy(float)
    axes.plot(x, middle, linewidth=1.6, markersize=4.5, **style)
    error = (regret["std"] / np.sqrt(regret["count"])).to_numpy(float)
    if np.isfinite(error).any():
        band = {"color": style["color"], "alpha": 0.25, "linewidth": 0}
        axes.fill_between(x, middle - error, middle + error, **band)


def finish(
    figure: "Figure",
    axes: Any,
    styles: dict[str, dict[str, Any]],
    x_label: str,
    *,
    from_zero: bool = True,
) -> None:
    """Set scales, label the outer panels and add one legend below them all."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    round_steps = [1, 2, 2.5, 5, 10]
    for one in axes.flat:
        one.set_visible(one.has_data())
        one.set_xlim(left=0)
        if from_zero and one.dataLim.y0 >= 0:
            one.set_ylim(bottom=0)
        one.xaxis.set_major_locator(MaxNLocator(3, steps=round_steps, integer=True))
        one.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        one.yaxis.set_major_locator(MaxNLocator(5, steps=round_steps))
        one.yaxis.set_major_formatter(StrMethodFormatter("{x:,.5g}"))
        one.tick_params(labelsize=9)
        plain_grid(one)
    for i, j in np.ndindex(axes.shape):
        if not any(below.get_visible() for below in axes[i + 1 :, j]):
            axes[i, j].set_xlabel(x_label)
    for one in axes[:, 0]:
        one.set_ylabel("cumulative regret")
    legend_below(figure, styles)


def plain_grid(axes: "Axes", axis: Any = "both") -> None:
    """Draw a light grid below the data and no frame above or beside it."""
    axes.grid(axis=axis, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def legend_below(figure: "Figure", styles: dict[str, dict[str, Any]]) -> None:
    """Add one legend for all panels."""
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], linewidth=1.6, markersize=4.5, **style) for style in styles.values()]
    inches = 0.8 + 0.09 * max(map(len, styles))  # width of the widest entry
    columns = min(len(lines), max(1, int(figure.get_figwidth() / inches)))
    place: Any = "outside lower center"
    figure.legend(handles=lines, loc=place, ncols=columns, frameon=False, handlelength=4)
