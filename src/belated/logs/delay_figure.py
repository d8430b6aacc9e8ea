"""Figures of ``belated delays``: curves with bands and laws, missing rewards over time."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from belated.core.extras import extra
from belated.core.types import Vector
from belated.core.wording import duration
from belated.experiments.reporting.figures import legend_below, line_styles, plain_grid
from belated.logs.delay_words import LAWS, UNITS
from belated.logs.delays import DelayReport, Delays
from belated.monitoring.delay_curve import DelayCurve
from belated.monitoring.delay_fit import DelayFit
from belated.monitoring.truncated_delays import TruncatedCurve

SIZE = (5.6, 4.2)  # inches: its letters can be read on a phone
MOST_STEPS = 400  # of a curve
MOST_LINES = 6  # groups in one figure
REACHED = 0.995  # of what has come: the last few rewards would take most of the width


def draw_curve(report: DelayReport) -> Any:
    """Returns a figure of all decisions: the curve, its band and the best law."""
    figure, axes = _new(report)
    unit, size = _unit(report.all)
    times, share, lower, upper = _steps(report.all)
    styles = line_styles(["the log", "best law"])
    plain: dict[str, Any] = {"marker": "", "label": None}
    axes.plot(times / size, share, drawstyle="steps-post", **{**styles["the log"], **plain})
    axes.fill_between(times / size, lower, upper, step="post", alpha=0.25, linewidth=0)
    best = report.all.best
    if best is not None:
        fitted = _of_law(report.all, best, times)
        label = f"best law: {LAWS[best.law]}"
        axes.plot(times / size, fitted, **{**styles["best law"], **plain})
        styles["best law"]["label"] = label
    axes.set_xlabel(f"{unit} since the decision")
    legend_below(figure, {name: style | {"marker": ""} for name, style in styles.items()})
    return figure


def draw_groups(report: DelayReport) -> Any:
    """Returns a figure with the curves of the largest groups."""
    figure, axes = _new(report)
    unit, size = _unit(report.all)
    groups = dict(list(report.groups.items())[:MOST_LINES])
    styles = {name: style | {"marker": ""} for name, style in line_styles(list(groups)).items()}
    for name, group in groups.items():
        times, share, lower, upper = _steps(group)
        axes.plot(times / size, share, drawstyle="steps-post", **styles[name])
        band = {"color": styles[name]["color"], "alpha": 0.15, "linewidth": 0}
        axes.fill_between(times / size, lower, upper, step="post", **band)
    axes.set_xlabel(f"{unit} since the decision")
    legend_below(figure, styles)
    return figure


def draw_periods(report: DelayReport) -> Any:
    """Returns a figure of missing rewards over time, beside those that the law expects."""
    figure, axes = _new(report)
    last = report.periods[-1].end
    days = [(0.5 * (p.begin + p.end) - last) / 86_400.0 for p in report.periods]
    shares = {
        "missing": [period.missing / period.decisions for period in report.periods],
        "missing by the best law": [p.expected / p.decisions for p in report.periods],
    }
    styles = line_styles(list(shares))
    for name, values in shares.items():
        axes.plot(days, values, **styles[name])
    axes.set(xlabel="days before the last decision", ylabel="share without a reward")
    legend_below(figure, styles)
    return figure


def png(figure: Any) -> bytes:
    """Returns a figure as the bytes of a file; the same figure gives the same bytes."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150, metadata={"Software": None})
    return file.getvalue()


def _new(report: DelayReport) -> tuple[Any, Any]:
    with extra("plots"):
        from matplotlib.figure import Figure
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    whose = "decisions with a reward" if report.loop == "explicit" else "conversions that have come"
    axes.set(ylabel=f"share of {whose}", ylim=(0, 1))
    plain_grid(axes)
    return figure, axes


def _steps(delays: Delays) -> tuple[Vector, Vector, Vector, Vector]:
    """Returns times, shares that have come by then, and their band, at few enough points."""
    curve = delays.curve
    if isinstance(curve, DelayCurve):
        share, lower, upper = 1.0 - curve.waiting, 1.0 - curve.upper, 1.0 - curve.lower
    else:
        share, lower, upper = curve.within, curve.lower, curve.upper
    end = int(np.searchsorted(share, REACHED * share[-1])) + 1 if share.size else 0
    keep = np.unique(np.linspace(0, max(end - 1, 0), min(end, MOST_STEPS)).round().astype(int))
    nothing = np.zeros(1)
    columns = (np.concatenate((nothing, c[keep])) for c in (curve.times, share, lower, upper))
    times, share, lower, upper = columns
    return times, share, lower, upper


def _of_law(delays: Delays, law: DelayFit, times: Vector) -> Vector:
    """Returns the shares of the law that are comparable with the curve."""
    if isinstance(delays.curve, DelayCurve):
        return 1.0 - law.waiting_at(times)
    return law.within_at(times) / law.within_at(delays.curve.longest_age)


def _unit(delays: Delays) -> tuple[str, float]:
    times = _steps(delays)[0]
    return next((pair for pair in UNITS if times[-1] >= 2.0 * pair[1]), UNITS[-1])


def captions(report: DelayReport) -> Mapping[str, str]:
    """Returns the caption of each figure."""
    band, of_all, of_each = "Band: 95 % confidence at each delay.", "", ""
    curve = report.all.curve
    if isinstance(curve, TruncatedCurve):
        of_all = f" Shares are of the conversions that come within {duration(curve.longest_age)}."
        most = "" if report.window is None else f", or the window of {duration(report.window)}"
        of_each = f" Shares are of the conversions that come within the largest age of each{most}."
    largest = f", the {MOST_LINES} largest" if len(report.groups) > MOST_LINES else ""
    return {
        "all": f"How late rewards come, all decisions. {band}{of_all}",
        "groups": f"How late rewards come, by {report.by}{largest}. {band}{of_each}",
        "periods": "Decisions without a reward over time, and how many there should be.",
    }
