"""The output folder of an experiment: a manifest, one Parquet file per finished world, the results.

A file appears under its own name only when it is whole, so a run that is killed at any moment
leaves a folder from which the same run goes on.
"""

import json
import os
import platform
import warnings
from collections.abc import Iterable, Sequence
from hashlib import sha256
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import IO, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from belated import __version__
from belated.core.arguments import shown
from belated.core.cache import source_digest
from belated.core.files import LEFTOVER, TEMPORARY, locked, replacing

FORMAT, VERSION = "belated-experiment", 1
LOCK = ".lock"
ABSENT = object()

_locks: set[IO[bytes]] = set()


def _close_inherited_locks() -> None:
    """Close the parent's lock: a forked worker may outlive its parent, and must not hold it."""
    for file in _locks:
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited_locks)


class Folder:
    """The output folder of one experiment, held by one process at a time.

    An absent or empty folder is begun; a folder of the same experiment is resumed; any other folder
    is refused and left as it is.

    Parameters
    ----------
    path : path
        The folder; it is made if it does not exist.
    settings : dict
        The settings that make this the same experiment, as JSON can hold them. The number of worlds
        need not be part of them: an experiment may grow.
    schema : pyarrow.Schema
        The columns of the table of every world.

    Raises
    ------
    ValueError
        If the folder holds another experiment or something else.
    RuntimeError
        If another process is at work in it.
    """

    def __init__(
        self, path: str | PathLike[str], settings: dict[str, Any], schema: pa.Schema
    ) -> None:
        self.path, self.parts = Path(path), Path(path) / "parts"
        self.schema = schema
        text = json.dumps(settings, sort_keys=True, allow_nan=False)
        self.settings: dict[str, Any] = json.loads(text)  # as they are read back: no tuples
        self.digest = sha256(text.encode()).hexdigest()[:16]
        self.versions = current_versions()
        self._refuse_others()  # before the lock: a folder that is not ours gets no file of ours
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.path)
        try:
            self._begin_or_go_on()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let other processes have the folder."""
        _locks.discard(self._lock)
        self._lock.close()

    def finished(self, names: Iterable[str]) -> set[str]:
        """Returns the named worlds whose part is there and sound; warns of damaged parts."""
        sound = set()
        for name in names:
            if not self._part(name).exists():
                continue
            try:
                self.read_part(name)
                sound.add(name)
            except ValueError as error:
                warnings.warn(f"{error}; this world is played again", stacklevel=2)
        return sound

    def read_part(self, name: str) -> pa.Table:
        """Returns a finished world's table; raises ``ValueError`` if it is damaged or foreign."""
        path = self._part(name)
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                table = file.read()
        except Exception as error:  # damaged bytes can break a reader anywhere
            raise ValueError(f"{path} is damaged ({type(error).__name__})") from error
        found = table.schema.metadata or {}
        for key, expected in self._marks(name).items():
            if found.get(key.encode()) != expected.encode():
                raise ValueError(f"{path} is foreign: its {key} is not {expected}")
        if not table.schema.equals(self.schema):
            raise ValueError(f"{path} has other columns than this experiment")
        return table

    def write_part(self, name: str, table: pa.Table) -> None:
        """Keep the table of a finished world, on disk for good when this returns."""
        if not table.schema.equals(self.schema):
            raise TypeError(f"world {name} gave {table.schema}: expected {self.schema}")
        marks = self._marks(name) | {"belated.versions": json.dumps(self.versions)}
        self._write(self._part(name), table, marks)

    def write_results(self, names: Sequence[str]) -> pa.Table:
        """Join the parts of the named worlds, in that order, into ``results.parquet``."""
        empty = self.schema.empty_table()  # there may be no world at all
        parts = (self.read_part(name).replace_schema_metadata() for name in names)
        table = pa.concat_tables([empty, *parts]).combine_chunks()
        self._write(self.path / "results.parquet", table, {"belated.experiment": self.digest})
        return table

    def _part(self, name: str) -> Path:
        return self.parts / f"{name}.parquet"

    def _marks(self, name: str) -> dict[str, str]:
        return {"belated.experiment": self.digest, "belated.task": name}

    def _write(self, path: Path, table: pa.Table, marks: dict[str, str]) -> None:
        # One chunk per column: the bytes then do not tell how the table was put together.
        whole = table.replace_schema_metadata(marks).combine_chunks()
        with replacing(path) as file:
            pq.write_table(whole, file, compression="zstd", write_page_checksum=True)

    def _refuse_others(self) -> dict[str, Any] | None:
        """Returns the manifest of this experiment, or None if the folder is to be begun."""
        if not self.path.exists():
            return None
        if not self.path.is_dir():
            raise ValueError(f"{self.path} is not a folder; choose another --out")
        manifest_path = self.path / "manifest.json"
        if not manifest_path.exists():
            # A run that is killed before it writes the manifest leaves the lock and a temp file.
            if any(f.name != LOCK and not LEFTOVER.fullmatch(f.name) for f in self.path.iterdir()):
                raise ValueError(
                    f"{self.path} is not empty and holds no experiment; choose another --out"
                )
            return None
        manifest = _read_manifest(manifest_path)
        difference = first_difference(manifest["settings"], self.settings)
        if difference:
            raise ValueError(
                f"{self.path} holds another experiment ({difference}); choose another --out"
            )
        return manifest

    def _begin_or_go_on(self) -> None:
        manifest = self._refuse_others()  # once more: it may have been begun before we had the lock
        for folder in (self.path, self.parts):
            for leftover in folder.glob(f"{TEMPORARY}*"):
                if LEFTOVER.fullmatch(leftover.name):
                    leftover.unlink()  # left by a run that was killed
        if manifest is None:
            manifest = {"format": FORMAT, "version": VERSION}
            manifest |= {"settings": self.settings, "versions": self.versions}
            with replacing(self.path / "manifest.json") as file:
                file.write(json.dumps(manifest, indent=2, sort_keys=True).encode() + b"\n")
        self.parts.mkdir(exist_ok=True)
        difference = first_difference(manifest["versions"], self.versions)
        if difference:
            warnings.warn(
                f"{self.path} was begun by another version ({difference}); its finished worlds "
                "are kept",
                stacklevel=3,
            )


def current_versions() -> dict[str, str]:
    """Returns the versions that the numbers of an experiment may depend on."""
    return {
        "belated": __version__,
        "numba": version("numba"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "source": source_digest(),
    }


def first_difference(there: Any, here: Any, name: str = "") -> str:
    """Says where two trees of settings first differ, in words; empty if they do not.

    >>> first_difference({"seed": 1, "delay": {"mean": 5}}, {"seed": 1, "delay": {"mean": 9}})
    'delay.mean is 5 there, 9 here'
    """
    if isinstance(there, dict) and isinstance(here, dict):
        for key in sorted(there.keys() | here.keys()):
            inner = f"{name}.{key}" if name else key
            found = first_difference(there.get(key, ABSENT), here.get(key, ABSENT), inner)
            if found:
                return found
        return ""
    # They are compared as text, for True == 1 and 1 == 1.0 would pass and yet change the digest.
    values = ["absent" if value is ABSENT else shown(value) for value in (there, here)]
    return "" if repr(there) == repr(here) else f"{name} is {values[0]} there, {values[1]} here"


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads(path.read_bytes())
        found = manifest["format"], manifest["version"]
        if not isinstance(manifest["settings"], dict) or not isinstance(manifest["versions"], dict):
            raise TypeError("settings and versions must be objects")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} cannot be read ({type(error).__name__}: {error}); choose another --out"
        ) from error
    if found != (FORMAT, VERSION):
        raise ValueError(
            f"{path} has format {shown(found)}: expected {(FORMAT, VERSION)}; choose another --out"
        )
    return manifest


def _locked(folder: Path) -> IO[bytes]:
    """Returns the open lock file; closing it, or the death of this process, ends the lock.

    Where there are no locks, as on Windows, two runs at once in one folder are not noticed.
    """
    file = (folder / LOCK).open("ab")
    _locks.add(file)
    if locked(file.fileno(), wait=False) is False:
        _locks.discard(file)
        file.close()
        raise RuntimeError(f"{folder} is in use by another run; wait for it to end")
    return file
