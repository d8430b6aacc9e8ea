"""A disk that loses what was not synced, for SQLite: an apsw VFS, all in memory, decided by a seed.

A ``kill -9`` does not test whether commits are synced: the operating system still holds every
write. Here the operating system dies too. At a cut each 512-byte sector that was written since the
last sync of its file is kept, lost or torn; so are sizes, and names that came or went since the
directory was synced. The cut comes at rest or inside any write, sync, truncation or deletion. The
index of the write-ahead log lives in shared memory and is always lost.
"""

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import apsw

from support.unsynced_file import SECTOR, Content

JOURNALS = (
    apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
)  # SQLite's own Unix layer syncs the directory with the first sync of one that is new
LAYER_BELOW = "unix-excl"  # for locks and shared memory, which it keeps in the heap

_numbers = count()


class PowerCut(apsw.IOError):
    """The power is off."""


class OpenFile:
    """A file as SQLite sees it, until the power goes."""

    def __init__(self, disk: "Disk", content: Content, is_new_journal: bool) -> None:
        self.disk = disk
        self.content = content
        self.is_new_journal = is_new_journal

    def _powered(self) -> None:
        if self.disk.is_off:
            raise PowerCut("the power is off")

    def xRead(self, amount: int, offset: int) -> bytes:
        self._powered()
        return bytes(self.content.now[offset : offset + amount])

    def xFileSize(self) -> int:
        self._powered()
        return len(self.content.now)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._powered()
        self.content.write(data, offset)
        self.disk.step()  # after the write: a cut here may keep it, lose it or tear it

    def xTruncate(self, size: int) -> None:
        self._powered()
        self.content.truncate(size)
        self.disk.step()

    def xSync(self, flags: int) -> None:
        self._powered()
        self.disk.step()  # before the sync: a cut here leaves it undone
        if self.disk.is_honest:
            self.content.sync()
            if self.is_new_journal:
                self.disk.sync_names()
                self.is_new_journal = False

    def xClose(self) -> None:
        pass

    def xSectorSize(self) -> int:
        return SECTOR

    def xDeviceCharacteristics(self) -> int:
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE  # what SQLite assumes of every real disk

    def xFileControl(self, op: int, pointer: int) -> bool:
        return False


class MainFile(OpenFile, apsw.VFSFile):
    """A database: it needs locks and shared memory, which those of an empty real file provide."""

    def __init__(self, disk: "Disk", content: Content, lock_file: Path) -> None:
        OpenFile.__init__(self, disk, content, is_new_journal=False)
        flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_READWRITE
        apsw.VFSFile.__init__(self, LAYER_BELOW, str(lock_file), [flags, 0])

    def xClose(self) -> None:
        apsw.VFSFile.xClose(self)


class Disk(apsw.VFS):
    """A directory of simulated files.

    Open databases with ``apsw.Connection(path, vfs=disk.name)`` or ``disk.connect()``; with
    ``default=True`` every connection opened without naming a VFS is on this disk. A disk that is
    not honest says that it synced and did not.
    """

    path = "/simulated.db"

    def __init__(self, seed: int, *, honest: bool = True, default: bool = False) -> None:
        self.name = f"power-loss-{next(_numbers)}"
        self.is_default = default
        super().__init__(self.name, LAYER_BELOW, default)
        self.rng = random.Random(seed)
        self.is_honest = honest
        self.is_off = False
        self.life = 0  # how often the power has come back
        self.files: dict[str, Content] = {}
        self.renames: dict[str, list[Content | None]] = {}  # what a name stood for since the sync
        self.steps_left = inf
        self._locks = TemporaryDirectory()

    def __enter__(self) -> "Disk":
        self._hook = sys.unraisablehook
        sys.unraisablehook = self._unraisable
        return self

    def _unraisable(self, report: Any) -> None:
        """SQLite goes on after some errors, and connections that are let go cannot raise."""
        if not isinstance(report.exc_value, PowerCut):
            self._hook(report)

    def __exit__(self, *error: object) -> None:
        self._close_all()
        sys.unraisablehook = self._hook
        self.unregister()
        self._locks.cleanup()

    def connect(self) -> apsw.Connection:
        return apsw.Connection(self.path, vfs=self.name)

    # ------------------------------------------------------------------------------- the power

    def cut_at(self, step: float) -> None:
        """Cut the power inside the ``step``-th write, sync, truncation or deletion from now."""
        self.steps_left = step

    def step(self) -> None:
        self.steps_left -= 1
        if self.steps_left <= 0:
            self.is_off = True
            raise PowerCut("the power went")

    def cut(self) -> None:
        """Cut the power, if it is not off yet; decide what is left; switch it on again."""
        names = self.files | {name: self.rng.choice(of) for name, of in self.renames.items()}
        left = {name: file.after_a_cut(self.rng) for name, file in names.items() if file}
        self._close_all()  # what closing writes goes to files that nobody sees
        self.files = left
        self.renames = {}
        self.life += 1

    def _close_all(self) -> None:
        self.is_off = False
        self.steps_left = inf
        for connection in apsw.connections():
            if connection.open_vfs == self.name:
                connection.close(force=True)

    def twin(self) -> "Disk":
        """A disk with the same files, as they were when the power last came back."""
        twin = Disk(0, honest=self.is_honest, default=self.is_default)
        twin.files = {name: file.after_a_cut(twin.rng) for name, file in self.files.items()}
        return twin

    # ------------------------------------------------------------------------------- the names

    def _rename(self, name: str, content: Content | None) -> None:
        self.renames.setdefault(name, [self.files.pop(name, None)]).append(content)
        if content:
            self.files[name] = content

    def sync_names(self) -> None:
        if self.is_honest:
            self.renames = {}

    # --------------------------------------------------------------------- what SQLite asks for

    def xOpen(self, name: Any, flags: list[int]) -> OpenFile:
        if self.is_off:
            raise apsw.CantOpenError("the power is off")
        flags[1] = flags[0]
        if name is None:  # a temporary file: nobody will look for it
            return OpenFile(self, Content(), is_new_journal=False)
        path = name if isinstance(name, str) else name.filename()
        is_new = path not in self.files
        if is_new:
            if not flags[0] & apsw.SQLITE_OPEN_CREATE:
                raise apsw.CantOpenError(path)
            self._rename(path, Content())
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            lock_file = Path(self._locks.name, f"{self.life}-{Path(path).name}")
            return MainFile(self, self.files[path], lock_file)
        return OpenFile(self, self.files[path], is_new and bool(flags[0] & JOURNALS))

    def xDelete(self, path: str, sync_directory: bool) -> None:
        if self.is_off:
            raise PowerCut("the power is off")
        if path not in self.files:
            missing = apsw.IOError(path)
            missing.extendedresult = apsw.SQLITE_IOERR_DELETE_NOENT
            raise missing
        self._rename(path, None)
        self.step()
        if sync_directory:
            self.sync_names()

    def xAccess(self, path: str, flags: int) -> bool:
        return path in self.files

    def xFullPathname(self, path: str) -> str:
        return path


# ---------------------------------------------------------------------------------- many lives


class Verdict(NamedTuple):
    """What became of a database that lost its power several times."""

    acknowledged: int
    lost: list[Any]  # acknowledged, and not found after a cut
    damage: str = ""  # why the database could not be read, if it could not

    @property
    def is_good(self) -> bool:
        return not self.lost and not self.damage


Workload = Callable[[Disk, random.Random], Iterator[Any]]  # yields facts once acknowledged
Read = Callable[[Disk], Iterable[Any]]  # the facts that are there


def run(
    seed: int,
    workload: Workload,
    read: Read,
    *,
    cuts: int = 3,
    honest: bool = True,
    default: bool = False,
) -> Verdict:
    """Run ``workload`` on one database until the power is cut, several times, and look each time.

    The workload may raise anything once the power is off. Recovery is cut, too, now and then.
    """
    rng = random.Random(f"workload {seed}")
    acknowledged: list[Any] = []
    with Disk(seed, honest=honest, default=default) as disk:
        for _ in range(cuts):
            disk.cut_at(round(2 ** rng.uniform(0, 10)))  # as often in the first steps as later
            _until_cut(disk, lambda: acknowledged.extend(workload(disk, rng)))
            try:
                while rng.random() < 0.3:
                    disk.cut_at(round(2 ** rng.uniform(0, 5)))
                    _until_cut(disk, lambda: read(disk))
                with disk.twin() as twin:  # so that the next life does its own recovery
                    found = set(read(twin))
            except apsw.Error as error:
                return Verdict(len(acknowledged), [], f"{type(error).__name__}: {error}")
            lost = [fact for fact in acknowledged if fact not in found]
            if lost:
                return Verdict(len(acknowledged), lost)
    return Verdict(len(acknowledged), [])


def _until_cut(disk: Disk, work: Callable[[], object]) -> None:
    try:
        work()
    except Exception:
        if not disk.is_off:
            raise
    disk.cut()
