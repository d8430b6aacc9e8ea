"""The regret that the paper's Figures 1 to 8 show, read from the pixels of the published version.

Howson, Pike-Burke and Filippi, Delayed Feedback in Generalised Linear Bandits Revisited, AISTATS
2023, PMLR 206, pages 6095 to 6119: Figures 1 to 4 are on the paper's pages 8 and 9, Figures 5 to 8
on its pages 22 and 23. Figures 1, 2, 5, 6, 7 and 8 draw regret against the round for both policies;
Figures 3 and 4 draw the regret after the last round against the mean delay, for ``delayed-ofu-glm``
alone. The policy that the figures call "Blanchet et al. (2020)" is here ``ducb-ridge``, with which
``belated reproduce`` plays it. Bands are standard errors over 30 runs.

How the figures were read. They are raster images without loss, so each panel was drawn again and
compared pixel by pixel. The axes come from all tick marks, which the drawing library moves to whole
pixels. A curve is a line of its colour, 2.08 pixels wide, over a symmetric band of opacity 0.2. In
Figures 3 and 4 each line is straight between two means and was fitted along its whole length. In
the others, position, slope, band and dashes of all curves were fitted by least squares in 12
columns of pixels around a round, backwards from the last round, where Figures 3 and 4 gave the
start. Curves were held softly to where the last step pointed, bands to a constant share of the
regret; tighter and in finer steps for Figure 7, Figure 1 at d = 20 and Figure 8 at d = 10 and 20,
where the first attempt lost hidden curves. In Figure 7 at d = 20 the four curves of
``delayed-ofu-glm`` cannot be told apart at 20,000 and 40,000 rounds.

One pixel is this much regret, for d = 5, 10 and 20:

========  ====  ====  ====
Figure    5     10    20
========  ====  ====  ====
1 and 5   23    43    69
2 and 6   18    25    30
3         1.0   1.4   2.7
4         1.0   1.4   2.0
7         4.5   8.9   20
8         8.5   16    24
========  ====  ====  ====

The reading error is half a pixel, for the axis, and twice the standard error of the fit; it is at
least one pixel where another curve of the policy is less than one pixel away or the fit left more
than 6 of 255 levels of colour. Bands are given for Figures 3 and 4 and for the competitor after the
last round. Figures 3 and 5 contradict each other for d = 10 and uniform delays of mean 250 (1,240
and 1,282) and 500 (1,290 and 1,355).
"""

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import msgspec

LAST_ROUND = 100_000


class Reading(NamedTuple):
    """One number of a figure, under the names of family, delays and policy in ``paper``."""

    figure: int
    family: str
    delays: str
    d: int
    mean_delay: float
    policy: str
    round: int
    regret: float
    reading_error: float
    band_low: float | None
    band_high: float | None


@cache
def readings() -> tuple[Reading, ...]:
    """Returns all 792 numbers, in the order of the figures."""
    text = files(__package__).joinpath("published.csv").read_text("utf-8")
    rows = [[cell or None for cell in row] for row in csv.reader(text.splitlines()[1:])]
    return msgspec.convert(rows, tuple[Reading, ...], strict=False)


def printed(
    family: str, delays: str, d: int, mean_delay: float, policy: str, round: int = LAST_ROUND
) -> Reading | None:
    """Returns the paper's regret, from the figure with the smaller error; None if none shows it.

    >>> printed("linear", "exponential", 5, 1000, "delayed-ofu-glm").regret
    707.5
    """
    wanted = (family, delays, d, mean_delay, policy, round)
    found = [reading for reading in readings() if reading[1:7] == wanted]
    return min(found, key=lambda reading: reading.reading_error, default=None)
