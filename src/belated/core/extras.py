"""Libraries that not everybody installs: the error for a missing one says what to install."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def extra(name: str, instead: str = "") -> Iterator[None]:
    """A context for imports: where a library is missing, the error names the extra that brings it.

    Parameters
    ----------
    name
        An extra of belated, such as ``plots``.
    instead
        Advice on what to do instead of installing it.

    Examples
    --------
    >>> with extra("plots"):
    ...     import no_such_library
    Traceback (most recent call last):
      ...
    ModuleNotFoundError: No module named 'no_such_library': pip install 'belated[plots]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"{error}: pip install 'belated[{name}]'{instead and f'; or {instead}'}"
        raise ModuleNotFoundError(message, name=error.name) from None
