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

# no GIL; 1/0 is inf, as in NumPy; a kernel would inherit "forceinline" from its callers
OPTIONS = {"nogil": True, "error_model": "numpy", "_nrt": True, "forceinline": False}
# Without reference counts, which cost more than the arithmetic: each is a locked instruction. Such
# a kernel makes no arrays and returns none: a caller with reference counts would take an array it
# got back for its own, and free it.
LEAN = {**OPTIONS, "_nrt": False}
ROUGH = {**LEAN, "fastmath": {"contract"}}
INLINED = {**LEAN, "forceinline": True}

# Digests of the source files of kernels from outside the package; empty for one that has no file.
_foreign_sources: dict[str, str] = {}


def _is_ours(function: Callable[..., Any]) -> bool:
    return PACKAGE in Path(getsourcefile(function) or "").resolve().parents


def _note_source(function: Callable[..., Any]) -> None:
    """Remember the file of a kernel written outside the package.

    Package kernels are compiled around it, so their cached binaries are fresh only while that
    file is the same: its digest becomes part of the key they are stored under.
    """
    if _is_ours(function):
        return
    file = Path(getsourcefile(function) or "")
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

    In this package a kernel makes no arrays (``allocating_kernel`` may); elsewhere it may. With
    ``NUMBA_DISABLE_JIT=1`` the function stays plain Python, with the same results.
    """
    return _compiled(function, LEAN if _is_ours(function) else OPTIONS)


def allocating_kernel(function: F) -> F:
    """A kernel that makes arrays."""
    return _compiled(function, OPTIONS)


def rough_kernel(function: F) -> F:
    """A kernel whose last bits may differ from plain Python's: a b + c is rounded once, not twice.

    Only for bounds that leave room for rounding.
    """
    return _compiled(function, ROUGH)


def inlined_kernel(function: F) -> F:
    """A kernel that becomes part of each of its callers.

    A call hands over every array of a state or a lane one by one, which takes longer than what a
    small kernel does. For those that are called from one or two places, and the smallest of linear
    algebra: code grows, and with it the time to compile.
    """
    return _compiled(function, INLINED)


def is_lean(dispatcher: Any) -> bool:
    """Whether a kernel was compiled without reference counts."""
    return dispatcher.targetoptions.get("_nrt") is False


def _compiled(function: F, options: dict[str, Any]) -> F:
    _note_source(function)
    dispatcher = njit(**options)(function)
    if hasattr(dispatcher, "_cache"):
        try:
            with _package_cache_dir():
                dispatcher._cache = _KernelCache(function)
        except (RuntimeError, OSError):  # no source file, or nowhere to write: compile every time
            pass
    return cast(F, dispatcher)
