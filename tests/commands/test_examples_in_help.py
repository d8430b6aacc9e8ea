"""Every ``--help`` ends with examples, and each of them can be typed."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from belated.commands.examples import EXAMPLES
from belated.commands.main import app


def commands(command, path=""):
    """Yields every command of the program, groups too, with its path."""
    yield path, command
    for name, sub in getattr(command, "commands", {}).items():
        yield from commands(sub, f"{path} {name}".strip())


COMMANDS = dict(commands(get_command(app)))
INVENTORY = (Path(__file__).parents[2] / "docs" / "inventory.md").read_text().splitlines()


def test_examples_are_of_commands():
    assert set(EXAMPLES) == set(COMMANDS)


@pytest.mark.parametrize("path", COMMANDS)
def test_help_ends_with_examples(path):
    command = COMMANDS[path]
    context = command.make_context("belated", ["--help"], resilient_parsing=True)
    shown = command.get_help(context)
    assert EXAMPLES[path], "expected at least one example"
    ending = shown[shown.rindex("Examples:\n") :].split("\n")
    assert [line.strip() for line in ending[1:] if line] == [*EXAMPLES[path]]


@pytest.mark.parametrize("path", COMMANDS)
def test_examples_parse(path):
    for example in EXAMPLES[path]:
        program, *words = shlex.split(example.split(" > ")[0])
        assert program == "belated"
        name, command = "", COMMANDS[""]
        while hasattr(command, "commands"):
            name = f"{name} {words[0]}".strip()
            command = command.commands[words.pop(0)]
        assert path in ("", name) or name.startswith(f"{path} "), f"{example}: of another command"
        context = command.make_context(name, words)
        assert context.params.keys() >= {p.name for p in command.params if p.expose_value}


@pytest.mark.parametrize("path", [path for path in COMMANDS if path])
def test_every_command_is_in_the_inventory(path):
    """By itself, or in the line of its group."""
    group, _, name = path.partition(" ")
    lines = [line for line in INVENTORY if re.match(rf"    belated {group}\b(?!-)", line)]
    assert any(name in re.findall(r"[\w-]+", line) for line in lines) if name else lines
