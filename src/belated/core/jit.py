"""The one place that knows how kernels are compiled."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import config

from belated.core.cache import is_ours
from belated.core.compiler import plain

try:
    from belated.core.compiler.parts import Kernel, as_part, load_compiler
except Exception as problem:  # whatever a new version of Numba may raise
    plain.warn_of(problem, "every kernel is compiled by numba.njit in every process")
    Kernel, as_part = plain.njit_kernel, plain.public_options  # type: ignore[assignment,misc]
    load_compiler = plain.load_nothing

__all__ = [
    "allocating_kernel",
    "as_part",
    "inlined_kernel",
    "kernel",
    "load_compiler",
    "rough_kernel",
]
F = TypeVar("F", bound=Callable[..., Any])

# no GIL; 1/0 is inf, as in NumPy; a kernel would inherit "forceinline" from its callers
OPTIONS = {"nogil": True, "error_model": "numpy", "_nrt": True, "forceinline": False}
# Without reference counts, which cost more than the arithmetic: each is a locked instruction. Such
# a kernel makes no arrays and returns none: a caller with reference counts would free an array that
# it got back, as if it owned it.
LEAN = {**OPTIONS, "_nrt": False}
ROUGH = {**LEAN, "fastmath": {"contract"}}
INLINED = {**LEAN, "forceinline": True}


def kernel(function: F) -> F:
    """Compile ``function`` on first call, cache the binary, release the GIL while it runs.

    In this package a kernel makes no arrays (``allocating_kernel`` may); elsewhere it may. With
    ``NUMBA_DISABLE_JIT=1`` the function stays plain Python, with the same results.
    """
    return _compiled(function, LEAN if is_ours(function) else OPTIONS)


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

    A call hands over every array of a state or a lane one by one, which takes longer than the work
    of a small kernel. Only for kernels that are called from one or two places and for the smallest
    of linear algebra: code grows, and with it the time to compile.
    """
    return _compiled(function, INLINED)


def has_compiled(function: Any, *arguments: Any) -> bool:
    """Returns whether a kernel can be called with arguments of these types without compiling it."""
    return not hasattr(function, "is_there") or function.is_there(arguments)


def is_lean(dispatcher: Any) -> bool:
    """Returns whether a kernel was compiled without reference counts."""
    return dispatcher.targetoptions.get("_nrt") is False


def _compiled(function: F, options: dict[str, Any]) -> F:
    return function if config.DISABLE_JIT else cast(F, Kernel(function, targetoptions=options))
