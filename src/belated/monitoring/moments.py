"""Many moments, counted so that "how many since then" costs the same however many there are."""

from collections import Counter
from collections.abc import Iterable

SECOND_US = 1_000_000
STEPS = (60, 60, 24)  # seconds in a minute, minutes in an hour, hours in a day


class Moments:
    """Counts of moments in each second, minute, hour and day.

    >>> waiting = Moments()
    >>> waiting.add([3_000_000, 7_500_000, 95_000_000])
    >>> waiting.since(7), waiting.since(8)
    (2, 1)
    >>> waiting.remove([95_000_000])
    >>> waiting.since(8)
    0
    """

    def __init__(self) -> None:
        # from seconds up to days; what is not there is zero
        self._counts: list[dict[int, int]] = [{} for _ in range(len(STEPS) + 1)]

    def add(self, moments_us: Iterable[int]) -> None:
        """Count these, too: microseconds since 1970."""
        self._change(moments_us, 1)

    def remove(self, moments_us: Iterable[int]) -> None:
        """Count these, which were added before, no longer."""
        self._change(moments_us, -1)

    def _change(self, moments_us: Iterable[int], each: int) -> None:
        slices = Counter([moment // SECOND_US for moment in moments_us])
        for counts, step in zip(self._counts, (*STEPS, 1), strict=True):
            coarser: Counter[int] = Counter()
            for place, n in slices.items():
                left = counts.get(place, 0) + each * n
                if left:
                    counts[place] = left
                else:
                    del counts[place]
                coarser[place // step] += n
            slices = coarser

    def since(self, second: int) -> int:
        """Returns the number of moments in this second (since 1970) or after it."""
        total, place = 0, second
        for counts, step in zip(self._counts, STEPS, strict=False):
            # this slice and those after it, up to where the next coarser one begins
            end = -(-place // step) * step
            total += sum(counts.get(k, 0) for k in range(place, end))
            place = end // step
        days = self._counts[-1]
        return total + sum(n for day, n in days.items() if day >= place)
