"""How fast the engine is: lanes, the paper's grid, plain NumPy, the floor, growth with the horizon.

Prints a section of documentation: ``make docs`` appends it to docs/performance.md. Everything in
one table is measured in one run; the ratios are what to look at. ``python benchmarks/engine.py
lanes`` prints the table of a lane's round alone, in about a minute.
"""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from parts import parser_of

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from belated import registry
from belated.core.nested import aligned_empty
from belated.engine.lanes import Block
from belated.engine.reference import draw_world
from belated.engine.worlds import (
    Lane,
    WorldSettings,
    audit_world,
    draw_block,
    open_streams,
    play_world,
    rounds_of_a_block,
    seed_of_run,
)
from belated.experiments.paper import DIMS, paper_experiment
from belated.families import Bernoulli, Gaussian
from belated.model.protocols import Family
from belated.numerics.pruning import columns
from belated.policies import DelayedOFUGLM
from belated.worlds.delays import Constant, Exponential, quantile
from belated.worlds.environments import UnitBall, UnitBallOnce
from naive.plain_bandit import PlainBandit  # type: ignore[import-not-found]

K, T, DELTA = 100, 100_000, 0.05 / 3
POLICY = DelayedOFUGLM(delta=DELTA)


def world(lanes: list[Lane], dim: int, horizon: int, run: int = 0) -> WorldSettings:
    rounds = np.array([horizon])
    return WorldSettings(UnitBall(K), dim, horizon, run, 1, rounds, tuple(lanes))


def paper_lanes() -> list[Lane]:
    """The 48 lanes of a world of the paper's grid: two policies, two families, twelve delays."""
    e = paper_experiment()
    lanes = [Lane(e.policy(p, f), e.families[f], e.delays[d]) for p, f, d in e.lanes()]
    return [lane for lane in lanes if lane.delay != Constant(0.0)]


def seconds(settings: WorldSettings, best_of: int = 1, block: int | None = None) -> float:
    """What playing a world takes."""
    times = []
    for _ in range(best_of):
        start = time.perf_counter()
        play_world(settings, block_rounds=block)
        times.append(time.perf_counter() - start)
    return min(times)


def grid_seconds(runs: int) -> float:
    """Worlds of ``runs`` runs of all dimensions, on all cores, as ``belated reproduce`` plays them."""
    lanes = paper_lanes()
    worlds = [world(lanes, dim, T, run) for dim in DIMS[::-1] for run in range(runs)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        start = time.perf_counter()
        list(pool.map(play_world, worlds))
        return time.perf_counter() - start


def print_grid() -> float:
    """Returns the minutes that all runs would take."""
    runs = 2
    taken = grid_seconds(runs)
    minutes = taken * 30 / runs / 60
    print(
        f"\n## The paper's grid: 4,320 lanes of {T:,} rounds\n\n"
        f"{runs} of the 30 runs of all three dimensions, 48 lanes each, on {os.cpu_count()} cores: "
        f"{taken:.0f} s, {1e6 * taken * (os.cpu_count() or 1) / (runs * 3 * 48 * T):.2f}\n"
        "microseconds of a core for a lane's round, drawing included. All 30 would take "
        f"{minutes:.1f} minutes."
    )
    return minutes


def print_lanes() -> dict[int, list[float]]:
    """Returns the microseconds of a linear and a logistic round, by dimension."""
    print(
        f"\n## A lane's round beyond drawing the world: T = {T:,}, K = {K}\n\n"
        "Microseconds; Delayed OFU-GLM, the twelve delays of the paper, one thread. First with fresh decision\n"
        "sets in each round, then with one set for the whole run. Drawing is what a round costs before\n"
        "any lane plays it, shared by all lanes of the world: it is taken off the others in both.\n\n"
        "| d | linear | logistic | drawing | linear, one set | logistic, one set | drawing, one set |\n"
        "|---|---|---|---|---|---|---|"
    )
    delays = list(dict.fromkeys(lane.delay for lane in paper_lanes()))
    rows = {}
    for dim in DIMS:
        row = []
        for environment in (UnitBall(K), UnitBallOnce(K)):
            empty = world([], dim, T)._replace(environment=environment)
            drawing = seconds(empty, 2, rounds_of_a_block(len(delays), K, dim))
            for family in (Gaussian(), Bernoulli()):
                lanes = tuple(Lane(POLICY, family, delay) for delay in delays)
                taken = seconds(empty._replace(lanes=lanes), 2) - drawing
                row.append(taken / (T * len(delays)) * 1e6)
            row.append(drawing / T * 1e6)
        print(f"| {dim} | {' | '.join(f'{number:.2f}' for number in row)} |")
        rows[dim] = row[:2]
    return rows


def plain_seconds(family: Family, name: str, dim: int, horizon: int) -> float:
    """The same loop in plain NumPy; drawing is not counted."""
    policy: Any = POLICY.resolve(family, dim, 1.0)
    bandit = PlainBandit(
        name,
        dim,
        lam=policy.lam,
        m1=policy.m1,
        R=policy.R,
        kappa=policy.kappa,
        delta=policy.delta,
    )
    drawn = draw_world(UnitBall(K), dim, horizon, seed_of_run(1, dim, 0))
    late = [int(np.ceil(quantile(Exponential(100.0), u))) for u in drawn.lateness]
    rng = np.random.default_rng(1)
    due: dict[int, list[tuple[int, float]]] = {}
    start = time.perf_counter()
    for t in range(horizon):
        id, row = bandit.decide(drawn.actions[t])
        z = drawn.actions[t, row] @ drawn.theta_star
        y = (
            z + rng.standard_normal()
            if name == "gaussian"
            else float(rng.random() < 1 / (1 + np.exp(-z)))
        )
        due.setdefault(t + late[t], []).append((id, y))
        for arrived, reward in due.pop(t, []):
            bandit.learn(arrived, reward)
    return time.perf_counter() - start


def print_plain() -> list[float]:
    """Returns the ratios of a lane alone, linear and logistic."""
    horizon, dim, alone = 10_000, 10, []
    print(
        f"\n## Against the same loop in plain NumPy: d = {dim}, T = {horizon:,}\n\n"
        "Microseconds a round beyond drawing, exponential delays of mean 100, of a lane that is alone in\n"
        "its world and of one of twelve. The plain bandit keeps W^-1 by rank-one updates and, for\n"
        "logistic rewards, refits by Newton's method at every arrival to the same tolerance\n"
        "(tests/naive/plain_bandit.py); its linear refit is one Newton step, which is exact.\n\n"
        "| rewards | alone | of twelve | plain NumPy | ratio alone | ratio of twelve |\n"
        "|---|---|---|---|---|---|"
    )
    for family, name, label in (
        (Gaussian(), "gaussian", "linear"),
        (Bernoulli(), "bernoulli", "logistic"),
    ):
        lane = Lane(POLICY, family, Exponential(100.0))
        ours = []
        for count in (1, 12):
            # blocks are as long as for that many lanes, so that only drawing is taken off
            block = rounds_of_a_block(count, K, dim)
            drawing = seconds(world([], dim, horizon), 7, block)
            taken = seconds(world([lane] * count, dim, horizon), 7, block)
            ours.append((taken - drawing) / (count * horizon) * 1e6)
        plain = plain_seconds(family, name, dim, horizon) / horizon * 1e6
        ratios = [plain / one for one in ours]
        print(
            f"| {label} | {ours[0]:.2f} | {ours[1]:.2f} | {plain:.1f} "
            f"| {ratios[0]:.0f} | {ratios[1]:.0f} |"
        )
        alone.append(ratios[0])
    return alone


def floor_seconds(dim: int, lanes: int, horizon: int) -> float:
    """Draw every decision set and multiply it with one vector a lane: nothing is learnt."""
    streams = open_streams(world([], dim, horizon))
    B = rounds_of_a_block(lanes, K, dim)
    block = Block(
        aligned_empty((B, K, dim), float),
        aligned_empty((B, dim + 1, columns(K)), np.float32),
        np.empty(B),
        np.empty((B, K)),
        np.empty(B),
        np.empty(B),
        np.empty(B),
    )
    thetas = np.random.default_rng(0).standard_normal((lanes, dim))

    times = []
    for _ in range(2):
        start = time.perf_counter()
        for _ in range(0, horizon, B):
            draw_block(UnitBall(K), streams.theta_star, block, streams.actions)
            block.rows @ thetas.T
        times.append(time.perf_counter() - start)
    return min(times)


def print_floor() -> float:
    """Returns the ratio of all dimensions together."""
    print(
        "\n## Against the floor\n\n"
        "Microseconds a round of a world with the paper's 48 lanes, one thread. The floor draws the\n"
        "decision sets and computes the mean of every action in every lane by one matrix product;\n"
        "nothing is learnt.\n\n| d | belated | floor | ratio |\n|---|---|---|---|"
    )
    lanes, total, least = paper_lanes(), 0.0, 0.0
    for dim in DIMS:
        ours = seconds(world(lanes, dim, T), 2) / T * 1e6
        floor = floor_seconds(dim, len(lanes), T) / T * 1e6
        total, least = total + ours, least + floor
        print(f"| {dim} | {ours:.1f} | {floor:.1f} | {ours / floor:.1f} |")
    print(f"| together | {total:.1f} | {least:.1f} | {total / least:.1f} |")
    return total / least


def print_growth() -> float:
    """Returns the largest ratio."""
    print(
        f"\n## Growth with the horizon: time for T = {T:,} over that for T = {T // 10:,}\n\n"
        "Delayed OFU-GLM, d = 5, exponential delays of mean 100, one thread, drawing included.\n"
        "10 is linear.\n\n| family | ratio |\n|---|---|"
    )
    largest = 0.0
    for name in registry.FAMILIES:
        family = registry.load(registry.FAMILIES, name)()
        policy = DelayedOFUGLM(delta=DELTA, R=1.0) if family.R is None else POLICY
        lanes = [Lane(policy, family, Exponential(100.0))] * 4
        short = seconds(world(lanes, 5, T // 10), 3)
        long = seconds(world(lanes, 5, T), 2)
        print(f"| {name} | {long / short:.1f} |")
        largest = max(largest, long / short)
    return largest


def print_audit() -> None:
    """A world with the twelve delays, its inequalities checked in every round or not."""
    horizon = T // 5
    print(
        f"\n## Auditing: R1 to R9 in every round, T = {horizon:,}, d = 10\n\n"
        "CPU time over that of a plain run; Delayed OFU-GLM, the twelve delays, drawing included.\n\n"
        "| rewards | ratio |\n|---|---|"
    )
    delays = list(dict.fromkeys(lane.delay for lane in paper_lanes()))
    for family, label in ((Gaussian(), "linear"), (Bernoulli(), "logistic")):
        settings = world([Lane(POLICY, family, delay) for delay in delays], 10, horizon)
        spent = []
        for play in (audit_world, play_world):
            play(settings._replace(horizon=50, checkpoints=np.array([50])))  # compile
            times = []
            for _ in range(3):
                start = time.thread_time()
                play(settings)
                times.append(time.thread_time() - start)
            spent.append(min(times))
        print(f"| {label} | {spent[0] / spent[1]:.2f} |")


def cpu_of_rounds() -> list[float]:
    """CPU microseconds of a lane's round beyond drawing: linear and logistic, by dimension."""
    delays = list(dict.fromkeys(lane.delay for lane in paper_lanes()))
    horizon, rounds = T // 10, []
    for dim in DIMS:
        for family in (Gaussian(), Bernoulli()):
            taken = []
            for lanes in ([Lane(POLICY, family, delay) for delay in delays], []):
                settings, times = world(lanes, dim, horizon), []
                play_world(settings._replace(horizon=50, checkpoints=np.array([50])))  # compile
                for _ in range(3):
                    start = time.thread_time()
                    play_world(settings)
                    times.append(time.thread_time() - start)
                taken.append(min(times))
            rounds.append((taken[0] - taken[1]) / (horizon * len(delays)) * 1e6)
    return rounds


def print_plain_kernels() -> None:
    """Each way in a process of its own, because it is chosen when the package is imported."""
    print(
        f"\n## Without hand-written machine code: BELATED_PLAIN_KERNELS=1, T = {T // 10:,}\n\n"
        "CPU microseconds of a lane's round beyond drawing, best of three, as above. The last column is the\n"
        "price of a version of Numba or llvmlite for which the fast loops cannot be built\n"
        "(`python benchmarks/engine.py plain` prints this section alone).\n\n"
        "| d | rewards | fast | plain | ratio |\n|---|---|---|---|---|"
    )
    ways = []
    for plain in ("0", "1"):
        command = [sys.executable, __file__, "rounds"]
        env = {**os.environ, "BELATED_PLAIN_KERNELS": plain}
        ways.append(json.loads(subprocess.run(command, env=env, stdout=-1, check=True).stdout))
    labels = [(dim, rewards) for dim in DIMS for rewards in ("linear", "logistic")]
    for (dim, rewards), fast, slow in zip(labels, *ways, strict=True):
        print(f"| {dim} | {rewards} | {fast:.2f} | {slow:.2f} | {slow / fast:.1f} |")


VERSIONS = """
Both versions in one run, in turns, the best of three (an earlier run of `python benchmarks/versions.py`; there: version 0.1):

| microseconds of a processor | there | here | ratio |
|---|---|---|---|
| a round of the paper's 48 lanes, d = 5 | 14.4 | 16.1 | 1.12 |
| a round of the paper's 48 lanes, d = 10 | 24.5 | 25.7 | 1.05 |
| a round of the paper's 48 lanes, d = 20 | 46.8 | 48.8 | 1.04 |
| a decision and its reward, logistic, K = 100, d = 20 | 18.8 | 22.8 | 1.21 |

So the engine costs 4 to 12 per cent more than it did, and a decision with its reward a fifth more. What came in between: rewards
that are forgotten, names of actions, propensities, intervals for every policy.
"""
LIMITS = """
## How it is reached, and what limits it now

- Drawing is shared: a world's decision sets are drawn once for all its lanes, and so are norms, means,
  delays, and what of the rewards' luck does not depend on the action.
- Small kernels are compiled into their callers. A call hands over every array of a state one by one;
  with a dozen calls a round that was a large part of it at d = 5. Rare work (anchors, passes
  over the data) stays outside, because Numba optimises whatever a caller contains once more.
- Where most of the time goes, loops are written in the compiler's own terms (`numerics/lowered/builders/`):
  vectors of 5 to 20 numbers are too short for the loops a compiler makes.
- The arg max bounds all actions in O(d) each, in single precision, and scores one or two of them; where
  widths decide, all squares are computed at once. What is left of it is the largest part of a linear
  lane: two products with the whole decision set.
- Rank-one updates of W and its inverse are most of the rest: every reward reads, changes
  and stores each of their numbers. Asking memory ahead for the rewards that are due changed nothing.
- A logistic lane updates a second inverse, O(d^2), and the third derivative, O(d^3), eight rewards
  at a time; then it solves and certifies. Its certificate uses what holds on the ball, |mu''| <= 0.46 mu' for
  m1 = 1, and not what holds everywhere, so that it passes over its data more rarely. Passes still
  weigh most in short runs: most of them fall into the first thousands of rounds.
- A lane that is alone pays alone for what lanes share: delays, luck, and the way of a decision set into
  the cache. Its blocks are larger, because each block costs a call from Python.
- The floor multiplies every decision set with one vector a lane and learns nothing. Learning takes four
  rank-one updates of d x d matrices a logistic reward, which no batch can share.
- Growth is below 10 where early rounds, with more passes and less pruning, are the dear ones.
"""


def compile_kernels() -> None:
    for lane in paper_lanes():
        if lane.delay == Exponential(100.0):
            play_world(world([lane], 5, 50))


def main() -> None:
    print("\n# The engine\n\nPrinted by `make docs` (benchmarks/engine.py).")
    minutes = print_grid()
    linear, logistic = print_lanes()[10]
    plain_linear, plain_logistic = print_plain()
    floor = print_floor()
    growth = print_growth()
    print_audit()
    print_plain_kernels()
    print(
        "\n## All in one table\n\n| what | wanted | version 0.1 | here |\n|---|---|---|---|\n"
        f"| the paper's grid on two cores | at most 5 minutes | 3.4 | {minutes:.1f} |\n"
        f"| a lane's round, d = 10, linear | at most 1 microsecond | 0.37 | {linear:.2f} |\n"
        f"| the same, logistic | at most 2 microseconds | 0.84 | {logistic:.2f} |\n"
        "| against plain NumPy, a lane alone, linear | at least 50 times | 419 "
        f"| {plain_linear:.0f} |\n"
        f"| the same, logistic | at least 500 times | 501 | {plain_logistic:.0f} |\n"
        f"| against the floor, all dimensions | at most 4 times | 3.7 | {floor:.1f} |\n"
        f"| growth, the largest | at most 10.5 times | 9.6 | {growth:.1f} |\n\n"
        "The numbers of version 0.1 are of a run of its own, in which a logistic lane that was alone took 1.21 microseconds and NumPy\n"
        "607.6, and the 48 lanes of three dimensions 123.0 and the floor 33.1."
    )
    print(VERSIONS.rstrip())
    print(LIMITS.rstrip())


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("part", nargs="?", choices=("lanes", "rounds", "plain"))
    part = parser.parse_args().part
    if part == "rounds":
        print(json.dumps(cpu_of_rounds()))
    elif part == "plain":
        print_plain_kernels()
    else:
        compile_kernels()
        print_lanes() if part == "lanes" else main()
