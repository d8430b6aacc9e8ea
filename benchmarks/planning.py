"""Does a plan that was made from a log hold in the world that the log is of?

    python benchmarks/planning.py [WORLD ...]     # numbers of worlds; default: all twenty

prints the tables of docs/how-to/plan.md; forty minutes of one core. Rates, numbers of actions, delays,
effects and contexts of a world are drawn by its number; every other world reports conversions
alone, and half of the logs were played by the default policy, the others evenly. From the 4,000
decisions of a log `belated plan` makes worlds of its own, in which the candidates play. The
same candidates then play copies of the world itself, with its own effects and delays, and the
same visitors and the same luck for all.

- *Usual worlds*, 11 to 20 (1 to 10 were played before, when a plan had no order of its own but that of means): 3 to
  15 actions, one column of context. 8 copies for the plan and 10 of the world, 1,500 decisions each. Candidates are three
  policies, and for conversions the waiting rules "hold" and "failure at once".
- *Unusual worlds*, 21 to 30: 5 to 40 actions, two columns of context, rates of 5 to 40 per cent, and runs that are drawn
  between 200 and 600 decisions, so that many have more features than rewards; windows are 1 to 4 mean delays,
  and half and a quarter of the window are candidates, too. 16 copies for the plan and 12 of the world.

What counts was written before anything was played in these worlds.

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
- *A constant answer*, always the default and no order, is judged by the same rule: it agrees where the default is the best one, or not
  worse beyond the interval. A plan is worth something if it agrees in at least 9 of 10 worlds, and if over the
  worlds of a table its advice loses less lift to the best candidate than the constant answer does.

A plan that leaves everything open agrees with everything. So the table also says how many pairs of the world's order a
plan has the same way round, how many it leaves open, and how many are the same way round by the plan's
means alone, which is what was counted in worlds 1 to 10.
"""

import math
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from parts import asked_parts

from belated.core.types import Vector
from belated.experiments.league.players import Ours
from belated.experiments.league.playing import play
from belated.experiments.run_intervals import Estimate, mean_interval
from belated.logs.log_plan import (
    AS_LOGGED,
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

POLICIES = (DEFAULT_POLICY, "linucb", "greedy")
LOGGED = 4_000
SECONDS = 60.0  # from one decision to the next
BEGIN = 1_750_000_000


class Kind(NamedTuple):
    """What worlds of a kind are drawn from, and how many copies are played."""

    items: tuple[int, int]
    rate: tuple[float, float]
    delay: tuple[float, float]  # decisions
    window: tuple[float, float]  # mean delays
    countries: tuple[int, int] | None  # None: no such column
    decisions: tuple[float, float]  # of a run
    shorter: bool  # whether shorter windows are candidates
    planned: int  # copies of the plan
    copies: int  # of the world itself


USUAL = Kind((3, 16), (0.02, 0.3), (50.0, 1000.0), (2.0, 2.0), None, (1500.0, 1500.0), False, 8, 10)
UNUSUAL = Kind(
    (5, 41), (0.05, 0.4), (20.0, 500.0), (1.0, 4.0), (2, 13), (200.0, 600.0), True, 16, 12
)
KINDS = {number: USUAL if number < 21 else UNUSUAL for number in range(11, 31)}


def between(rng: np.random.Generator, ends: tuple[float, float]) -> float:
    """A number between two others, evenly on the scale of logarithms."""
    return math.exp(rng.uniform(math.log(ends[0]), math.log(ends[1])))


class Truth(Shop):
    """A world of this number; copies differ in visitors and luck alone."""

    item = "action"

    def __init__(self, number: int, copy: int) -> None:
        rng, kind = np.random.default_rng([2026, number]), KINDS[number]
        self.number, self.kind = number, kind
        self.items = int(rng.integers(*kind.items))
        self.rate, self.delay = between(rng, kind.rate), between(rng, kind.delay)
        visitor = {"device": int(rng.integers(2, 5))}
        own, together = rng.uniform(0.3, 0.8), rng.uniform(0.1, 0.5)
        groups = {("action",): own, ("device",): 0.3, ("action", "device"): together}
        if kind.countries is not None:
            visitor["country"] = int(rng.integers(*kind.countries))
            groups |= {("country",): 0.3, ("action", "country"): rng.uniform(0.1, 0.5)}
        self.of_visitor, self.groups = visitor, groups  # type: ignore[misc]
        window = between(rng, kind.window) * self.delay
        self.window = window if number % 2 else None
        self.length = round(between(rng, kind.decisions))
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
            **{
                name: [visit.context[name] for visit, _ in logger.seen] for name in world.of_visitor
            },
            "reward": np.where(came, [outcome.reward for outcome in outcomes], np.nan),
            "reward_time": np.where(came, returned, np.nan),
        }
    )
    read = read_whole(
        log,
        needs=("action", "time", "reward-time"),
        context=list(world.of_visitor),
        loop="explicit" if world.window is None else "conversion",
        window=None if world.window is None else SECONDS * world.window,
    )
    return facts_of(read.log, read.loop, read.window)


class Compared(NamedTuple):
    """A row of the table, and what is counted of it."""

    row: str
    agrees: bool  # the plan with the world
    lost: float  # lift, by the plan's advice, to the best candidate
    constant_agrees: bool
    constant_lost: float


def compared(number: int) -> Compared:
    world = Truth(number, 0)
    kind, facts = world.kind, facts_of_a_log(world)
    tried = [c for c in candidates(facts, POLICIES) if c.world == AS_LOGGED]
    tried = [c for c in tried if kind.shorter or c.window is None]
    length, seeds = world.length, range(1, kind.planned + 1)
    plan = pd.concat([played(Task(facts, c, seed, length)) for seed in seeds for c in tried])
    copies = [Truth(number, copy) for copy in range(1, kind.copies + 1)]
    truth = pd.concat([played_in(copy, c, SECONDS, length) for copy in copies for c in tried])
    said, lift = to_play(judged(plan, POLICIES[0]), POLICIES[0]), lift_by_copy(truth)
    best = str(lift.mean().idxmax())
    behind, constant = (mean_interval(lift[best] - lift[one]) for one in (said, POLICIES[0]))
    holds, constant_holds = behind.low <= 0.0, constant.low <= 0.0
    told, planned = told_apart(lift), lift_by_copy(plan)
    order, means = before(planned), planned.mean()
    same = len(told & order)
    opposite = len({(b, a) for a, b in told} & order)
    by_means = sum(means[a] > means[b] for a, b in told)
    cells = [
        *(str(number), "explicit" if world.window is None else "conversion"),
        *(f"{world.rate:.1%}", str(world.items), f"{world.delay * SECONDS / 3600.0:.1f}"),
        *(world.logged_by, str(length), said, best, behind_in_words(behind)),
        *("yes" if holds else "no", f"{len(order)} of {math.comb(len(tried), 2)}", str(len(told))),
        *(str(same), str(len(told) - same - opposite), str(opposite), f"{by_means} of {len(told)}"),
        *(behind_in_words(constant), "yes" if constant_holds else "no"),
    ]
    row = f"| {' | '.join(cells)} |"
    agrees = holds and opposite == 0
    return Compared(row, agrees, behind.value, constant_holds, constant.value)


def behind_in_words(behind: Estimate) -> str:
    return f"{behind.value:.3f} ({behind.low:.3f} to {behind.high:.3f})" if behind.value else ""


def told_apart(lift: pd.DataFrame) -> set[tuple[str, str]]:
    """Pairs of candidates whose difference has an interval above 0, each pair by itself."""
    return {
        (one, other)
        for one, other in permutations(lift.columns, 2)
        if mean_interval(lift[one] - lift[other]).low > 0.0
    }


def main() -> None:
    numbers = asked_parts(__doc__, [str(number) for number in KINDS])
    print(
        "| world | loop | rate | actions | delay, hours | log played by | decisions | the plan says | best in "
        "the world | lift behind the best | advice holds | pairs the plan orders | pairs the world orders "
        "| the same way | open in the plan | the other way | the same way by means | a constant answer: lift "
        f"behind the best | it holds |\n|{'---|' * 19}"
    )
    found = []
    for number in numbers:
        found.append(compared(int(number)))
        print(found[-1].row, flush=True)
    agreed, constant = sum(one.agrees for one in found), sum(one.constant_agrees for one in found)
    lost = (np.mean([one.lost for one in found]), np.mean([one.constant_lost for one in found]))
    print(
        f"\nThe plan agrees with the world in {agreed} of {len(found)} worlds, a constant answer in {constant}. "
        f"Behind the best candidate in lift, on average: the plan's advice {lost[0]:.3f}, the default {lost[1]:.3f}."
    )


if __name__ == "__main__":
    main()
