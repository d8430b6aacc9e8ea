"""The program ``belated``: its commands, put together, and how errors are shown."""

import json
import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from belated import __version__
from belated.commands import (
    consume,
    evaluate,
    experiments,
    ledger,
    logs,
    plan,
    retrain,
    rewards,
    score,
    service,
)
from belated.commands.examples import add_examples
from belated.commands.ledger import AsJson

app = typer.Typer(
    help="Generalised linear bandits with delayed feedback.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
cache = typer.Typer(help="The compiled kernels kept on disk.", no_args_is_help=True)
app.command()(rewards.rewards)
app.command()(consume.consume)
app.add_typer(cache, name="cache")
app.add_typer(ledger.app, name="ledger")
app.add_typer(service.bandits, name="bandits")
app.add_typer(service.keys, name="keys")


class Kind(StrEnum):
    """The kinds of things to list."""

    policies = "policies"
    families = "families"
    delays = "delays"
    environments = "environments"
    feedback = "feedback"
    worlds = "worlds"


def main() -> None:
    """Run the program. Errors and warnings are printed as one line each, without a traceback."""
    warnings.showwarning = lambda message, *where: typer.echo(f"belated: {message}", err=True)
    try:
        app()
    except (ValueError, TypeError, OSError, RuntimeError, ModuleNotFoundError) as error:
        typer.echo(f"belated: {_words(error)}", err=True)
        raise SystemExit(2) from None


def _words(error: Exception) -> str:
    """Returns what is said of an error; of one about a file, its name and what is amiss."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename2 or error.filename}: {error.strerror}"  # 2: to which it was moved
    return str(error)


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
    as_json: AsJson = False,
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
        return
    width = max(map(len, lines))
    rows = {name: f"{name:{width}}  {line}" for name, line in lines.items()}
    if kind is not Kind.policies:
        typer.echo("\n".join(rows.values()))
        return
    typer.echo("Which one?")
    for heading, advice, policies in registry.which_policy():
        typer.echo(f"\n{heading}. {advice}")
        typer.echo("\n".join(f"  {rows[name]}" for name in policies))


for command in (
    experiments.reproduce,
    experiments.simulate,
    experiments.compare,
    logs.delays,
    evaluate.evaluate,
    plan.plan,
    service.lift,
    retrain.retrain,
    experiments.delay_cost,
    experiments.audit,
    experiments.demo,
    service.serve,
    score.score,
    service.demo_service,
):
    app.command()(command)


@cache.command()
def warm(
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file of a service: what its bandits need, and nothing else."),
    ] = None,
) -> None:
    """Compile common policies with every family now, the default first; first calls are then quick.

    All delays and environments are compiled, too; another policy is compiled when it is first used.
    """
    from rich.progress import track

    from belated.commands.warm import jobs, jobs_of_bandits
    from belated.core.cache import cache_dir

    chosen = jobs() if config is None else jobs_of_bandits(config)
    for job in track(list(chosen), description="compiling"):
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


add_examples(app)
