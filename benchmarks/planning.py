"""Does a plan that was made from a log hold in the world that the log is of?

    python benchmarks/planning.py [WORLD ...]     # numbers of worlds; default: all ten

prints a table of docs/how-to/plan.md; a quarter of an hour of one core. Rates, numbers of actions, delays,
effects and contexts of a world are drawn by its number; every other world reports conversions
alone, and half of the logs were played by the default policy, the others evenly. From the 4,000
decisions of a log `belated plan` makes 8 worlds of its own, in which all candidates make 1,500
decisions: three policies, and for conversions the waiting rules "hold" and "failure at once". The
same candidates then play 10 copies of the world itself, with its own effects and delays, and the
same visitors and the same luck for all.

What counts was written before anything was played in these ten worlds, 11 to 20. (Worlds 1 to 10 were
played before, when a plan had no order of its own but that of means.)

- *The plan's order* is what `belated plan` prints as places: a candidate is before another where the interval of
  their difference over the plan's copies is above 0, and the intervals of all pairs hold together with 95 per cent
  confidence. All other pairs it leaves open. Copies are draws from the posterior, so what the log
  leaves open is in these intervals.
- *The world's order* has the pairs whose difference over the copies of the world itself has a 95 per cent interval,
  each by itself, that leaves out 0. So a few pairs are in it by chance, which can only count against the plan.
- *The advice holds* if the candidate that the plan says to play is the best one in the world itself, or not
  worse than the best one beyond the 95 per cent interval of their difference.
- *The plan agrees with the world* if its advice holds and no pair of the plan's order is the other way round in the
  world's order.

A plan that leaves everything open agrees with everything. So the table also says how many pairs of the world's order a
plan has the same way round, how many it leaves open, and how many are the same way round by the plan's
means alone, which is what was counted in worlds 1 to 10.
"""

import math
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
from parts import asked_parts

from belated.core.types import Vector
from belated.experiments.league.players import Ours
from belated.experiments.league.playing import play
from belated.experiments.run_intervals import mean_interval
from belated.logs.log_plan import (
    AS_LOGGED,
    Candidate,
    Task,
    before,
    candidates,
    judged,
    lift_by_copy,
    played,
    played_in,
    to_play,
)
from belated.logs.log_world import LogFacts, facts_of
from belated.logs.reading_whole import read_whole
from belated.registry import DEFAULT_POLICY
from belated.worlds.shops.shop import Outcome, Shop, Visit

WORLDS = [str(number) for number in range(11, 21)]
POLICIES = (DEFAULT_POLICY, "linucb", "greedy")
LOGGED, DECISIONS, PLANNED, COPIES = 4_000, 1_500, 8, 10
SECONDS = 60.0  # from one decision to the next
BEGIN = 1_750_000_000


class Truth(Shop):
    """A world of this number; copies differ in visitors and luck alone."""

    item = "action"

    def __init__(self, number: int, copy: int) -> None:
        rng = np.random.default_rng([2026, number])
        self.number = number
        self.items = int(rng.integers(3, 16))
        self.rate = math.exp(rng.uniform(math.log(0.02), math.log(0.3)))
        self.delay = math.exp(rng.uniform(math.log(50.0), math.log(1000.0)))
        visitor = {"device": int(rng.integers(2, 5))}
        own, together = rng.uniform(0.3, 0.8), rng.uniform(0.1, 0.5)
        groups = {("action",): own, ("device",): 0.3, ("action", "device"): together}
        self.of_visitor, self.groups = visitor, groups  # type: ignore[misc]
        self.window = 2.0 * self.delay if number % 2 else None
        self.logged_by = "uniform" if number // 2 % 2 else DEFAULT_POLICY
        super().__init__(copy)

    def stream(self, number: int) -> np.random.Generator:
        """Effects and delays are those of the world, the rest is of the copy."""
        return np.random.default_rng([self.number, number, self.seed if number else 0])

    def draw_waits(self, rng: np.random.Generator) -> Vector:
        """Some actions are later than others."""
        return self.delay * np.exp(0.5 * rng.standard_normal(self.items))

    def outcome(self, visit: Visit, index: int) -> Outcome:
        """Delays are exponential; those of conversions end with the window."""
        if self.window is None:
            return super().outcome(visit, index)
        (u, v), mean = visit.luck, visit.waits[index]
        if u >= visit.expected[index]:
            return Outcome(0.0, math.inf)
        return Outcome(1.0, -mean * math.log1p(v * math.expm1(-self.window / mean)))


class Logger(Ours):
    """A bandit that writes down what it was shown and what it played."""

    def __init__(self, world: Truth) -> None:
        super().__init__(world.logged_by, world)
        self.seen: list[tuple[Visit, int]] = []

    def show(self, visit: Visit) -> Any:
        self.seen.append((visit, -1))
        return super().show(visit)

    def decide(self, shown: Any) -> int:
        self.seen[-1] = self.seen[-1][0], (index := super().decide(shown))
        return index


def facts_of_a_log(world: Truth) -> LogFacts:
    """What `belated plan` makes of a log of the world, of which the last rewards are pending."""
    logger = Logger(world)
    play(world, logger, np.array([LOGGED]))
    decided = BEGIN + SECONDS * np.arange(LOGGED)
    outcomes = [world.outcome(visit, index) for visit, index in logger.seen]
    returned = decided + SECONDS * np.array([outcome.wait for outcome in outcomes])
    came = returned <= decided[-1]
    log = pd.DataFrame(
        {
            "time": decided,
            "action": [visit.actions[index]["action"] for visit, index in logger.seen],
            "device": [visit.context["device"] for visit, _ in logger.seen],
            "reward": np.where(came, [outcome.reward for outcome in outcomes], np.nan),
            "reward_time": np.where(came, returned, np.nan),
        }
    )
    read = read_whole(
        log,
        needs=("action", "time", "reward-time"),
        context=["device"],
        loop="explicit" if world.window is None else "conversion",
        window=None if world.window is None else SECONDS * world.window,
    )
    return facts_of(read.log, read.loop, read.window)


def compared(number: int) -> tuple[str, bool]:
    """A row of the table, and whether the plan agrees with the world."""
    world = Truth(number, 0)
    facts = facts_of_a_log(world)
    tried = [c for c in candidates(facts, POLICIES) if c.world == AS_LOGGED and not c.window]
    seeds = range(1, PLANNED + 1)
    plan = pd.concat([played(Task(facts, c, seed, DECISIONS)) for seed in seeds for c in tried])
    truth = pd.concat([_in_truth(number, c, copy) for copy in range(1, COPIES + 1) for c in tried])
    said, lift = to_play(judged(plan, POLICIES[0]), POLICIES[0]), lift_by_copy(truth)
    best = str(lift.mean().idxmax())
    behind = mean_interval(lift[best] - lift[said])
    holds = said == best or behind.low <= 0.0
    told, planned = told_apart(lift), lift_by_copy(plan)
    order, means = before(planned), planned.mean()
    same = len(told & order)
    opposite = len({(b, a) for a, b in told} & order)
    by_means = sum(means[a] > means[b] for a, b in told)
    cells = [
        *(str(number), "explicit" if world.window is None else "conversion"),
        *(f"{world.rate:.1%}", str(world.items), f"{world.delay * SECONDS / 3600.0:.1f}"),
        *(world.logged_by, said, best),
        f"{behind.value:.3f} ({behind.low:.3f} to {behind.high:.3f})" if said != best else "",
        *("yes" if holds else "no", f"{len(order)} of {math.comb(len(tried), 2)}", str(len(told))),
        *(str(same), str(len(told) - same - opposite), str(opposite), f"{by_means} of {len(told)}"),
    ]
    return f"| {' | '.join(cells)} |", holds and opposite == 0


def _in_truth(number: int, candidate: Candidate, copy: int) -> pd.DataFrame:
    return played_in(Truth(number, copy), candidate, SECONDS, DECISIONS)


def told_apart(lift: pd.DataFrame) -> set[tuple[str, str]]:
    """Pairs of candidates whose difference has an interval above 0, each pair by itself."""
    return {
        (one, other)
        for one, other in permutations(lift.columns, 2)
        if mean_interval(lift[one] - lift[other]).low > 0.0
    }


def main() -> None:
    numbers = asked_parts(__doc__, WORLDS)
    print(
        "| world | loop | rate | actions | delay, hours | log played by | the plan says | best in the "
        "world | lift behind the best | advice holds | pairs the plan orders | pairs the world orders "
        "| the same way | open in the plan | the other way | the same way by means |\n"
        f"|{'---|' * 16}"
    )
    agreed = 0
    for number in numbers:
        row, holds = compared(int(number))
        print(row, flush=True)
        agreed += holds
    print(f"\nThe plan agrees with the world in {agreed} of {len(numbers)} worlds.")


if __name__ == "__main__":
    main()
