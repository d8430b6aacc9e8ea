"""Snapshots: the folds of a replica on disk, so that a start need not read the whole log.

A snapshot is only a shortcut: any process can make one from the log, and losing it costs time
alone. It is a folder, moved into place when it is complete. The actions that were played are
mapped into memory, not read: they are looked at only when an estimate needs a pass over its data.
"""

import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import numpy as np

from belated.core.files import ABANDONED, in_work, remove_if_abandoned, sync_folder
from belated.ledger.events import Erasure, KeyChange, Kind, Position
from belated.ledger.protocol import Ledger
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.ledger.fold import Fold

log = logging.getLogger(__name__)

Manifest = dict[str, Any]  # written by ``save`` besides the bandits' arrays

VERSION = 4
KEEP = 2  # the newest may be damaged
BLOCK = 65_536  # rows written at a time
_OF_0_1 = re.compile(r".*\.\d{1,9}\.part")


def default_folder(url: str) -> Path | None:
    """Returns the default folder of a ledger's snapshots: beside its file, if it has one.

    >>> default_folder("sqlite:///shop.db")
    PosixPath('shop.db.snapshots')
    """
    file = url.removeprefix("sqlite:///")
    return None if file == url else Path(f"{file}.snapshots")


def save(replica: Replica, folder: Path) -> Path:
    """Write a snapshot of ``replica``; all older ones except the last are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{_prefix(replica.ledger)}{replica.position.tx:020}-{replica.position.seq:020}"
    target = folder / name
    remove_leftovers(folder)  # first, because they take up room that is needed now
    if target.exists():
        return target

    def make() -> Path:
        part = folder / f"{name}.{uuid4().hex}.part"
        part.mkdir()
        return part

    with in_work(make) as part:
        try:
            _write_parts(replica, part)
            part.rename(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    sync_folder(folder)
    ours = [path for path in found(folder) if path.name.startswith(_prefix(replica.ledger))]
    for old in ours[:-KEEP]:
        shutil.rmtree(old)
    drop_outdated(replica.ledger, folder)
    return target


def _write_parts(replica: Replica, part: Path) -> None:
    for k, fold in enumerate(replica.folds.values()):
        save_fold(fold, part / f"{k}.npz", part / f"{k}.npy")
    manifest = {
        "version": VERSION,
        "ledger": replica.ledger.identity,
        "position": replica.position,
        "bandits": [fold.header() for fold in replica.folds.values()],
        "keys": list(replica.keys.values()),
    }
    _write(part / "manifest.json", msgspec.json.encode(manifest))
    sync_folder(part)


def remove_leftovers(folder: Path) -> None:
    """Remove the unfinished snapshots of processes that were killed."""
    for part in folder.glob("*.part"):
        with suppress(FileNotFoundError):  # it was finished at this moment
            # Version 0.1 took no locks and named its unfinished snapshots after the process.
            young = time.time() - part.stat().st_mtime <= ABANDONED
            if not (young and _OF_0_1.fullmatch(part.name)):
                remove_if_abandoned(part)


def drop_outdated(ledger: Ledger, folder: Path) -> None:
    """Delete the snapshots from which something was erased, or a bandit promoted, since."""
    for path in found(folder):
        if path.name.startswith(_prefix(ledger)):
            tx, seq = map(int, path.name.removeprefix(_prefix(ledger)).split("-"))
            if _outdated(ledger, Position(tx, seq)):
                shutil.rmtree(path)


def _prefix(ledger: Ledger) -> str:
    """Returns the prefix of this ledger's snapshots: the folder may hold those of another one."""
    return f"{ledger.identity[:8]}-"


def save_fold(fold: "Fold", arrays: Path, actions: Path) -> None:
    """Write all of a bandit but its header into two files."""
    with arrays.open("wb") as file:
        np.savez(file, **fold.arrays())
        file.flush()
        os.fsync(file.fileno())
    sparse = fold.learner.is_sparse
    n, dim = (0, 0) if sparse else (fold.n_rows, fold.learner.dim)
    room = n + n // 4 + 1024  # the rest of the file is a hole, which takes no space
    x = np.lib.format.open_memmap(actions, "w+", np.float64, (room, dim))
    for k in range(0, n, BLOCK):
        x[k : min(k + BLOCK, n)] = fold.learner.history.x[k : min(k + BLOCK, n)]
    x.flush()


def found(folder: Path | str | None) -> list[Path]:
    """Returns the complete snapshots in a folder, if there is one, oldest first."""
    if folder is None or not Path(folder).is_dir():
        return []
    return sorted(path for path in Path(folder).iterdir() if path.suffix != ".part")


def load(
    replica: Replica, folder: Path | str | None, fits: Callable[[Manifest], bool] = lambda _: True
) -> Position:
    """Load the newest snapshot that fits into a fresh ``replica``; returns its position."""
    for path in reversed(found(folder)):
        try:
            if load_one(replica, path, fits):
                break
        except Exception as error:  # damaged bytes can break a reader anywhere
            log.warning("%s: not a snapshot that can be read (%s); going without", path, error)
    return replica.position


def load_one(
    replica: Replica, path: Path, fits: Callable[[Manifest], bool] = lambda _: True
) -> bool:
    """Load this snapshot into a fresh ``replica``; returns whether it belongs to its ledger.

    A snapshot that holds a subject erased, or a bandit promoted, since it was taken is ignored, and
    so is one from before the base of a compacted log.
    """
    manifest = manifest_of(path, replica.ledger)
    if manifest is None or not fits(manifest):
        return False
    position, base = Position(*manifest["position"]), replica.ledger.base()
    if base is not None and position < base.position:
        return False
    if _outdated(replica.ledger, position):
        return False
    folds = [
        load_fold(replica, header, path / f"{k}.npz", path / f"{k}.npy")
        for k, header in enumerate(manifest["bandits"])
        if replica.follows(header["name"])
    ]
    keys = msgspec.convert(manifest["keys"], list[KeyChange])
    replica.folds = {fold.name: fold for fold in folds}
    replica.keys, replica.keys_changed = {key.id: key for key in keys}, True
    replica.position = position
    return True


def manifest_of(path: Path, ledger: Ledger) -> Manifest | None:
    """Returns the manifest of a snapshot; None if it is of another ledger or of another version."""
    manifest: Manifest = json.loads((path / "manifest.json").read_bytes())
    same = manifest["version"] == VERSION and manifest["ledger"] == ledger.identity
    return manifest if same else None


def load_fold(replica: Replica, header: dict[str, Any], arrays: Path, actions: Path) -> "Fold":
    """Returns the bandit that ``save_fold`` wrote; the files may be deleted afterwards."""
    fold = replica.empty_fold(header["name"], msgspec.convert(header["spec"], Spec))
    with np.load(arrays, allow_pickle=False) as file:
        x = np.load(actions, mmap_mode="c").view(np.ndarray)
        fold.restore(header, dict(file), x)
    return fold


def _outdated(ledger: Ledger, position: Position) -> bool:
    """Returns whether a subject was erased since, or one of the bandits was promoted."""
    if ledger.rare(Kind.PROMOTED, position):
        return True
    for event in ledger.rare(Kind.FORGOTTEN, position):
        first = msgspec.msgpack.decode(event.body, type=Erasure).first
        if first is not None and first <= position:
            return True
    return False


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
