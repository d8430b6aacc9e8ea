"""The one place that knows how kernels are compiled."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from inspect import getsourcefile
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import uuid4

from numba import config, njit
from numba.core.caching import FunctionCache

from belated.core.cache import PACKAGE, cache_dir

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS = {"nogil": True, "error_model": "numpy"}  # the GIL released; 1/0 is inf, as in NumPy

_foreign_sources: dict[str, str] = {}  # source files of cases registered from outside the package


def note_source(function: Callable[..., Any]) -> None:
    """Remember the file of a case written outside the package.

    Package kernels are compiled around it, so their cached binaries are fresh only while that
    file is the same: its digest becomes part of the key they are stored under.
    """
    file = Path(getsourcefile(function) or "")
    if PACKAGE in file.resolve().parents:
        return
    if file.is_file():
        _foreign_sources[str(file)] = sha256(file.read_bytes()).hexdigest()
    else:  # typed into a notebook or a prompt: no later session can know whether it changed
        _foreign_sources[str(file)] = uuid4().hex


class _KernelCache(FunctionCache):  # type: ignore[misc]  # Numba is untyped
    """Numba's disk cache, with the foreign sources in the key."""

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        foreign = tuple(sorted(_foreign_sources.items()))
        return (*super()._index_key(sig, codegen), foreign)


@contextmanager
def _package_cache_dir() -> Iterator[None]:
    previous = config.CACHE_DIR
    config.CACHE_DIR = str(cache_dir())
    try:
        yield
    finally:
        config.CACHE_DIR = previous


def kernel(function: F) -> F:
    """Compile ``function`` on first call, cache the binary, release the GIL while it runs.

    With ``NUMBA_DISABLE_JIT=1`` the function stays plain Python, with the same results.
    """
    dispatcher = njit(**OPTIONS)(function)
    if hasattr(dispatcher, "_cache"):
        try:
            with _package_cache_dir():
                dispatcher._cache = _KernelCache(function)
        except (RuntimeError, OSError):  # no source file, or nowhere to write: compile every time
            pass
    return cast(F, dispatcher)
