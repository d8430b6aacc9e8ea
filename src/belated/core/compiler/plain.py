"""Fallbacks for a new version of Numba or llvmlite that breaks ours: slower, the same results.

Two things rest on parts of these that may change: loops written in the compiler's own terms
(``numerics/lowered``), and the way kernels are compiled into each other (``parts.py``). Where the
first cannot be built, its plain twin is compiled in its place; ``BELATED_PLAIN_KERNELS=1`` asks for
that from the start. Where the second cannot be imported, kernels are compiled by ``numba.njit``,
which keeps nothing on disk.
"""

import os
from collections.abc import Callable
from importlib.metadata import version
from typing import Any
from warnings import warn

import numba

_plain = os.environ.get("BELATED_PLAIN_KERNELS") == "1"
_untried: list[Callable[[], None]] = []


def try_later(build: Callable[[], None]) -> None:
    """Registers ``build``, called before compiling; it raises where fast code cannot be built."""
    _untried.append(build)


def is_plain() -> bool:
    """Returns whether plain twins are compiled, as far as is known."""
    return _plain


def must_be_plain() -> bool:
    """Returns whether plain twins are to be compiled, after trying every builder not yet tried."""
    global _plain
    while _untried and not _plain:
        try:
            _untried.pop()()
        except Exception as problem:  # whatever a new version may raise
            _plain = True
            warn_of(problem, "plain twins of hand-written loops are compiled")
    return _plain


def warn_of(problem: Exception, instead: str) -> None:
    """Warn of a version of Numba or llvmlite that cannot be used, and say what is used instead."""
    warn(
        f"belated cannot use numba {numba.__version__} with llvmlite {version('llvmlite')} as it "
        f"should ({problem!r}): {instead}, with the same results, but slower. Install a newer "
        "belated, or the versions of numba and llvmlite that this one asks for.",
        RuntimeWarning,
        stacklevel=2,
    )


def njit_kernel(function: Any, targetoptions: dict[str, Any]) -> Any:
    """Compile a kernel by Numba's public means alone."""
    return numba.njit(**public_options(targetoptions))(function)


def public_options(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the given options that Numba documents, and drops the others."""
    return {name: value for name, value in options.items() if not name.startswith("_")}


def load_nothing() -> None:
    """Do nothing: kernels that are not kept on disk are never read from there."""
