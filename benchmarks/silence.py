"""What silence is worth: a shop where only buyers report, learnt from in several ways.

    python benchmarks/silence.py [SEEDS] [SHOP ...]    # 3 seeds, conversions and slow-conversions

prints, for each way to count a decision without a conversion, the share of what is possible that
was earned (the lift), over the run and over its last tenth, and in how many of the seeds, and by
how much on average, it was above holding. Every way sees the same visitors with the same luck, and
learns every 250 decisions.
"""

import math
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np

from belated import Bernoulli
from belated.core.sparse import SparseRows
from belated.core.types import Integers, Vector
from belated.learner.learner import Learner
from belated.model.steps import REVISE
from belated.monitoring.delay_law import CELLS, DelayLaw, delay_law
from belated.policies import AdaptiveThompson
from belated.worlds.shops.lateness import Conversions, SlowBanners
from belated.worlds.shops.shop import Visit

REFIT = 250  # decisions


class SlowConversions(Conversions):
    """The shop where only buyers report, with mean delays from 0.2 to 3 days by banner."""

    draw_waits = SlowBanners.draw_waits
    fastest, slowest = SlowBanners.fastest, SlowBanners.slowest

    def expected(self, scores: Vector) -> Vector:
        """Return the chance to buy within the window, which slow banners lose part of."""
        rates = 1.0 / (1.0 + np.exp(-scores))
        return np.asarray(rates * -np.expm1(-self.window / self.mean_waits))


SHOPS = {"conversions": Conversions, "slow-conversions": SlowConversions}


def delay_of(world: Conversions, visit: Visit, index: int) -> float:
    """Returns the delay of a conversion, given that it comes within the window."""
    mean = visit.waits[index]
    return float(-mean * math.log1p(visit.luck[1] * math.expm1(-world.window / mean)))


class Log(NamedTuple):
    """The decisions made so far: when, of which banner, and when each converted, if ever."""

    made: Vector
    banner: Integers
    converts: Vector  # the time of the conversion; infinite if there is none

    def conversions(self, now: float) -> tuple[Vector, Vector, Integers]:
        """Returns delay, age and banner of the conversions seen."""
        seen = self.converts <= now
        return self.converts[seen] - self.made[seen], now - self.made[seen], self.banner[seen]


Judge = Callable[[Conversions, Log, float], DelayLaw]


def one_law(world: Conversions, log: Log, now: float) -> DelayLaw:
    return delay_law(*log.conversions(now)[:2], world.window)


def law_by_banner(world: Conversions, log: Log, now: float) -> DelayLaw:
    return delay_law(*log.conversions(now)[:2], world.window, log.conversions(now)[2], world.items)


def true_law(world: Conversions, log: Log, now: float) -> DelayLaw:
    ages = np.arange(CELLS + 1) * (world.window / CELLS)
    means = np.append(world.mean_waits, world.mean_waits.mean())[:, np.newaxis]
    return DelayLaw(world.window, np.expm1(-ages / means) / np.expm1(-world.window / means), 0)


class Holding:
    """Nothing is learnt of a decision before its window closes."""

    def __init__(self, learner: Learner, world: Conversions) -> None:
        self.learner, self.world, self.closed = learner, world, 0

    def learn(self, log: Log, now: float) -> None:
        end = int(np.searchsorted(log.made, now - self.world.window, side="right"))
        rows = range(self.closed, end)
        self.learner.learn({row: float(log.converts[row] < math.inf) for row in rows})
        self.closed = end


class FailingAtOnce:
    """A decision is a failure until it converts."""

    def __init__(self, learner: Learner, world: Conversions) -> None:
        self.learner, self.known = learner, np.zeros(0, bool)

    def learn(self, log: Log, now: float) -> None:
        seen, n = log.converts <= now, len(self.known)
        self.learner.learn({n + k: float(came) for k, came in enumerate(seen[n:])})
        late = np.flatnonzero(seen[:n] & ~self.known)
        if len(late):
            last = np.zeros(len(late), np.int64)
            last[-1] = 1
            nothing = SparseRows(np.zeros((0, 1), np.int32), np.zeros((0, 1)))
            moves = np.full(len(late), REVISE)
            self.learner.fold(moves, nothing, late, np.ones(len(late)), last)
        self.known = seen


class Hearing:
    """Conversions are learnt at once, and open decisions say what their age makes of silence."""

    def __init__(self, learner: Learner, world: Conversions, judge: Judge) -> None:
        self.learner, self.world, self.judge = learner, world, judge
        self.known = np.zeros(0, bool)

    def learn(self, log: Log, now: float) -> None:
        seen, ages = log.converts <= now, now - log.made
        closed = seen | (ages >= self.world.window)
        before = np.append(self.known, np.zeros(len(closed) - len(self.known), bool))
        new = np.flatnonzero(closed & ~before)
        self.learner.learn({int(row): float(seen[row]) for row in new})
        self.known = closed
        law, waiting = self.judge(self.world, log, now), np.flatnonzero(~closed)
        group = log.banner[waiting] if len(law.within) > 1 else np.zeros(len(waiting), int)
        silence = law.log_waiting[group, law.cell_of(ages[waiting])]
        self.learner.hear(waiting, silence)


WAYS: dict[str, Callable[[Learner, Conversions], Any]] = {
    "nothing until its window closes": Holding,
    "a failure at once, corrected by a later conversion": FailingAtOnce,
    "silence, one estimated law": lambda learner, world: Hearing(learner, world, one_law),
    "silence, a law by banner": lambda learner, world: Hearing(learner, world, law_by_banner),
    "silence, the true law": lambda learner, world: Hearing(learner, world, true_law),
}


def played(world: Conversions, way: Callable[[Learner, Conversions], Any], decisions: int) -> Any:
    """Returns (decisions, 3): expected rewards of what was played, of uniform play, of the best."""
    names = ["x".join(group) for group in world.groups] + ["intercept"]
    groups = dict(zip(names, [*world.lengths, 1], strict=True))
    learner = Learner(world.dim, Bernoulli(), AdaptiveThompson(), 1.0, groups)
    learns, rng = way(learner, world), np.random.default_rng([world.seed, 9])
    banner, converts = np.zeros(decisions, np.int64), np.full(decisions, math.inf)
    made, earned = np.arange(float(decisions)), np.empty((decisions, 3))
    for t, visit in zip(range(decisions), world.visits(), strict=False):
        if t % REFIT == 0 and t > 0:
            learns.learn(Log(made[:t], banner[:t], converts[:t]), float(t))
        rows = SparseRows(visit.places.astype(np.int32), np.ones(visit.places.shape))
        index = learner.decide(rows, rng).index
        banner[t] = index
        if visit.luck[0] < visit.expected[index]:
            converts[t] = t + delay_of(world, visit, index)
        earned[t] = visit.expected[index], visit.expected.mean(), visit.expected.max()
    return earned


def lift(earned: Any) -> float:
    own, uniform, best = earned.sum(axis=0)
    return float((own - uniform) / (best - uniform))


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    for name in sys.argv[2:] or SHOPS:
        lifts: dict[str, list[list[float]]] = {}
        for way, make in WAYS.items():
            for seed in range(seeds):
                world = SHOPS[name](seed)
                earned = played(world, make, world.decisions)
                tenths = [lift(part) for part in np.array_split(earned, 10)]
                lifts.setdefault(way, []).append([lift(earned), tenths[-1]])
                print(f"{name} {way} {seed}: {lifts[way][-1]}", file=sys.stderr, flush=True)
        held = np.array(lifts["nothing until its window closes"])[:, 0]
        print(f"\n| {name}, {seeds} seeds: a decision without a conversion counts as | lift | "
              "last tenth | above holding |\n|---|---|---|---|")  # fmt: skip
        for way, values in lifts.items():
            whole, last = np.array(values).T
            above = f"{(whole > held).sum()} of {seeds}, by {(whole - held).mean():.3f}"
            print(f"| {way} | {whole.mean():.3f} | {last.mean():.3f} | {above} |")


if __name__ == "__main__":
    main()
