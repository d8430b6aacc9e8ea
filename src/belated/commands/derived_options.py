"""Options of a command that are derived from the fields of a class."""

import json
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Signature, signature
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from msgspec import Meta

from belated.core.arguments import wrong
from belated.core.times import SECOND, duration

Command = Callable[..., None]


def options_of(declared: type, show_defaults: bool = False) -> Callable[[Command], Command]:
    """Returns a decorator that gives a command one option for each field of ``declared``.

    The command gets the options that were named in ``**given``, by the names of the fields. A field
    without a default must be named. The ``Meta`` of a field holds its help and examples;
    ``extra={"option": "dim"}`` gives the option another name, and ``extra={"unit": "seconds"}``
    lets it take durations such as 7d, too. A field that is neither a number nor a text nor a list
    is given as JSON.

    With ``show_defaults``, these options are listed after the command's own, not before, and the
    command gets all of them, those that were not named, too.
    """
    hints = get_type_hints(declared, include_extras=True)
    kinds = {field: _kind(hint) for field, hint in hints.items()}
    lengths = {field for field, hint in hints.items() if "unit" in (_meta(hint).extra or {})}
    kinds |= dict.fromkeys(lengths, str)

    def decorate(command: Command) -> Command:
        @wraps(command)
        def called(**values: Any) -> None:
            for field, kind in kinds.items():
                value = values.pop(field)
                if value not in (None, []):
                    values[field] = from_json(field, value) if kind is None else value
                if field in values and field in lengths:
                    values[field] = seconds(field, value)
            command(**values)

        options = []
        for field in signature(declared).parameters.values():
            asked = show_defaults or field.default is field.empty
            shown = "" if asked else _in_words(field.default)  # typer shows those that it gets
            annotation = _option(kinds[field.name], hints[field.name], shown)
            default = field.default if asked else None  # an option that was not named is left out
            options.append(field.replace(annotation=annotation, default=default))
        own = [p for p in signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
        ordered = [*own, *options] if show_defaults else [*options, *own]
        named = [p.replace(kind=p.KEYWORD_ONLY) for p in ordered]
        called.__signature__ = Signature(named)  # type: ignore[attr-defined]
        return called

    return decorate


def from_json(option: str, text: str) -> Any:
    """Returns the value of an option that is JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise wrong(f"--{option}", text, f"JSON ({error})") from None


def seconds(option: str, text: str) -> float:
    """Returns the seconds of an option that is their number, or a duration such as 7d.

    >>> seconds("window", "1.5"), seconds("window", "2d")
    (1.5, 172800.0)
    """
    try:
        return float(text)
    except ValueError:
        return duration(f"--{option}", text) / SECOND


def _meta(hint: Any) -> Meta:
    """Returns the description of a field."""
    return next(part for part in hint.__metadata__ if isinstance(part, Meta))


def _kind(hint: Any) -> Any:
    """Returns the type of the values of an option, or None for JSON; the first type of a union."""
    while get_origin(hint) not in (None, Sequence, Literal):
        hint = next(part for part in get_args(hint) if part is not NoneType)
    if get_origin(hint) is Sequence:
        return list[_kind(get_args(hint)[0])]  # type: ignore[misc]
    if hint is Any or get_origin(hint) is Literal:
        return str
    return hint if hint in (str, int, float, bool) else None


def _in_words(default: Any) -> str:
    """Returns a default as the help shows it; empty where there is nothing to show."""
    if isinstance(default, tuple):
        return ", ".join(map(str, default))
    shown = isinstance(default, str | int | float) and not isinstance(default, bool)
    return str(default) if shown else ""


def _option(kind: Any, hint: Any, shown: str) -> Any:
    """Returns typer's description of an option."""
    meta = _meta(hint)
    lines = [meta.description or ""]
    if "unit" in (meta.extra or {}):
        lines.append("Or a duration, such as 7d.")
    if meta.examples:
        example = meta.examples[0]
        lines.insert(0, f"Such as {example}." if kind else f"JSON, such as {json.dumps(example)}.")
    names = [f"--{name}" for key, name in (meta.extra or {}).items() if key == "option"]
    if shown:
        lines.append(f"[default: {shown}]")
    return Annotated[(kind or str) | None, typer.Option(*names, help=" ".join(lines).strip())]
