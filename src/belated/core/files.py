"""Writing a file so that there is never half of one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from uuid import uuid4

TEMPORARY = ".belated-"  # how the names of unfinished files begin


@contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of ``target`` once it is whole and on disk.

    A file that is replaced hands its permissions on.
    """
    temporary = target.parent / f"{TEMPORARY}{uuid4().hex}"
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            temporary.chmod(target.stat().st_mode)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(target.parent)  # the move itself


def sync_folder(folder: Path) -> None:
    """Let the names in a folder survive a power cut; not on Windows, which opens no folders."""
    if os.name == "nt":
        return
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
