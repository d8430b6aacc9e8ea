"""The commands around the service: serve it, try it out, make its bandits and its keys.

Bandits and keys are written into the log, so that no service has to run; a service that runs reads
them there. Heavy imports are inside the functions, so that help is quick.
"""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from belated.commands.derived_options import from_json, options_of
from belated.commands.ledger import AsJson
from belated.commands.option_variables import variables_for_options
from belated.core.extras import extra
from belated.service.http.limits import Limits
from belated.wire import BanditSettings

if TYPE_CHECKING:
    from belated.ledger import Ledger
    from belated.ledger.replica import Replica

bandits = typer.Typer(help="The bandits of a ledger.", no_args_is_help=True)
keys = typer.Typer(help="The API keys of a service.", no_args_is_help=True)

URL = "sqlite:///belated.db"
Url = Annotated[str, typer.Option("--ledger", help="sqlite:///file.db or postgresql://...")]
Name = Annotated[str, typer.Argument(help="Letters, digits, - and _.")]


@variables_for_options("BELATED_SERVE")
@options_of(Limits, show_defaults=True)
def serve(
    ledger: Url = URL,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any that is free.")] = 8787,
    workers: Annotated[int, typer.Option(help="Processes.")] = 1,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with bandits to make or change at the start.")
    ] = None,
    without_keys: Annotated[
        bool, typer.Option("--without-keys", help="Let everybody in, also on a public address.")
    ] = False,
    requests_per_second: Annotated[
        float | None, typer.Option(help="Most for each API key and worker.")
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="A line of JSON for each request, on stderr.")
    ] = False,
    log_format: Annotated[
        str, typer.Option(help="Of other lines on stderr: text, or json for a line of JSON each.")
    ] = "text",
    snapshots: Annotated[
        Path | None, typer.Option(help="Folder; default beside the SQLite file.")
    ] = None,
    snapshot_every: Annotated[int, typer.Option(help="Events.")] = 1_000_000,
    traces: Annotated[
        bool, typer.Option("--traces", help="Send OpenTelemetry spans where OTEL_... say.")
    ] = False,
    bandits: Annotated[
        list[str] | None,
        typer.Option(help="NAME,...: the only ones to serve here; repeat it, or none for all."),
    ] = None,
    personalizer: Annotated[
        str | None, typer.Option(help="Bandit behind the Personalizer endpoints.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Name to answer to without keys, beside localhost; repeat it."),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="PEM file: serve HTTPS; SIGHUP reads it again.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file, without a password.")] = None,
    **limits: Any,
) -> None:
    """Serve the bandits of a ledger over HTTP, with a dashboard."""
    with extra("service"):
        from belated.service.serving import ServeSettings
        from belated.service.serving import serve as run
    run(
        ServeSettings(
            ledger=ledger,
            host=host,
            port=port,
            workers=workers,
            config=None if config is None else str(config),
            without_keys=without_keys,
            requests_per_second=requests_per_second,
            access_log=access_log,
            log_format=log_format,
            snapshots=None if snapshots is None else str(snapshots),
            snapshot_every=snapshot_every,
            traces=traces,
            bandits=tuple(name for names in bandits or () for name in names.split(",")),
            personalizer=personalizer,
            allowed_hosts=tuple(allow_host or ()),
            tls_certificate=None if tls_certificate is None else str(tls_certificate),
            tls_key=None if tls_key is None else str(tls_key),
            limits=Limits(**limits),
        )
    )


def demo_service(
    port: Annotated[int, typer.Option(help="0: any that is free.")] = 8788,
    seconds: Annotated[float | None, typer.Option(help="Stop after so long.")] = None,
    seed: Annotated[int, typer.Option(help="Of the simulated world.")] = 1,
) -> None:
    """Serve three bandits with a simulated world behind them: a page that moves."""
    with extra("service"):
        from belated.commands.demo_service import run_demo
    run_demo(port=port, seconds=seconds, seed=seed)


# ------------------------------------------------------------------------------------- bandits


@bandits.command("create")
@options_of(BanditSettings)
def create_bandit(
    name: Name,
    actions: Annotated[
        str, typer.Option(help='JSON, such as {"a": {"price": 3}, "b": {"price": 5}}.')
    ] = "{}",
    ledger: Url = URL,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Make a bandit, or change its settings."""
    from belated.service.bandits_file import make_bandit

    given["actions"] = from_json("actions", actions)
    with _opened(ledger, must_exist=False) as store:
        _show(make_bandit(_replica(store, ledger), name, given), as_json)


@bandits.command("list")
def list_bandits(ledger: Url = URL, as_json: AsJson = False) -> None:
    """Names, and how many decisions and rewards there were."""
    from belated.service.settings import state_of

    with _opened(ledger) as store:
        replica = _replica(store, ledger)
        states = [state_of(fold, replica.clock()) for fold in replica.folds.values()]
    counts = [
        {
            "name": state.name,
            "decided": state.n_decided,
            "pending": state.n_pending,
            "learnt": state.n_observed,
        }
        for state in states
    ]
    _print_table(counts, as_json)


@bandits.command("show")
def show_bandit(name: Name, ledger: Url = URL, as_json: AsJson = False) -> None:
    """A bandit's settings, and what it knows."""
    from belated.ledger.tools.reading import unknown_bandit
    from belated.service.settings import state_of

    with _opened(ledger) as store:
        replica = _replica(store, ledger)
        if name not in replica.folds:
            raise unknown_bandit(store, name)
        _show(state_of(replica.fold(name), replica.clock()), as_json)


def lift(
    name: Name,
    ledger: Url = URL,
    level: Annotated[float, typer.Option(help="Of the interval.")] = 0.95,
    as_json: AsJson = False,
) -> None:
    """Compare a bandit with its holdout, in reward and guardrail outcomes per decision."""
    import msgspec

    from belated.core.arguments import probability
    from belated.ledger.tools.lifting import is_it_worth_it
    from belated.ledger.tools.reading import opened
    from belated.ledger.tools.showing import show

    with opened(ledger) as store:
        found = is_it_worth_it(store, name, level=probability("--level", level))
    said = msgspec.to_builtins(found)
    if not as_json:
        typer.echo(said.pop("sentence"))
        for guardrail in said["guardrails"]:
            typer.echo(guardrail.pop("sentence"))
    show(said, as_json)


# ---------------------------------------------------------------------------------------- keys


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="Who will have it.")],
    scope: Annotated[list[str], typer.Option(help="read, decide, reward, admin; repeat it.")],
    bandit: Annotated[str | None, typer.Option(help="The only one it is for.")] = None,
    ledger: Url = URL,
    as_json: AsJson = False,
) -> None:
    """Make a key; its secret is shown now and never again."""
    with extra("service"):
        from belated.service.keys import make_key
    with _opened(ledger, must_exist=False) as store:
        key = make_key(store, name, scope, bandit or "")
    typer.echo(json.dumps({"id": key.id, "key": key.text}) if as_json else key.text)


@keys.command("list")
def list_keys(ledger: Url = URL, as_json: AsJson = False) -> None:
    """Show the keys that are valid, without their secrets."""
    with extra("service"):
        from belated.service.keys import valid_keys
    with _opened(ledger) as store:
        rows = [
            {"id": k.id, "name": k.name, "scopes": ",".join(k.scopes), "bandit": k.bandit or "all"}
            for k in valid_keys(store).values()
        ]
    _print_table(rows, as_json)


@keys.command("revoke")
def revoke_key(
    id: Annotated[str, typer.Argument(help="As `belated keys list` shows it.")], ledger: Url = URL
) -> None:
    """Let nobody in with this key any more."""
    with extra("service"):
        from belated.service.keys import revoke
    with _opened(ledger) as store:
        revoke(store, id)
    typer.echo(f"revoked {id}")


# -------------------------------------------------------------------------------------- shared


@contextmanager
def _opened(url: str, must_exist: bool = True) -> "Iterator[Ledger]":
    """Yields the ledger; if nothing is to be written, a mistyped name must not make a new one."""
    from belated.core.files import refuse_missing
    from belated.ledger import open_ledger

    file = url.removeprefix("sqlite:///")
    if must_exist and file != url:
        refuse_missing("ledger", url, Path(file))
    with closing(open_ledger(url)) as store:
        yield store


def _replica(store: "Ledger", url: str) -> "Replica":
    """Returns all bandits as of now; a snapshot beside the file makes it quick."""
    from belated.ledger import snapshots
    from belated.ledger.replica import Replica

    replica = Replica(store)
    snapshots.load(replica, snapshots.default_folder(url))
    replica.catch_up()
    return replica


def _show(state: Any, as_json: bool) -> None:
    import msgspec

    values = msgspec.to_builtins(state)
    if as_json:
        typer.echo(json.dumps(values, indent=2))
        return
    settings = values.pop("settings")
    for name, value in {**values, **settings}.items():
        typer.echo(f"{name:16} {json.dumps(value) if isinstance(value, list | dict) else value}")


def _print_table(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    elif rows:
        lines = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            texts = (f"{text:{width}}" for text, width in zip(line, widths, strict=True))
            typer.echo("  ".join(texts).rstrip())
