"""Playing a bandit against a simulated world, the rewards held back until they are due.

>>> from belated import Bandit, Gaussian, DelayedOFUGLM
>>> from belated.worlds.delays import Exponential
>>> from belated.worlds.environments import UnitBall
>>> world = draw_world(UnitBall(10), dim=3, rounds=200, seed=1)
>>> bandit = Bandit(dim=3, family=Gaussian(), policy=DelayedOFUGLM(), seed=1)
>>> run = play(bandit, world, Exponential(20.0))
>>> run.regret.shape, bool(run.covered.all())
((200,), True)
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from belated.core.arguments import whole, wrong, wrong_type
from belated.core.events import Decision
from belated.core.types import Integers, Matrix, Vector
from belated.model.protocols import (
    Delay,
    Environment,
    Family,
    claims_set,
    delay_quantile_of,
    mean,
    reward_quantile,
)
from belated.model.steps import covers
from belated.numerics.lowered.products import dot
from belated.worlds.delays import arrival, check_dim, is_delay
from belated.worlds.environments import of_a_run, point_in_ball, sample
from belated.worlds.feedback import Conversions, Feedback, Identified, check_window


class Player(Protocol):
    """The methods of a bandit that ``play`` calls."""

    family: Family

    @property
    def dim(self) -> int:
        """Number of features of an action."""

    def decide(self, actions: Matrix) -> Decision:
        """Choose a row."""

    def learn(self, rewards: Iterable[tuple[int, float]], /) -> int:
        """Take in rewards that have returned."""


class Rounds:
    """A clock for ``Bandit(clock=...)`` that tells the round; ``play`` moves it on.

    >>> from belated import Bandit
    >>> hears = Bandit(
    ...     dim=3, family="bernoulli", window=20, default_reward=0.0, open="silence", clock=Rounds()
    ... )
    """

    def __init__(self) -> None:
        self.round = 0

    def __call__(self) -> float:
        """Returns the round as seconds."""
        return float(self.round)


class World(NamedTuple):
    """Everything random about a run except what a policy draws itself.

    Bandits played against the same world face the same decision sets, the same luck in the rewards
    and the same luck in the delays, so their results can be compared in pairs.
    """

    theta_star: Vector  # (d,)
    actions: Matrix  # (T, K, d)
    luck: Vector  # (T,) uniforms behind the rewards
    lateness: Vector  # (T,) uniforms behind the delays


@dataclass(frozen=True, slots=True)
class Run:
    """The history of a run, one entry per round."""

    index: Integers  # action played
    regret: Vector  # cumulative pseudo-regret
    reward: Vector  # whether or not it has returned
    arrives: Vector  # round, counted from 1, at whose end the reward is delivered
    missing: Integers  # G_t, at the end of the round
    covered: Any  # whether theta_star was in the confidence set when the decision was made


def draw_world(
    environment: Environment,
    dim: int,
    rounds: int,
    seed: int | np.random.SeedSequence,
    theta_star: Vector | None = None,
) -> World:
    """Draw a world; each part has a random stream of its own. theta_star is uniform in the ball."""
    if not isinstance(seed, np.random.SeedSequence):
        seed = np.random.SeedSequence(whole("seed", seed, least=0))
    streams = [np.random.default_rng(child) for child in seed.spawn(4)]
    if theta_star is None:
        theta_star = point_in_ball(dim, streams[0])
    elif np.shape(theta_star) != (dim,) or not np.isfinite(theta_star).all():
        raise wrong("theta_star", theta_star, f"{dim} finite numbers")
    environment = of_a_run(environment, dim, streams[1])
    sets = [sample(environment, dim, streams[1]) for _ in range(whole("rounds", rounds))]
    return World(
        np.asarray(theta_star, float),
        np.array(sets),
        np.maximum(streams[2].random(rounds), 2.0**-54),  # 0 would be a reward of -infinity
        streams[3].random(rounds),
    )


def play(
    bandit: Player,
    world: World,
    delay: Delay,
    *,
    feedback: Feedback = Identified(),  # noqa: B008
    shuffle: Callable[[list[tuple[int, float]]], None] | None = None,
) -> Run:
    """Play all rounds of ``world``. Rewards due in a round are delivered together at its end.

    With ``feedback=Conversions(window)`` zeros and later rewards are never delivered. A player is
    handed rewards with their decisions; aggregating them is its own affair. A ``Bandit`` with a
    window in rounds has ``clock=Rounds()``; it is asked with ``probabilities=False``.
    ``shuffle`` may reorder the rewards of a round in place: no result should depend on that order.
    """
    if not is_delay(delay):
        raise wrong_type("delay", delay, "a delay, such as Exponential(100.0)")
    if bandit.dim != len(world.theta_star):
        raise wrong("bandit.dim", bandit.dim, f"{len(world.theta_star)}, as in this world")
    check_dim(delay, bandit.dim)
    check_window(getattr(bandit, "policy", None), feedback)
    rounds = len(world.luck)
    values = mean_rewards(bandit.family, world)
    run = Run(
        np.zeros(rounds, np.int64),
        np.zeros(rounds),
        np.zeros(rounds),
        np.zeros(rounds),
        np.zeros(rounds, np.int64),
        np.zeros(rounds, bool),
    )
    due: defaultdict[float, list[tuple[int, float]]] = defaultdict(list)
    missing, regret = 0, 0.0
    clock = getattr(bandit, "clock", None)
    # nobody reads propensities here, for which a policy such as EVILL makes 2,600 decisions
    decide: Callable[..., Decision] = bandit.decide
    if hasattr(bandit, "probabilities"):
        decide = partial(decide, probabilities=False)
    for t in range(rounds):
        if isinstance(clock, Rounds):
            clock.round = t + 1
        run.covered[t] = _covers(bandit, world.theta_star)
        decision = decide(world.actions[t])
        x = world.actions[t, decision.index]
        z = float(dot(x, world.theta_star))
        y = float(reward_quantile(bandit.family, z, world.luck[t]))
        tau = float(delay_quantile_of(delay, x, world.lateness[t], y))
        regret += values[t].max() - values[t, decision.index]
        run.index[t], run.regret[t], run.reward[t] = decision.index, regret, y
        seen = not isinstance(feedback, Conversions) or (
            y > 0.0 and np.ceil(tau) <= feedback.window
        )
        run.arrives[t] = arrival(t + 1, tau) if seen else np.inf
        due[run.arrives[t]].append((decision.id, y))
        returned = due.pop(t + 1, [])
        if shuffle is not None:
            shuffle(returned)
        if returned:
            bandit.learn(returned)
        missing += 1 - len(returned)
        run.missing[t] = missing
    return run


def mean_rewards(family: Family, world: World) -> Matrix:
    """Returns mu(x'theta_star) of every action of every round, (T, K)."""
    z = world.actions @ world.theta_star
    return np.array([[mean(family, v) for v in row] for row in z.tolist()])


def _covers(bandit: Any, theta_star: Vector) -> bool:
    """Returns whether theta_star is in the confidence set; False where there is none."""
    state = getattr(bandit, "_state", None)
    if state is None or not claims_set(bandit.policy):
        return False
    return bool(covers(bandit.policy, state, theta_star))
