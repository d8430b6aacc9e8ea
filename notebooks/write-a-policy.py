# %% [markdown]
# # Write a policy and see it in the league
#
# A policy is a NamedTuple of parameters, two methods, and kernels that are registered on its type. This notebook writes
# one, has it checked, and lets it play in a simulated shop beside the default.
#
# While you write, switch compilation off: kernels are then plain Python, with the same results.

# %%
import os

os.environ["NUMBA_DISABLE_JIT"] = "1"

import math
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from belated import Bernoulli
from belated.extend import (
    DecisionSet,
    Estimator,
    Family,
    LazyNewton,
    Positive,
    State,
    Vector,
    check_policy,
    choose,
    dot,
    needs_no_bound,
    parameters,
    probabilities,
)

# %% [markdown]
# ## The policy
#
# Boltzmann exploration: an action is played with a probability in proportion to `exp(x'theta / temperature)`. A kernel draws
# from that law by adding Gumbel noise to every score and taking the highest. The second kernel tells the probabilities, so
# that every decision is logged with its propensity.


# %%
@needs_no_bound  # it claims nothing that would need short actions
@parameters
class Boltzmann(NamedTuple):
    """Play action x with probability in proportion to ``exp(x'theta / temperature)``.

    Parameters
    ----------
    temperature
        Small values explore little.
    lam
        The ridge.
    """

    temperature: Positive = 0.2
    lam: Positive = 1.0

    def resolve(self, family: Family, dim: int, max_norm: float) -> "Boltzmann":
        """Nothing is left open that would have to be derived."""
        return self

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """The penalised maximum likelihood estimate."""
        return LazyNewton(lam=self.lam, kappa=1.0, radius=math.inf, tol=1e-2, order=2)


@choose.case(Boltzmann)
def _choose(
    policy: Boltzmann, state: State, actions: DecisionSet, rng: np.random.Generator
) -> tuple[int, float, float, float]:
    row, highest = 0, -math.inf
    for a in range(actions.rows.shape[0]):
        noise = -math.log(-math.log(1.0 - rng.random()))
        score = dot(actions.rows[a], state.theta) / policy.temperature + noise
        if score > highest:
            row, highest = a, score
    estimate = dot(actions.rows[row], state.theta)
    return row, estimate, estimate, 0.0


@probabilities.case(Boltzmann)
def _probabilities(policy: Boltzmann, state: State, actions: DecisionSet, out: Vector) -> None:
    for a in range(out.shape[0]):
        out[a] = dot(actions.rows[a], state.theta) / policy.temperature
    highest = out.max()
    total = 0.0
    for a in range(out.shape[0]):
        out[a] = math.exp(out[a] - highest)
        total += out[a]
    for a in range(out.shape[0]):
        out[a] /= total


# %% [markdown]
# ## Is it sound?
#
# `check_policy` plays it in several ways and compares: rewards in any order, late, twice; a saved bandit that goes on; propensities
# against what is really played; and whether it learns. A check that fails says what is wrong and what to do.

# %%
check_policy(Boltzmann(), Bernoulli())
print("sound")

# %% [markdown]
# ## In the league
#
# A world of the league is a shop whose visitors, banners and rewards all players see with the same luck. This one is a small relative of
# `few-banners`: five banners, three devices, 30 per cent conversions, 50 decisions late on average. `lift` is the share of what is
# possible that was earned beyond uniform play. Two shops and 500 decisions are a first look;
# `belated compare --world few-banners` plays twenty shops.

# %%
from belated.experiments.league.players import Ours
from belated.experiments.league.playing import play
from belated.worlds.shops.sizes import FewBanners


class SmallShop(FewBanners):
    """Five banners at 30 per cent, late by 50 decisions."""

    rate, delay = 0.3, 50.0


players = {
    "Boltzmann, 0.2": Boltzmann(),
    "Boltzmann, 2": Boltzmann(temperature=2.0),
    "default": "adaptive-thompson",
}
checkpoints = np.arange(50, 501, 50)
parts = []
for seed in (0, 1):
    for name, policy in players.items():
        world = SmallShop(seed)
        table = pd.DataFrame(play(world, Ours(policy, world), checkpoints))
        parts.append(table.assign(player=name, seed=seed))
frame = pd.concat(parts)
frame["lift"] = (frame.earned - frame.uniform) / (frame.best - frame.uniform)
frame.pivot_table("lift", "player", "t").round(2)

# %%
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
for name, part in frame.groupby("player", sort=False):
    axes.plot(part.groupby("t").lift.mean(), "o-", label=name)
axes.set(xlabel="decision", ylabel="lift", title="Five banners, mean of two shops")
axes.axhline(0, color="#222222", lw=0.8)
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## What next
#
# In a file of its own the policy is compiled, and plays a thousand times as fast: see
# [examples/epsilon_greedy.py](../examples/epsilon_greedy.py). `belated.simulate` and `belated.compare` take it beside the others ([compare
# policies](../docs/how-to/simulate.md)). [CONTRIBUTING](../CONTRIBUTING.md) says how it comes into the package.
