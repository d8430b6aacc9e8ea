"""The shop that the other worlds are variations of."""

import math
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from belated.core.types import Vector

Columns: TypeAlias = dict[str, int]  # with their numbers of categories
Groups: TypeAlias = dict[tuple[str, ...], float]  # standard deviation of the effects of each

DAY = 5_000  # decisions
HOUR = DAY / 24
BLOCK = 1024  # visitors drawn at a time: part of what a seed means


class Visit(NamedTuple):
    """One decision to make: ``context`` and ``actions`` are shown, the rest is the world's.

    Attributes
    ----------
    context
        The visitor, as a dict.
    actions
        The actions on offer, a dict each.
    places
        The features that are 1, as positions in theta: one row per action, one column per group.
    expected
        The expected reward of each action.
    waits
        The mean time until the reward of each action is known, in decisions.
    luck
        The two uniform numbers behind the reward and its delay, whatever is played.
    """

    context: dict[str, str]
    actions: list[dict[str, str]]
    places: NDArray[np.int64]
    expected: Vector
    waits: Vector
    luck: tuple[float, float]


class Outcome(NamedTuple):
    """A reward, and how many decisions after its own it is reported; infinite if it never is."""

    reward: float
    wait: float


class Shop:
    """Twenty banners, 2 per cent conversions, explicit rewards half a day late.

    A banner and a visitor without effects convert at the base rate; the effects in ``groups`` are
    normal, on the scale of log odds. Whoever makes the same world with the same seed gets the same
    visitors and the same luck, whatever was played before.

    Parameters
    ----------
    seed : int
        The seed of truth, visitors and luck.
    """

    family = "bernoulli"
    decisions = 20_000  # a run, if nobody asks for another length
    item, items = "banner", 20  # the name of the actions' own column, and the number of actions
    of_item: ClassVar[Columns] = {}  # other columns of an action
    of_visitor: ClassVar[Columns] = {"device": 3, "country": 5}
    # Columns and pairs of columns that matter.
    groups: ClassVar[Groups] = {
        ("banner",): 0.5,
        ("device",): 0.2,
        ("country",): 0.3,
        ("banner", "device"): 0.4,
    }
    rate = 0.02
    delay = DAY / 2
    # Decisions for which a conversion is waited for; None where every reward is reported.
    window: float | None = None

    def __init__(self, seed: int) -> None:
        self.seed = seed
        rng = self.stream(0)
        self.sizes = {self.item: self.items, **self.of_item, **self.of_visitor}
        self.lengths = [math.prod(self.sizes[c] for c in group) for group in self.groups]
        self.starts = np.cumsum([0, *self.lengths])
        self.theta = self.draw_theta(rng)
        self.codes = {c: rng.integers(n, size=self.items) for c, n in self.of_item.items()}
        self.codes[self.item] = np.arange(self.items)
        columns = [self.item, *self.of_item]
        self.actions = [{c: f"{c}-{self.codes[c][i]}" for c in columns} for i in range(self.items)]
        self.mean_waits = self.draw_waits(rng)

    def stream(self, number: int) -> np.random.Generator:
        """Returns one of the independent streams of random numbers of this world."""
        return np.random.default_rng([self.seed, number])

    def draw_theta(self, rng: np.random.Generator) -> Vector:
        """Returns the effects of all groups, the intercept last."""
        scales = np.repeat(list(self.groups.values()), self.lengths)
        return np.append(scales * rng.standard_normal(len(scales)), self.intercept())

    def intercept(self) -> float:
        """Returns the log odds of the base rate."""
        return math.log(self.rate / (1.0 - self.rate))

    def draw_waits(self, rng: np.random.Generator) -> Vector:
        """Returns the mean delay of each action."""
        return np.full(self.items, self.delay)

    @property
    def dim(self) -> int:
        """Number of features: all categories of all groups, and the intercept."""
        return len(self.theta)

    def categorical(self) -> list[str]:
        """Returns the columns that matter, as ``Features`` takes them."""
        return [group[0] for group in self.groups if len(group) == 1]

    def interactions(self) -> list[tuple[str, str]]:
        """Returns the pairs of columns that matter, as ``Features`` takes them."""
        return [(group[0], group[1]) for group in self.groups if len(group) == 2]

    def rows(self) -> list[dict[str, str]]:
        """Returns rows that hold every category, in the order of theta, to fit features on."""
        sizes = self.sizes.items()
        return [
            {c: f"{c}-{min(i, n - 1)}" for c, n in sizes} for i in range(max(self.sizes.values()))
        ]

    def visits(self) -> Iterator[Visit]:
        """Yield visitors without end."""
        visitors, luck, t = self.stream(1), self.stream(2), 0
        names = list(self.of_visitor)
        while True:
            drawn = self.draw_visitors(visitors, BLOCK).tolist()
            uniforms = luck.random((BLOCK, 2)).tolist()
            for codes, (u, v) in zip(drawn, uniforms, strict=True):
                yield self.visit(t, dict(zip(names, codes, strict=True)), (u, v))
                t += 1

    def draw_visitors(self, rng: np.random.Generator, n: int) -> NDArray[np.int64]:
        """Returns the numbers of the categories of visitors, one row each."""
        sizes = list(self.of_visitor.values())
        return rng.integers(sizes, size=(n, len(sizes)))

    def visit(self, t: int, visitor: dict[str, int], luck: tuple[float, float]) -> Visit:
        """Returns decision ``t``, of a visitor given by the numbers of its categories."""
        offered = self.offered(t)
        places = self.places_of(offered, visitor)
        return Visit(
            {column: f"{column}-{code}" for column, code in visitor.items()},
            [self.actions[i] for i in offered],
            places,
            self.expected(self.theta_at(t)[places].sum(axis=1)),
            self.mean_waits[offered],
            luck,
        )

    def places_of(self, offered: NDArray[np.int64], visitor: dict[str, int]) -> NDArray[np.int64]:
        """Returns the positions in theta of what the offered actions and a visitor have."""
        places = np.empty((len(offered), len(self.starts)), np.int64)
        places[:, -1] = self.starts[-1]  # the intercept
        for g, group in enumerate(self.groups):
            place: Any = 0
            for column in group:
                code = visitor[column] if column in visitor else self.codes[column][offered]
                place = place * self.sizes[column] + code
            places[:, g] = self.starts[g] + place
        return places

    def offered(self, t: int) -> NDArray[np.int64]:
        """Returns the numbers of the actions on offer at decision ``t``."""
        return self.codes[self.item]

    def theta_at(self, t: int) -> Vector:
        """Returns the truth at decision ``t``."""
        return self.theta

    def expected(self, scores: Vector) -> Vector:
        """Returns the expected rewards of actions with these linear scores."""
        return np.asarray(1.0 / (1.0 + np.exp(-scores)))

    def outcome(self, visit: Visit, index: int) -> Outcome:
        """Returns what becomes of playing an action of a visit; the luck is that of the visit."""
        u, v = visit.luck
        return Outcome(float(u < visit.expected[index]), -visit.waits[index] * math.log1p(-v))
