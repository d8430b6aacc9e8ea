"""``belated retrain``: another policy, family or features for a bandit that runs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from belated.commands.derived_options import options_of
from belated.commands.ledger import AsJson
from belated.wire import RetrainSettings


@options_of(RetrainSettings)
def retrain(
    name: Annotated[str, typer.Argument(help="Name of the bandit.")],
    ledger: Annotated[
        str, typer.Option("--ledger", help="sqlite:///file.db or postgresql://...")
    ] = "sqlite:///belated.db",
    features: Annotated[
        Path | None, typer.Option(help="TOML file with a table [features], as of a new bandit.")
    ] = None,
    back: Annotated[
        bool, typer.Option("--back", help="To the settings before the last promotion.")
    ] = False,
    promote: Annotated[
        bool, typer.Option("--promote", help="Go on with them, unless the log speaks against it.")
    ] = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Compare a bandit with what it would be under other settings, by its own log."""
    import msgspec

    from belated.ledger.replica import system_clock
    from belated.ledger.tools.reading import opened
    from belated.ledger.tools.retraining import draft_of
    from belated.ledger.tools.showing import show
    from belated.service.retrain_settings import retrained_view

    if features is not None:
        given["features"] = _features(features)
    with opened(ledger) as store:
        view, promotion = retrained_view(store, name, given | ({"back": True} if back else {}))
        if promote and not view.against:
            store.commit([draft_of(view, promotion, system_clock())])
            view.promoted = True
    show(msgspec.to_builtins(view), as_json)
    if view.against:
        raise typer.Exit(1)


def _features(path: Path) -> Any:
    import tomllib

    try:
        with path.open("rb") as file:
            tables = tomllib.load(file)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if tables.keys() != {"features"}:
        raise ValueError(f"{path}: {', '.join(tables) or 'nothing'}: expected a table [features]")
    return tables["features"]
