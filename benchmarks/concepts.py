"""The pictures of the pages on concepts, drawn into docs/concepts/: a minute on one core.

python benchmarks/concepts.py [delay | waiting | certificate ...]    # all three by default
"""

import heapq
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from parts import asked_parts

from belated import Bandit, Bernoulli, DelayedOFUGLM, Features
from belated.core.events import Decision
from belated.core.types import Matrix, Vector
from belated.delays import Constant, Exponential
from belated.engine.reference import draw_world, play
from belated.model.protocols import Delay
from belated.worlds.environments import UnitBall

mpl.use("Agg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).parents[1] / "docs" / "concepts"
INK, BLUE, RED = "#222222", "#0072b2", "#d55e00"
DAY = 86_400.0


def save(name: str, figure: Any, panels: Any) -> None:
    """Write a picture whose bytes depend on what is drawn alone."""
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
    mpl.rcParams["svg.hashsalt"] = name
    mpl.rcParams["svg.fonttype"] = "none"
    figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
    print(FOLDER / f"{name}.svg")


def two_panels() -> tuple[Any, Any]:
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    return figure, panels


# -------------------------------------------------------------------------- what delay does


def delay(rounds: int = 2000, runs: int = 20, dim: int = 5) -> None:
    """Rewards that are missing, and regret beyond that of the same world without delay."""
    laws: dict[str, Delay] = {
        "0": Constant(0.0),
        "100": Exponential(100.0),
        "400": Exponential(400.0),
    }
    regret = {name: np.empty((runs, rounds)) for name in laws}
    missing = {name: np.empty((runs, rounds)) for name in laws}
    for run in range(runs):
        world = draw_world(UnitBall(20), dim, rounds, seed=run)
        for name, law in laws.items():
            bandit = Bandit(dim, family=Bernoulli(), policy=DelayedOFUGLM(), seed=run)
            found = play(bandit, world, law)
            regret[name][run], missing[name][run] = found.regret, found.missing
    figure, (left, right) = two_panels()
    shown = np.unique(np.linspace(0, rounds - 1, 100).astype(int))
    for name, color in (("100", BLUE), ("400", RED)):
        left.plot(shown, missing[name].mean(0)[shown], color=color, label=f"mean delay {name}")
        extra = regret[name] - regret["0"]
        middle, error = extra.mean(0)[shown], extra.std(0, ddof=1)[shown] / np.sqrt(runs)
        right.plot(shown, middle, color=color, label=f"mean delay {name}")
        right.fill_between(shown, middle - error, middle + error, color=color, alpha=0.2, lw=0)
        left.axhline(float(name), color=color, lw=0.8, ls=":")
        print(f"mean delay {name}: {missing[name].mean(0)[-1]:.0f} missing at the end, regret beyond none "
              f"{extra[:, rounds // 2].mean():.1f} at half time, {extra[:, -1].mean():.1f} at the end")  # fmt: skip
    left.set(title="Rewards that have not come yet", xlabel="round", ylim=(0, None))
    right.set(title="Regret beyond that without delay", xlabel="round")
    right.axhline(0.0, color=INK, lw=0.8)
    save("delay", figure, (left, right))


# ------------------------------------------------------------ why waiting for the window hurts


def waiting(days: int = 10, per_day: int = 800, window: float = 4.0, seeds: int = 5) -> None:
    """A shop whose conversions are a day late, with a window of four days."""
    rates = np.array([0.02, 0.03, 0.04, 0.05, 0.10])
    earned = {way: np.empty((seeds, days)) for way in ("hold", "silence")}
    for way, table in earned.items():
        for seed in range(seeds):
            means = _shop(way, np.random.default_rng(seed), rates, days * per_day, per_day, window)
            table[seed] = means.reshape(days, per_day).mean(1)
    figure, (left, right) = two_panels()
    age = np.linspace(0.0, 5.0, 101)
    left.plot(age, (age >= window) * 1.0, color=RED, label="waiting for the window")
    left.plot(
        age,
        np.where(age < window, 1 - np.exp(-age), 1.0),
        color=BLUE,
        label="learning from silence",
    )
    left.set(title="What a silent decision counts for", xlabel="days since the decision",
             ylabel="part of a failure", ylim=(0, 1.05))  # fmt: skip
    for way, color, label in (
        ("hold", RED, "waiting for the window"),
        ("silence", BLUE, "learning from silence"),
    ):
        right.plot(np.arange(days) + 0.5, earned[way].mean(0), "o-", color=color, label=label)
        print(
            f"{way}: {1e3 * earned[way].mean():.1f} conversions per thousand decisions in {days} days"
        )
    right.axhline(rates.max(), color=INK, lw=0.8, ls=":")
    right.axvline(window, color=INK, lw=0.8, ls=":")
    right.set(title="Conversions per decision", xlabel="day", ylim=(0, None))
    save("waiting", figure, (left, right))


def _shop(
    way: Any, rng: np.random.Generator, rates: Vector, rounds: int, per_day: int, window: float
) -> Vector:
    """Play one shop; returns the conversion rate of each banner that was shown."""
    now = 0.0
    banners = [{"banner": name} for name in "abcde"[: len(rates)]]
    bandit = Bandit(
        features=Features(categorical=["banner"]).fit(banners), family=Bernoulli(), seed=int(rng.integers(1 << 31)), clock=lambda: now,
        window=window * DAY, default_reward=0.0, open=way,
    )  # fmt: skip
    coming, means = list[tuple[float, str]](), np.empty(rounds)
    for t in range(rounds):
        now = t / per_day * DAY
        due = []
        while coming and coming[0][0] <= now:
            due.append((heapq.heappop(coming)[1], 1.0))
        if due:
            bandit.learn(due)
        shown = bandit.decide(banners)
        means[t], late = rates[shown.index], rng.exponential(DAY)
        if rng.random() < means[t] and late < window * DAY:
            heapq.heappush(coming, (now + late, shown.id))
    return means


# -------------------------------------------------------------------- what a certificate is


class Watched:
    """A bandit that notes, before each decision, its certificate and how far off it really is."""

    def __init__(self, bandit: Bandit) -> None:
        self.bandit, self.family, self.dim = bandit, bandit.family, bandit.dim
        self.notes: list[tuple[float, float, int]] = []  # bound, distance, passes
        self.learn = bandit.learn

    def decide(self, actions: Matrix) -> Decision:
        learner = self.bandit._learner
        returned = np.flatnonzero(~np.isnan(learner.history.y[: learner.n_decided]))
        x, exact = learner.history.x[returned], learner.exact_theta()
        mu = 1.0 / (1.0 + np.exp(-x @ exact))
        hessian = learner.policy.lam * np.eye(self.dim) + (x.T * (mu * (1.0 - mu))) @ x
        off, proof = self.bandit.theta - exact, self.bandit.certificate
        self.notes.append((proof.error, float(np.sqrt(off @ hessian @ off)), proof.passes))
        return self.bandit.decide(actions)


def certificate(rounds: int = 2000, dim: int = 5, tol: float = 0.05) -> None:
    """How far the estimate is from the exact one, round by round, and the bound on it."""
    policy = DelayedOFUGLM(tol=tol)
    watched = Watched(Bandit(dim, family=Bernoulli(), policy=policy, seed=1))
    play(watched, draw_world(UnitBall(20), dim, rounds, seed=1), Exponential(50.0))
    bound, distance, passes = np.array(watched.notes).T
    if (distance > bound + 1e-9).any():
        raise SystemExit("a certificate is below the distance: this must not be drawn")
    print(f"{passes[-1]:.0f} passes in {rounds} rounds; bound at most {bound.max():.3f}, "
          f"distance at most {distance.max():.5f}")  # fmt: skip
    figure, (left, right) = two_panels()
    shown = np.arange(0, rounds, 5)
    for values, color, label in ((bound, RED, "certificate"), (distance, BLUE, "true distance")):
        left.semilogy(shown, np.maximum(values[shown], 1e-9), color=color, lw=0.8, label=label)
    left.axhline(tol, color=INK, lw=0.8, ls=":")
    left.set(title="Distance from the exact estimate", xlabel="round", ylim=(1e-8, 1.0))
    right.plot(shown, passes[shown], color=RED, label="passes so far")
    right.set(title="Passes over all rewards", xlabel="round", ylim=(0, None))
    save("certificate", figure, (left, right))


if __name__ == "__main__":
    PARTS: dict[str, Callable[[], None]] = {
        "delay": delay,
        "waiting": waiting,
        "certificate": certificate,
    }
    for part in asked_parts(__doc__, PARTS):
        PARTS[part]()
