"""Environment variables in the place of the options of a command."""

from collections.abc import Callable
from copy import copy
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_args

import typer

Command = Callable[..., None]


def variables_for_options(prefix: str) -> Callable[[Command], Command]:
    """Returns a decorator that lets every option of a command be set by a variable, too.

    The variable of ``--max-body`` is ``PREFIX_MAX_BODY``. An option on the command line wins; the
    values of an option that may be repeated are separated by spaces. An error about a value that
    came from a variable begins with the name of the variable.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def called(context: typer.Context, **values: Any) -> None:
            try:
                command(**values)
            except ValueError as error:  # "max-body = 3: expected ..."
                option = str(error).partition(" = ")[0].replace("-", "_")
                source = context.get_parameter_source(option)
                if source is None or source.name != "ENVIRONMENT":
                    raise
                raise ValueError(f"{variable(option)}: {error}") from None

        def variable(option: str) -> str:
            return f"{prefix}_{option.upper()}"

        context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
        parameters = [context]
        for parameter in signature(command).parameters.values():
            kind, option = get_args(parameter.annotation)
            option = copy(option)  # other commands may share it
            option.envvar = variable(parameter.name)
            parameters.append(parameter.replace(annotation=Annotated[kind, option]))
        called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return called

    return decorate
