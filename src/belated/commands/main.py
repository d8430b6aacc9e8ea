"""The command line. Thin: heavy imports happen inside the commands, so that help is quick."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from belated import __version__
from belated.commands import service as service_commands
from belated.commands.ledger import app as ledger_app
from belated.core.extras import extra

app = typer.Typer(
    help="Generalised linear bandits with delayed feedback.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
cache = typer.Typer(help="The compiled kernels kept on disk.", no_args_is_help=True)
app.add_typer(cache, name="cache")
app.add_typer(ledger_app, name="ledger")
app.add_typer(service_commands.bandits, name="bandits")
app.add_typer(service_commands.keys, name="keys")


class Kind(StrEnum):
    """What there is to list."""

    policies = "policies"
    families = "families"
    delays = "delays"
    environments = "environments"
    feedback = "feedback"


def main() -> None:
    """Entry point: what the user did wrong is one line, not a traceback; so is a warning."""
    warnings.showwarning = lambda message, *where: typer.echo(f"belated: {message}", err=True)
    try:
        app()
    except (ValueError, TypeError, OSError, RuntimeError, ModuleNotFoundError) as error:
        typer.echo(f"belated: {error}", err=True)
        raise SystemExit(2) from None


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"belated {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the program as a whole."""


@app.command(name="list")
def show(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Policies only: all about each, as a page.")
    ] = False,
) -> None:
    """Show what there is, one line each."""
    from belated import registry

    if markdown:
        if kind is not Kind.policies or as_json:
            raise ValueError(f"--markdown with {kind}: expected policies, and no --json")
        from belated.commands.catalogue import page

        typer.echo(page(), nl=False)
        return
    lines = registry.summaries(getattr(registry, kind.name.upper()))
    if as_json:
        typer.echo(json.dumps(lines, indent=2))
    else:
        width = max(map(len, lines))
        typer.echo("\n".join(f"{name:{width}}  {line}" for name, line in lines.items()))


Out = Annotated[Path, typer.Option(help="Folder for the results; the same command resumes.")]
Threads = Annotated[int | None, typer.Option(help="Worlds played side by side; default all cores.")]
Pool = Annotated[str, typer.Option(help="threads, dask, ray, or tcp://scheduler:8786.")]
Runs = Annotated[int | None, typer.Option(help="Runs of every setting.")]
Horizon = Annotated[int | None, typer.Option(help="Rounds in a run.")]


@app.command()
def reproduce(
    full: Annotated[bool, typer.Option("--full", help="The paper's grid, whole.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Part of the grid: linear, logistic, uniform, d=5, E=100, ..."),
    ] = None,
    runs: Runs = None,
    horizon: Horizon = None,
    out: Out = Path("paper"),
    threads: Threads = None,
    seed: Annotated[int, typer.Option(help="Of all random numbers.")] = 1,
    executor: Pool = "threads",
    policy: Annotated[
        list[str] | None, typer.Option(help="One more policy, such as thompson.")
    ] = None,
    sets: Annotated[
        str, typer.Option(help="Decision sets: per-run (the figures) or per-round (the text).")
    ] = "per-run",
    noise: Annotated[float, typer.Option(help="Standard deviation of linear rewards.")] = 0.5,
    logistic_r: Annotated[float, typer.Option(help="R of logistic rewards.")] = 1.0,
    m1: Annotated[float, typer.Option(help="Bound on the norm of theta_star.")] = 1.0,
    lam: Annotated[float, typer.Option(help="Ridge.")] = 1.0,
    pareto: Annotated[str, typer.Option(help="Reading of Pareto: lomax or pareto.")] = "lomax",
    theta_per_run: Annotated[
        bool, typer.Option("--theta-per-run", help="Draw theta_star in every run, not once.")
    ] = False,
) -> None:
    """Run the paper's experiments: its figures, and a verdict on each of its claims."""
    tools = _experiments()
    paper = tools.paper
    size = paper.FULL if full else paper.SMALL
    size = {
        "horizon": size["horizon"] if horizon is None else horizon,
        "runs": size["runs"] if runs is None else runs,
    }
    choices = paper.Choices(sets, noise, logistic_r, m1, lam, pareto, theta_per_run)
    experiment = paper.paper_experiment(
        choices, only=only or (), seed=seed, others=policy or (), **size
    )
    settings = paper.stated_choices(experiment, choices)
    with _resumable():
        results = tools.simulation.play_experiment(experiment, out / sets, threads, executor)
    typer.echo(f"drawing figures and writing {out / 'report.html'}")
    for line in tools.reproducing.write_reproduction(results, out, sets, settings, paper.DELTA):
        typer.echo(line)


@app.command()
def simulate(
    config: Annotated[Path | None, typer.Argument(help="A TOML file; options go first.")] = None,
    policy: Annotated[list[str] | None, typer.Option(help="Such as ducb-ridge:c=2.")] = None,
    family: Annotated[list[str] | None, typer.Option(help="Such as bernoulli.")] = None,
    delay: Annotated[list[str] | None, typer.Option(help="Such as exponential:500.")] = None,
    dim: Annotated[list[int] | None, typer.Option(help="Dimension.")] = None,
    horizon: Horizon = None,
    runs: Runs = None,
    seed: Annotated[int | None, typer.Option(help="Of all random numbers.")] = None,
    actions: Annotated[int | None, typer.Option(help="Fresh actions a round, K.")] = None,
    environment: Annotated[str | None, typer.Option(help="Such as sphere:50.")] = None,
    checkpoints: Annotated[int | None, typer.Option(help="Rounds that are recorded.")] = None,
    spacing: Annotated[str | None, typer.Option(help="Of these: linear or logarithmic.")] = None,
    feedback: Annotated[
        str | None, typer.Option(help="identified, conversions:window=50, or aggregated.")
    ] = None,
    out: Out = Path("simulation"),
    threads: Threads = None,
    executor: Pool = "threads",
) -> None:
    """Play your own settings: policies, families and delays on the same worlds."""
    tools = _experiments()
    given = {
        "policies": policy,
        "families": family,
        "delays": delay,
        "dims": dim,
        "horizon": horizon,
        "runs": runs,
        "seed": seed,
        "n_actions": actions,
        "environment": environment,
        "checkpoints": checkpoints,
        "spacing": spacing,
        "feedback": feedback,
    }
    experiment = tools.config.experiment_of(config, given)
    settings = tools.output.own_settings(experiment)
    delta = tools.config.delta_of(experiment)
    results, _ = _play(experiment, out, threads, executor, settings, delta)
    typer.echo(tools.output.final_regret(results))


@app.command()
def compare(
    policies: Annotated[
        list[str] | None,
        typer.Option(help="Names, label=name, groups (all, all-linear, all-logistic); commas."),
    ] = None,
    family: Annotated[
        str | None, typer.Option(help="Such as bernoulli; default that of the group.")
    ] = None,
    delay: Annotated[list[str] | None, typer.Option(help="Such as exponential:500.")] = None,
    dim: Annotated[int, typer.Option(help="Dimension.")] = 5,
    horizon: Annotated[int, typer.Option(help="Rounds in a run.")] = 5000,
    runs: Annotated[int, typer.Option(help="Runs of every policy.")] = 20,
    seed: Annotated[int, typer.Option(help="Of all random numbers.")] = 0,
    actions: Annotated[int, typer.Option(help="Fresh actions a round, K.")] = 100,
    environment: Annotated[str | None, typer.Option(help="Such as sphere:50.")] = None,
    feedback: Annotated[
        str, typer.Option(help="identified, conversions:window=50, or aggregated.")
    ] = "identified",
    out: Out = Path("comparison"),
    threads: Threads = None,
    executor: Pool = "threads",
) -> None:
    """Rank many policies on the same worlds: regret, coverage, and what a round costs."""
    tools = _experiments()
    experiment, left_out = tools.comparison.new_comparison(
        policies or "all",
        family,
        delay or "exponential:100",
        dim=dim,
        horizon=horizon,
        runs=runs,
        seed=seed,
        n_actions=actions,
        environment=environment,
        max_norm=1.0,
        feedback=feedback,
    )
    with _resumable():
        field = tools.comparison.play_comparison(experiment, left_out, out, threads, executor)
    tools.output.write_comparison(field, out)
    tools.output.print_comparison(field)
    typer.echo(f"table: {out / 'compare.csv'}, figure: {out / 'compare.png'}")


@app.command()
def delay_cost(
    delay: Annotated[str, typer.Argument(help="How late rewards are, in hours: exponential:24.")],
    per_day: Annotated[float, typer.Option(help="Decisions a day.")],
    dim: Annotated[int, typer.Option(help="Dimension of an action.")],
    days: Annotated[float, typer.Option(help="Days to plan for.")] = 30.0,
    actions: Annotated[int, typer.Option(help="Actions to choose from, K.")] = 10,
    family: Annotated[str, typer.Option(help="Such as gaussian:0.5.")] = "bernoulli",
    policy: Annotated[str, typer.Option(help="Such as thompson.")] = "delayed-ofu-glm",
    norm: Annotated[float, typer.Option(help="Length of theta_star.")] = 1.0,
    gap: Annotated[
        float | None,
        typer.Option(help="The same actions all the time, the best so much above the others."),
    ] = None,
    within: Annotated[float, typer.Option(help="Per cent of the best to wait for.")] = 5.0,
    batch_minutes: Annotated[list[float] | None, typer.Option(help="What if: batches.")] = None,
    replica_seconds: Annotated[
        list[float] | None, typer.Option(help="What if: a replica so far behind.")
    ] = None,
    runs: Annotated[int, typer.Option(help="Paired runs.")] = 20,
    seed: Annotated[int, typer.Option(help="Of all random numbers.")] = 0,
    out: Annotated[Path, typer.Option(help="The picture.")] = Path("delay-cost.png"),
) -> None:
    """Say what late rewards will cost a planned deployment, and draw it."""
    _check_drawing()
    from belated import theory

    found = theory.delay_cost(
        delay,
        dim=dim,
        per_day=per_day,
        days=days,
        n_actions=actions,
        family=family,
        policy=policy,
        norm=norm,
        gap=gap,
        within=within,
        batch_minutes=batch_minutes or (),
        replica_seconds=replica_seconds or (),
        runs=runs,
        seed=seed,
    )
    typer.echo(found.sentence)
    found.plot(out)
    typer.echo(f"picture: {out}")


@app.command()
def audit(
    full: Annotated[bool, typer.Option("--full", help="Everything, 1,000 runs a cell.")] = False,
    policy: Annotated[list[str] | None, typer.Option(help="One with a confidence set.")] = None,
    family: Annotated[list[str] | None, typer.Option(help="Such as bernoulli.")] = None,
    delay: Annotated[list[str] | None, typer.Option(help="Such as exponential:50.")] = None,
    horizon: Horizon = None,
    runs: Annotated[int | None, typer.Option(help="Runs of every cell.")] = None,
    seed: Annotated[int, typer.Option(help="Of all random numbers.")] = 1,
    out: Out = Path("audit"),
    threads: Threads = None,
    executor: Pool = "threads",
) -> None:
    """Put the theory to the test: coverage, lemmas, the bound; ends with audit.html."""
    auditing = _experiments().auditing
    plan = auditing.plan_audit(
        full=full,
        policies=policy,
        families=family,
        delays=delay,
        horizon=horizon,
        runs=runs,
        seed=seed,
    )
    with _resumable():
        measured = auditing.play_audit(plan, out, threads, executor, typer.echo)
    for claim in auditing.write_audit(plan, measured, out):
        typer.echo(f"claim {claim.number}: {claim.verdict}. {claim.title}")
    typer.echo(f"report: {out / 'audit.html'}")


def _check_drawing() -> None:
    """Raise where no picture can be drawn: before minutes of computing, not after."""
    with extra("plots"):
        import matplotlib  # noqa: F401


def _experiments() -> Any:
    """The experiments, whose libraries are an extra: asked for before anything is computed."""
    with extra("experiments"):
        import matplotlib  # noqa: F401 - the figures at the end need it

        from belated.commands import experiment_calls as commands
    return commands


@contextmanager
def _resumable() -> Iterator[None]:
    """Ctrl-C ends what is played here in a way that can be resumed."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("stopped; the same command resumes", err=True)
        raise typer.Exit(130) from None


def _play(
    experiment: Any, out: Path, threads: int | None, executor: str, settings: Any, delta: float
) -> Any:
    """Play, draw, report; or stop in a way that can be resumed. Returns results and claims."""
    tools = _experiments()
    with _resumable():
        results = tools.simulation.play_experiment(experiment, out, threads, executor)
    typer.echo(f"drawing figures and writing {out / 'report.html'}")
    frame = results.frame()
    claims = tools.claims.judge_if_possible(frame, delta)
    tools.output.write_output(frame, claims, out, settings, experiment.bayesian)
    typer.echo(f"results: {out / 'results.parquet'}, report: {out / 'report.html'}")
    return results, claims


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Directory for the picture.")] = Path("demo"),
    rounds: Annotated[int, typer.Option(min=10, help="Decisions in a run.")] = 2000,
    runs: Annotated[int, typer.Option(min=2, help="Runs to average over.")] = 12,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first run.")] = 1,
) -> None:
    """Play a small bandit with late rewards and draw what the lateness costs."""
    _check_drawing()
    from belated.commands.demo import run_demo

    picture = run_demo(out, rounds=rounds, runs=runs, seed=seed)
    typer.echo(f"picture: {picture}")


app.command()(service_commands.serve)
app.command()(service_commands.demo_service)


@cache.command()
def warm() -> None:
    """Compile every policy with every family now, so that first calls are quick."""
    from rich.progress import track

    from belated.commands.warm import jobs
    from belated.core.cache import cache_dir

    for job in track(list(jobs()), description="compiling"):
        job()
    typer.echo(f"kernels are in {cache_dir()}")


@cache.command()
def clear() -> None:
    """Delete all compiled kernels."""
    from belated.core.cache import cache_root
    from belated.core.cache import clear as delete

    typer.echo(f"freed {delete() / 1e6:.1f} MB in {cache_root()}")


@cache.command()
def path() -> None:
    """Print where the kernels of this version are kept."""
    from belated.core.cache import cache_dir

    typer.echo(cache_dir())
