"""The paper's inequalities R1 to R9, checked round by round along runs: see ``engine.audit``."""

from typing import Any, NamedTuple

import numpy as np

from belated import registry
from belated.core.arguments import whole
from belated.engine.worlds import Lane, WorldSettings, audit_world
from belated.worlds.environments import UnitBall

STATEMENTS = {
    "R1": "theta_star is in the confidence set",
    "R2": "the regret of a round is at most 2 L_mu radius ||x||_{W^-1}",
    "R3": "W^-1 = V^-1 + V^-1 Z W^-1 (Lemma 2)",
    "R4": "Z <= G X^2 I and V <= (1 + G X^2 / lam) W (Lemmas 10 and 11)",
    "R5": "x'Mx <= ||x||^2_{W^-1} trace(V^-1 Z) (proof of Lemma 3)",
    "R6": "sum of ||x||_M, the product elliptical potential (Lemma 3)",
    "R7": "elliptical potential (Lemma 14)",
    "R8": "sum of ||x||_{W^-1}, the two potentials together",
    "R9": "the regret is at most its certificate",
}


class Worst(NamedTuple):
    """The largest ratio of left to right side of an inequality; above 1 it is violated."""

    ratio: float
    t: int  # round, counted from 1; 0 where there was nothing to check
    run: int


def audit(
    policy: Any = "delayed-ofu-glm",
    family: Any = "bernoulli",
    delay: Any = "exponential:100",
    *,
    dim: int = 5,
    horizon: int = 1000,
    runs: int = 1,
    seed: int = 0,
    n_actions: int = 100,
) -> dict[str, Worst]:
    """Checks R1 to R9 in every round of ``runs`` runs; returns the worst ratio of each, and where.

    R1, R2 and R9 hold with probability 1 - delta, for delays that do not depend on the reward; the
    others hold always.

    Parameters
    ----------
    policy, family, delay
        Objects or names, as in ``belated.simulate``. The policy must have a confidence set and a
        bound m1 on the norm of theta_star.
    dim, horizon, runs, seed, n_actions
        As in ``belated.simulate``.

    Examples
    --------
    >>> worst = audit(dim=2, horizon=60, n_actions=5)
    >>> [name for name, found in worst.items() if found.ratio > 1.0]
    []
    """
    lane = Lane(
        registry.parsed(registry.POLICIES, policy),
        registry.parsed(registry.FAMILIES, family),
        registry.parsed(registry.DELAYS, delay),
    )
    T = whole("horizon", horizon)
    worst = {name: Worst(-np.inf, 0, 0) for name in STATEMENTS}
    for run in range(whole("runs", runs)):
        world = WorldSettings(
            UnitBall(n_actions), whole("dim", dim), T, run, seed, np.array([T]), (lane,)
        )
        (found,) = audit_world(world)
        for name, (ratio, t) in found.items():
            if ratio > worst[name].ratio:
                worst[name] = Worst(ratio, t, run)
    return worst
