"""``belated plan``: heavy imports are inside, so that help is quick."""

from pathlib import Path
from typing import Annotated, Any

import typer

from belated.commands.derived_options import options_of
from belated.commands.ledger import AsJson
from belated.commands.logs import (
    Context,
    Log,
    WholeReading,
    check_page,
    named_in,
    of_bad_rows,
    with_bad_file,
)


@options_of(WholeReading)
def plan(
    log: Log,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="To compare; the first is what the others are measured by."),
    ] = None,
    context: Context = "",
    copies: Annotated[int, typer.Option(help="Worlds like that of the log.")] = 8,
    decisions: Annotated[
        int | None, typer.Option(help="In a run; default those of the log, 10,000 at most.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the first world.")] = 1,
    threads: Annotated[int | None, typer.Option(help="Default: one per core.")] = None,
    page: Annotated[Path | None, typer.Option(help="An HTML file with a figure.")] = None,
    as_json: AsJson = False,
    **reading: Any,
) -> None:
    """Say which policy and waiting rule to play, and what lateness costs, in worlds like a log."""
    from belated.core.extras import extra
    from belated.ledger.tools.progress import progress
    from belated.ledger.tools.showing import show
    from belated.logs.late_by_reward import late_by_reward
    from belated.logs.log_world import facts_of
    from belated.logs.reading_whole import read_whole

    with extra("experiments"):
        from belated.logs.log_plan import COMPARED, candidates, make_plan
        from belated.logs.plan_words import advice, assumed, lateness, rows, write_plan_page

    check_page(page, log)
    needs = ("action", "time", "reward-time")
    read = read_whole(log, needs=needs, context=named_in(context), **with_bad_file(log, reading))
    with read.bad.told_in_errors():
        facts = facts_of(read.log, read.loop, read.window)
    played = policy or list(COMPARED)
    with progress("playing", copies * len(candidates(facts, played))) as told:
        made = make_plan(facts, played, copies, decisions, seed, threads, told)
    answer = [advice(made), *lateness(made)]
    late = late_by_reward(read.log, facts.window)
    careful = {"combined": read.combined, "late_by_reward": late}
    how = {"columns": f"--map {read.opened.spelled}", **careful, **read.bad.facts()}
    if as_json:
        show({"advice": answer, "assumed": assumed(made), "candidates": rows(made), **how}, True)
    else:
        for sentence in filter(None, (how["warning"], *careful.values())):
            typer.echo(f"careful: {sentence}")
        show({"columns": how["columns"], **of_bad_rows(how)}, False)
        typer.echo("\n".join(answer))
        show({"candidates": rows(made)}, False)
        typer.echo(assumed(made))
    if page is not None:
        write_plan_page(made, log, page)
        typer.echo(f"page: {page}", err=as_json)
