"""The theory put to the test: ``belated audit``.

An audit plays ordinary experiments, each in a folder of its own, so the same command resumes them:
coverage (one per family, since not every policy accepts every family), the inequalities R1 to R9
along runs of Delayed OFU-GLM, and the Bayesian regret of Thompson sampling beside it. The results
are judged claim by claim, in ``audit_claims``, and written to ``audit.html``.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa

from belated import registry
from belated.core.arguments import whole, wrong
from belated.engine.worlds import audit_world
from belated.experiments import paper
from belated.experiments.experiment import (
    Experiment,
    WorldTask,
    new_experiment,
    why_not,
)
from belated.experiments.judging.audit_claims import judge_audit
from belated.experiments.judging.claims import Claim
from belated.experiments.labels import OFU, PAPER_FAMILIES
from belated.experiments.options import Options
from belated.experiments.reporting.audit_figures import CAPTIONS, save_audit_figures
from belated.experiments.reporting.figures import file_name
from belated.experiments.reporting.report import write_page
from belated.experiments.simulation import SCHEMA, play_experiment
from belated.model.protocols import Family, claims_set
from belated.policies import DelayedOFUGLM, Thompson
from belated.worlds.delays import Constant, Exponential, Informative, is_informative
from belated.worlds.feedback import Identified

TITLE = "Delayed feedback in generalised linear bandits: the theory, audited"
ACTIONS = 10  # K: the claims do not depend on it, the time does
CHECKED = pa.schema(
    [
        ("family", pa.string()),
        ("delay", pa.string()),
        ("dim", pa.int64()),
        ("run", pa.int64()),
        ("statement", pa.string()),  # R1 to R9
        ("ratio", pa.float64()),  # largest ratio of the left to the right side
        ("t", pa.int64()),  # its round; 0 if there was nothing to check
    ]
)


class Size(NamedTuple):
    """The settings of an audit that the user does not give."""

    policies: Sequence[str]
    families: Sequence[str]
    delays: Sequence[str]
    dims: Sequence[int]
    runs: int
    horizon: int
    bayesian_dims: Sequence[int]
    bayesian_runs: int  # at most
    bayesian_rounds: int  # in horizons: a penalty takes longer to settle than a set to fail


QUICK = Size(
    policies=(OFU, "ducb-ridge:guaranteed=true", "gloc", "ada-ofu-ecolog", "glb-omd"),
    families=("gaussian", "bernoulli"),
    delays=("constant:0", "exponential:20", "uniform:20", "lomax:20", "packet:0.9"),
    dims=(2,),
    runs=200,
    horizon=1000,
    bayesian_dims=(3,),
    bayesian_runs=200,
    bayesian_rounds=5,
)
SLOW = ("ofuglb", "ofulog-r")  # exact level sets: a thousand runs would take days; name them to try
FULL = Size(
    policies=tuple(name for name in registry.POLICIES if name not in SLOW),
    families=tuple(registry.FAMILIES),
    delays=(*QUICK.delays, "exponential:200", "pareto:20", "geometric:20", "never"),
    dims=(2, 5),
    runs=1000,
    horizon=2000,
    bayesian_dims=paper.DIMS,
    bayesian_runs=paper.FULL["runs"],
    bayesian_rounds=50,  # the paper's 100,000
)
BAYESIAN_DELAYS = (0.0025, 0.005, 0.01)  # shares of the rounds; 250, 500 and 1000 of the paper's


class Plan(NamedTuple):
    """The experiments of an audit."""

    coverage: dict[str, Experiment]  # by family
    lemmas: Experiment | None  # of Delayed OFU-GLM; None where it accepts no family
    bayesian: list[Experiment]  # one per dimension
    refused: dict[str, str]  # policies with families that they do not accept, and why


class Measured(NamedTuple):
    """The results of an audit: a frame per part of the plan, without rows if there is no part."""

    covered: pd.DataFrame  # columns of ``SCHEMA``
    checked: pd.DataFrame  # columns of ``CHECKED``
    regret: pd.DataFrame  # columns of ``SCHEMA``


def plan_audit(
    *,
    full: bool = False,
    policies: Sequence[str] | None = None,
    families: Sequence[str] | None = None,
    delays: Sequence[str] | None = None,
    horizon: int | None = None,
    runs: int | None = None,
    seed: int = 0,
) -> Plan:
    """Check everything before the first round is played.

    Parameters
    ----------
    full
        Every policy with a confidence set, every family, more delays, rounds and runs.
    policies, families, delays
        Names, as in ``belated simulate``; ``full`` chooses those that are not given.
    horizon, runs, seed
        Rounds per run, runs per cell, and the seed that makes them repeatable.
    """
    size = FULL if full else QUICK
    T = whole("horizon", size.horizon if horizon is None else horizon)
    n = whole("runs", size.runs if runs is None else runs)
    shape: dict[str, Any] = {"dims": size.dims, "horizon": T, "runs": n, "seed": seed}
    shape |= {"n_actions": ACTIONS, "checkpoints": 1}
    laws = [registry.parse(registry.DELAYS, text) for text in delays or size.delays]
    blind = [law for law in laws if not is_informative(law)]
    if not blind:
        raise wrong("delay", delays, "at least one law that does not depend on the reward")
    rewards = [registry.parse(registry.FAMILIES, text) for text in families or size.families]
    known = {registry.spell(registry.FAMILIES, family): family for family in rewards}
    candidates, coverage = _with_a_set(policies, size.policies), {}
    refused: dict[str, str] = {}
    for name, family in known.items():
        reasons = {policy: _refusal(policy, family, size.dims, T) for policy in candidates}
        fits = [policy for policy, reason in reasons.items() if not reason]
        if fits:
            coverage[name] = new_experiment(Options(fits, [family], blind, **shape))
        refused |= {
            f"{registry.spell(registry.POLICIES, policy)} with {name}": reason
            for policy, reason in reasons.items()
            if reason
        }
    if not coverage:
        raise ValueError(f"nothing is left to audit: {next(iter(refused.values()))}")
    ours, lemmas = DelayedOFUGLM(), None
    accepted = [f for f in known.values() if not _refusal(ours, f, size.dims, T)]
    if accepted:
        every = blind + ([law for law in laws if is_informative(law)] or [Informative()])
        lemmas = new_experiment(Options([ours], accepted, every, **shape))
    in_the_paper = [family for name, family in known.items() if name in PAPER_FAMILIES]
    rounds, few = size.bayesian_rounds * T, min(n, size.bayesian_runs)
    dims = size.bayesian_dims if in_the_paper else ()
    bayesian = [_bayesian(in_the_paper, dim, rounds, few, seed) for dim in dims]
    return Plan(coverage, lemmas, bayesian, refused)


def _with_a_set(named: Sequence[str] | None, default: Sequence[str]) -> list[Any]:
    """Returns the policies that were named, or those of ``default`` that have a confidence set."""
    policies = [registry.parse(registry.POLICIES, text) for text in named or default]
    for policy in policies:
        if named and not claims_set(policy):
            raise wrong("policy", policy, "one with a confidence set")
    return [policy for policy in policies if claims_set(policy)]


def _refusal(policy: Any, family: Family, dims: Sequence[int], horizon: int) -> str:
    """Says why the policy does not play with this family; empty if it does."""
    reasons = (why_not(policy, family, dim, horizon, 1.0, Identified()) for dim in dims)
    return next(filter(None, reasons), "")


def _bayesian(families: list[Family], dim: int, rounds: int, runs: int, seed: int) -> Experiment:
    """Returns Thompson sampling beside Delayed OFU-GLM; every run draws theta_star in the ball."""
    prior_sd = (dim + 2.0) ** -0.5  # the covariance of that law is I / (d + 2)
    delays = [Exponential(share * rounds) for share in BAYESIAN_DELAYS]
    options = Options(
        [DelayedOFUGLM(), Thompson(prior_sd=prior_sd)],
        families,
        [Constant(0.0), *delays],
        dims=[dim],
        horizon=rounds,
        runs=runs,
        seed=seed,
        n_actions=ACTIONS,
        bayesian=True,
    )
    return new_experiment(options)


def play_audit(
    plan: Plan,
    out: Path,
    threads: int | None = None,
    executor: str | None = None,
    say: Callable[[str], None] = lambda name: None,
) -> Measured:
    """Play the worlds that are not in the folders yet; ``say`` gets the name of each part."""

    def play(name: str, experiment: Experiment, **other: Any) -> pd.DataFrame:
        say(name)
        return play_experiment(experiment, out / name, threads, executor, **other).frame()

    nothing = pd.DataFrame(columns=SCHEMA.names)
    covered = [
        play(f"coverage-{file_name(family)}", experiment).assign(family=family)
        for family, experiment in plan.coverage.items()
    ]
    checked = pd.DataFrame(columns=CHECKED.names)
    if plan.lemmas:
        checked = play("lemmas", plan.lemmas, play=check_task, schema=CHECKED)
    regret = [play(f"thompson-d{e.dims[0]}", e) for e in plan.bayesian]
    return Measured(pd.concat(covered), checked, pd.concat(regret) if regret else nothing)


def check_task(task: WorldTask, after_block: Callable[[float], None]) -> pa.Table:
    """Check the inequalities in one world and tabulate the worst ratio of each."""
    lanes = zip(task.experiment.lanes(), audit_world(task.settings()), strict=True)
    world = {"dim": task.dim, "run": task.run}
    rows = [
        {"family": family, "delay": delay, "statement": name, "ratio": ratio, "t": t, **world}
        for (_, family, delay), worst in lanes
        for name, (ratio, t) in worst.items()
    ]
    return pa.Table.from_pylist(rows, schema=CHECKED)


def write_audit(plan: Plan, measured: Measured, out: Path) -> list[Claim]:
    """Judge, draw, and write ``audit.html``; returns the claims with their verdicts."""
    deltas = {
        label: float(policy.delta)
        for experiment in plan.coverage.values()
        for label, policy in experiment.policies.items()
    }
    claims = judge_audit(*measured, deltas)
    figures = save_audit_figures(claims, measured.checked, measured.regret, out / "figures")
    any_one = next(iter(plan.coverage.values()))
    introduction = (
        f"{any_one.runs} runs of {any_one.horizon:,} rounds in each cell of the coverage table, "
        "fewer and longer ones for Thompson sampling. All policies and delays of one dimension and "
        "run share their random numbers. Intervals are at 95% confidence."
    )
    captions = {path.stem: CAPTIONS[path.stem.partition("-")[0]] for path in figures}
    write_page(out / "audit.html", TITLE, introduction, _stated(plan), claims, figures, captions)
    return claims


def _stated(plan: Plan) -> dict[str, Any]:
    """Returns what was run and what was not, for the last table."""
    any_one = next(iter(plan.coverage.values()))
    settings: dict[str, Any] = {
        "rounds T": any_one.horizon,
        "runs": any_one.runs,
        "actions K": (ACTIONS, "fresh ones from the unit ball in every round"),
        "dimensions": list(any_one.dims),
        "families": list(plan.coverage),
        "delays": list((plan.lemmas or any_one).delays),
        "seed": any_one.seed,
    }
    for experiment in plan.bayesian:
        settings[f"Thompson sampling, d = {experiment.dims[0]}"] = (
            f"{experiment.runs} runs of {experiment.horizon:,} rounds",
            "theta_star uniform in the unit ball, anew in every run; the prior is normal with the "
            "same mean and covariance",
        )
    return settings | {pair: ("left out", why) for pair, why in plan.refused.items()}
