"""A plain policy as a lane: a way to try an idea in ten lines.

A plain policy is any object that has

    choose(actions, t)   the row of ``actions``, a (K, d) array, to play in round t = 1, 2, ...
    observe(x, y)        a reward y that has returned, of the action x

and, if it wants to know the dimension or needs random numbers, ``start(dim, rng)``, called before
the first round of a run. Every run plays a copy of the object as it was given, or what ``start``
returns: an object that only holds parameters has ``start`` alone.

A policy that must know which decision a reward belongs to, because it keeps something about each
(the chance with which it was made, say), calls a third parameter ``t``: ``observe(x, y, t)`` is
told the round of the decision, as ``choose`` was. One that learns from aggregated feedback has
``observe_total(y, t)`` instead of ``observe``: the sum of what returned in round t, every round.
"""

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from belated.core.events import Decision
from belated.core.types import Matrix, Vector
from belated.engine.lanes import RECORD, Block, rounds_late, seen
from belated.model.plain_policy import OwnPolicy, chosen_row, observer, started
from belated.model.protocols import (
    Family,
    feedback_of,
    mean,
    refuse_family,
    reward_quantile,
    with_horizon,
)
from belated.worlds.feedback import with_window

if TYPE_CHECKING:
    from belated.engine.worlds import Streams, WorldSettings

Returned = tuple[Vector, float, int]  # action, reward, round of the decision


def listener(policy: OwnPolicy, player: Any) -> Callable[[list[Returned], int], None]:
    """Returns a function that tells ``player``, at the end of a round, what has returned in it."""
    if feedback_of(policy) == "aggregated":
        return lambda returned, t: player.observe_total(sum(y for _, y, _ in returned), t)
    observe = observer(player)

    def hear(returned: list[Returned], t: int) -> None:
        for x, y, decided in returned:
            observe(x, y, decided)

    return hear


class OwnPlayer:
    """A plain policy behind ``decide`` and ``learn``, for ``play`` and the shared checks."""

    def __init__(
        self, policy: OwnPolicy, family: Family, dim: int, seed: np.random.SeedSequence
    ) -> None:
        refuse_family(policy, family)
        self.dim, self.family = dim, family
        self.policy = started(policy, dim, seed)
        self.hear = listener(policy, self.policy)
        self.waits = feedback_of(policy) == "aggregated"  # until the round is over
        self.played: list[Vector] = []
        self.returned: list[Returned] = []

    def decide(self, actions: Matrix) -> Decision:
        """Ask the policy."""
        if self.waits and self.played:
            self.hear(self.returned, len(self.played))
            self.returned = []
        row = chosen_row(self.policy, actions, len(self.played) + 1)
        self.played.append(actions[row])
        return Decision(len(self.played), row, math.nan, math.nan, math.nan)

    def learn(self, rewards: Iterable[tuple[int, float]], /) -> int:
        """Hand the rewards over, one by one, or keep them for the sum of the round."""
        new = [(self.played[id - 1], y, id) for id, y in rewards]
        if self.waits:
            self.returned += new
        else:
            self.hear(new, len(self.played))
        return len(new)


class OwnLane:
    """The lane of a plain policy; its rounds and records are those of a compiled lane."""

    def __init__(self, world: "WorldSettings", member: int, streams: "Streams") -> None:
        self.members = [member]
        lane, self.horizon = world.lanes[member], world.horizon
        policy = with_window(with_horizon(lane.policy, world.horizon), world.feedback)
        self.policy = started(policy, world.dim, streams.policy)
        self.hear = listener(policy, self.policy)
        self.family, self.delay = lane.family, seen(lane.delay, world.feedback)
        self.checkpoints = world.checkpoints.tolist()
        self.due: dict[int, list[Returned]] = {}
        self.totals: dict[str, float] = dict.fromkeys(
            ("regret", "missing_sum", "delay_sum", "observed", "missing"), 0
        )
        self.rows: list[list[float]] = []

    def play(self, block: Block, start: int) -> None:
        """Play the rounds of a block."""
        for b in range(len(block.luck)):
            self._play_round(block, b, start + b)

    def _play_round(self, block: Block, b: int, t: int) -> None:
        actions = block.rows[b].copy()
        k = chosen_row(self.policy, actions, t + 1)
        z, u = float(block.z[b, k]), float(block.lateness[b])
        y = float(reward_quantile(self.family, z, block.luck[b]))
        late = int(rounds_late(self.delay, 0, t, actions[k], u, y, self.horizon))
        totals = self.totals
        totals["regret"] += float(mean(self.family, block.best[b]) - mean(self.family, z))
        totals["delay_sum"] += late
        totals["missing"] += 1
        self.due.setdefault(t + late, []).append((actions[k], y, t + 1))
        returned = self.due.pop(t, [])
        self.hear(returned, t + 1)
        totals["missing"] -= len(returned)
        totals["observed"] += len(returned)
        totals["missing_sum"] += totals["missing"]
        if t + 1 in self.checkpoints:
            unknown = {"certificate": math.nan, "failures": math.nan, "radius": math.nan}
            now = {**unknown, "passes": 0.0, **totals}
            self.rows.append([float(now[name]) for name in RECORD])

    @property
    def record(self) -> Any:
        """Returns the totals at checkpoints, an array (1, checkpoints, ``RECORD``)."""
        return np.array([self.rows])
