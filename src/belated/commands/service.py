"""The commands around the service: serve it, try it out, make its bandits and its keys.

Bandits and keys are written into the log, so that no service has to run; one that does reads them
there. Thin, and heavy imports inside, as in ``cli``.
"""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from belated.core.extras import extra

if TYPE_CHECKING:
    from belated.ledger import Ledger
    from belated.ledger.replica import Replica

bandits = typer.Typer(help="The bandits of a ledger.", no_args_is_help=True)
keys = typer.Typer(help="The API keys of a service.", no_args_is_help=True)

URL = "sqlite:///belated.db"
Url = Annotated[str, typer.Option("--ledger", help="sqlite:///file.db or postgresql://...")]
Json = Annotated[bool, typer.Option("--json", help="For machines.")]
Name = Annotated[str, typer.Argument(help="Letters, digits, - and _.")]


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
    snapshots: Annotated[
        Path | None, typer.Option(help="Folder; default beside the SQLite file.")
    ] = None,
    snapshot_every: Annotated[int, typer.Option(help="Events.")] = 1_000_000,
    personalizer: Annotated[
        str | None, typer.Option(help="Bandit behind the Personalizer endpoints.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Name to answer to without keys, beside localhost; repeat it."),
    ] = None,
    # what a client may cost: as in ``service.limits.Limits``, which is not imported for a help page
    max_request_line: Annotated[int, typer.Option(help="Bytes of a request's address.")] = 8_192,
    max_header_bytes: Annotated[int, typer.Option(help="Bytes of a request's headers.")] = 16_384,
    max_headers: Annotated[int, typer.Option(help="Headers of a request.")] = 100,
    header_seconds: Annotated[float, typer.Option(help="Longest to send all headers.")] = 10.0,
    body_seconds: Annotated[
        float, typer.Option(help="Longest to send a body, and to take an answer.")
    ] = 30.0,
    idle_seconds: Annotated[float, typer.Option(help="Longest between two requests.")] = 75.0,
    max_connections: Annotated[int, typer.Option(help="Open at a time, for each worker.")] = 1_000,
    max_body: Annotated[
        int, typer.Option(help="Bytes of a body; everybody waits up to 20 ms for each megabyte.")
    ] = 1_000_000,
) -> None:
    """Serve the bandits of a ledger over HTTP, with a dashboard."""
    with extra("service"):
        from belated.service.http.limits import Limits
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
            snapshots=None if snapshots is None else str(snapshots),
            snapshot_every=snapshot_every,
            personalizer=personalizer,
            allowed_hosts=tuple(allow_host or ()),
            limits=Limits(
                max_request_line=max_request_line,
                max_header_bytes=max_header_bytes,
                max_headers=max_headers,
                header_seconds=header_seconds,
                body_seconds=body_seconds,
                idle_seconds=idle_seconds,
                max_connections=max_connections,
                max_body=max_body,
            ),
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
def create_bandit(
    name: Name,
    family: Annotated[str, typer.Option(help="Such as bernoulli.")],
    policy: Annotated[str | None, typer.Option(help="Such as thompson.")] = None,
    dim: Annotated[int | None, typer.Option(help="Numbers in an action's vector.")] = None,
    features: Annotated[
        str | None, typer.Option(help='JSON, such as {"hashed": {"user": 16}}; instead of --dim.')
    ] = None,
    actions: Annotated[
        str, typer.Option(help='JSON, such as {"a": {"price": 3}, "b": {"price": 5}}.')
    ] = "{}",
    loop: Annotated[str | None, typer.Option(help="explicit or conversion.")] = None,
    window: Annotated[float | None, typer.Option(help="Seconds to wait for a reward.")] = None,
    default_reward: Annotated[float | None, typer.Option(help="Of a conversion loop.")] = None,
    late: Annotated[str | None, typer.Option(help="Late rewards: keep or revise.")] = None,
    mode: Annotated[str | None, typer.Option(help="live or shadow.")] = None,
    exploration: Annotated[float | None, typer.Option(help="Share of uniform draws.")] = None,
    baseline: Annotated[str | None, typer.Option(help="Action to compare with.")] = None,
    fallback: Annotated[str | None, typer.Option(help="Action while the store is down.")] = None,
    ledger: Url = URL,
    as_json: Json = False,
) -> None:
    """Make a bandit, or change its settings."""
    from belated.service.bandits_file import make_bandit

    given = {
        "family": family,
        "policy": policy,
        "dim": dim,
        "features": None if features is None else _parsed("features", features),
        "actions": _parsed("actions", actions),
        "loop": loop,
        "window": window,
        "default_reward": default_reward,
        "late": late,
        "mode": mode,
        "exploration": exploration,
        "baseline": baseline,
        "fallback": fallback,
    }
    given = {setting: value for setting, value in given.items() if value is not None}
    with _opened(ledger, must_exist=False) as store:
        _show(make_bandit(_loop(store, ledger), name, given), as_json)


@bandits.command("list")
def list_bandits(ledger: Url = URL, as_json: Json = False) -> None:
    """Names, and how many decisions and rewards there were."""
    from belated.service.settings import state_of

    with _opened(ledger) as store:
        replica = _loop(store, ledger)
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
def show_bandit(name: Name, ledger: Url = URL, as_json: Json = False) -> None:
    """A bandit's settings, and what it knows."""
    from belated.core.arguments import wrong
    from belated.service.settings import state_of

    with _opened(ledger) as store:
        replica = _loop(store, ledger)
        folds = replica.folds
        if name not in folds:
            known = f"one of {', '.join(folds)}" if folds else "a bandit, and there is none yet"
            raise wrong("name", name, known)
        _show(state_of(folds[name], replica.clock()), as_json)


# ---------------------------------------------------------------------------------------- keys


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="Who will have it.")],
    scope: Annotated[list[str], typer.Option(help="read, decide, reward, admin; repeat it.")],
    bandit: Annotated[str | None, typer.Option(help="The only one it is for.")] = None,
    ledger: Url = URL,
    as_json: Json = False,
) -> None:
    """Make a key; its secret is shown now and never again."""
    with extra("service"):
        from belated.service.keys import make_key
    with _opened(ledger, must_exist=False) as store:
        key = make_key(store, name, scope, bandit or "")
    typer.echo(json.dumps({"id": key.id, "key": key.text}) if as_json else key.text)


@keys.command("list")
def list_keys(ledger: Url = URL, as_json: Json = False) -> None:
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


# ---------------------------------------------------------------------------------- for all of them


@contextmanager
def _opened(url: str, must_exist: bool = True) -> "Iterator[Ledger]":
    """The ledger; a mistyped name must not make a new one where nothing is to be written."""
    from belated.core.arguments import wrong
    from belated.ledger import open_ledger

    file = url.removeprefix("sqlite:///")
    if must_exist and file != url and not Path(file).exists():
        raise wrong("ledger", url, "a file that exists")
    with closing(open_ledger(url)) as store:
        yield store


def _loop(store: "Ledger", url: str) -> "Replica":
    """All bandits as of now; a snapshot beside the file makes it quick."""
    from belated.ledger import snapshots
    from belated.ledger.replica import Replica

    replica, folder = Replica(store), snapshots.default_folder(url)
    if folder is not None:
        snapshots.load(replica, folder)
    replica.catch_up()
    return replica


def _parsed(name: str, text: str) -> Any:
    from belated.core.arguments import wrong

    try:
        return json.loads(text)
    except ValueError as error:
        raise wrong(f"--{name}", text, f"JSON ({error})") from None


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
