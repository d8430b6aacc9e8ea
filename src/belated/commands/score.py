"""``belated score``: decisions by a model document, from contexts on the standard input."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def score(
    model: Annotated[str, typer.Argument(help="A file, or http://.../v1/bandits/NAME/model.")],
    spool: Annotated[
        Path | None, typer.Option(help="Where decisions wait that are to be posted.")
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="Of the service, to post them at the end.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(envvar="BELATED_KEY", help="API key of the service.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="For runs that must repeat exactly.")] = None,
) -> None:
    """Decide by a model document, without a ledger: a context in each line, a decision in each.

    A line of the standard input is a context as a JSON object, or null where there is none. With
    --spool, a decision is on disk before its line is written; with --url, all that wait there are
    posted at the end. Without a spool nobody learns from these decisions.
    """
    import msgspec

    from belated.core.arguments import wrong
    from belated.edge.scoring import Scorer, content_of
    from belated.edge.spool import Spool

    if url is not None and spool is None:
        raise wrong("--spool", spool, "a file, for decisions that are to be posted")
    document = content_of(model, key)
    try:
        scorer = Scorer(document, seed=seed)
    except ValueError as error:
        raise ValueError(f"{model}: {error}") from None
    waiting = None if spool is None else Spool(spool)
    failed = False
    for number, line in enumerate(sys.stdin, 1):
        try:
            context = msgspec.json.decode(line, type=dict | None)
            decision, made = scorer.decide(context)
        except (ValueError, TypeError) as error:
            failed = True
            typer.echo(f"belated: line {number}: {error}", err=True)
            typer.echo(msgspec.json.encode({"line": number, "error": str(error)}))
            continue
        if waiting is not None:
            waiting.add(made)
        typer.echo(msgspec.json.encode(decision))
    if waiting is not None and url is not None:
        from belated.client import Client, ServiceError
        from belated.edge.posting import post

        try:
            with Client(url, key) as client:
                counts = post(client, scorer.model.bandit, waiting)
        except ServiceError as error:
            raise RuntimeError(f"{error}; decisions wait in {spool}") from None
        told = ", ".join(f"{n} {status}" for status, n in counts.items()) or "nothing"
        typer.echo(f"posted: {told}", err=True)
    if failed:
        raise typer.Exit(1)
