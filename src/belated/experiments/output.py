"""What a finished experiment leaves in its folder besides the numbers: figures and a report."""

from pathlib import Path
from typing import Any

from belated.experiments.claims import Claim
from belated.experiments.figures import save_figures
from belated.experiments.report import write_report
from belated.experiments.settings import Experiment
from belated.experiments.simulation import Results


def write_output(
    results: Results, folder: Path, settings: dict[str, Any], delta: float
) -> list[Claim]:
    """Draw the figures and write ``report.html``; returns the claims with their verdicts."""
    frame = results.frame()
    figures = save_figures(frame, folder / "figures")
    return write_report(frame, figures, settings, folder / "report.html", delta=delta)


def final_regret(results: Results) -> str:
    """Mean regret after the last round and its standard error, a line for each lane."""
    frame = results.frame()
    last = frame[frame["t"] == frame["t"].max()]
    lanes = last.groupby(["family", "dim", "delay", "policy"], sort=False)["regret"]
    table = lanes.agg(["mean", "sem"]).round(1).reset_index()
    table.columns = [*table.columns[:4], "regret", "standard error"]
    return str(table.to_string(index=False))


def own_settings(experiment: Experiment) -> dict[str, Any]:
    """What was run, for the report of an experiment that is not the paper's."""
    return {
        "rounds T": experiment.horizon,
        "runs": experiment.runs,
        "environment": str(experiment.environment)[:200],
        "dimensions": list(experiment.dims),
        "policies": list(experiment.policies),
        "families": list(experiment.families),
        "delays": list(experiment.delays),
        "seed": experiment.seed,
        "bound on the norm of actions": experiment.max_norm,
    }
