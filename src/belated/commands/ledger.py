"""``belated ledger``: thin commands with heavy imports inside."""

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    help="Look after a ledger: import, export, verify, replay, snapshot, backup, restore, retain, "
    "compact.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Url = Annotated[str, typer.Argument(help="sqlite:///file.db or postgresql://host/database.")]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; write nothing.")]
One = Annotated[str | None, typer.Option("--bandit", help="Only this bandit.")]
TIME = "ISO 8601, or seconds since 1970"
Folder = Annotated[
    Path | None, typer.Option(help="Of snapshots; default beside a SQLite file: FILE.snapshots.")
]


def _show(result: dict[str, Any], as_json: bool, failed: bool = False) -> None:
    from belated.ledger.tools.showing import show

    show(result, as_json)
    if failed:
        raise typer.Exit(1)


def _time(option: str, text: str | None) -> int | None:
    from belated.core.times import microseconds

    return None if text is None else microseconds(option, text)


@app.command(name="export")
def export_command(
    ledger: Url,
    out: Annotated[Path, typer.Option(help="events: .jsonl, .parquet; --joined: .csv as well.")],
    joined: Annotated[
        bool, typer.Option("--joined", help="One row per decision, with its reward.")
    ] = False,
    bandit: One = None,
    since: Annotated[str | None, typer.Option(help=f"From this time on: {TIME}.")] = None,
    until: Annotated[str | None, typer.Option(help=f"Before this time: {TIME}.")] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Write the log to a file, without loss, or its decisions joined with their rewards."""
    from belated.ledger.tools.exporting import Selection, export
    from belated.ledger.tools.reading import opened

    selection = Selection(bandit, _time("--since", since), _time("--until", until))
    with opened(ledger) as store:
        result = export(store, out, selection, as_joined=joined, dry_run=dry_run)
    _show(result | {"written": not dry_run}, as_json)


@app.command(name="import")
def import_command(
    ledger: Url,
    file: Annotated[Path, typer.Argument(help="An export, or a log: CSV, Parquet, JSON lines.")],
    columns: Annotated[
        str, typer.Option("--map", help="id=...,time=...,action=...,reward=...,reward-time=...")
    ] = "",
    vector: Annotated[str, typer.Option(help="Columns of the played action's features.")] = "",
    context: Annotated[str, typer.Option(help="Columns of the context.")] = "",
    bandit: Annotated[str | None, typer.Option(help="Into which; default the only one.")] = None,
    format: Annotated[
        str | None, typer.Option(help="csv, parquet, jsonl or dsjson; default by the name.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad rows out.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Read a file into a ledger, after all of it was checked; run again, it goes on."""
    from belated.ledger.tools.importing import import_file
    from belated.ledger.tools.importing_logs import Options

    options = Options(columns, vector, context, bandit, format, skip_bad, dry_run)
    result, failed = import_file(ledger, file, options)
    if result.get("rows_ok") == result.get("rows_bad") == 0:
        warnings.warn(f"{file}: it has no rows, so nothing was imported", stacklevel=2)
    _show(result, as_json, failed)


@app.command()
def verify(ledger: Url, folder: Folder = None, as_json: AsJson = False) -> None:
    """Check the store, the rules of the log, and that every snapshot leads to the same state."""
    from belated.ledger.snapshots import default_folder
    from belated.ledger.tools.reading import opened
    from belated.ledger.tools.verifying import verify as check

    with opened(ledger) as store:
        result = check(store, folder or default_folder(ledger))
    _show(result, as_json, failed=not result["sound"])


@app.command()
def replay(
    ledger: Url,
    bandit: One = None,
    policy: Annotated[
        str | None, typer.Option(help="Another one, such as delayed-ofu-glm:delta=0.1.")
    ] = None,
    family: Annotated[str | None, typer.Option(help="Another one, such as bernoulli.")] = None,
    until: Annotated[str | None, typer.Option(help=f"As of this time: {TIME}.")] = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild the state; with --policy, --family or --until, another one beside it."""
    from belated.ledger.tools import replaying
    from belated.ledger.tools.reading import opened

    with opened(ledger) as store:
        if (policy, family, until) == (None, None, None):
            result = replaying.replay(store, bandit)
        else:
            result = replaying.compare(store, bandit, policy, family, _time("--until", until))
    _show(result, as_json)


@app.command()
def snapshot(
    ledger: Url, folder: Folder = None, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Save the state, from the last snapshot to the end of the log, for a quick start."""
    from belated.ledger.tools.maintenance import save_snapshot

    _show(save_snapshot(ledger, folder, dry_run=dry_run), as_json)


@app.command()
def backup(
    ledger: Url,
    out: Annotated[Path, typer.Option(help="A new file.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Copy a SQLite ledger while it is in use, and verify the copy."""
    from belated.ledger.tools.maintenance import copy

    result = copy(ledger, out, dry_run=dry_run)
    _show(result, as_json, failed=not result["sound"])


@app.command()
def restore(
    ledger: Url,
    until: Annotated[str, typer.Option(help=f"The copy holds nothing later: {TIME}.")],
    out: Annotated[str, typer.Option(help="A new ledger: sqlite:///copy.db or postgresql://...")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make a copy of a ledger as it was at a moment, and verify the copy."""
    from belated.core.times import microseconds
    from belated.ledger.tools.restoring import restore as copy

    result = copy(ledger, out, microseconds("--until", until), dry_run=dry_run)
    _show(result, as_json, failed=not result["sound"])


@app.command()
def retain(
    ledger: Url,
    older_than: Annotated[str, typer.Option(help="Such as 90d, 12h or 4w.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Blank context, subject and request of old decisions; the state stays what it is."""
    from belated.ledger.tools.maintenance import retain as take

    _show(take(ledger, older_than, dry_run=dry_run), as_json)


@app.command()
def compact(
    ledger: Url,
    older_than: Annotated[str, typer.Option(help="Such as 400d or 52w.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete old events: the log then begins with the state that they led to."""
    from belated.ledger.tools.compacting import compact as drop

    _show(drop(ledger, older_than, dry_run=dry_run), as_json)
