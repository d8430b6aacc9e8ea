"""What the default policy costs, and whether its intervals hold.

    python benchmarks/default_policy.py [speed | growth | calibration]

Everything in one table is measured in one run, in one thread. What peers cost is in docs/league.md,
where all are measured in one run, too.
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

from belated import Bandit, Bernoulli, Features, registry
from belated.core.sparse import SparseRows
from belated.experiments.league import playing
from belated.experiments.league.players import Ours
from belated.learner.learner import Learner
from belated.model.intervals import Z
from belated.policies import AdaptiveThompson
from belated.worlds.shops.shop import Shop

BANNERS, DEVICES, COUNTRIES = (
    range(20),
    ("phone", "tablet", "desktop"),
    ("NO", "SE", "DK", "FI", "IS"),
)
ROWS = [{"banner": banner} for banner in BANNERS]


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


def from_vectors(bandit: Bandit, rng: np.random.Generator) -> Iterator[None]:
    features = shop_features().unbounded()
    known = [
        features.transform(ROWS, {"device": d, "country": c}) for d in DEVICES for c in COUNTRIES
    ]
    while True:
        for which in rng.integers(len(known), size=1000):
            decision = bandit.decide(known[which])
            bandit.learn(decision.id, float(rng.random() < 0.02))
            yield


def speed() -> None:
    rng = np.random.default_rng(0)
    features = shop_features()
    groups = dict(features.groups)
    vectors = Bandit(features.dim, family=Bernoulli(), groups=groups, seed=1)
    dicts = Bandit(family=Bernoulli(), features=features, seed=1)
    plays = {"from vectors": from_vectors(vectors, rng), "from dicts": from_dicts(dicts, rng)}
    for play in plays.values():
        timed(play, 2_000)  # compiles, and sees the first renewals
    print("| 89 features, 20 actions, one thread | microseconds a decision with its reward |")
    print("|---|---|")
    for name, play in plays.items():
        print(f"| {name} | {min(timed(play, 2_000) for _ in range(4)):.0f} |", flush=True)
    print()
    print("| wide, 20 actions of ten entries | microseconds, amortised over the first rewards |")
    print("|---|---|")
    for dim, rounds in ((1_000, 20_000), (4_096, 20_000)):
        groups = {"x": dim - 1, "intercept": 1}
        learner = Learner(dim, Bernoulli(), AdaptiveThompson(), 1.0, groups)
        start = time.perf_counter()
        for t in range(rounds):
            learner.decide(wide_rows(rng, dim), rng)
            learner.learn({t: float(rng.random() < 0.05)})
        each = (time.perf_counter() - start) / rounds * 1e6
        print(f"| {dim:,} features, {rounds:,} rewards | {each:,.0f} |", flush=True)


def growth() -> None:
    """What a decision with its reward costs when many rewards are known, amortised over renewals."""
    rng = np.random.default_rng(0)
    bandit = Bandit(89, family=Bernoulli(), groups=dict(shop_features().groups), seed=1)
    play, done, first = from_vectors(bandit, rng), 0, math.nan
    print("| rewards known | microseconds a decision with its reward | beside the first row |")
    print("|---|---|---|")
    for end in (5_000, 10_000, 30_000, 100_000, 300_000, 1_000_000):
        each = timed(play, end - done)
        if end > 5_000:
            first = each if math.isnan(first) else first
            print(f"| {done:,} to {end:,} | {each:.1f} | {each / first:.2f} |", flush=True)
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
    print("| 90 per cent posterior intervals of action means | hold the truth |")
    print("|---|---|")
    print(f"| after 20,000 decisions, {worlds} shops, 15 visitors each | {coverage(worlds):.3f} |")


def logit(p: float | None) -> float:
    assert p is not None
    return math.log(p / (1.0 - p))


if __name__ == "__main__":
    parts = {"speed": speed, "growth": growth, "calibration": calibration}
    for name in sys.argv[1:] or parts:
        parts[name]()
        print()
