"""The page on the command line, made from the help of each command."""

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from belated.commands.main import app


def page() -> str:
    """Returns the help of every command in Markdown, a heading for each."""
    return "\n".join(_sections(get_command(app), "belated"))


def _sections(command: Any, name: str, level: int = 2) -> Iterator[str]:
    context = command.make_context(name, [], resilient_parsing=True, terminal_width=80)
    yield f"{'#' * level} {name}\n\n```text\n{command.get_help(context)}\n```\n"
    for word, sub in getattr(command, "commands", {}).items():
        yield from _sections(sub, f"{name} {word}", level + 1)
