"""Prints docs/default.md: what the default policy costs, whether its numbers hold, forgetting.

    python benchmarks/default_policy.py > docs/default.md
    python benchmarks/default_policy.py PART ...    # these alone

Everything in one table is measured in one run, in one thread. What peers earn is in docs/league.md.
"""

import math
import os
import sys
import time
from collections.abc import Iterator
from itertools import islice
from statistics import NormalDist

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np
import pandas as pd
from parts import asked_parts

from belated import Bandit, Bernoulli, Features, registry
from belated.core.sparse import SparseRows, dense
from belated.core.types import Matrix, Vector
from belated.experiments.judging.lift import standings
from belated.experiments.labels import parsed_policy
from belated.experiments.league import playing
from belated.experiments.league.peers import PEERS
from belated.experiments.league.players import Ours
from belated.experiments.reporting.league_tables import league_lines
from belated.learner.learner import Learner
from belated.model.intervals import Z
from belated.model.protocols import score_law
from belated.policies import AdaptiveThompson
from belated.worlds.shops.changing import Drift
from belated.worlds.shops.shop import DAY, Shop

BANNERS, DEVICES, COUNTRIES = (
    range(20),
    ("phone", "tablet", "desktop"),
    ("NO", "SE", "DK", "FI", "IS"),
)
ROWS = [{"banner": banner} for banner in BANNERS]
BESIDE = ("bayesianbandits-eb", "bayesianbandits-glm")  # with vectors, settings as in the league
ASKED = {"from vectors": 60, "from dicts": 150}  # microseconds at most
WIDE = {  # rewards that each takes in
    "adaptive-thompson": 20_000,
    "inverse-gap": 20_000,
    "linucb:alpha=1": 200,
    "delayed-ofu-glm": 20,
    "thompson": 20,
}


def shop_features() -> Features:
    """Banner, device, country, banner x device and a constant: 89 features."""
    features = Features(
        categorical=["banner", "device", "country"], interactions=[("banner", "device")]
    )
    seen = [{"banner": b, "device": DEVICES[b % 3], "country": COUNTRIES[b % 5]} for b in BANNERS]
    return features.fit(seen)


def contexts(rng: np.random.Generator, n: int) -> Iterator[dict[str, str]]:
    for device, country in zip(rng.integers(3, size=n), rng.integers(5, size=n), strict=True):
        yield {"device": DEVICES[device], "country": COUNTRIES[country]}


def wide_rows(rng: np.random.Generator, dim: int) -> SparseRows:
    """Twenty actions of ten entries: four of the action, five of the context, a constant."""
    own = rng.integers(dim // 2, size=(20, 4))
    shared = np.broadcast_to(dim // 2 + rng.integers(dim // 2 - 1, size=5), (20, 5))
    constant = np.full((20, 1), dim - 1)
    return SparseRows(np.hstack([own, shared, constant]).astype(np.int32), np.ones((20, 10)))


def timed(play: Iterator[None], rounds: int) -> float:
    """Returns microseconds a round of ``play()``, which yields after each."""
    start, n = time.perf_counter(), 0
    for _ in play:
        n += 1
        if n == rounds:
            break
    return (time.perf_counter() - start) / n * 1e6


def from_dicts(bandit: Bandit, rng: np.random.Generator) -> Iterator[None]:
    while True:
        for context in contexts(rng, 1000):
            decision = bandit.decide(ROWS, context)
            bandit.learn(decision.id, float(rng.random() < 0.02))
            yield


def known_vectors() -> list[Matrix]:
    """Returns the vectors of all banners for every visitor there is."""
    features = shop_features().unbounded()
    return [
        features.transform(ROWS, {"device": d, "country": c}) for d in DEVICES for c in COUNTRIES
    ]


def from_vectors(bandit: Bandit, rng: np.random.Generator) -> Iterator[None]:
    known = known_vectors()
    while True:
        for which in rng.integers(len(known), size=1000):
            decision = bandit.decide(known[which])
            bandit.learn(decision.id, float(rng.random() < 0.02))
            yield


def of_peer(name: str, rng: np.random.Generator) -> Iterator[None]:
    """Plays a peer of the league with vectors that were made before."""
    shop = Shop(0)
    player, t = PEERS[name](shop), 0
    known = [player.show(visit) for visit in islice(shop.visits(), 200)]
    while True:
        for shown in known:
            player.decide(shown)
            player.learn([(t, float(rng.random() < 0.02))])
            t += 1
            yield


def speed() -> None:
    """Microseconds of a decision with its reward, beside those of bayesianbandits."""
    rng = np.random.default_rng(0)
    features = shop_features()
    groups = dict(features.groups)
    vectors = Bandit(features.dim, family=Bernoulli(), groups=groups, seed=1)
    dicts = Bandit(family=Bernoulli(), features=features, seed=1)
    plays = {"from vectors": from_vectors(vectors, rng), "from dicts": from_dicts(dicts, rng)}
    plays |= {f"{name}, from vectors": of_peer(name, rng) for name in BESIDE}
    for play in plays.values():
        timed(play, 2_000)  # compiles, and sees the first renewals
    print(
        "| 89 features, 20 actions, one thread | microseconds a decision with its reward | asked "
        "| beside the first row |\n|---|---|---|---|"
    )
    first = math.nan
    for name, play in plays.items():
        each = min(timed(play, 2_000) for _ in range(4))
        first = each if math.isnan(first) else first
        print(f"| {name} | {each:.0f} | {ASKED.get(name, '-')} | {each / first:.1f} |", flush=True)
    print()
    print(
        "| wide, 20 actions of ten entries | microseconds, amortised over the first rewards | asked "
        "|\n|---|---|---|"
    )
    for dim, rounds, asked in ((1_000, 20_000, 500), (4_096, 20_000, 6_000)):
        groups = {"x": dim - 1, "intercept": 1}
        learner = Learner(dim, Bernoulli(), AdaptiveThompson(), 1.0, groups)
        start = time.perf_counter()
        for t in range(rounds):
            learner.decide(wide_rows(rng, dim), rng)
            learner.learn({t: float(rng.random() < 0.05)})
        each = (time.perf_counter() - start) / rounds * 1e6
        print(f"| {dim:,} features, {rounds:,} rewards | {each:,.0f} | {asked:,} |", flush=True)


def wide(dim: int = 1_000) -> None:
    """What other policies pay for wide features, those with dense rows for a few rewards only."""
    print(
        f"| {dim:,} features, 20 actions of ten entries | rewards | microseconds a decision with "
        "its reward | beside the first row |\n|---|---|---|---|"
    )
    first = math.nan
    for name, rounds in WIDE.items():
        rng, policy = np.random.default_rng(0), parsed_policy(name)
        learner = Learner(dim, Bernoulli(), policy, 4.0)
        learner.warm_up()
        learner = Learner(dim, Bernoulli(), policy, 4.0)
        start = time.process_time()
        for t in range(rounds):
            rows = wide_rows(rng, dim)
            learner.decide(rows if learner.is_sparse else dense(rows, dim), rng)
            learner.learn({t: float(rng.random() < 0.05)})
        each = (time.process_time() - start) / rounds * 1e6
        first = each if math.isnan(first) else first
        print(f"| {name} | {rounds:,} | {each:,.0f} | {each / first:,.1f} |", flush=True)


def growth() -> None:
    """What a decision and a reward cost when many rewards are known, amortised over renewals."""
    rng, known = np.random.default_rng(0), known_vectors()
    bandit = Bandit(89, family=Bernoulli(), groups=dict(shop_features().groups), seed=1)
    done, first = 0, np.empty(0)
    print(
        "| rewards known | microseconds a decision | beside the first row | a reward | beside the first row |"
    )
    print("|---|---|---|---|---|")
    for end in (5_000, 10_000, 30_000, 100_000, 300_000, 1_000_000):
        seconds = np.zeros(2)
        for which in rng.integers(len(known), size=end - done):
            reward, start = float(rng.random() < 0.02), time.perf_counter()
            decision = bandit.decide(known[which])
            between = time.perf_counter()
            bandit.learn(decision.id, reward)
            seconds += between - start, time.perf_counter() - between
        if done:
            each = 1e6 * seconds / (end - done)
            first = first if len(first) else each
            cells = " | ".join(f"{x:.1f} | {x / y:.2f}" for x, y in zip(each, first, strict=True))
            print(f"| {done:,} to {end:,} | {cells} |", flush=True)
        done = end


def coverage(worlds: int) -> float:
    """How often 90 per cent posterior intervals of action means hold the truth, in the shop."""
    z, inside = NormalDist().inv_cdf(0.95), []
    for seed in range(worlds):
        shop = Shop(seed)
        player = Ours(registry.DEFAULT_POLICY, shop)
        playing.play(shop, player, np.array([shop.decisions]))
        for visit in islice(shop.visits(), 15):
            for row in player.bandit.ranking(visit.actions, visit.context).actions:
                low, middle, high = (logit(p) for p in (row.low, row.mean, row.high))
                half = (high - low) / 2.0 * z / Z
                inside.append(abs(logit(visit.expected[row.index]) - middle) <= half)
        share = np.mean(inside)
        print(f"{seed + 1} of {worlds} worlds: {share:.3f}", file=sys.stderr, flush=True)
    return float(np.mean(inside))


def calibration(worlds: int = 20) -> None:
    """How often posterior intervals hold the truth."""
    print("| 90 per cent posterior intervals of action means | hold the truth |")
    print("|---|---|")
    print(f"| after 20,000 decisions, {worlds} shops, 15 visitors each | {coverage(worlds):.3f} |")


def frequencies(law: tuple[Vector, Matrix], draws: int, rng: np.random.Generator) -> Vector:
    """How often each action has the highest of its drawn scores."""
    (mean, root), counts = law, np.zeros(len(law[0]))
    for _ in range(draws // 10_000):
        scores = mean + rng.standard_normal((10_000, root.shape[1])) @ root.T
        counts += np.bincount(scores.argmax(axis=1), minlength=len(mean))
    return counts / draws


def propensities(worlds: int = 20, visitors: int = 5, draws: int = 1_000_000) -> None:
    """How far stated propensities are from the frequency with which actions are drawn."""
    errors, in_doubt, rng = [], [], np.random.default_rng(0)
    for seed in range(worlds):
        shop = Shop(seed)
        player = Ours(registry.DEFAULT_POLICY, shop)
        playing.play(shop, player, np.array([4_000]))
        bandit, learner = player.bandit, player.bandit._learner
        assert isinstance(bandit.features, Features)
        for visit in islice(shop.visits(), visitors):
            rows = learner.options(bandit.features.sparse_rows(visit.actions, visit.context))
            mean, root = np.empty(len(visit.actions)), np.empty((len(visit.actions),) * 2)
            r = score_law(learner.policy, learner.state, rows, mean, root)
            shares = frequencies((mean, root[:, :r]), draws, rng)
            errors.append(bandit.probabilities(visit.actions, visit.context) - shares)
            in_doubt.append((shares > 0.01) & (shares < 0.99))
        print(f"{seed + 1} of {worlds} worlds", file=sys.stderr, flush=True)
    error, open_ = np.array(errors), np.array(in_doubt)
    print(
        f"| stated propensities minus the frequency of {draws:,} draws | asked | measured |\n"
        "|---|---|---|"
    )
    print(f"| standard error, actions of 1 to 99 per cent ({open_.sum():,}) | below 0.01 ", end="")
    print(f"| {math.sqrt(np.mean(error[open_] ** 2)):.4f} |")
    print(f"| mean of these errors | - | {error[open_].mean():+.4f} |")
    print(f"| largest, all actions ({error.size:,}) | - | {np.abs(error).max():.4f} |")


class SlowDrift(Drift):
    """The same shop with effects that turn into others within four days, for six days."""

    decisions = 6 * DAY
    turn = 4 * DAY


def forgetting(copies: int = 20) -> None:
    """What half-lives earn in shops whose effects turn into others, copy by copy."""
    reference, blocks = "no half-life", []
    for name, world in {"drift": Drift, "slow drift": SlowDrift}.items():
        tables = []
        for seed in range(copies):
            for days in (None, 2, 1, 0.5, 0.25):
                shop, half_life = world(seed), None if days is None else days * DAY
                player = Ours(registry.DEFAULT_POLICY, shop, half_life=half_life)
                checkpoints = np.array([shop.decisions * 9 // 10, shop.decisions])
                table = pd.DataFrame(playing.play(shop, player, checkpoints))
                label = reference if half_life is None else f"{half_life:,.0f} decisions"
                tables.append(table.assign(world=name, player=label, seed=seed))
            print(f"{name}: {seed + 1} of {copies} copies", file=sys.stderr, flush=True)
        rows = league_lines(standings(pd.concat(tables), reference), name, reference)
        lines = [row.rsplit("|", 2)[0] + "|" for row in rows]  # without the time, which has a page
        title = f"`{name}`, {world.decisions:,} decisions, {copies} copies:"
        blocks.append("\n".join([title, "", *lines]))
    print(*blocks, sep="\n\n")


def logit(p: float | None) -> float:
    assert p is not None
    return math.log(p / (1.0 - p))


HEADINGS = {
    speed: "What it costs",
    wide: """Wide features, by policy

CPU time. The first two have sparse rows; the others keep dense matrices.""",
    growth: "When many rewards are known",
    calibration: "Whether its intervals hold",
    propensities: """Whether its propensities hold

In 20 shops after 4,000 decisions, for five visitors each. A draw is one of the policy's: the scores of all actions, of which
the highest is played.""",
    forgetting: """Forgetting, where the rate drifts

Lift in the world `drift` of [the league](league.md), whose effects turn into others within two days, and in one where they do
so within four days, which goes on for six, on other copies than the league's; with half-lives beside none: the difference copy
by copy, with Student's 95 per cent interval. A day is 5,000 decisions.""",
}


def main() -> None:
    parts = {part.__name__: part for part in HEADINGS}
    asked = asked_parts(__doc__, parts)
    if len(asked) == len(parts):
        print(
            "# The default policy in numbers\n\nPrinted by `make docs` (benchmarks/default_policy.py)."
        )
    for name in asked:
        print(f"\n## {HEADINGS[parts[name]]}\n", flush=True)
        parts[name]()


if __name__ == "__main__":
    main()
