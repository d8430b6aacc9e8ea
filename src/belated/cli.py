"""The command line. Thin: heavy imports happen inside the commands, so that help is quick."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from belated import __version__

app = typer.Typer(
    help="Generalised linear bandits with delayed feedback.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
cache = typer.Typer(help="The compiled kernels kept on disk.", no_args_is_help=True)
app.add_typer(cache, name="cache")


class Kind(StrEnum):
    """What there is to list."""

    policies = "policies"
    families = "families"
    delays = "delays"
    environments = "environments"


def main() -> None:
    """Entry point: what the user did wrong is one line, not a traceback."""
    try:
        app()
    except (ValueError, OSError, RuntimeError) as error:
        raise SystemExit(f"belated: {error}") from None


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
) -> None:
    """Show what there is, one line each."""
    from belated import registry

    lines = registry.summaries(getattr(registry, kind.name.upper()))
    if as_json:
        typer.echo(json.dumps(lines, indent=2))
    else:
        width = max(map(len, lines))
        typer.echo("\n".join(f"{name:{width}}  {line}" for name, line in lines.items()))


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Directory for the picture.")] = Path("demo"),
    rounds: Annotated[int, typer.Option(min=10, help="Decisions in a run.")] = 2000,
    runs: Annotated[int, typer.Option(min=2, help="Runs to average over.")] = 12,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first run.")] = 1,
) -> None:
    """Play a small bandit with late rewards and draw what the lateness costs."""
    from belated.demo import run_demo

    picture = run_demo(out, rounds=rounds, runs=runs, seed=seed)
    typer.echo(f"picture: {picture}")


@cache.command()
def warm() -> None:
    """Compile every policy with every family now, so that first calls are quick."""
    from rich.progress import track

    from belated.core.cache import cache_dir
    from belated.warm import jobs

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
