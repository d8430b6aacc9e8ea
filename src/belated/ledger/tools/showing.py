"""The output of a command: a table or JSON."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer

MOST_COLUMNS = 5  # of a table that fits a terminal
NOT_SHOWN = "_not_shown"  # end of the name of a number that says how many entries a list lost


def show(result: Mapping[str, Any], as_json: bool) -> None:
    """Print a result as JSON, or one table per list of rows and one line per other value."""
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    for name, value in result.items():
        title = name.replace("_", " ")
        if isinstance(value, list):
            _list(title, value)
        elif name.endswith(NOT_SHOWN):
            if value:
                typer.echo(f"and {value:,} more")
        elif isinstance(value, Mapping):
            shown = ", ".join(f"{_cell(v)} {k.replace('_', ' ')}" for k, v in value.items())
            typer.echo(f"{title}: {shown or 'none'}")
        else:
            typer.echo(f"{title}: {_cell(value)}")


def _list(title: str, values: Sequence[Any]) -> None:
    """Print rows as a table, and numbers or sentences in one line; nothing where there are none."""
    if values and isinstance(values[0], Mapping):
        _table(title, values)
    elif values:
        typer.echo(f"{title}: {'; '.join(map(_cell, values))}")


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    names = [name.replace("_", " ") for name in rows[0]]
    cells = [[_cell(value) for value in row.values()] for row in rows]
    if len(names) > max(MOST_COLUMNS, len(rows)):  # on its side: one column per row
        first, *rest = zip(*cells, strict=True)
        names, cells = [names[0], *first], [[n, *c] for n, c in zip(names[1:], rest, strict=True)]
    for name in names:
        table.add_column(name, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)


_FORMS: dict[type, Callable[[Any], str]] = {
    type(None): lambda value: "-",
    bool: lambda value: "yes" if value else "no",
    int: lambda value: f"{value:,}",
    float: lambda value: f"{value:.4g}",
    list: lambda value: " ".join(map(_cell, value)),
}


def _cell(value: Any) -> str:
    return _FORMS.get(type(value), str)(value)
