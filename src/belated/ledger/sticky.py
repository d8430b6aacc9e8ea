"""Sticky decisions: for a time, a subject gets again the action that it got first.

A stretch begins with a choice for a subject and ends at a fixed time after it. A decision within
the stretch plays the same action, if it can be played, and logs which decision it repeats; where
it cannot be played, a new choice begins a new stretch. A change of the settings ``sticky``,
``holdout`` or ``baseline`` ends all stretches, so that nobody keeps the action of a group that they
have left. Each place of a ranking has a stretch of its own, so that the whole ranking is repeated.

The fold remembers stretches under a hash of the subject, so a snapshot names nobody. Which of them
are open follows from the log alone: those that end after its latest decision. Retention leaves the
subject of a decision that began an open stretch, and of two stretches of one subject the fold keeps
the one that ends last. So a log that is read after retention gives the same state, bit for bit,
though it no longer says who began the stretches that are over.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

FEWEST = 1024  # stretches to which the memory may grow before those that are over are dropped


class Begun(NamedTuple):
    """A stretch: when it ends, the action that is played until then, and the first decision."""

    until: int
    action: str
    id: bytes


def key_of(subject: str, rank: int) -> bytes:
    """Returns the key under which a subject's stretch is remembered, for one place of a ranking."""
    known = f"{rank}\0{subject}".encode()
    return blake2b(known, digest_size=16, person=b"belated sticky").digest()


class Stretches:
    """The stretches of one bandit."""

    def __init__(self) -> None:
        self.latest = 0  # time of the latest decision in the log
        self._begun: dict[bytes, Begun] = {}
        self._room = FEWEST

    def get(self, key: bytes, now: int) -> Begun | None:
        """Returns the stretch that goes on at ``now``, if there is one."""
        found = self._begun.get(key)
        return None if found is None or found.until <= now else found

    def begin(self, key: bytes, stretch: Begun) -> None:
        """Take in a stretch that a decision began."""
        known = self._begun.get(key)
        if known is None or known.until <= stretch.until:
            self._begun[key] = stretch
        if len(self._begun) > self._room:
            self._begun = dict(self.listed())
            self._room = max(FEWEST, 2 * len(self._begun))

    def end_all(self) -> None:
        """Let every subject begin anew."""
        self._begun = {}

    def listed(self) -> list[tuple[bytes, Begun]]:
        """Returns the stretches that are open at the latest decision, in an order of their own."""
        begun = self._begun.items()
        return sorted((key, stretch) for key, stretch in begun if stretch.until > self.latest)

    def restore(self, listed: Iterable[tuple[bytes, Begun]], latest: int) -> None:
        """Go on where a snapshot was taken."""
        self._begun, self.latest = dict(listed), latest
