"""The disk cache of compiled kernels: one file per kernel and signature.

Numba's own cache keeps an index per function, a pickle of all signatures it was compiled for. If
one of them names a class of the user's, every other process fails to read the whole index, and two
processes that write one at the same time lose entries or mix them up. Here every entry is a file
of its own, whose name is a digest of all that the entry depends on; only a process that needs this
very entry ever opens it.
"""

import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b, sha256
from importlib.metadata import version
from inspect import getsourcefile
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from belated.core.cache import cache_dir, is_ours
from belated.core.compiler.plain import is_plain, must_be_plain
from belated.core.files import replacing

VERSIONS = (numba.__version__, version("llvmlite"), sys.implementation.cache_tag)
CHECKSUM_BYTES = 32

# Digests of the source files of kernels from outside the package; empty for one without a file.
_foreign_sources: dict[str, str] = {}


def _note_source(function: Callable[..., Any]) -> None:
    """Remember the file of a kernel written outside the package.

    Package kernels are compiled around it, so their cached binaries are fresh only while that
    file is the same: its digest becomes part of the key they are stored under.
    """
    if is_ours(function):
        return
    file = Path(getsourcefile(function) or "")
    _foreign_sources[str(file)] = sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


class KernelCache(FunctionCache):  # type: ignore[misc]  # Numba is untyped
    """The compiled signatures of one function, on disk.

    An entry that cannot be read, for whatever reason, is compiled anew and replaced. An entry that
    cannot be written is compiled anew by the next process. Neither is an error.

    Once a kernel was typed into a notebook or a prompt, nothing is read or written any more: no
    later session could know whether it had changed.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        # Numba's constructor would look for a place for its index.
        _note_source(function)
        self._py_func = function
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._enabled = True

    @property
    def cache_path(self) -> str:
        """The folder of the entries, for Numba's statistics."""
        return str(cache_dir())

    def flush(self) -> None:
        """Do nothing: ``belated cache clear`` deletes entries."""

    def holds(self, sig: Any, target_context: Any) -> bool:
        """Returns whether there is an entry for this signature."""
        key = self._index_key(sig, target_context.codegen())
        return all(_foreign_sources.values()) and self._file(key).is_file()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Returns the compiled kernel for this signature, or None where none can be read."""
        if not (self._enabled and all(_foreign_sources.values())):
            return None
        target_context.refresh()
        known = is_plain()
        found = self._read(sig, target_context)
        if found is None and must_be_plain() is not known:  # it was not known before compiling
            found = self._read(sig, target_context)
        return found

    def _read(self, sig: Any, target_context: Any) -> Any:
        try:
            key = self._index_key(sig, target_context.codegen())
            entry = self._file(key).read_bytes()
            checksum, content = entry[:CHECKSUM_BYTES], entry[CHECKSUM_BYTES:]
            if checksum != _checksum(content):
                return None
            stored_key, compiled = pickle.loads(content)
            # Types of the same name in two modules have the same file.
            return CompileResult._rebuild(target_context, *compiled) if stored_key == key else None
        except Exception:  # unpickling may raise anything, and a kernel can always be compiled
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write a compiled kernel to disk, if that is possible."""
        if not (self._enabled and all(_foreign_sources.values())):
            return
        if data.library.has_dynamic_globals or not all(lift.can_cache for lift in data.lifted):
            return  # the code refers to objects of this process
        with suppress(Exception):  # a full disk, or a type that cannot be pickled
            key = self._index_key(sig, data.codegen)
            content = dumps((key, data._reduce()))
            file = self._file(key)
            file.parent.mkdir(parents=True, exist_ok=True)
            with replacing(file) as output:
                output.write(_checksum(content) + content)

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        """Returns everything the machine code depends on, besides the source of the package."""
        place = self._name, self._py_func.__code__.co_firstlineno, VERSIONS, is_plain()
        foreign = tuple(sorted(_foreign_sources.items()))
        return (*super()._index_key(sig, codegen), place, foreign)

    def _file(self, key: tuple[Any, ...]) -> Path:
        digest = blake2b(str(key).encode(), digest_size=16).hexdigest()
        readable = self._name.removeprefix("belated.").replace("<", "").replace(">", "")
        return cache_dir() / f"{readable}-{digest}.nbc"


def _checksum(content: bytes) -> bytes:
    return blake2b(content, digest_size=CHECKSUM_BYTES).digest()
