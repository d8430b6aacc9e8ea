"""The one place that knows how kernels are compiled."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from inspect import getsourcefile
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import config, njit
from numba.core.caching import FunctionCache

from belated.core.cache import PACKAGE, cache_dir

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS = {"nogil": True, "error_model": "numpy"}  # the GIL released; 1/0 is inf, as in NumPy

# Digests of the source files of kernels from outside the package; empty for one that has no file.
_foreign_sources: dict[str, str] = {}


def _note_source(function: Callable[..., Any]) -> None:
    """Remember the file of a kernel written outside the package.

    Package kernels are compiled around it, so their cached binaries are fresh only while that
    file is the same: its digest becomes part of the key they are stored under.
    """
    file = Path(getsourcefile(function) or "")
    if PACKAGE in file.resolve().parents:
        return
    _foreign_sources[str(file)] = sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


class _KernelCache(FunctionCache):  # type: ignore[misc]  # Numba is untyped
    """Numba's disk cache, with the foreign sources in the key.

    Once a kernel was typed into a notebook or a prompt, nothing is read or written any more: no
    later session could know whether it had changed.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        return (
            super().load_overload(sig, target_context) if all(_foreign_sources.values()) else None
        )

    def save_overload(self, sig: Any, data: Any) -> None:
        if all(_foreign_sources.values()):
            super().save_overload(sig, data)

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
    _note_source(function)
    dispatcher = njit(**OPTIONS)(function)
    if hasattr(dispatcher, "_cache"):
        try:
            with _package_cache_dir():
                dispatcher._cache = _KernelCache(function)
        except (RuntimeError, OSError):  # no source file, or nowhere to write: compile every time
            pass
    return cast(F, dispatcher)
