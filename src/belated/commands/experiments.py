"""The commands that play rounds: the paper, the user's settings, a comparison, a plan, an audit.

Heavy imports are inside the functions, so that help is quick. Libraries that draw the figures of a
command are imported before anything is played.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from belated.commands.derived_options import options_of
from belated.core.extras import extra
from belated.experiments.options import Options

Out = Annotated[Path, typer.Option(help="Folder for the results; the same command resumes.")]
Threads = Annotated[int | None, typer.Option(help="Worlds played side by side; default all cores.")]
Pool = Annotated[str, typer.Option(help="threads, processes, dask, ray, or tcp://scheduler:8786.")]
Runs = Annotated[int | None, typer.Option(help="Runs of every setting.")]
Horizon = Annotated[int | None, typer.Option(help="Rounds in a run.")]


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
    with _extra("experiments"):
        from belated.experiments import paper
        from belated.experiments.reproducing import write_reproduction
        from belated.experiments.simulation import play_experiment
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
        results = play_experiment(experiment, out / sets, threads, executor)
    typer.echo(f"drawing figures and writing {out / 'report.html'}")
    for line in write_reproduction(results, out, sets, settings, paper.DELTA):
        typer.echo(line)


@options_of(Options)
def simulate(
    config: Annotated[Path | None, typer.Argument(help="A TOML file; options go first.")] = None,
    out: Out = Path("simulation"),
    threads: Threads = None,
    executor: Pool = "threads",
    **given: Any,
) -> None:
    """Play your own settings: policies, families and delays on the same worlds."""
    with _extra("experiments"):
        from belated.experiments.experiment_file import delta_of, experiment_of
        from belated.experiments.judging.claims import judge_if_possible
        from belated.experiments.reporting.output import final_regret, own_settings, write_output
        from belated.experiments.simulation import play_experiment
    experiment = experiment_of(config, given)
    settings, delta = own_settings(experiment), delta_of(experiment)
    with _resumable():
        results = play_experiment(experiment, out, threads, executor)
    typer.echo(f"drawing figures and writing {out / 'report.html'}")
    frame = results.frame()
    claims = judge_if_possible(frame, delta)
    write_output(frame, claims, out, settings, experiment.bayesian)
    typer.echo(f"results: {out / 'results.parquet'}, report: {out / 'report.html'}")
    typer.echo(final_regret(results))


def compare(
    context: typer.Context,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            help="Names, label=name, groups (all, all-linear, all-logistic); commas; default all."
        ),
    ] = None,
    world: Annotated[
        list[str] | None,
        typer.Option(help="A named world, or all; `belated list worlds` shows them."),
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(help="With --world: other libraries, with commas; default all installed."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="With --world: copies of each world.")] = 20,
    decisions: Annotated[
        int | None,
        typer.Option(
            help="With --world: decisions in a run; default: that of the world, 20,000 in the shop."
        ),
    ] = None,
    family: Annotated[
        str | None, typer.Option(help="Such as bernoulli; default that of the group.")
    ] = None,
    delay: Annotated[
        list[str] | None, typer.Option(help="Such as exponential:500; default exponential:100.")
    ] = None,
    dim: Annotated[int, typer.Option(help="Dimension.")] = 5,
    horizon: Annotated[int, typer.Option(help="Rounds in a run.")] = 5000,
    runs: Annotated[int, typer.Option(help="Runs of every policy.")] = 20,
    seed: Annotated[
        int, typer.Option(help="Of all random numbers; with --world, that of the first copy.")
    ] = 0,
    actions: Annotated[int, typer.Option(help="Fresh actions a round, K.")] = 100,
    environment: Annotated[str | None, typer.Option(help="Such as sphere:50.")] = None,
    feedback: Annotated[
        str, typer.Option(help="identified, conversions:window=50, or aggregated.")
    ] = "identified",
    out: Out = Path("comparison"),
    threads: Threads = None,
    executor: Pool = "threads",
) -> None:
    """Rank many policies on the same worlds: regret, coverage, and what a round costs.

    With --world, the worlds are simulated shops with rates as people have them. Other libraries
    play, too, and what counts is lift: the share of what is possible that was earned. The folder
    is then league and the executor processes, unless others are named.
    """
    _refuse_the_other_kind(context, with_world=bool(world))
    if world:
        with _extra("experiments"):
            from belated.commands.compare_worlds import compare_in_worlds
        options = ("out", "executor")  # whose defaults differ
        named = {name: context.params[name] for name in options if _named(context, name)}
        with _resumable():
            compare_in_worlds(
                world, policies, peers, seeds, decisions, seed, threads=threads, **named
            )
        return
    with _extra("experiments"):
        from belated.experiments.comparison import compare as play
        from belated.experiments.reporting.output import print_comparison, write_comparison
    with _resumable():
        field = play(
            policies or "all",
            family,
            delay or "exponential:100",
            dim=dim,
            horizon=horizon,
            runs=runs,
            seed=seed,
            n_actions=actions,
            environment=environment,
            feedback=feedback,
            out=out,
            threads=threads,
            executor=executor,
            progress=True,
        )
    write_comparison(field, out)
    print_comparison(field)
    typer.echo(f"table: {out / 'compare.csv'}, figure: {out / 'compare.png'}")


OF_WORLDS = ("peers", "seeds", "decisions")  # options of compare that need --world
OF_SETS = ["family", "delay", "dim", "horizon", "runs", "actions", "environment", "feedback"]


def _named(context: typer.Context, option: str) -> bool:
    """Returns whether an option was given, and not left at its default."""
    source = context.get_parameter_source(option)
    return source is not None and source.name != "DEFAULT"


def _refuse_the_other_kind(context: typer.Context, with_world: bool) -> None:
    """Raises where an option was given that means nothing with, or without, --world."""
    for option in OF_SETS if with_world else OF_WORLDS:
        if _named(context, option):
            need = "no --world: a named world has its own" if with_world else "--world beside it"
            raise ValueError(f"--{option}: expected {need}")


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
    with _extra("plots"):
        from belated import theory
    _refuse_picture(out)
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


def _refuse_picture(path: Path) -> None:
    """Raises, before anything is played, where no picture of that name can be written."""
    from matplotlib.figure import Figure

    from belated.core.arguments import wrong

    if path.suffix[1:].lower() not in Figure().canvas.get_supported_filetypes():
        raise wrong("--out", str(path), "a name that ends in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise wrong("--out", str(path), "a name in a folder that exists")


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
    with _extra("experiments"):
        from belated.experiments import auditing
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


def demo(
    out: Annotated[Path, typer.Option(help="Directory for the picture.")] = Path("demo"),
    rounds: Annotated[int, typer.Option(min=10, help="Decisions in a run.")] = 2000,
    runs: Annotated[int, typer.Option(min=2, help="Runs to average over.")] = 12,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first run.")] = 1,
) -> None:
    """Play a small bandit with late rewards and draw what the lateness costs."""
    with _extra("plots"):
        from belated.commands.demo import run_demo
    picture = run_demo(out, rounds=rounds, runs=runs, seed=seed)
    typer.echo(f"picture: {picture}")


@contextmanager
def _extra(name: str) -> Iterator[None]:
    """Wraps imports that need an extra with Matplotlib, which is asked for first."""
    with extra(name):
        import matplotlib  # noqa: F401 - the figures at the end need it

        yield


@contextmanager
def _resumable() -> Iterator[None]:
    """Ends the command on Ctrl-C in a way that can be resumed."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("stopped; the same command resumes", err=True)
        raise typer.Exit(130) from None
