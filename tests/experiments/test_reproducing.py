"""Our numbers beside the printed ones."""

import pandas as pd
import pytest

from belated.experiments.judging.claims import Claim
from belated.experiments.paper import DELTA, Choices, paper_experiment
from belated.experiments.published import printed, readings
from belated.experiments.reporting.figures import save_figures
from belated.experiments.reproducing import (
    beside_print,
    compare_verdicts,
    printed_numbers,
    write_reproduction,
)
from belated.experiments.simulation import play_experiment


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


def claims(*verdicts):
    return [Claim(i, f"claim {i}", "", "", [], [], v, "") for i, v in enumerate(verdicts, 1)]


def test_verdicts_that_differ_are_marked():
    judged = {"per-run": claims("mixed", "contradicted"), "per-round": claims("mixed", "mixed")}
    rows = compare_verdicts(judged)
    assert [row["differs"] for row in rows] == ["no", "yes"]
    assert (rows[1]["sets per-run"], rows[1]["sets per-round"]) == ("contradicted", "mixed")
    few, many = (f"supported overall, {n} of 9 settings open" for n in (2, 7))
    (row,) = compare_verdicts({"per-run": claims(few), "per-round": claims(many)})
    assert row["differs"] == "no"
    assert compare_verdicts({"per-run": claims("mixed")}) == []


def reproduced(out, sets, **changes):
    """Plays and reports a tiny part of the grid; returns what the user is told, and the page."""
    theta_per_run = changes.pop("theta_per_run", False)
    size = {"horizon": 60, "runs": 2, "seed": 1} | changes
    choices = Choices(sets=sets, theta_per_run=theta_per_run)
    only = ["linear,exponential,d=5,E=100"]
    experiment = paper_experiment(choices, only=only, **size)
    results = play_experiment(experiment, out / sets, 1, progress=False)
    told = write_reproduction(results, out, sets, {}, DELTA)
    return told, (out / "report.html").read_text("utf-8")


def test_both_readings_stand_in_one_report(tmp_path):
    told, page = reproduced(tmp_path, "per-run")
    assert "As printed and as written" not in page
    told, page = reproduced(tmp_path, "per-round")
    assert "As printed and as written" in page
    assert not any("otherwise" in line for line in told)
    assert "given the theta_star of each dimension" in page


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"horizon": 80}, "horizon is 60 there, 80 here"),
        ({"runs": 3}, "runs is 2 there, 3 here"),
        ({"seed": 2}, "seed is 1 there, 2 here"),
        ({"theta_per_run": True}, "bayesian is absent there, True here"),
    ],
)
def test_readings_that_were_played_otherwise_are_said_to_be(tmp_path, changes, difference):
    reproduced(tmp_path, "per-run")
    told, page = reproduced(tmp_path, "per-round", **changes)
    line = f"sets per-run was played otherwise than sets per-round: {difference}"
    assert line in told
    assert line in page
    drawn = "theta_star was drawn in every run" in page
    assert drawn is changes.get("theta_per_run", False)


def test_a_verdict_that_differs_is_told(tmp_path, monkeypatch):
    verdicts = iter(["mixed", "mixed", "contradicted"])
    judge = "belated.experiments.reproducing.judge_claims"
    monkeypatch.setattr(judge, lambda frame, delta: claims(next(verdicts)))
    reproduced(tmp_path, "per-run")
    told, page = reproduced(tmp_path, "per-round")
    line = "the verdict differs on claim 1. claim 1: mixed with sets per-round, contradicted with "
    assert line + "sets per-run" in told
    assert line + "sets per-run" in page
