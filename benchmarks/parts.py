"""The command line of a benchmark: the parts to run, and ``--help``."""

import argparse
from collections.abc import Collection


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """Returns a parser whose ``--help`` prints the docstring of the benchmark."""
    shown = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=doc, formatter_class=shown)


def asked_parts(doc: str | None, parts: Collection[str]) -> list[str]:
    """Returns the parts that the command line names, or all of them."""
    parser = parser_of(doc)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(parts)}; default: all")
    return checked(parser, parser.parse_args().parts, parts) or list(parts)


def checked(parser: argparse.ArgumentParser, asked: list[str], parts: Collection[str]) -> list[str]:
    """Returns what was asked for; ends the program if there is no such part."""
    for name in asked:
        if name not in parts:
            parser.error(f"{name!r}: expected one of {', '.join(parts)}")
    return asked
