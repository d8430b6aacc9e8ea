"""Progress of a command and its speed: a bar on a terminal, a line now and then elsewhere.

All of it goes to the standard error, so that programs can read the output of the command.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

QUIET = 3.0  # seconds: a command that takes no longer says nothing
EVERY = 5.0  # seconds between two lines
REFRESH = 0.1  # seconds between two changes of a bar

Say = Callable[[float | None, str], None]  # gets the part that is done, if known, and words


class Share:
    """The part of a file that has been read, from 0 to 1, as its reader tells it."""

    def __init__(self) -> None:
        self.position: Callable[[], float] = lambda: 0.0

    def __call__(self) -> float:
        """Returns the part that has been read."""
        return min(1.0, self.position())


class Meter:
    """Counts steps, and now and then says how many there were, of how many, and how fast."""

    def __init__(self, total: int | None, share: Share | None, say: Say, pace: float) -> None:
        self.total, self.share, self.say, self.pace = total, share, say, pace
        self.steps, self.begun = 0, time.monotonic()
        self._next = self.begun + min(pace, QUIET)

    def __call__(self, steps: int) -> None:
        """Count that many more steps."""
        self.steps += steps
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self.pace
            self.say(self.part(), self.words())

    def part(self) -> float | None:
        """Returns the part that is done; None if it is not known."""
        if self.share is not None:
            return self.share()
        return self.steps / self.total if self.total else None

    def words(self) -> str:
        """Returns the count and the rate in words."""
        of = f" of {self.total:,}" if self.total else ""
        return f"{self.steps:,}{of}, {self.rate():,.0f} a second"

    def rate(self) -> float:
        """Returns the steps per second since the beginning."""
        return self.steps / max(self.seconds(), 1e-9)

    def seconds(self) -> float:
        """Returns the seconds since the beginning."""
        return time.monotonic() - self.begun


@contextmanager
def progress(
    what: str, total: int | None = None, share: Share | None = None
) -> Iterator[Callable[[int], None]]:
    """Yields a function to call with steps; if it all takes more than a moment, it shows progress.

    Parameters
    ----------
    what
        Words for the work that is being done.
    total
        The number of steps there will be, if it is known.
    share
        Tells which part is done, if the steps do not tell.
    """
    bar = _bar if sys.stderr.isatty() else _lines
    with bar(what) as (say, pace):
        meter = Meter(total, share, say, pace)
        yield meter
    if meter.seconds() > QUIET:
        rate, seconds = meter.rate(), meter.seconds()
        _write(f"{what}: {meter.steps:,} in {seconds:,.0f} seconds, {rate:,.0f} a second")


@contextmanager
def _lines(what: str) -> Iterator[tuple[Say, float]]:
    def say(part: float | None, words: str) -> None:
        _write(f"{what}: {'' if part is None else f'{part:.0%}, '}{words}")

    yield say, EVERY


@contextmanager
def _bar(what: str) -> Iterator[tuple[Say, float]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = "{task.description}", BarColumn(), TaskProgressColumn(), "{task.fields[words]}"
    shown = [TextColumn(c, markup=False) if isinstance(c, str) else c for c in columns]
    with Progress(*shown, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None, words="")

        def say(part: float | None, words: str) -> None:
            total = None if part is None else 1.0
            bar.update(task, total=total, completed=part or 0.0, words=words)

        yield say, REFRESH


def _write(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
