"""Our numbers beside the printed ones."""

import pandas as pd
import pytest

from belated.experiments.published import printed, readings
from belated.experiments.reporting.figures import save_figures
from belated.experiments.reproducing import beside_print, printed_numbers


def played(factor, laws=("exponential", "uniform", "lomax")):
    """Results of two runs whose mean is the printed regret times a factor, in every setting."""
    table = printed_numbers()
    table = table[table["figure"].isin([1, 2, 5, 6, 7, 8]) & table["law"].isin(laws)]
    runs = [table.assign(run=run, regret=table["regret"] * factor * (1 + d)) for run, d in SPREAD]
    frame = pd.concat(runs, ignore_index=True)
    delay = frame["law"] + ":" + frame["expected"].astype(int).astype(str)
    return frame.assign(n_actions=100, delay=delay)


SPREAD = [(0, -0.1), (1, 0.1)]


def test_every_printed_number_has_a_measured_twin():
    beside = beside_print({"per-run": played(1.25)})
    assert len(beside) == len(readings())
    # Figures 3 and 4 show the last rounds of the others: up to the reading errors
    assert beside["ratio, per-run"].between(1.15, 1.35).all()
    curves = beside[beside["figure"].isin([1, 2, 5, 6, 7, 8])]
    assert curves["ratio, per-run"].tolist() == pytest.approx([1.25] * len(curves))
    error = curves["standard error, per-run"] / curves["measured, per-run"]
    assert error.tolist() == pytest.approx([0.1] * len(curves))


def test_a_number_is_put_beside_its_own_setting():
    beside = beside_print({"per-run": played(1.0)}).set_index(
        ["figure", "family", "law", "dim", "expected", "policy", "t"]
    )
    row = beside.loc[(7, "gaussian", "lomax", 10, 250.0, "ducb-ridge", 60_000)]
    exact = printed("linear", "pareto", 10, 250.0, "ducb-ridge", 60_000)
    assert (row["printed"], row["reading_error"]) == (exact.regret, exact.reading_error)
    assert row["measured, per-run"] == pytest.approx(exact.regret)


def test_both_readings_and_the_other_reading_of_pareto():
    type_one = played(2.0).replace({"law": {"lomax": "pareto"}})
    part = played(1.0, laws=("uniform",))
    beside = beside_print({"per-run": type_one, "per-round": part})
    assert len(beside) == len(readings())
    heavy = beside[beside["law"] == "lomax"]
    assert heavy["ratio, per-run"].between(1.8, 2.2).all()
    assert heavy["ratio, per-round"].isna().all()
    assert beside[beside["law"] == "uniform"]["ratio, per-round"].between(0.9, 1.1).all()


def test_nothing_is_beside_a_short_run():
    frame = played(1.0)
    assert beside_print({"per-run": frame.assign(t=frame["t"] // 10)}).empty


def test_printed_numbers_are_drawn(tmp_path):
    """A figure with crosses is another figure."""
    frame = played(1.1)
    frame = frame[(frame["family"] == "gaussian") & (frame["dim"] == 5)]
    plain = save_figures(frame, tmp_path / "plain")
    crossed = save_figures(frame, tmp_path / "crossed", printed=printed_numbers())
    assert [p.name for p in plain] == [p.name for p in crossed]
    for one, other in zip(plain, crossed, strict=True):
        assert one.read_bytes() != other.read_bytes()
