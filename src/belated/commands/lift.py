"""``belated lift``: is the bandit worth it?"""

from typing import Annotated

import typer


def lift(
    name: Annotated[str, typer.Argument(help="Name of a bandit with a holdout.")],
    ledger: Annotated[
        str, typer.Option(help="Its log: sqlite:///file.db or postgresql://host/database.")
    ],
    level: Annotated[float, typer.Option(help="Of the interval.")] = 0.95,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Compare a bandit with its holdout, in reward per decision, while rewards are pending."""
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
    show(said, as_json)
