"""``belated rewards``: a file of rewards into a ledger, or to a service."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from belated.commands.ledger import AsJson

if TYPE_CHECKING:
    from belated.ledger.tools.reward_files import Given, Send, Taken

NDJSON = "application/x-ndjson"
LedgerUrl = Annotated[
    str | None, typer.Option("--ledger", help="sqlite:///file.db or postgresql://...")
]
ServiceUrl = Annotated[str | None, typer.Option("--url", help="Of a service, instead of --ledger.")]
Key = Annotated[str | None, typer.Option(envvar="BELATED_KEY", help="API key of the service.")]
Whose = Annotated[str | None, typer.Option("--bandit", help="Whose; default the only one.")]


def rewards(
    file: Annotated[
        Path,
        typer.Argument(
            help="CSV, Parquet or JSON lines, a reward in each row. A time without a zone is UTC."
        ),
    ],
    ledger: LedgerUrl = None,
    url: ServiceUrl = None,
    key: Key = None,
    bandit: Whose = None,
    columns: Annotated[
        str, typer.Option("--map", help="decision_id=...,reward=...,at=...,event_id=...")
    ] = "",
    format: Annotated[
        str | None, typer.Option(help="csv, parquet or jsonl; default by the name.")
    ] = None,
    bad: Annotated[
        Path | None, typer.Option(help="Where bad rows go, with their cells; default FILE.bad.csv.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Hand in a file of rewards; run again, it goes on where it stopped."""
    from belated.ledger.tools.reward_files import hand_in
    from belated.ledger.tools.showing import show

    aside = bad or file.with_name(f"{file.name}.bad.csv")
    with receiver(ledger, url, key, bandit) as (name, send):
        result = hand_in(file, send, columns=columns, format=format, aside=aside)
    if not result["rows"]:
        warnings.warn(f"{file}: it has no rows, so nothing was handed in", stacklevel=2)
    show({"bandit": name, **result}, as_json)
    if result["rows_bad"]:
        raise typer.Exit(1)


@contextmanager
def receiver(
    ledger: str | None, url: str | None, key: str | None, bandit: str | None
) -> "Iterator[tuple[str, Send]]":
    """Yields the name of the bandit, and a function that hands in rewards."""
    from belated.core.arguments import wrong

    if (ledger is None) == (url is None):
        raise wrong("--ledger, --url", (ledger, url), "one of the two")
    if ledger is not None:
        from belated.ledger.tools.reading import opened
        from belated.ledger.tools.reward_files import into_ledger

        with opened(ledger) as store:
            yield into_ledger(store, bandit)
        return
    from belated.client import Client
    from belated.ledger.tools.reading import only_bandit

    with Client(url or "", key, timeout=60.0) as client:
        names = dict.fromkeys(client.bandits()) if bandit is None else {bandit: None}
        name = only_bandit(names, bandit, "this service")
        yield name, lambda given: _sent(client, name, given)


def _sent(client: object, bandit: str, given: "Sequence[Given]") -> "Taken":
    """Hand in rewards over HTTP; the lines of bad ones are those of the user's file."""
    import msgspec

    from belated.client import Client
    from belated.ledger.tools.reward_files import Bad, Taken

    assert isinstance(client, Client)
    lines = [
        msgspec.json.encode(
            {
                "decision_id": row.decision_id,
                "reward": row.reward,
                "at": row.at,
                "event_id": row.event_id,
            }
        )
        for row in given
    ]
    taken = client.reward_file(bandit, b"\n".join(lines), NDJSON)
    bad = [Bad(given[row.line - 1].line, row.status, row.reason) for row in taken.bad]
    return Taken(taken.statuses, bad)
