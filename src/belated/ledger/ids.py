"""Names of decisions: 16 bytes that sort by time (UUID version 7, RFC 9562), written as UUIDs.

Random ids cost a store four times as much to insert: each of them lands on another page.
"""

import random
import re
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from belated.core.types import Integers

Clock = Callable[[], int]  # microseconds since 1970

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DASHES = 8, 13, 18, 23
_VERSION, _VARIANT = 7 << 76, 2 << 62
_COUNTER = 12  # bits that count the ids of one millisecond
DRAWN = 40  # last bits of an id, from which the random numbers of its decision are made


class Ids:
    """Makes ids, each greater than the one before, even when the clock stands or goes back.

    Parameters
    ----------
    clock
        Tells the time in microseconds.
    seed
        Seed of the random bits, for runs that must repeat exactly; drawn from the system otherwise.
    """

    def __init__(self, clock: Clock, seed: int | None = None) -> None:
        self._clock = clock
        # Ids must differ, not be secret; to draw each from the system costs a call of its own.
        start = random.SystemRandom().getrandbits(256) if seed is None else seed
        self._bits = random.Random(start).getrandbits
        self._last = 0  # milliseconds and counter

    def __call__(self, drawn: int | None = None) -> bytes:
        """Returns a new id; ``drawn`` are its last ``DRAWN`` bits, random ones if not given.

        22 further random bits keep the ids of processes with the same seed apart.
        """
        now = self._clock() // 1000 << _COUNTER
        self._last = now if now > self._last else self._last + 1
        ms, count = self._last >> _COUNTER, self._last & (1 << _COUNTER) - 1
        drawn = self._bits(DRAWN) if drawn is None else drawn
        number = ms << 80 | _VERSION | count << 64 | _VARIANT | self._bits(22) << DRAWN | drawn
        return number.to_bytes(16, "big")


def time_of(id: bytes) -> int:
    """Returns when an id was made: microseconds since 1970, to the millisecond."""
    return int.from_bytes(id[:6], "big") * 1000


def times_of(ids: bytes | bytearray) -> Integers:
    """Returns ``time_of`` each of many ids, which follow on each other.

    >>> times_of(first_id(2_000_000) + first_id(5_000)).tolist()
    [2000000, 5000]
    """
    milliseconds = np.zeros((len(ids) // 16, 8), np.uint8)
    milliseconds[:, 2:] = np.frombuffer(bytes(ids), np.uint8).reshape(-1, 16)[:, :6]
    return milliseconds.view(">i8").ravel().astype(np.int64) * 1000


def first_id(time: int) -> bytes:
    """Returns the smallest id that can be made at this time or later.

    >>> first_id(2_000_001) <= Ids(lambda: 2_001_000)() < first_id(2_001_001)
    True
    """
    return (-(-time // 1000)).to_bytes(6, "big") + bytes(10)


def to_text(id: bytes) -> str:
    """Returns an id as people and JSON see it.

    >>> to_text(bytes(range(16)))
    '00010203-0405-0607-0809-0a0b0c0d0e0f'
    """
    h = id.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def from_text(text: str) -> bytes | None:
    """Returns the id that ``text`` stands for; None if it stands for none.

    >>> from_text("00010203-0405-0607-0809-0a0b0c0d0e0f") == bytes(range(16))
    True
    """
    return bytes.fromhex(text.replace("-", "")) if _UUID.fullmatch(text) else None


def all_from_texts(texts: Sequence[str]) -> list[bytes | None]:
    """Returns ``from_text`` of each text, all at once if all of them are ids, which is faster.

    >>> all_from_texts(["00010203-0405-0607-0809-0a0b0c0d0e0f", "?"])[1] is None
    True
    """
    n, joined = len(texts), "".join(texts)
    digits = joined.replace("-", "")
    dashed = all(joined[place::36] == "-" * n for place in _DASHES)
    if dashed and len(digits) == 32 * n and set(map(len, texts)) == {36}:
        with suppress(ValueError):
            ids = bytes.fromhex(digits)  # fromhex takes capitals, and leaves out spaces
            if len(ids) == 16 * n and digits == digits.lower():
                return [ids[start : start + 16] for start in range(0, 16 * n, 16)]
    return [from_text(text) for text in texts]
