"""Erasure and promotion beside the live state: bandits are rebuilt, then swapped in.

Until then they go on deciding with what they know. A process of its own replays the log; where it
cannot, as with a ledger in memory, a thread does.
"""

import asyncio
import json
import logging
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from belated.ledger import open_ledger, snapshots
from belated.ledger.events import Position
from belated.ledger.protocol import Ledger
from belated.ledger.replica import Rebuild, Replica
from belated.service.background_process import BackgroundProcess, BackgroundProcessError

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.ledger.fold import Fold

log = logging.getLogger("belated.service")

AFTER_FAILURE = 1.0  # seconds until a rebuild is tried again


class Rebuilding:
    """Works off what ``Replica.rebuilding`` holds.

    Parameters
    ----------
    replica
        The live bandits.
    ledger
        Of the same log, for threads.
    url
        Of the same log, for other processes; None where they cannot read it.
    folder
        Where snapshots lie, if there are any.
    settled
        Returns when no thread works on the live bandits.
    prepare
        Compiles the kernels of a bandit, in a thread: a promoted one may need others.
    """

    def __init__(
        self,
        replica: Replica,
        ledger: Ledger,
        url: str | None,
        folder: Path | None,
        settled: Callable[[], Awaitable[None]],
        prepare: "Callable[[Fold], object]" = lambda fold: True,
    ) -> None:
        self.replica, self._ledger, self._url, self._folder = replica, ledger, url, folder
        self._settled, self._prepare = settled, prepare
        self._background = BackgroundProcess()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def look(self) -> None:
        """Begin to rebuild the bandits that need it."""
        for name in list(self.replica.rebuilding):  # a thread may be adding another one
            if name not in self._tasks or self._tasks[name].done():
                self._tasks[name] = asyncio.get_running_loop().create_task(self._rebuild(name))

    async def done(self, name: str) -> None:
        """Wait until a bandit holds nothing that was erased, and is as it was promoted."""
        while name in self.replica.rebuilding:
            self.look()
            await asyncio.wait([self._tasks[name]])

    def stop(self) -> None:
        """Give up what is under way: a start reads the log anyway."""
        for task in self._tasks.values():
            task.cancel()
        self._background.stop()

    async def _rebuild(self, name: str) -> None:
        while (wanted := self.replica.rebuilding.get(name)) is not None:
            await self._try_to_rebuild(name, wanted)

    async def _try_to_rebuild(self, name: str, wanted: Rebuild) -> None:
        try:
            fold = await self._replayed(name, wanted.end)
            await asyncio.to_thread(self._prepare, fold)
            await self._swap(name, wanted, fold)
        except Exception:  # such as: something else was erased while this was under way
            await self._settled()
            if self.replica.rebuilding.get(name) is wanted:
                log.exception("%s could not be rebuilt; this is tried again", name)
                self.replica.rebuilding[name] = Rebuild(self.replica.position)
                await asyncio.sleep(AFTER_FAILURE)

    async def _replayed(self, name: str, end: Position) -> "Fold":
        if self._url is not None:
            try:
                return await self._replayed_beside(self._url, name, end)
            except (BackgroundProcessError, OSError) as error:
                log.warning("%s is rebuilt in a thread, which takes longer: %s", name, error)
        return await asyncio.to_thread(_from_log, self._ledger, self._folder, name, end)

    async def _replayed_beside(self, url: str, name: str, end: Position) -> "Fold":
        target = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="belated-"))
        try:
            await self._background.call(rebuild_into, url, self._folder, name, end, target)
            return await asyncio.to_thread(_loaded, self.replica, target)
        finally:  # what is mapped into memory stays
            await asyncio.to_thread(shutil.rmtree, target, ignore_errors=True)

    async def _swap(self, name: str, wanted: Rebuild, fold: "Fold") -> None:
        """Catch up with the live bandit a little at a time, then take its place."""
        await self._settled()
        while wanted.since:
            await asyncio.to_thread(fold.apply, wanted.since.pop(0))
            await self._settled()
        if self.replica.rebuilding.get(name) is not wanted:
            return  # something else was erased meanwhile
        expected = self.replica.folds[name].version
        if fold.version != expected:
            raise RuntimeError(f"{fold.version} events were replayed, expected {expected}")
        self.replica.swap(name, fold)
        log.debug("%s was rebuilt after an erasure or a promotion", name)


def rebuild_into(url: str, folder: str | None, name: str, end: list[int], target: str) -> None:
    """Write a bandit, as the log up to ``end`` has it, into the folder ``target``."""
    with closing(open_ledger(url)) as ledger:
        fold = _from_log(ledger, folder, name, Position(*end))
    snapshots.save_fold(fold, Path(target, "fold.npz"), Path(target, "fold.npy"))
    Path(target, "header.json").write_bytes(msgspec.json.encode(fold.header()))


def _loaded(replica: Replica, target: Path) -> "Fold":
    header = json.loads((target / "header.json").read_bytes())
    return snapshots.load_fold(replica, header, target / "fold.npz", target / "fold.npy")


def _from_log(ledger: Ledger, folder: Path | str | None, name: str, end: Position) -> "Fold":
    """A bandit from the newest snapshot that holds nothing erased, and the log after it."""
    replica = Replica(ledger, only={name})
    snapshots.load(replica, folder, lambda manifest: Position(*manifest["position"]) <= end)
    return replica.replayed(name, end, replica.folds.get(name), replica.position)
