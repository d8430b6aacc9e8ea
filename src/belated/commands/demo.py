"""A small simulated run that ends in a picture of the cost of lateness."""

from pathlib import Path

import numpy as np
from rich.progress import Progress

from belated.bandit import Bandit
from belated.core.types import Matrix
from belated.engine.reference import draw_world, play
from belated.families import Bernoulli
from belated.model.protocols import Delay
from belated.policies import DelayedOFUGLM
from belated.worlds.delays import Constant, Exponential
from belated.worlds.environments import UnitBall

DIM, ACTIONS = 5, 20
DELAYS: dict[str, Delay] = {
    "no delay": Constant(0.0),
    "mean delay 100": Exponential(100.0),
    "mean delay 400": Exponential(400.0),
}


def run_demo(out: Path, *, rounds: int, runs: int, seed: int) -> Path:
    """Play every delay on the same worlds, print the outcome, return the path of the picture."""
    out.mkdir(parents=True, exist_ok=True)
    regret = {name: np.empty((runs, rounds)) for name in DELAYS}
    covered = dict.fromkeys(DELAYS, 0)
    with Progress(transient=True) as progress:
        task = progress.add_task("playing", total=runs * len(DELAYS))
        for run in range(runs):
            world = draw_world(UnitBall(ACTIONS), DIM, rounds, seed + run)
            for name, delay in DELAYS.items():
                policy = DelayedOFUGLM(m1=1.0, delta=0.05)
                bandit = Bandit(DIM, family=Bernoulli(), policy=policy, seed=seed)
                result = play(bandit, world, delay)
                regret[name][run] = result.regret
                covered[name] += int(result.covered.all())
                progress.advance(task)
    print(f"Delayed OFU-GLM, logistic rewards, d = {DIM}, K = {ACTIONS}, {rounds} rounds")
    for name, curves in regret.items():
        final = curves[:, -1]
        error = final.std(ddof=1) / np.sqrt(runs)
        print(
            f"  {name:15s} regret {final.mean():6.1f} +- {error:4.1f}   theta* in the confidence "
            f"set throughout: {covered[name]} of {runs} runs"
        )
    return _draw(out / "demo.png", regret)


def _draw(path: Path, regret: dict[str, Matrix]) -> Path:
    """Draw regret, and the regret beyond that without delay; bands are standard errors."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    base = next(iter(regret.values()))
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    styles = ["-", "--", ":"]
    for (name, curves), style, color in zip(
        regret.items(), styles, ["#222222", "#0072b2", "#d55e00"], strict=True
    ):
        for axes, values in ((left, curves), (right, curves - base)):
            if axes is right and curves is base:
                continue
            t = np.arange(1, values.shape[1] + 1)
            middle, error = values.mean(0), values.std(0, ddof=1) / np.sqrt(len(values))
            axes.plot(t, middle, style, color=color, label=name)
            axes.fill_between(t, middle - error, middle + error, color=color, alpha=0.2, lw=0)
    left.set(title="Delayed OFU-GLM, logistic rewards", ylabel="cumulative regret (reward)")
    right.set(
        title="Cost of the delay: paired difference", ylabel="regret beyond no delay (reward)"
    )
    left.legend(title=f"mean of {len(base)} runs, band: standard error", frameon=False)
    left.set_ylim(bottom=0)
    right.axhline(0.0, color="#222222", lw=1)
    for axes in (left, right):
        axes.set_xlabel("round t")
        axes.set_xlim(0, base.shape[1])
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path
