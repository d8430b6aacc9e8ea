"""The league's figure and tables."""

from io import StringIO

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from rich.console import Console

from belated.experiments.judging.lift import in_short, standings
from belated.experiments.reporting.league_tables import (
    league_lines,
    peer_lines,
    print_league,
    short_lines,
)
from belated.experiments.reporting.lift_figure import COLORS, draw_lifts


def frame_of(worlds=("shop",), players=("ours", "peer"), seeds=3):
    rows = []
    for world in worlds:
        for i, player in enumerate(players):
            for seed in range(seeds):
                for t in (900, 1000):
                    lift = (0.6 - 0.2 * i + 0.01 * seed) * t / 1000
                    sums = {"earned": t * (1 + 2 * lift), "uniform": 1.0 * t, "best": 3.0 * t}
                    key = {"world": world, "player": player, "seed": seed, "t": t}
                    rows.append({**key, **sums, "seconds": 1e-4 * t})
    return pd.DataFrame(rows)


def luminance(color):
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


@pytest.mark.parametrize("page", ["#ffffff", "#0d1117"])
@pytest.mark.parametrize("color", COLORS)
def test_colours_are_seen_on_light_and_dark_pages(color, page):
    low, high = sorted([luminance(color), luminance(page)])
    assert (high + 0.05) / (low + 0.05) >= 3.0


def test_lines_are_lifts_and_the_page_shows_through():
    figure = draw_lifts(frame_of())
    (axes,) = figure.axes
    lines = [line for line in axes.lines if len(line.get_xdata()) == 2 and line.get_xdata()[0] < 1]
    bars = [line for line in axes.lines if line.get_xdata()[0] > 1]
    assert len({line.get_xdata()[0] for line in bars}) == 2
    assert [line.get_ydata()[-1] for line in lines] == pytest.approx([0.61, 0.41])
    assert lines[0].get_xdata().tolist() == [0.9, 1.0]
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    assert np.asarray(canvas.buffer_rgba())[0, 0, 3] == 0


@pytest.mark.parametrize("worlds", [("shop",), ("shop", "other")])
def test_lines_below_zero_are_in_the_picture(worlds):
    frame = frame_of(worlds)
    assert draw_lifts(frame).axes[0].get_ylim() == (-0.1, 1.0)
    lost = frame["earned"].where(frame["world"] != "shop", frame["uniform"] - 0.9 * frame["t"])
    axes = draw_lifts(frame.assign(earned=lost)).axes
    assert [one.get_ylim() for one in axes] == [pytest.approx((-0.45, 1.0))] * len(axes)


@pytest.mark.parametrize("count", [1, 4, 13])
def test_texts_do_not_overlap(count):
    """At the width of a phone: titles, labels and the legend are apart, and inside."""
    players = [f"a-player-with-a-name-{i}" for i in range(9)]
    figure = draw_lifts(frame_of([f"world {i}" for i in range(count)], players))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    texts = [figure.legends[0], *figure.texts]
    for axes in figure.axes:
        if axes.get_visible():
            texts += [axes._left_title, axes.xaxis.label]
            drawn = axes.get_subplotspec().is_first_col()
            ticks = axes.get_yticklabels() if drawn else []
            texts += [tick for tick in ticks if -0.1 <= tick.get_position()[1] <= 1.0]
    boxes = [text.get_window_extent(renderer) for text in texts]
    boxes = [box for box in boxes if box.width > 1.0]
    width, height = figure.canvas.get_width_height()
    for i, box in enumerate(boxes):
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= width
        assert box.y1 <= height
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_tables_say_the_same():
    table = standings(frame_of(), "ours")
    text = StringIO()
    print_league(table, {("shop", "slow"): "too slow"}, "ours", Console(file=text, width=100))
    printed = " ".join(text.getvalue().split())
    assert "peer 0.410" in printed
    assert "-0.200 [-0.200, -0.200] lower 100" in printed
    assert "left out of shop: slow: too slow" in printed
    lines = list(league_lines(table, "shop", "ours"))
    assert lines[0] == "| player | lift | last tenth | ahead of ours [95% interval] |  | time |"
    assert lines[2].startswith("| ours | 0.610 |")
    assert lines[2].endswith("| 1.0 (100 µs) |")
    assert lines[3].endswith("| -0.200 [-0.200, -0.200] | lower | 1.0 |")
    short = list(short_lines(in_short(table, "ours", ["peer"])))
    assert short[2].startswith("| shop | 0.610 |")
    assert short[2].endswith("| peer | 0.410 | +0.200 [+0.200, +0.200] | 1, 0, 0 |")
    copies = len(frame_of()["seed"].unique())
    (by_peer,) = list(peer_lines(table, ["peer"]))[2:]
    assert by_peer == f"| peer | 1 | {copies} | +0.200 | 1 | 1, 0, 0 |"
