"""The folder of compiled kernels. Imports no Numba, so that the command line stays quick.

Numba decides whether a cached binary is fresh by looking at the file of the outermost function
only; an edit to a callee in another file goes unnoticed and the old machine code is served.
Keying the directory by a digest of the whole package source removes that hazard.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from hashlib import sha256
from inspect import getsourcefile
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows: several processes then compile the same
    fcntl = None  # type: ignore[assignment]

PACKAGE = Path(__file__).parent.parent


def is_ours(function: Callable[..., Any]) -> bool:
    """Returns whether a function is part of this package."""
    return _holds(getsourcefile(function) or "")


@cache  # links are followed once a file, not once a kernel: that is a part of every start
def _holds(file: str) -> bool:
    """Returns whether a file is in the package."""
    return PACKAGE in Path(file).resolve().parents


def cache_root() -> Path:
    """Returns the directory with the kernels of every version of the package ever run here."""
    chosen = os.environ.get("BELATED_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    # A folder of our own in any case: `clear` deletes it whole.
    return (Path(chosen).expanduser() if chosen else Path.home() / ".cache") / "belated"


@cache
def source_digest() -> str:
    """Returns a digest of the names and contents of all source files of the package."""
    digest = sha256()
    for file in sorted(PACKAGE.rglob("*.py")):
        digest.update(str(file.relative_to(PACKAGE)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def cache_dir() -> Path:
    """Returns the directory of the kernels compiled from exactly this source."""
    return cache_root() / source_digest()


def is_writable() -> bool:
    """Returns whether kernels can be kept on disk."""
    try:
        cache_dir().mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=cache_dir()).close()
    except OSError:
        return False
    return True


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Holds a lock on the cache, so that one thread on this machine compiles at a time."""
    with ExitStack() as held:
        if fcntl is not None and is_writable():
            lock = held.enter_context((cache_dir() / "compiling.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)  # ends when the file is closed
        yield


def clear() -> int:
    """Delete all cached kernels, of this and of other versions; return the bytes freed."""
    root = cache_root()
    if not root.is_dir():
        return 0
    freed = sum(f.stat().st_size for f in root.rglob("*") if f.is_file())
    shutil.rmtree(root)
    return freed
