"""What silence is worth: a shop where only buyers report, learnt from in several ways.

    python benchmarks/silence.py lift [SEEDS] [SHOP ...]    # 20 seeds, four-days, slow-four-days
    python benchmarks/silence.py violations [SEEDS]         # 3 seeds
    python benchmarks/silence.py logs [SEEDS]               # 100 seeds
    python benchmarks/silence.py band [SEEDS]               # 100 draws

``lift`` prints, for each way to count a decision without a conversion, the share of what is possible that
was earned (the lift), over the run and over its last tenth, and how far it was ahead of holding and
of failures at once, with 95 per cent intervals over seeds; and whether it was ahead of holding on
average after each tenth of the run in which anything was learnt. Every way sees the same visitors
with the same luck, and is played by the same ``Bandit`` with features, whose banners come in
another order every time, and which learns when it does for users. For failures at once it is told
that all conversions have come at every age; in the last row it is told the true law of each
banner, the best that an estimate of the law could be. Nothing was chosen by a look at these seeds.

``violations`` prints the lift of the same bandits where the model of delay is wrong: delays that
differ by banner, that become twice or half as long in the middle of the run, or that grow with the
number of things bought (Poisson rewards); and in how many seeds open decisions were held because
of a doubt, at the end of the run or before.

``logs`` prints, for logs of which some of the conversions are still to come, whether estimates from
silence are right: how far x'theta is off on average over all banners and devices, in multiples of
the standard error of one estimate (by its posterior) and of the standard error of that average over
logs, and how often the truth lies within the 90 per cent interval of ``interval``, which has the
error of the law in it; the same for differences to the average over banners and devices; beside it
all of that where a decision is a failure until it converts. Each banner has a law of the delay of
its own, as in a Bandit. A fifth of the decisions are older than the window. In a fresh log none is:
how many conversions come later than the oldest decision is then a guess.

``band`` prints, for draws of conversions of which some are still to come, in how many the true F
lies within the 95 per cent band of ``truncated_curve`` at some ages, each by itself; and how far
the curve and the law by which bandits play (``delay_law``), which has no band, are off on average.
"""

import heapq
import math
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import NormalDist
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np
from parts import checked, parser_of
from scipy import stats

from belated import Bandit, Bernoulli, Features, Poisson
from belated.core.sparse import SparseRows
from belated.core.types import Integers, Matrix, Vector
from belated.learner.heard_law import HeardLaw, variances_of_law
from belated.learner.learner import Learner
from belated.ledger.hearing import Hearing
from belated.model.protocols import posterior_variances, reward_quantile
from belated.model.steps import DECIDE
from belated.monitoring.delay_law import delay_law
from belated.monitoring.truncated_delays import truncated_curve
from belated.numerics.entries import sparse
from belated.policies import AdaptiveThompson
from belated.worlds.shops.lateness import Conversions, SlowBanners
from belated.worlds.shops.shop import DAY, Visit
from belated.worlds.shops.sizes import FewBanners

SECOND = 1e6  # microseconds, in which bandits tell the time


class SlowConversions(Conversions):
    """The shop where only buyers report, with mean delays from 0.2 to 3 days by banner."""

    draw_waits = SlowBanners.draw_waits
    fastest, slowest = SlowBanners.fastest, SlowBanners.slowest

    def expected(self, scores: Vector) -> Vector:
        """Return the chance to buy within the window, which slow banners lose part of."""
        rates = 1.0 / (1.0 + np.exp(-scores))
        return np.asarray(rates * -np.expm1(-self.window / self.mean_waits))


class FourDays(Conversions):
    """The shop where only buyers report, at 2 per cent, a day late, with a window of four days."""

    rate = 0.02
    delay = 1.0 * DAY
    window = 4.0 * DAY
    decisions = 6 * DAY


class SlowFourDays(SlowConversions):
    """The same with mean delays from 0.2 to 3 days by banner."""

    rate = 0.02
    window = 4.0 * DAY
    decisions = 6 * DAY


SHOPS = {"four-days": FourDays, "slow-four-days": SlowFourDays}
FIRST_SEED = 100  # of ``lift``


class Steady(Conversions):
    """The shop where only buyers report, at 2 per cent, over six windows."""

    rate = 0.02
    decisions = 6 * DAY


class SlowSteady(SlowConversions):
    """The same with mean delays from 0.2 to 3 windows by banner."""

    rate = 0.02
    decisions = 6 * DAY


class Longer(Steady):
    """The same, but delays are twice as long in the second half."""

    factor = 2.0

    def visit(self, t: int, visitor: dict[str, int], luck: tuple[float, float]) -> Visit:
        """Return decision ``t``, late by what its time makes of it."""
        visit = super().visit(t, visitor, luck)
        return visit if t < self.decisions / 2 else visit._replace(waits=self.factor * visit.waits)


class Shorter(Longer):
    """The same, but delays are half as long in the second half."""

    factor = 0.5


class Baskets(Steady):
    """Buyers report how many things they bought, 0.5 on average; a window has 1,000 decisions."""

    family = "poisson"
    window = 0.2 * DAY
    delay = 0.05 * DAY
    decisions = 6 * DAY // 5

    def intercept(self) -> float:
        """Return the logarithm of the base rate."""
        return math.log(0.5)

    def expected(self, scores: Vector) -> Vector:
        """Return the mean number of things."""
        return np.exp(scores)


class SlowBaskets(Baskets):
    """The same, but the delay is proportional to the number of things."""


VIOLATIONS = {
    "none": Steady,
    "delays by banner": SlowSteady,
    "delays twice as long": Longer,
    "delays half as long": Shorter,
    "none, Poisson": Baskets,
    "delays by size, Poisson": SlowBaskets,
}


def delay_of(world: Conversions, visit: Visit, index: int, reward: float) -> float:
    """Returns the delay of a conversion, given that it comes within the window."""
    mean = visit.waits[index] * (reward if isinstance(world, SlowBaskets) else 1.0)
    return float(-mean * math.log1p(visit.luck[1] * math.expm1(-world.window / mean)))


class Told(NamedTuple):
    """A law of the delay that a bandit is told, in place of the one that it estimates."""

    hearing: Hearing
    world: Conversions
    exact: bool  # the true one; or one by which every conversion comes at once
    within: Matrix = np.ones((1, 2))  # of which only intervals would make something
    variance: Matrix = np.zeros((1, 1))

    def within_at(self, ages: Vector, groups: Integers) -> Vector:
        """Returns the share of conversions that come within each age."""
        if not self.exact:
            return np.ones(len(ages))
        waits = np.empty(self.world.items)
        for name, group in self.hearing.actions.items():  # such as banner-7
            waits[group] = self.world.mean_waits[int(name.rpartition("-")[2])]
        means = waits[groups] * SECOND
        return np.expm1(-ages / means) / np.expm1(-self.hearing.window / means)


HOLD, AT_ONCE = "nothing until its window closes", "a failure at once, until it converts"
SILENCE, TRUTH = "silence, as a Bandit plays it", "silence, with the law of each banner known"
WAYS = (HOLD, AT_ONCE, SILENCE, TRUTH)


class Run(NamedTuple):
    """What came of a run."""

    earned: (
        Matrix  # (decisions, 3): expected rewards of what was played, of uniform play, of the best
    )
    doubted: bool  # whether open decisions were held because of a doubt, at any time


def played(world: Conversions, way: str) -> Run:
    """Plays a ``Bandit`` as users do, a decision a second.

    Banners come in another order every time, and conversions are handed in when they come.
    """
    now, doubted = 0.0, False
    features = Features(categorical=world.categorical(), interactions=world.interactions())
    family: Any = Poisson() if world.family == "poisson" else Bernoulli()
    settings: Any = {"window": world.window, "grace": 1.0, "default_reward": 0.0}
    bandit = Bandit(
        features=features.fit(world.rows()),
        family=family,
        seed=world.seed,
        clock=lambda: now,
        open="hold" if way == HOLD else "silence",
        **settings,
    )
    backend: Any = bandit._backend
    hearing = backend._fold.hearing
    if way in (AT_ONCE, TRUTH):
        hearing._law = lambda seen: Told(hearing, world, way == TRUTH)
    rng, earned = np.random.default_rng([world.seed, 9]), np.empty((world.decisions, 3))
    to_come: list[tuple[float, Any, float]] = []
    for t, visit in zip(range(world.decisions), world.visits(), strict=False):
        now = float(t)
        come = []
        while to_come and to_come[0][0] <= now:
            at, id, reward = heapq.heappop(to_come)
            come.append((id, reward, at))
        if come:
            bandit.learn(come)
        order = rng.permutation(world.items)
        decision = bandit.decide([visit.actions[k] for k in order], visit.context)
        index = int(order[decision.index])
        reward = reward_of(world, visit, index)
        if reward > 0.0:
            heapq.heappush(
                to_come, (t + delay_of(world, visit, index, reward), decision.id, reward)
            )
        earned[t] = visit.expected[index], visit.expected.mean(), visit.expected.max()
        doubted |= hearing is not None and hearing.doubts.hold
    return Run(earned, doubted)


def reward_of(world: Conversions, visit: Visit, index: int) -> float:
    """Returns whether the visitor buys, or how many things."""
    if world.family == "poisson":
        return float(reward_quantile(Poisson(), math.log(visit.expected[index]), visit.luck[0]))
    return float(visit.luck[0] < visit.expected[index])


def lift(earned: Any) -> float:
    own, uniform, best = earned.sum(axis=0)
    return float((own - uniform) / (best - uniform))


# ------------------------------------------------------------------------------------ one log


class Banners(FewBanners):
    """Five banners on three devices at 5 per cent, for logs of uniform play."""

    rate = 0.05


ROWS = 20_000  # decisions in a log
WINDOW, MEAN = 4.0, 1.0  # days
OLD = 0.2  # share of decisions older than the window, but in fresh logs
SPANS = {
    "all closed": 0.0,
    "some open": 2.4,
    "most open": 0.27,
    "fresh": 0.76,
}  # days of the others


def drawn_ages(rng: np.random.Generator, n: int, kind: str) -> Vector:
    """Returns the ages of decisions in a log, in days."""
    ages = rng.uniform(0.0, SPANS[kind] or 1.0, n) + (WINDOW if kind == "all closed" else 0.0)
    ages[: int(OLD * n) if kind != "fresh" else 0] += WINDOW
    return ages


def drawn_delays(rng: np.random.Generator, n: int) -> Vector:
    """Returns delays of conversions within the window, in days."""
    return np.asarray(-MEAN * np.log1p(rng.random(n) * math.expm1(-WINDOW / MEAN)))


def estimated(world: Banners, kind: str, hears: bool) -> tuple[Any, Any, float]:
    """Returns errors of x'theta, its posterior deviations, and the share still to come.

    Errors and deviations have two rows, one for x'theta and one for differences to the average.
    """
    rng = np.random.default_rng([world.seed, 7])
    banner, device = rng.integers(5, size=ROWS), rng.integers(3, size=ROWS)
    places = np.array([world.places_of(np.arange(5), {"device": d}) for d in range(3)])
    columns = places[device, banner].astype(np.int32)
    ages = drawn_ages(rng, ROWS, kind)
    p = 1.0 / (1.0 + np.exp(-world.theta[columns].sum(axis=1)))
    delays = drawn_delays(rng, ROWS)
    converts = rng.random(ROWS) < p
    seen = converts & (delays <= ages)
    groups = dict(zip(("banner", "device", "both", "intercept"), [*world.lengths, 1], strict=True))
    learner = Learner(world.dim, Bernoulli(), AdaptiveThompson(), 1.0, groups)
    zeros = np.zeros(ROWS, np.int64)
    rows = SparseRows(columns, np.ones(columns.shape))
    learner.fold(np.full(ROWS, DECIDE), rows, zeros, np.zeros(ROWS), zeros)
    closed = seen | (ages >= WINDOW) | (not hears)
    for part in np.array_split(np.flatnonzero(closed), 8):  # the prior is learnt now and then
        learner.learn({int(row): float(seen[row]) for row in part})
    if hears:
        law = delay_law(delays[seen], ages[seen], WINDOW, banner[seen], 5)
        waiting = np.flatnonzero(~closed)
        learner.hear(waiting, law.within_at(ages[waiting], banner[waiting]))
        learner.law = HeardLaw(law.within[:-1], law.variance[:-1], banner)
    cells = places.reshape(15, -1).astype(np.int32)
    x = np.zeros((2, 15, world.dim))
    x[0, np.arange(15)[:, np.newaxis], cells] = 1.0
    x[1] = x[0] - x[0].mean(axis=0)
    variances = np.empty((2, 15))
    for k in range(2):
        posterior_variances(learner.state.fit, sparse(x[k]), variances[k])
        variances[k] += variances_of_law(learner, x[k])
    errors = x @ (learner.state.theta - world.theta)
    return errors, np.sqrt(variances), 1.0 - seen.sum() / converts.sum()


def print_logs(seeds: int) -> None:
    print("| log, still to come | learnt from | mean error | in standard errors of one estimate "
          "| in standard errors over logs | 90 per cent interval | of differences |\n"
          "|---|---|---|---|---|---|---|")  # fmt: skip
    for kind in SPANS:
        for hears in (True, False):
            logs = [estimated(Banners(seed), kind, hears) for seed in range(seeds)]
            errors, deviations = (np.array([log[k] for log in logs]) for k in (0, 1))
            means = errors[:, 0].mean(axis=1)
            off = means.mean() / (means.std(ddof=1) / math.sqrt(seeds))
            inside = np.abs(errors) <= NormalDist().inv_cdf(0.95) * deviations
            whole, differences = inside.mean(axis=(0, 2))
            own = means.mean() / deviations[:, 0].mean()
            share = np.mean([log[2] for log in logs])
            way = "silence" if hears else "failures at once"
            print(f"| {kind}, {share:.0%} | {way} | {means.mean():.3f} | {own:.2f} | {off:.1f} | {whole:.1%} | "
                  f"{differences:.1%} |", flush=True)  # fmt: skip


BAND_ROWS = 1_000  # conversions of a draw, seen or not
BAND_AGES = (0.25, 0.5, 1.0, 2.0, 3.0)  # days


def print_band(draws: int) -> None:
    ages, exact = np.array(BAND_AGES), -np.expm1(-np.array(BAND_AGES) / MEAN)
    truth = exact / -math.expm1(-WINDOW / MEAN)
    print("| still to come | age in days | true F | F in the band | mean error of the curve | of the law of bandits |\n"
          "|---|---|---|---|---|---|")  # fmt: skip
    for kind in ("all closed", "some open", "most open"):
        inside, errors, shares = [], [], []
        for draw in range(draws):
            rng = np.random.default_rng([draw, 8])
            old, delays = drawn_ages(rng, BAND_ROWS, kind), drawn_delays(rng, BAND_ROWS)
            seen = delays <= old
            curve = truncated_curve(delays[seen], old[seen])
            law = delay_law(delays[seen], old[seen], WINDOW).within_at(ages)
            lower, upper = curve.band_at(ages)
            inside.append((lower <= truth) & (truth <= upper))
            errors.append((curve.within_at(ages) - truth, law - truth))
            shares.append(1.0 - seen.mean())
        off = np.mean(errors, axis=0)
        for k, age in enumerate(BAND_AGES):
            count = sum(bool(row[k]) for row in inside)
            print(f"| {np.mean(shares):.0%} | {age:g} | {truth[k]:.3f} | {count} of {draws} | "
                  f"{off[0, k]:+.3f} | {off[1, k]:+.3f} |")  # fmt: skip


def violated(name: str, way: str, seed: int) -> tuple[float, bool]:
    """Returns the lift of a run, and whether open decisions were held because of a doubt."""
    run = played(VIOLATIONS[name](seed), way)
    print(f"{name}, {way}, seed {seed}: {lift(run.earned):.3f}", file=sys.stderr, flush=True)
    return lift(run.earned), run.doubted


def print_violations(seeds: int) -> None:
    ways = (HOLD, AT_ONCE, SILENCE)
    asked = [(name, way, seed) for name in VIOLATIONS for way in ways for seed in range(seeds)]
    found = np.array(in_processes(violated, asked)).reshape(len(VIOLATIONS), 3, seeds, 2)
    print(f"| violation, {seeds} seeds | hold | failure at once | silence | above holding | above "
          "failure at once | held at some time |\n|---|---|---|---|---|---|---|")  # fmt: skip
    for name, runs in zip(VIOLATIONS, found, strict=True):
        lifts, doubted = runs[:, :, 0], int(runs[2, :, 1].sum())
        means = " | ".join(f"{mean:.3f}" for mean in lifts.mean(axis=1))
        above = [
            f"{(gain > 0).sum()} of {seeds}, by {gain.mean():.3f}" for gain in lifts[2] - lifts[:2]
        ]
        print(f"| {name} | {means} | {' | '.join(above)} | {doubted} of {seeds} |")


def in_processes(function: Callable[..., Any], asked: list[Any]) -> list[Any]:
    """Returns what the function returns for each of these arguments, in a process a core."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        return list(pool.map(function, *zip(*asked, strict=True)))


def lifts_of(name: str, way: str, seed: int) -> list[float]:
    """Returns the lift over the run, and after each tenth of it."""
    earned = played(SHOPS[name](seed), way).earned
    ends = np.linspace(0.0, len(earned), 11).astype(int)
    line = [lift(earned), lift(earned[ends[9] :]), *(lift(earned[:end]) for end in ends[1:])]
    print(f"{name}, {way}, seed {seed}: {line[0]:.3f}", file=sys.stderr, flush=True)
    return line


def print_lifts(name: str, seeds: int) -> None:
    asked = [(name, way, seed) for seed in range(FIRST_SEED, FIRST_SEED + seeds) for way in WAYS]
    found = in_processes(lifts_of, asked)
    lifts = {way: np.array(found[k :: len(WAYS)]) for k, way in enumerate(WAYS)}
    held, failed = lifts[HOLD], lifts[AT_ONCE]
    print(f"\n| {name}, {seeds} seeds: a decision without a conversion counts as | lift | last tenth "
          "| ahead of holding | ahead of failures at once | after each tenth, ahead of holding by "
          "|\n|---|---|---|---|---|---|")  # fmt: skip
    for way, own in lifts.items():
        ahead = [interval(own[:, 0] - other[:, 0]) for other in (held, failed)]
        tenths = " ".join(f"{gain:+.2f}" for gain in (own - held)[:, 2:].mean(axis=0))
        print(f"| {way} | {own[:, 0].mean():.3f} | {own[:, 1].mean():.3f} | {ahead[0]} | {ahead[1]} | "
              f"{tenths} |", flush=True)  # fmt: skip


def interval(differences: Vector) -> str:
    """Returns a mean with Student's 95 per cent interval."""
    n, mean = len(differences), differences.mean()
    half = stats.t.ppf(0.975, n - 1) * differences.std(ddof=1) / math.sqrt(n)
    return f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"


def main() -> None:
    usual = {"lift": 20, "violations": 3, "logs": 100, "band": 100}
    parser = parser_of(__doc__)
    parser.add_argument("part", nargs="?", default="lift", choices=usual)
    parser.add_argument("seeds", nargs="?", type=int, help=f"default: {usual}")
    parser.add_argument("shops", nargs="*", help=f"of {', '.join(SHOPS)}; default: all; for lift")
    options = parser.parse_args()
    seeds = options.seeds or usual[options.part]
    if options.part == "violations":
        print_violations(seeds)
    elif options.part == "logs":
        print_logs(seeds)
    elif options.part == "band":
        print_band(seeds)
    else:
        for name in checked(parser, options.shops, SHOPS) or SHOPS:
            print_lifts(name, seeds)


if __name__ == "__main__":
    main()
