"""Outages of the store: one line in the log when it fails, and one when it is back."""

import logging
from enum import Enum

from belated.ledger.ids import Clock

log = logging.getLogger("belated.service")

FAILED_FOR = 2_000_000  # microseconds without another failed write: a full disk can still be read


class Use(Enum):
    """The uses of a store, which can fail one by one: a full disk can still be read."""

    WRITING = "writing"
    FOLLOWING = "following the log"
    ASKING = "asking"  # for anything else, such as the story of a decision


class Outage:
    """The uses of the store that fail now.

    Parameters
    ----------
    clock
        Tells the time in microseconds.
    """

    def __init__(self, clock: Clock) -> None:
        self.errors = 0
        self._clock = clock
        self._failing: set[Use] = set()
        self._write_failed_at = 0

    @property
    def is_on(self) -> bool:
        """True while the log cannot be read, or a write has failed lately and none worked since.

        Not for ever after a failed write: without traffic, nobody would find the store mended.
        """
        if Use.FOLLOWING in self._failing:
            return True
        lately = abs(self._clock() - self._write_failed_at) <= FAILED_FOR
        return Use.WRITING in self._failing and lately

    def failed(self, use: Use, error: Exception) -> None:
        """Count a failure, and log it if it is the first of an outage."""
        self.errors += 1
        if not self._failing:
            log.warning("the store cannot be used: %s", error)
        self._failing.add(use)
        if use is Use.WRITING:
            self._write_failed_at = self._clock()

    def worked(self, use: Use) -> None:
        """Log the end of an outage, if this is it."""
        if use not in self._failing:
            return
        if use is Use.FOLLOWING:  # it was away, and is back
            self._failing.clear()
        self._failing.discard(use)
        if not self._failing:
            log.warning("the store can be used again")
