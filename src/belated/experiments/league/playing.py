"""Playing the league: every player alone in its copy of a world, with the luck of all others."""

import math
import re
import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from belated import registry
from belated.core.arguments import wrong
from belated.experiments.labels import HOLD
from belated.experiments.league.peers import PEERS
from belated.experiments.league.players import DELIVERY, Ours, Player
from belated.worlds.shops.shop import Shop

CHECKPOINTS = 20  # so that the last tenth begins at one of them
WARMING = 30  # decisions before the clock starts: they compile kernels and import libraries
SCHEMA = pa.schema(
    [
        ("world", pa.string()),
        ("player", pa.string()),
        ("seed", pa.int64()),
        ("t", pa.int64()),  # decisions made
        ("earned", pa.float64()),  # expected rewards of what was played, summed
        ("uniform", pa.float64()),  # the same for uniform play
        ("best", pa.float64()),  # the same for the best action of every visit
        ("learnt", pa.int64()),  # rewards that were known
        ("seconds", pa.float64()),  # CPU time of deciding and learning
    ]
)


class Match(NamedTuple):
    """One player in one world with one seed."""

    world: str
    player: str
    seed: int
    decisions: int

    @property
    def name(self) -> str:
        """The name of the match in its folder."""
        return f"{self.world}.{re.sub(r'[^A-Za-z0-9.]+', '-', self.player)}.{self.seed}"

    @property
    def work(self) -> float:
        """Returns 1: all matches count alike, so that they are played in the planned order.

        ``run`` starts with the largest.
        """
        return 1.0


def world_named(name: str, seed: int) -> Shop:
    """Returns a world of the registry."""
    if name not in registry.WORLDS:
        known = f"{', '.join(registry.WORLDS)}{registry.hint(name, registry.WORLDS)}"
        raise wrong("world", name, f"one of {known}")
    world: Shop = registry.load(registry.WORLDS, name)(seed)
    return world


def player_named(name: str, world: Shop) -> Player:
    """Returns a peer of that name, or else a bandit of ours with that policy.

    "hold " before the policy lets it wait for windows to close where only buyers report.
    """
    if name in PEERS:
        return PEERS[name](world)
    return Ours(name.removeprefix(HOLD), world, "hold" if name.startswith(HOLD) else None)


def play_match(match: Match, after_block: Callable[[float], None]) -> pa.Table:
    """Play a match and return its table, one row per checkpoint."""
    world = world_named(match.world, match.seed)
    play(world, player_named(match.player, world), np.array([WARMING]), longest_wait=3.0)
    share = np.arange(1, CHECKPOINTS + 1) / CHECKPOINTS
    checkpoints = np.unique(np.ceil(share * match.decisions).astype(int))
    player = player_named(match.player, world)
    table = play(world, player, checkpoints, lambda done: after_block(done / match.decisions))
    n = len(table["t"])
    columns = {"world": [match.world] * n, "player": [match.player] * n, "seed": [match.seed] * n}
    return pa.table({**columns, **table}, schema=SCHEMA)


def play(
    world: Shop,
    player: Player,
    checkpoints: NDArray[np.int64],
    after_block: Callable[[float], None] = lambda decisions: None,
    longest_wait: float = math.inf,
    delivery: int = DELIVERY,
) -> dict[str, list[float]]:
    """Play as many decisions as the last checkpoint says and return sums at all of them.

    Before every tenth decision (``delivery``) all rewards that became known since are handed over
    at once, in the order in which they became known: most libraries pay for each call, not for each
    reward.
    Where only buyers report, a player that does not close windows itself is told of a decision when
    its window closes. ``longest_wait`` cuts delays, for a rehearsal.
    """
    table: dict[str, list[float]] = {field: [] for field in SCHEMA.names[3:]}
    due: list[tuple[float, int, float]] = []
    earned = uniform = best = seconds = 0.0
    learnt, marks = 0, iter(checkpoints.tolist())
    mark = next(marks)
    for t, visit in enumerate(world.visits()):
        rewards = []
        while t % delivery == 0 and due and due[0][0] <= t:
            rewards.append(heappop(due)[1:])
        shown = player.show(visit)
        start = time.process_time()
        if rewards:
            player.learn(rewards)
        index = player.decide(shown)
        seconds += time.process_time() - start
        outcome = world.outcome(visit, index)
        wait = outcome.wait
        if world.window is not None and not player.closes_windows:
            wait = world.window
        heappush(due, (t + min(wait, longest_wait), t, outcome.reward))
        learnt += len(rewards)
        earned += visit.expected[index]
        uniform += visit.expected.mean()
        best += visit.expected.max()
        if t + 1 == mark:
            values = (mark, earned, uniform, best, learnt, seconds)
            for column, value in zip(table.values(), values, strict=True):
                column.append(value)
            after_block(mark - (table["t"][-2] if len(table["t"]) > 1 else 0))
            if mark == checkpoints[-1]:
                break
            mark = next(marks)
    return table
