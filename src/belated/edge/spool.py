"""A file of decisions that are to be posted: appended and flushed one by one, read in batches."""

import os
from pathlib import Path
from threading import Lock

import msgspec

from belated.core.files import replacing
from belated.wire import MadeDecision

_decode = msgspec.json.Decoder(MadeDecision).decode


class Spool:
    """Decisions as JSON lines, and beside them, in ``PATH.posted``, how many bytes were posted.

    One process writes to a spool. A line that a crash cut short was never answered: it is dropped.

    Parameters
    ----------
    path
        The file. It is made where there is none.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._mark = path, path.with_name(f"{path.name}.posted")
        self._lock = Lock()
        self._file = path.open("ab")
        self._file.truncate(path.read_bytes().rfind(b"\n") + 1)
        self._posted = int(self._mark.read_text()) if self._mark.exists() else 0

    def add(self, made: MadeDecision) -> None:
        """Append a decision; it is on the disk when this returns."""
        with self._lock:
            self._file.write(msgspec.json.encode(made) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def next(self, most: int) -> tuple[list[MadeDecision], int]:
        """Returns the first decisions that are not posted, and the place where they end."""
        made: list[MadeDecision] = []
        place = self._posted
        with self.path.open("rb") as file:
            file.seek(place)
            while len(made) < most and (line := file.readline()).endswith(b"\n"):
                made.append(_decode(line))
                place += len(line)
        return made, place

    def refuse(self, made: MadeDecision, reason: str) -> None:
        """Put a decision aside that the service does not take, with the reason."""
        with self.path.with_name(f"{self.path.name}.bad").open("ab") as file:
            file.write(msgspec.json.encode({"reason": reason, "decision": made}) + b"\n")

    def posted(self, place: int) -> None:
        """Remember that all decisions up to a place were posted; an empty spool starts anew."""
        with self._lock:
            over = place == os.fstat(self._file.fileno()).st_size
            with replacing(self._mark) as mark:  # first: what is posted twice is a duplicate
                mark.write(b"0" if over else str(place).encode())
            if over:
                self._file.truncate(0)
            self._posted = 0 if over else place

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
