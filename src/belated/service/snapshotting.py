"""Snapshots made while the service runs, so that the next start need not read the whole log.

A thread looks how long the log has become, and a process of its own reads it and writes: neither
takes time from the event loop. A snapshot that fails costs nothing but a slower start.
"""

import logging
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from belated.ledger import open_ledger, snapshots
from belated.ledger.events import START, Kind, Position
from belated.ledger.protocol import Ledger, LedgerError

log = logging.getLogger("belated.service")

LOOK_EVERY = 10.0  # seconds
URL = "BELATED_SNAPSHOT_LEDGER"
COMMAND = ("ledger", "snapshot", f"env:{URL}")
OUTDATING = (Kind.FORGOTTEN, Kind.PROMOTED)
AFTER_FAILURE = 600.0  # seconds until a snapshot is tried again


class Snapshots(threading.Thread):
    """Makes a snapshot whenever a start would have to read ``every`` events or more.

    Parameters
    ----------
    url, folder
        Of the ledger, and where its snapshots lie.
    every
        Events that a start may have to read.
    """

    def __init__(self, url: str, folder: Path, every: int) -> None:
        super().__init__(name="snapshots", daemon=True)
        self.url, self.folder, self.every = url, folder, every
        self._told_to_stop = threading.Event()

    def stop(self) -> None:
        """Give up what is under way."""
        self._told_to_stop.set()
        self.join(timeout=1.0)  # it may wait for a store that is down: nobody else has to

    def run(self) -> None:
        """Makes snapshots until the service stops, looking every ``LOOK_EVERY`` seconds."""
        ledger: Ledger | None = None
        position: Position | None = None
        wait, told = 0.0, ""
        snapshots.remove_leftovers(self.folder)  # of a process that was killed with its service
        while not self._told_to_stop.wait(wait):
            wait = LOOK_EVERY
            try:
                # once: to open it again would make a new file where the old one is gone
                ledger = ledger or open_ledger(self.url)
                if position is None:
                    position = newest(ledger, self.folder)
                    # may be outdated, and then a start reads the whole log
                    if any(ledger.rare(kind, position) for kind in OUTDATING):
                        position = START
                behind, told = ledger.behind(position), ""
                if behind < self.every:
                    continue
                if self._make():
                    position = newest(ledger, self.folder)
                else:
                    wait = AFTER_FAILURE
            except (LedgerError, OSError) as error:
                if str(error) != told:  # once, and not at every look
                    log.warning("no snapshot was made: %s", error)
                told = str(error)
        if ledger is not None:
            ledger.close()

    def _make(self) -> bool:
        """Returns whether there is a new snapshot; the service abandons one when it stops."""
        process = subprocess.Popen(
            [sys.executable, "-m", "belated", *COMMAND, "--folder", str(self.folder)],
            env={**os.environ, URL: self.url},  # a password in a command is there for all to see
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the service, which then stops this
        )
        while True:
            try:
                said = process.communicate(timeout=0.1)[1].decode(errors="replace").strip()
                break
            except subprocess.TimeoutExpired:
                if self._told_to_stop.is_set():
                    process.kill()
        if process.returncode == 0:
            log.debug("made a snapshot in %s", self.folder)
        elif self._told_to_stop.is_set():
            snapshots.remove_leftovers(self.folder)
        else:
            log.warning("no snapshot was made: %s", said[-500:])
        return process.returncode == 0


def newest(ledger: Ledger, folder: Path) -> Position:
    """Returns the position of the newest snapshot; the start of the log if there is none."""
    position = START
    for path in snapshots.found(folder):
        # damaged, or removed at this moment
        with suppress(ValueError, LookupError, TypeError, OSError):
            manifest = snapshots.manifest_of(path, ledger)
            if manifest is not None:
                position = max(position, Position(*manifest["position"]))
    return position
