"""A file of which only what was synced is sure to survive a power cut."""

import random
from collections import defaultdict

SECTOR = 512


class Content:
    """The bytes of a file: those that are safe, and what was done to them since the last sync."""

    def __init__(self, safe: bytes = b"") -> None:
        self.safe = safe
        self.now = bytearray(safe)
        self.changes: list[tuple[int, bytes | None]] = []  # None: the file was cut off there

    def write(self, data: bytes, offset: int) -> None:
        _put(self.now, offset, data)
        self.changes.append((offset, bytes(data)))

    def truncate(self, size: int) -> None:
        del self.now[size:]
        self.changes.append((size, None))

    def sync(self) -> None:
        self.safe = bytes(self.now)
        self.changes = []

    def after_a_cut(self, rng: random.Random) -> "Content":
        """Keep, lose or tear every sector that was not synced, and the size of the file."""
        kept = rng.choice([0.0, 0.5, 0.9, 1.0])
        image, latest = bytearray(self.safe), bytearray(self.safe)
        versions: dict[int, list[bytes]] = defaultdict(list)  # of each sector, by its offset
        sizes = [len(image)]
        for offset, data in self.changes:
            if data is not None:
                _put(latest, offset, data)
                sizes.append(len(latest))
                for start in range(offset - offset % SECTOR, offset + len(data), SECTOR):
                    versions[start].append(bytes(latest[start : start + SECTOR]))
            elif rng.random() < kept:
                del image[offset:], latest[offset:]
                sizes = [offset]
                for start in [start for start in versions if start + SECTOR > offset]:
                    versions[start] = [bytes(latest[start : start + SECTOR])]
        image.extend(bytes(len(latest) - len(image)))
        for start, written in versions.items():
            old = bytes(image[start : start + SECTOR])
            new = written[-1] if rng.random() < kept else _fate(rng, old, rng.choice(written))
            image[start : start + SECTOR] = new.ljust(len(old), b"\0")
        size = sizes[-1] if rng.random() < kept else rng.choice(sizes)
        return Content(bytes(image[:size]))


def _put(image: bytearray, offset: int, data: bytes) -> None:
    image.extend(bytes(max(0, offset - len(image))))
    image[offset : offset + len(data)] = data


def _fate(rng: random.Random, old: bytes, new: bytes) -> bytes:
    """A sector whose write did not end well. Bytes outside the write never change."""
    new = new.ljust(len(old), b"\0")
    kind = rng.randrange(6)
    if kind == 0:
        return new
    if kind == 1:
        tear = rng.randrange(len(old) + 1)
        return new[:tear] + old[tear:]
    if kind == 2:
        tear = rng.randrange(len(old) + 1)
        return old[:tear] + new[tear:]
    if kind == 3:  # the disk wrote nonsense where it should have written
        return bytes(
            a if a == b else c for a, b, c in zip(old, new, rng.randbytes(len(old)), strict=True)
        )
    return old
