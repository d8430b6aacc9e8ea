"""Playing an experiment and keeping its results."""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from belated.core.arguments import whole, wrong
from belated.engine.lanes import RECORD
from belated.engine.worlds import play_world
from belated.experiments.executors import open_executor
from belated.experiments.experiment import Experiment, WorldTask, new_experiment
from belated.experiments.options import Options
from belated.experiments.reporting.figures import draw
from belated.experiments.running import Play, run
from belated.experiments.store import Folder
from belated.model.protocols import claims_set

USUAL = Options()
SCHEMA = pa.schema(
    [
        ("policy", pa.string()),
        ("family", pa.string()),
        ("delay", pa.string()),  # as a user would type it
        ("law", pa.string()),  # its name alone
        ("expected", pa.float64()),  # the number on the paper's axis; 0 for no delay
        ("dim", pa.int64()),
        ("n_actions", pa.int64()),
        ("run", pa.int64()),
        ("t", pa.int64()),  # rounds played
        ("regret", pa.float64()),  # cumulative, of mean rewards
        ("observed", pa.int64()),
        ("missing", pa.int64()),
        ("mean_missing", pa.float64()),  # over rounds 1 to t
        ("mean_delay", pa.float64()),  # whole rounds, each cut at T + 1
        ("radius", pa.float64()),
        ("covered", pa.bool_()),  # theta_star in the set in all rounds up to t
        ("certificate", pa.float64()),  # bound on the regret that needs no theta_star (R9)
        ("passes", pa.int64()),  # over all returned rewards
    ]
)


class Results:
    """A tidy table: one row per setting, run and checkpoint.

    Attributes
    ----------
    table : pyarrow.Table
        The rows.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def frame(self) -> Any:
        """Returns a pandas data frame; ``covered`` is missing for policies without a set."""
        import pandas as pd

        return self.table.to_pandas(types_mapper={pa.bool_(): pd.BooleanDtype()}.get)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the rows to a Parquet file."""
        pq.write_table(self.table, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Results":
        """Read a file that ``save`` or a command wrote."""
        return cls(pq.read_table(path))

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw cumulative regret against rounds, one panel per setting; returns the figure."""
        figure = draw(self.frame())
        if path is not None:
            figure.savefig(path)
        return figure

    def __repr__(self) -> str:
        return f"Results({self.table.num_rows} rows)"


def simulate(
    policies: Sequence[Any] | Mapping[str, Any],
    families: Sequence[Any] = USUAL.families,
    delays: Sequence[Any] = USUAL.delays,
    *,
    dims: Sequence[int] = USUAL.dims,
    horizon: int = USUAL.horizon,
    runs: int = USUAL.runs,
    seed: int = USUAL.seed,
    n_actions: int = USUAL.n_actions,
    environment: Any = USUAL.environment,
    checkpoints: int | Sequence[int] = USUAL.checkpoints,
    spacing: str = USUAL.spacing,
    max_norm: float = USUAL.max_norm,
    feedback: Any = USUAL.feedback,
    bayesian: bool = USUAL.bayesian,
    out: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    executor: str | Executor | None = None,
    progress: bool = False,
) -> Results:
    """Play every policy with every family and delay on the same worlds.

    Parameters
    ----------
    policies
        Policies, their names (``"ducb-ridge"``, ``"thompson:scale=0.5"``), or objects of your own
        with ``choose(actions, t)`` and ``observe(x, y)``. Several of one kind are labelled by their
        parameters. A mapping gives labels of your own, ``{"wide": Thompson(scale=2.0)}``, and so
        does a text: ``"wide=thompson:scale=2"``.
    families, delays
        The same: ``Bernoulli()`` or ``"bernoulli"``, ``Exponential(500.0)`` or
        ``"exponential:500"``.
    dims
        Dimensions, each a setting of its own.
    horizon, runs, seed
        Rounds per run, runs per setting, and the seed that makes them repeatable.
    n_actions, environment
        K fresh actions per round from the unit ball; or another environment, or its name.
    checkpoints, spacing
        Number of rounds to record, spread ``"linear"`` or ``"logarithmic"``; or the rounds.
    max_norm
        Bound on the norm of an action.
    feedback
        The part of a reward that is seen: ``"identified"``, ``"conversions:window=50"``,
        ``"aggregated"``, or an object of ``belated.worlds.feedback``. A policy must be made for it;
        where only conversions return, one that can learn from silence plays as a ``Bandit`` with
        that window does, and ``"hold thompson"`` is a policy that waits for windows to close.
    bayesian
        Whether theta_star is drawn anew in every run, from the unit ball; the mean over runs is
        then Bayesian regret. By default it is drawn once per dimension, as in the paper.
    out
        A folder for the results, which makes the run resumable; none by default.
    threads, executor
        Worlds are played side by side: by that many threads (as many as there are cores), or by
        ``"dask"``, ``"tcp://scheduler:8786"``, ``"ray"`` or any ``concurrent.futures.Executor``.
        The results are the same.
    progress
        Whether to show a progress bar.

    Returns
    -------
    Results
        ``frame()``, ``save(path)``, ``plot(path)``.

    Examples
    --------
    >>> results = simulate(["delayed-ofu-glm", "uniform"], dims=[2], horizon=50, runs=2, seed=1)
    >>> frame = results.frame()
    >>> frame.groupby("policy").regret.max().idxmax()
    'uniform'
    """
    options = Options(
        policies,
        families,
        delays,
        dims=dims,
        horizon=horizon,
        runs=runs,
        seed=seed,
        n_actions=n_actions,
        environment=environment,
        checkpoints=checkpoints,
        spacing=spacing,
        max_norm=max_norm,
        feedback=feedback,
        bayesian=bayesian,
    )
    return play_experiment(new_experiment(options), out, threads, executor, progress)


def play_experiment(
    experiment: Experiment,
    out: str | os.PathLike[str] | None,
    threads: int | None = None,
    executor: str | Executor | None = None,
    progress: bool = True,
    before: Callable[[], None] = lambda: None,
    play: Play[WorldTask] | None = None,
    schema: pa.Schema = SCHEMA,
) -> Results:
    """Play the worlds that are not in the folder yet; see ``simulate``.

    ``before`` is called after the folder and the executor were found to be in order; ``play`` takes
    the place of ``play_task``, for other tables of the same worlds.
    """
    if threads is None:
        threads = os.cpu_count() or 1
    if executor is not None and not isinstance(executor, str | Executor):
        raise wrong("executor", executor, "threads, dask, ray, an address, or an Executor")
    with (
        tempfile.TemporaryDirectory() if out is None else nullcontext(out) as place,
        Folder(Path(place), experiment.identity(), schema) as folder,
        open_executor(executor, whole("threads", threads)) as pool,
    ):
        before()
        return Results(run(experiment.tasks(), play or play_task, folder, pool, progress=progress))


def play_task(task: WorldTask, after_block: Callable[[float], None]) -> pa.Table:
    """Play one world and return its table."""
    settings = task.settings()
    share = task.work / settings.horizon
    record = play_world(settings, after_block=lambda rounds: after_block(share * rounds))
    return _tabulate(task, record)


def _tabulate(task: WorldTask, record: Any) -> pa.Table:
    experiment = task.experiment
    lanes, rounds = experiment.lanes(), len(experiment.checkpoints)
    value = {name: record[:, :, i].ravel() for i, name in enumerate(RECORD)}
    t = np.tile(experiment.checkpoints, len(lanes))
    laws = [label.partition(":")[0] for _, _, label in lanes]
    delays = [experiment.delays[label] for _, _, label in lanes]
    expected = [float(getattr(delay, "expected", delay.mean)) for delay in delays]
    known = [claims_set(experiment.policies[label]) for label, _, _ in lanes]
    columns = {
        "policy": np.repeat([p for p, _, _ in lanes], rounds),
        "family": np.repeat([f for _, f, _ in lanes], rounds),
        "delay": np.repeat([d for _, _, d in lanes], rounds),
        "law": np.repeat(laws, rounds),
        "expected": np.repeat(expected, rounds),
        "dim": np.full(len(t), task.dim),
        "n_actions": np.full(len(t), experiment.environment.n_actions),
        "run": np.full(len(t), task.run),
        "t": t,
        "regret": value["regret"],
        "observed": value["observed"].astype(np.int64),
        "missing": value["missing"].astype(np.int64),
        "mean_missing": value["missing_sum"] / t,
        "mean_delay": value["delay_sum"] / t,
        "radius": value["radius"],
        "covered": pa.array(value["failures"] == 0.0, mask=~np.repeat(known, rounds)),
        "certificate": value["certificate"],
        "passes": value["passes"].astype(np.int64),
    }
    return pa.table({name: pa.array(column) for name, column in columns.items()}, schema=SCHEMA)
