"""Many policies on the same worlds: their rank, their regret, their coverage and their cost."""

import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import track

from belated import registry
from belated.core.arguments import positive, whole, wrong, wrong_type
from belated.engine.worlds import WorldSettings, play_world
from belated.experiments.experiment import Experiment, new_experiment, why_not
from belated.experiments.labels import HOLD, Labelled, labelled_policies, parsed_policy
from belated.experiments.options import Options
from belated.experiments.reporting.field_figure import draw_field
from belated.experiments.run_intervals import mean_interval
from belated.experiments.simulation import Results, play_experiment
from belated.model.plain_policy import holds_parameters_only, is_own
from belated.model.protocols import derivatives, with_horizon
from belated.worlds.feedback import feedback_named

SAME_ARMS = "arms are rows: it needs the same actions in every round, --environment one-hot:10"
GROUPS = {"all": None, "all-linear": "gaussian", "all-logistic": "bernoulli"}
TIMED_ROUNDS = 2000  # enough to see the price of a round, and soon over
COPIES, REPEATS = 2, 3  # copies of a lane in the timed world; repeats of the timed world


@dataclass(frozen=True)
class Comparison:
    """The result of ``compare``.

    Attributes
    ----------
    table : pandas.DataFrame
        One row per delay and policy, the best first: ``regret`` after the last round and its
        ``standard_error``; how far it is ``behind`` the best, the mean of the differences run by
        run, with its 95% interval ``behind_low`` to ``behind_high``; ``coverage``, the share of
        runs whose confidence set held in all rounds, missing if there is no set; and
        ``microseconds`` per round.
    left_out : dict
        Policies of a group that could not play, and why.
    results : Results
        Everything that was recorded.
    """

    table: pd.DataFrame
    left_out: dict[str, str]
    results: Results

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw regret against rounds, one panel per delay, lines labelled; returns the figure."""
        figure = draw_field(self.results.frame())
        if path is not None:
            figure.savefig(path)
        return figure


def compare(
    policies: str | Sequence[Any] | Mapping[str, Any] = "all",
    family: Any = None,
    delays: str | Sequence[Any] = "exponential:100",
    *,
    dim: int = 5,
    horizon: int = 5000,
    runs: int = 20,
    seed: int = 0,
    n_actions: int = 100,
    environment: Any = None,
    max_norm: float = 1.0,
    feedback: Any = "identified",
    out: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    executor: str | Executor | None = None,
    progress: bool = False,
) -> Comparison:
    """Play many policies on the same worlds and rank them.

    Parameters
    ----------
    policies
        Policies or their names, as in ``simulate``, and groups: ``"all"``, ``"all-linear"`` (those
        that learn from Gaussian rewards) and ``"all-logistic"`` (from Bernoulli rewards). Members
        of a group that cannot play are in ``left_out``; a policy that is named and cannot is an
        error. A text may list several: ``"all-linear, thompson:scale=0.5"``. Labels are given as in
        ``simulate``.
    family
        Law of the rewards; by default that of the group, or Gaussian.
    delays
        One or more laws of the delay, each a setting of its own.
    dim, horizon, runs, seed, n_actions, environment, max_norm
        As in ``simulate``, with one dimension.
    feedback, out, threads, executor, progress
        As in ``simulate``.

    Returns
    -------
    Comparison
        ``table``, ``left_out``, ``results`` and ``plot(path)``.

    Examples
    --------
    >>> field = compare(["greedy", "uniform"], dim=2, horizon=60, runs=3, seed=1, n_actions=5)
    >>> field.table.policy.tolist()
    ['greedy', 'uniform']
    """
    options = Options(
        policies,
        [] if family is None else [family],
        delays,
        dims=[dim],
        horizon=horizon,
        runs=runs,
        seed=seed,
        n_actions=n_actions,
        environment=environment,
        max_norm=max_norm,
        feedback=feedback,
    )
    experiment, left_out = new_comparison(options)
    return play_comparison(experiment, left_out, out, threads, executor, progress)


def new_comparison(options: Options) -> tuple[Experiment, dict[str, str]]:
    """Returns the experiment, and why each policy that is left out cannot play; see ``compare``.

    ``options`` holds names of groups among its policies, one family or none, and one dimension.
    """
    dim, horizon = whole("dim", options.dims[0]), whole("horizon", options.horizon)
    max_norm, feedback = positive("max_norm", options.max_norm), feedback_named(options.feedback)
    asked = _asked(options.policies)
    environment = registry.parsed(registry.ENVIRONMENTS, options.environment)
    groups = [name for name in asked if isinstance(name, str) and name in GROUPS]
    family = _family(groups, *options.families)
    chosen = [
        _parsed_policy(thing) for thing in asked if not (isinstance(thing, str) and thing in GROUPS)
    ]
    left_out: dict[str, str] = {}
    families = [family, *(_parsed_family(GROUPS[group]) for group in groups if GROUPS[group])]
    for name in registry.POLICIES if groups else ():
        policy = registry.load(registry.POLICIES, name)()
        if holds_parameters_only(policy) and not hasattr(environment, "arms"):
            left_out[name] = SAME_ARMS
            continue
        reasons = [why_not(policy, one, dim, horizon, max_norm, feedback) for one in families]
        if any(reasons):
            left_out[name] = next(filter(None, reasons))
        elif not any(policy == other for other in chosen):  # a label makes it another policy
            chosen.append(policy)
    played = replace(options, policies=chosen, families=[family], environment=environment)
    return new_experiment(played), left_out


def play_comparison(
    experiment: Experiment,
    left_out: dict[str, str],
    out: str | os.PathLike[str] | None,
    threads: int | None = None,
    executor: str | Executor | None = None,
    progress: bool = True,
) -> Comparison:
    """Time every policy, then play the worlds that are not in the folder yet."""
    times: dict[tuple[str, str], float] = {}
    results = play_experiment(
        experiment,
        out,
        threads,
        executor,
        progress,
        before=lambda: times.update(time_lanes(experiment, progress)),
    )
    return Comparison(field_table(results.frame(), times), left_out, results)


def _asked(policies: str | Iterable[Any]) -> list[Any]:
    """Returns policies and groups one by one: a text may hold several, separated by commas."""
    if isinstance(policies, Mapping):
        return labelled_policies(policies)
    found: list[Any] = []
    for value in [policies] if isinstance(policies, str) else policies:
        found += names_in(value) if isinstance(value, str) else [value]
    return labelled_policies(found) if found else []


def names_in(text: str) -> list[str]:
    """Returns the policies of a text; "field=value" after a comma belongs to the policy before.

    >>> names_in("all-linear, ducb-ridge:delta=0.1,c=2, wide=thompson:scale=2, late=hold greedy")
    ['all-linear', 'ducb-ridge:delta=0.1,c=2', 'wide=thompson:scale=2', 'late=hold greedy']
    """
    names: list[str] = []
    for piece in text.split(","):
        field = re.fullmatch(r"\s*(\w+)\s*=([^:]*).*", piece)
        # "base" is a parameter of policies that wrap another one: its value names a policy, too
        named = field[2].strip().removeprefix(HOLD) if field else ""
        is_label = field and named in registry.POLICIES and field[1] != "base"
        if field and names and not is_label:
            names[-1] += f",{piece}"
        else:
            names.append(piece.strip())
    return names


def _family(groups: Sequence[str], family: Any = None) -> Any:
    """Returns the family asked for, or that of the groups."""
    if family is not None:
        return _parsed_family(family)
    names = sorted({GROUPS[group] or "" for group in groups} - {""})
    if len(names) > 1:
        raise wrong("family", None, f"one of {', '.join(names)}, for {' and '.join(groups)} differ")
    return _parsed_family(names[0] if names else "gaussian")


def _parsed_policy(thing: Any) -> Any:
    if isinstance(thing, Labelled):
        return Labelled(thing.label, _parsed_policy(thing.policy))
    if isinstance(thing, str) and thing.partition(":")[0] in GROUPS:
        raise wrong("policies", thing, "a group without parameters")
    known = registry.POLICIES | dict.fromkeys(GROUPS, "")  # groups, too, are offered as a hint
    return parsed_policy(thing, known)


def _parsed_family(family: Any) -> Any:
    family = registry.parsed(registry.FAMILIES, family)
    if type(family) not in derivatives.cases:
        raise wrong_type("family", family, "a family, such as Gaussian(), or its name")
    return family


def time_lanes(experiment: Experiment, progress: bool = False) -> dict[tuple[str, str], float]:
    """Returns the microseconds of CPU time per round of each policy, by policy and delay.

    One thread plays the first rounds of the first world with one policy, after a play that
    compiles. The cost of drawing the world, which all policies share, is subtracted.
    """
    settings = experiment.tasks()[0].settings()
    rounds = min(experiment.horizon, TIMED_ROUNDS)
    world = _cut(settings._replace(lanes=()), rounds)
    drawing = _least_time(world)
    console = Console(stderr=True)
    lanes: Iterable[Any] = list(zip(experiment.lanes(), settings.lanes, strict=True))
    if progress and console.is_terminal:
        lanes = track(lanes, "compiling and timing", console=console)
    times = {}
    for (policy, _, delay), lane in lanes:
        if not is_own(lane.policy):
            lane = lane._replace(policy=with_horizon(lane.policy, experiment.horizon))
        spent = _least_time(world._replace(lanes=(lane,) * COPIES))
        times[policy, delay] = 1e6 * max(0.0, spent - drawing) / (COPIES * max(1, rounds - 1))
    return times


def _cut(world: WorldSettings, rounds: int) -> WorldSettings:
    return world._replace(horizon=rounds, checkpoints=np.array([rounds]))


def _least_time(world: WorldSettings) -> float:
    """Returns the CPU seconds of all rounds but the first, which bears the cost of starting."""
    short, best = _cut(world, 1), [math.inf, math.inf]
    play_world(short)
    for _ in range(REPEATS):  # the least of several: every disturbance adds time
        for i, part in enumerate((short, world)):
            start = time.thread_time()
            play_world(part)
            best[i] = min(best[i], time.thread_time() - start)
    return best[1] - best[0]


def field_table(frame: pd.DataFrame, times: dict[tuple[str, str], float]) -> pd.DataFrame:
    """Returns the table of a ``Comparison``, from the rows of one family and dimension."""
    rows = []
    for delay, part in frame[frame["t"] == frame["t"].max()].groupby("delay", sort=False):
        regret = part.pivot(index="run", columns="policy", values="regret")
        covered = part.pivot(index="run", columns="policy", values="covered")
        ranked = list(regret.mean().sort_values(kind="stable").index)
        for policy in ranked:
            mine = regret[policy]
            behind = mean_interval(mine - regret[ranked[0]])
            rows.append(
                {
                    "delay": delay,
                    "policy": policy,
                    "regret": mine.mean(),
                    "standard_error": mine.sem(),
                    **behind.columns("behind", "behind_"),
                    "coverage": covered[policy].astype("Float64").mean(),
                    "microseconds": times[policy, delay],
                }
            )
    return pd.DataFrame(rows).astype({"coverage": "Float64"})
