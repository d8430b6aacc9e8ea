"""docs/published.md: printed numbers compared with ours, and the page with its script."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_reproducing import played

ROOT = Path(__file__).parents[2]
KEYS = ["family", "law", "dim", "expected", "policy", "t"]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("published", ROOT / "benchmarks/published.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def moved(frame, factor, **setting):
    """The same frame with the regret of one setting multiplied."""
    here = np.logical_and.reduce([frame[key] == value for key, value in setting.items()])
    return frame.assign(regret=frame["regret"].where(~here, frame["regret"] * factor))


LINEAR = {"family": "gaussian", "law": "uniform", "dim": 20, "expected": 500.0}


@pytest.mark.parametrize(("factor", "within"), [(1.0, True), (1.6, False), (0.4, False)])
@pytest.mark.parametrize("policy", ["delayed-ofu-glm", "ducb-ridge"])
def test_a_printed_number_outside_says_no(script, policy, factor, within):
    frame = moved(played(1.0), factor, policy=policy, **LINEAR)
    table = script.compared(frame)
    last = script.finals(table)
    here = np.logical_and.reduce(
        [last[key] == value for key, value in (LINEAR | {"policy": policy}).items()]
    )
    assert last[here]["within"].tolist() == [within] * here.sum()
    assert last[~here]["within"].all()
    lines = script.final_lines(table, table)[2:]
    assert sum("| NO |" in line for line in lines) == (0 if within else here.sum())
    named = script.beyond_lines(table)
    assert (
        named[0] == f"Beyond |z| = 2: {0 if within else here.sum()} of {len(last)} final numbers."
    )
    assert all("linear, uniform 500, d = 20" in line for line in named[2:])


def test_the_interval_shown_is_the_one_that_decides(script):
    rng = np.random.default_rng(3)
    frame = played(1.0)
    lane = frame.groupby(KEYS).ngroup()
    frame = frame.assign(regret=frame["regret"] * rng.normal(1.0, 0.2, lane.max() + 1)[lane])
    table = script.compared(frame)
    inside = table["printed"].between(table["low"], table["high"])
    assert inside.tolist() == table["within"].tolist() == (table["z"].abs() <= 2.0).tolist()
    assert 0.2 < inside.mean() < 0.8
    for line in script.final_lines(table, table)[2:]:
        cells = [cell.strip().replace(",", "") for cell in line.strip("|").split("|")]
        (low, high), printed = map(float, cells[11].split(" to ")), float(cells[6])
        assert cells[12] == ("yes" if low - 1 <= printed <= high + 1 else "NO") or (
            min(abs(printed - low), abs(printed - high)) <= 1
        )


def test_z_is_made_of_both_errors(script):
    table = script.compared(played(1.1))
    row = table[(table["figure"] == 3) & (table["dim"] == 5) & (table["expected"] == 100)].iloc[0]
    band = (row["band_high"] - row["band_low"]) / 2
    assert row["printed_se"] == pytest.approx(np.hypot(row["reading_error"], band))
    error = np.hypot(row["printed_se"], row["ours_se"])
    assert row["z"] == pytest.approx((row["printed"] - row["ours"]) / error)
    # where no band was read, that of Figures 3 and 4 for the family and dimension, as a share
    bands = table[table["figure"].isin([3, 4])].assign(
        share=lambda t: (t["band_high"] - t["band_low"]) / 2 / t["printed"]
    )
    ours = table[(table["policy"] == "delayed-ofu-glm") & table["band_low"].isna()]
    share = bands.groupby(["family", "dim"])["share"].mean()
    usual = ours["printed"] * share[pd.MultiIndex.from_frame(ours[["family", "dim"]])].to_numpy()
    expected = np.hypot(ours["reading_error"], usual)
    assert ours["printed_se"].tolist() == pytest.approx(expected.tolist())


def test_a_reading_is_compared_in_its_own_worlds(script):
    frame = played(1.0)
    reading = moved(frame[frame["run"] == 0], 1.5, dim=5)
    read = script.factors(reading.replace({"law": {"lomax": "pareto"}}), frame)
    assert read.xs(5, level="dim").tolist() == pytest.approx([1.5] * 4)
    assert read.xs(10, level="dim").tolist() == pytest.approx([1.0] * 4)


def test_regret_is_told_by_the_length_of_theta_star(script):
    """Regret that is the printed one at length 1 and 5 per cent less at 0.9."""
    frame = played(1.0)
    worlds = {run: 0.5 + 0.08 * run for run in range(6)}
    luck = dict(zip(worlds, [0.01, -0.02, 0.0, 0.02, -0.01, 0.0], strict=True))
    runs = [
        frame[frame["run"] == 0].assign(
            run=run, regret=lambda f, r=run: f["regret"] / 0.9 * (0.5 + 0.5 * worlds[r] + luck[r])
        )
        for run in worlds
    ]
    lengths = [
        {"dim": dim, "run": run, "length": worlds[run]} for dim in (5, 10, 20) for run in worlds
    ]
    lines = script.length_lines(pd.concat(runs), pd.DataFrame(lengths))
    assert len(lines) == 2 + 12
    for line in lines[2:]:
        slope, at_one = (float(cell) for cell in line.split("|")[5:7])
        assert (slope, at_one) == pytest.approx((0.05, 1.0), abs=0.011)


def test_the_page_has_the_paragraphs_of_the_script(script):
    page = (ROOT / "docs" / "published.md").read_text("utf-8")
    for text in (
        script.INTRODUCTION,
        script.TOGETHER,
        script.NAMES,
        script.EVERY,
        script.LENGTH,
        script.BANDS,
        script.VERDICTS,
        script.OPEN,
    ):
        assert text.strip() in page
