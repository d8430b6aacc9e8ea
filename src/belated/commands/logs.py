"""Commands that answer questions about a log: thin, with heavy imports inside."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from belated.commands.ledger import AsJson

Log = Annotated[str, typer.Argument(help="CSV, Parquet, JSON lines, or the URL of a ledger.")]
Columns = Annotated[
    str,
    typer.Option(
        "--map",
        help="FIELD=COLUMN,...: id, time, action, reward, reward-time, propensity, subject or "
        "segment; those not named are guessed.",
    ),
]
Context = Annotated[str, typer.Option(help="Columns of the context, with commas.")]
Format = Annotated[
    str | None, typer.Option(help="csv, parquet, jsonl or dsjson; default by the name.")
]
BanditName = Annotated[
    str | None, typer.Option("--bandit", help="Of a ledger; default the only one.")
]
Loop = Annotated[
    str | None,
    typer.Option(help="explicit (each decision gets a reward) or conversion (only successes do)."),
]
Window = Annotated[
    str | None, typer.Option(help="How long a reward is waited for, such as 7d; default forever.")
]
Now = Annotated[str | None, typer.Option(help="ISO time; default the latest in the log.")]
BadFile = Annotated[Path | None, typer.Option("--bad", help="For bad rows; default LOG.bad.csv.")]
Strict = Annotated[bool, typer.Option("--strict", help="Bad rows are an error.")]


def named_in(context: str) -> list[str]:
    """Returns the names of columns that stand between commas."""
    return [name.strip() for name in context.split(",") if name.strip()]


def bad_file(log: str, given: Path | None) -> Path:
    """Returns the file for bad rows: as given, or beside the log."""
    if given is not None:
        return given
    name = log.removeprefix("sqlite:///")
    return Path(f"{'ledger' if '://' in name or name.startswith('env:') else name}.bad.csv")


def of_bad_rows(said: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what people are shown of the rows that were left out."""
    return {name: said[name] for name in ("rows_left_out", "first_bad_rows")}


def delays(
    log: Log,
    columns: Columns = "",
    loop: Loop = None,
    window: Window = None,
    by: Annotated[str | None, typer.Option(help="segment or action: a law for each.")] = None,
    now: Now = None,
    page: Annotated[Path | None, typer.Option(help="An HTML file with figures.")] = None,
    law: Annotated[
        Path | None, typer.Option(help="A file for --delay empirical:FILE of other commands.")
    ] = None,
    law_unit: Annotated[
        str, typer.Option(help="hours, minutes, seconds, days or rounds; other commands take all.")
    ] = "hours",
    format: Format = None,
    bandit: BanditName = None,
    bad: BadFile = None,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Say how late the rewards of a log are, which law fits, and what may be taken for granted."""
    from belated.ledger.tools.showing import show
    from belated.logs.bad_rows import refuse_the_log
    from belated.logs.delay_words import summary
    from belated.logs.delays import delay_report
    from belated.logs.law_file import write_law

    for option, path in (("--law", law), ("--page", page)):
        if path is not None:
            refuse_the_log(option, path, log)
    report = delay_report(
        log,
        columns=columns,
        format=format,
        bandit=bandit,
        loop=loop,
        window=window,
        now=now,
        by=by,
        bad=bad_file(log, bad),
        strict=strict,
    )
    if law is not None:
        write_law(report, law, law_unit)
    if page is not None:
        from belated.logs.delay_page import write_delay_page

        write_delay_page(report, log, page)
    if as_json:
        from belated.logs.delay_facts import facts

        show(facts(report), as_json=True)
        return
    show(summary(log, report), as_json=False)
    for what, path in (("law", law), ("page", page)):
        if path is not None:
            typer.echo(f"{what}: {path}")
