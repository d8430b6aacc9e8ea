"""The output of a finished experiment besides the numbers: figures and a report."""

from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from belated.core.files import replacing
from belated.experiments.comparison import TIMED_ROUNDS, Comparison
from belated.experiments.experiment import Experiment
from belated.experiments.judging.claim_texts import rule
from belated.experiments.judging.claims import Claim
from belated.experiments.labels import family_name
from belated.experiments.reporting.figures import save_figure, save_figures
from belated.experiments.reporting.report import write_report
from belated.experiments.simulation import Results


def write_output(
    frame: pd.DataFrame,
    claims: Sequence[Claim],
    folder: Path,
    settings: dict[str, Any],
    theta_per_run: bool,
) -> None:
    """Draw the figures of an experiment and write ``report.html``."""
    figures = save_figures(frame, folder / "figures")
    meaning = rule(theta_per_run) if claims else ""
    write_report(frame, claims, figures, settings, folder / "report.html", meaning)


def final_regret(results: Results) -> str:
    """Returns mean regret after the last round and its standard error, one line per lane."""
    frame = results.frame()
    last = frame[frame["t"] == frame["t"].max()]
    lanes = last.groupby(["family", "dim", "delay", "policy"], sort=False)["regret"]
    table = lanes.agg(["mean", "sem"]).round(1).reset_index()
    table.columns = [*table.columns[:4], "regret", "standard error"]
    return str(table.to_string(index=False))


def own_settings(experiment: Experiment) -> dict[str, Any]:
    """Returns what was run, for the report of an experiment that is not the paper's."""
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


def write_comparison(comparison: Comparison, folder: Path) -> None:
    """Write the table as ``compare.csv`` and ``compare.txt``, the figure as PNG and PDF."""
    reasons = [{"policy": p, "left_out": why} for p, why in comparison.left_out.items()]
    table = comparison.table.assign(left_out="")
    rows = pd.concat([table, pd.DataFrame(reasons, columns=table.columns)], ignore_index=True)
    text = StringIO()
    print_comparison(comparison, Console(file=text, width=200))
    for name, content in (("csv", rows.to_csv(index=False)), ("txt", text.getvalue())):
        with replacing(folder / f"compare.{name}") as file:
            file.write(content.encode())
    save_figure(comparison.plot(), folder / "compare")


def print_comparison(comparison: Comparison, console: Console | None = None) -> None:
    """Print one table per delay, how to read it, and the policies that are not in it."""
    console = console or Console()
    frame = comparison.results.frame()
    first, runs, rounds = frame.iloc[0], frame["run"].nunique(), int(frame["t"].max())
    about = f"{family_name(first['family'])} rewards, d = {first['dim']}, K = {first['n_actions']}"
    for delay, rows in comparison.table.groupby("delay", sort=False):
        title = f"{about}, delay {delay}, {runs} run{'s' if runs > 1 else ''}"
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("policy", overflow="fold")
        table.add_column(f"regret at\nT = {rounds:,}", justify="right", no_wrap=True)
        table.add_column("behind the best\n[95% interval]", justify="right", no_wrap=True)
        table.add_column("covered", justify="right", no_wrap=True)
        table.add_column("µs a round,\none thread", justify="right", no_wrap=True)
        for place, row in enumerate(rows.itertuples()):
            table.add_row(*(Text(cell) for cell in (row.policy, *_cells(row, best=place == 0))))
        console.print(table)
    console.print(
        "Regret: mean ± standard error. Behind: mean of the differences on the same worlds; the "
        "best is the best of these runs. Covered: runs in which the confidence set held in every "
        f"round. µs: CPU time on this machine, after compiling, over the first "
        f"{min(rounds, TIMED_ROUNDS):,} rounds of one world, without drawing it.",
        highlight=False,
    )
    for policy, reason in comparison.left_out.items():
        console.print(Text(f"left out: {policy}: {reason}"))


def _cells(row: Any, best: bool) -> list[str]:
    """Returns the numbers of a row of the table as text; one run has no errors."""
    alone = pd.isna(row.standard_error)
    error = "" if alone else f" ± {row.standard_error:,.1f}"
    interval = "" if alone else f" [{_short(row.behind_low)}, {_short(row.behind_high)}]"
    return [
        f"{row.regret:,.1f}{error}",
        "best" if best else f"{_short(row.behind)}{interval}",
        "no set" if pd.isna(row.coverage) else f"{row.coverage:.0%}",
        f"{row.microseconds:,.2f}",
    ]


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.1f}"
