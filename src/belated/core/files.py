"""Writing a file so that there is never half of one, and removing what killed writers left behind.

A writer keeps a lock on its unfinished file until the process ends. An unfinished file that
nobody has locked is a leftover: the next writer in the folder removes it.
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from uuid import uuid4

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

TEMPORARY = ".belated-"  # how the names of unfinished files begin
LEFTOVER = re.compile(re.escape(TEMPORARY) + r"[0-9a-f]{32}")
ABANDONED = 86_400.0  # seconds after which an unfinished file is nobody's, where there are no locks


def refuse_missing(name: str, given: str, path: Path) -> None:
    """Raises where no file lies at ``path``; ``given`` is what the user wrote for ``name``."""
    if path.is_dir():
        raise IsADirectoryError(f"{name} = {given!r}: it is a folder, expected a file")
    if not path.is_file():
        raise FileNotFoundError(f"{name} = {given!r}: there is no such file")


@contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """Opens a file that takes the place of ``target`` once it is whole and on disk.

    It inherits the permissions of the file that it replaces.
    """
    with unfinished_file(target.parent) as temporary:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            temporary.chmod(target.stat().st_mode)
        temporary.replace(target)
    sync_folder(target.parent)  # the move itself


@contextmanager
def unfinished_file(folder: Path) -> Iterator[Path]:
    """Creates an empty file with a temporary name and removes it at the end, unless moved."""

    def make() -> Path:
        path = folder / f"{TEMPORARY}{uuid4().hex}"
        path.touch(exist_ok=False)
        return path

    for path in folder.iterdir():
        if LEFTOVER.fullmatch(path.name):
            remove_if_abandoned(path)
    with in_work(make) as path:
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def in_work(make: Callable[[], Path]) -> Iterator[Path]:
    """Yields the file or folder that ``make`` makes, locked until block or process ends."""
    while True:
        path = make()
        handle = os.open(path, os.O_RDONLY)
        locked(handle, wait=True)
        if path.exists():
            break
        os.close(handle)  # taken for a leftover in the moment before it was locked: once more
    try:
        yield path
    finally:
        os.close(handle)


def remove_if_abandoned(path: Path) -> None:
    """Remove an unfinished file or folder that no process is writing any more."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return  # its writer has just moved it into place, or it is not ours to read
    try:
        age = time.time() - os.fstat(handle).st_mtime
        is_ours = locked(handle, wait=False)
        if is_ours or (is_ours is None and age > ABANDONED):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(True)
    finally:
        os.close(handle)


def locked(handle: int, wait: bool) -> bool | None:
    """Lock an open file; returns whether it is locked now, or None where there are no locks."""
    try:
        if fcntl:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return True
    except BlockingIOError:
        return False
    except OSError:
        pass  # some network file systems have none
    return None


def sync_folder(folder: Path) -> None:
    """Let the names in a folder survive a power cut; not on Windows, which opens no folders."""
    if os.name == "nt":
        return
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
