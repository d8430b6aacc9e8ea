"""Commands that answer questions about a log: thin, with heavy imports inside."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import Meta

from belated.commands.derived_options import options_of
from belated.commands.ledger import AsJson

Log = Annotated[str, typer.Argument(help="CSV, Parquet, JSON lines, or the URL of a ledger.")]
Context = Annotated[str, typer.Option(help="Columns of the context, with commas.")]


@dataclass
class Reading:
    """The options of every command that reads a log, in the words of ``belated.logs``."""

    columns: Annotated[
        str,
        Meta(
            description="FIELD=COLUMN,...: id, time, action, reward, reward-time, propensity, "
            "subject or segment; those not named are guessed.",
            extra={"option": "map"},
        ),
    ] = ""
    loop: Annotated[
        str | None,
        Meta(description="explicit (each decision gets a reward) or conversion (successes do)."),
    ] = None
    window: Annotated[
        str | None,
        Meta(description="How long a reward is waited for, such as 7d; default forever."),
    ] = None
    now: Annotated[
        str | None,
        Meta(description="ISO 8601, or seconds since 1970; default the latest time in the log."),
    ] = None
    format: Annotated[
        str | None, Meta(description="csv, parquet, jsonl or dsjson; default by the name.")
    ] = None
    bandit: Annotated[str | None, Meta(description="Of a ledger; default the only one.")] = None
    bad: Annotated[str | None, Meta(description="For bad rows; default LOG.bad.csv.")] = None
    strict: Annotated[
        bool, Meta(description="Bad rows are an error.", extra={"option": "strict"})
    ] = False


@dataclass
class WholeReading(Reading):
    """The options of commands that need a window for conversions, and for nothing else."""

    window: Annotated[
        str | None,
        Meta(
            description="How long a conversion counts, such as 7d: needed for --loop conversion, "
            "unless a ledger says it, and refused for explicit."
        ),
    ] = None


def named_in(context: str) -> list[str]:
    """Returns the names of columns that stand between commas."""
    return [name.strip() for name in context.split(",") if name.strip()]


def with_bad_file(log: str, reading: dict[str, Any]) -> dict[str, Any]:
    """Returns the options that were named, and the file for bad rows: beside the log if not."""
    name = log.removeprefix("sqlite:///")
    beside = f"{'ledger' if '://' in name or name.startswith('env:') else name}.bad.csv"
    return {**reading, "bad": Path(reading.get("bad", beside))}


def check_page(page: Path | None, log: str) -> None:
    """Raises, before the log is read, if a page would replace it or there is nothing to draw by."""
    from belated.core.extras import extra
    from belated.core.side_files import refuse_source

    if page is not None:
        refuse_source("--page", page, log)
        with extra("plots"):
            import matplotlib  # noqa: F401


def of_bad_rows(said: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what people are shown of the rows that were left out."""
    shown = "rows_left_out", "first_bad_rows", "decisions_not_used"
    return {name: said[name] for name in shown}


@options_of(Reading)
def delays(
    log: Log,
    by: Annotated[str | None, typer.Option(help="segment or action: a law for each.")] = None,
    page: Annotated[Path | None, typer.Option(help="An HTML file with figures.")] = None,
    law: Annotated[
        Path | None, typer.Option(help="A file for --delay empirical:FILE of other commands.")
    ] = None,
    law_unit: Annotated[
        str, typer.Option(help="hours, minutes, seconds, days or rounds; other commands take all.")
    ] = "hours",
    as_json: AsJson = False,
    **reading: Any,
) -> None:
    """Say how late the rewards of a log are, which law fits, and what may be taken for granted."""
    from belated.core.side_files import refuse_source
    from belated.ledger.tools.showing import show
    from belated.logs.delay_words import summary
    from belated.logs.delays import delay_report
    from belated.logs.law_file import write_law

    check_page(page, log)
    if law is not None:
        refuse_source("--law", law, log)
    report = delay_report(log, by=by, **with_bad_file(log, reading))
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
