"""Players of the league: what each is shown of a visit, how it decides, and how it learns."""

from typing import Any, Protocol

import numpy as np

from belated.bandit import Bandit
from belated.core.types import Matrix
from belated.features import Features
from belated.peers import VowpalWabbit
from belated.peers.adapter import Adapter
from belated.worlds.shops.shop import Shop, Visit

DELIVERY = 10  # decisions from one delivery of rewards to the next, three minutes of a day of 5,000


class Player(Protocol):
    """Somebody who decides for visitors. Time is taken of ``decide`` and ``learn``.

    Attributes
    ----------
    closes_windows
        Where only buyers report: True for a player that hears of them when they buy, and of nobody
        else; False for one that is told of every decision when its window closes.
    """

    closes_windows: bool

    def show(self, visit: Visit) -> Any:
        """Returns the visit in the form in which this player has it."""

    def decide(self, shown: Any) -> int:
        """Returns the position of the action to play."""

    def learn(self, rewards: list[tuple[int, float]]) -> None:
        """Take in rewards, each with the number of its decision, counted from 0."""


class Ours:
    """A ``Bandit`` with features, used as its users do: dicts in, rewards by id.

    Parameters
    ----------
    policy
        Name and parameters, such as ``"thompson:prior_sd=1"``, or a policy.
    world : Shop
        The world to play in; it names family and columns. Where only buyers report, the bandit has
        its window, with a clock that counts decisions.
    open : str, optional
        See ``Bandit``; by default "silence" for a policy that can, else "hold".
    **further
        Other settings of ``Bandit``; times are in decisions.
    """

    closes_windows = True

    def __init__(self, policy: Any, world: Shop, open: str | None = None, **further: Any) -> None:
        features = Features(categorical=world.categorical(), interactions=world.interactions())
        features.fit(world.rows())
        self.ids: list[Any] = []
        settings: dict[str, Any] = {}
        if world.window is not None:
            # Reports are delivered now and then, so the last one is as much later than the window.
            settings |= {"window": world.window + DELIVERY, "default_reward": 0.0}
            settings |= {"clock": lambda: len(self.ids), **({"open": open} if open else {})}
        settings |= {"family": world.family, "policy": policy, "seed": world.seed}
        self.bandit = Bandit(features=features, **(settings | further))

    def show(self, visit: Visit) -> Any:
        """Returns actions and context as they are."""
        return visit.actions, visit.context

    def decide(self, shown: Any) -> int:
        """Ask the bandit, and keep the id of its decision."""
        decision = self.bandit.decide(*shown, probabilities=False)
        self.ids.append(decision.id)
        return decision.index

    def learn(self, rewards: list[tuple[int, float]]) -> None:
        """Hand over all rewards at once."""
        self.bandit.learn([(self.ids[t], y) for t, y in rewards])


class OfVectors:
    """A peer that gets raw one-hot vectors: 1 for what an action and its visitor have, else 0."""

    closes_windows = False

    def __init__(self, adapter: Adapter, world: Shop) -> None:
        self.adapter, self.dim, self.t = adapter, world.dim, 0
        adapter.start(world.dim, np.random.default_rng([world.seed, 9]))

    def show(self, visit: Visit) -> Matrix:
        """Returns the vectors of the actions, (K, d)."""
        x = np.zeros((len(visit.actions), self.dim))
        x[np.arange(len(x))[:, None], visit.places] = 1.0
        return x

    def decide(self, shown: Matrix) -> int:
        """Ask the library."""
        self.t += 1
        return self.adapter.choose(shown, self.t)

    def learn(self, rewards: list[tuple[int, float]]) -> None:
        """Hand over the rewards; the adapter kept the vectors of their decisions."""
        for t, y in rewards:
            row, kept = self.adapter.pending.pop(t + 1)
            self.adapter.learn(row, kept, y)


class OfLines:
    """Vowpal Wabbit, which gets text: one namespace per column, and pairs of them by ``-q``."""

    closes_windows = False

    def __init__(self, options: str, world: Shop) -> None:
        self.letters = dict(zip(world.categorical(), "abcdefghij", strict=False))
        crossed = "".join(
            f" -q {self.letters[left]}{self.letters[right]}" for left, right in world.interactions()
        )
        self.adapter = VowpalWabbit(f"--cb_explore_adf {options}{crossed}")
        self.adapter.start(world.dim, np.random.default_rng([world.seed, 9]))
        self.kept: list[tuple[int, Any]] = []

    def show(self, visit: Visit) -> Visit:
        """Returns the visit: the text is made, and timed, in every decision."""
        return visit

    def decide(self, shown: Visit) -> int:
        """Write the visitor and the actions as lines, and ask for a row."""
        lines = ["shared " + self._line(shown.context), *map(self._line, shown.actions)]
        self.kept.append(self.adapter.pick_line(lines))
        return self.kept[-1][0]

    def learn(self, rewards: list[tuple[int, float]]) -> None:
        """Hand over the rewards with the lines of their decisions."""
        for t, y in rewards:
            self.adapter.learn(*self.kept[t], y)
            self.kept[t] = (0, None)  # the lines are not needed again

    def _line(self, values: dict[str, str]) -> str:
        letters = self.letters
        return " ".join(f"|{letters[c]} {value}" for c, value in values.items() if c in letters)
