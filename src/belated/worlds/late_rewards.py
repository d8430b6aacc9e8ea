"""A Gymnasium environment whose rewards are late; importing this module registers it by name.

>>> import gymnasium
>>> env = gymnasium.make("belated.worlds.late_rewards:belated/LateRewards-v0", delay="constant:1")
>>> actions, info = env.reset(seed=1)
>>> actions.shape
(10, 3)
>>> [env.step(0)[4]["arrivals"]["round"] for _ in range(3)]
[[], [1], [2]]
"""

from typing import Any, SupportsFloat

import numpy as np

from belated import registry
from belated.core.arguments import array_of_numbers, whole, wrong, wrong_type
from belated.core.extras import extra
from belated.core.types import Matrix
from belated.model.protocols import (
    Delay,
    Environment,
    Family,
    delay_quantile_of,
    mean,
    reward_quantile,
)
from belated.worlds.delays import arrival, check_dim, is_delay
from belated.worlds.environments import UnitBall, of_a_run, point_in_ball, sample

with extra("gymnasium"):
    import gymnasium

NAME = "belated/LateRewards-v0"
Info = dict[str, Any]


class LateRewards(gymnasium.Env[Matrix, np.int64]):
    """A generalised linear bandit: an observation is a decision set, an action one of its rows.

    The reward of a step is the sum of the rewards that arrive in it, since nothing else is known by
    then. ``info["arrivals"]`` says which ones they are: ``round`` lists the rounds of their
    decisions, counted from 1, and ``reward`` the rewards; in a vector of environments, each has
    its two lists. ``info["round"]`` is the round that was
    played, ``info["missing"]`` the number of rewards that have not arrived, and ``info["regret"]``
    the expected reward that the step lost against the best action, which no learner may read.

    An episode is truncated after ``horizon`` rounds. Rewards that are missing then never arrive.

    Parameters
    ----------
    family
        Law of the reward, such as ``Bernoulli()``, or its name.
    delay
        Rounds until a reward arrives, such as ``Exponential(20.0)``, or its name with parameters.
        With a delay of 0, a reward arrives in the step of its own action.
    environment
        The law of the decision sets.
    dim
        Number of features of an action.
    horizon
        Number of rounds of an episode.
    theta_star
        The true parameter. If it is None, each episode draws one, uniform in the unit ball.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 -- declared so by Gymnasium

    def __init__(
        self,
        family: Family | str = "bernoulli",
        delay: Delay | str = "exponential:20",
        environment: Environment = UnitBall(10),  # noqa: B008
        dim: int = 3,
        horizon: int = 1_000,
        theta_star: Any = None,
    ) -> None:
        self.family: Family = registry.parsed(registry.FAMILIES, family, "family")
        self.delay: Delay = registry.parsed(registry.DELAYS, delay, "delay")
        if not is_delay(self.delay):
            raise wrong_type("delay", delay, "a delay, such as Exponential(100.0)")
        self.dim, self.horizon = whole("dim", dim), whole("horizon", horizon)
        check_dim(self.delay, self.dim)
        self.theta_given = (
            None if theta_star is None else array_of_numbers("theta_star", theta_star)
        )
        if self.theta_given is not None and self.theta_given.shape != (dim,):
            raise wrong("theta_star", theta_star, f"{dim} numbers")
        self.environment = environment
        longest = environment.norm_quantile(self.dim, 1.0)
        shape = environment.n_actions, self.dim
        self.observation_space = gymnasium.spaces.Box(-longest, longest, shape, np.float64)
        self.action_space = gymnasium.spaces.Discrete(environment.n_actions)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Matrix, Info]:
        """Begin an episode: draw its truth and its first decision set."""
        super().reset(seed=seed)
        rng = self.np_random
        given = self.theta_given
        self.theta_star = point_in_ball(self.dim, rng) if given is None else given
        self._run = of_a_run(self.environment, self.dim, rng)
        self._due: dict[float, list[tuple[int, float]]] = {}
        self.round = self.missing = 0
        self._actions = sample(self._run, self.dim, rng)
        return self._actions.copy(), self._info([], 0.0)

    def step(self, action: np.int64) -> tuple[Matrix, SupportsFloat, bool, bool, Info]:
        """Play a row of the last observation; returns the next one, with what has arrived."""
        if not self.action_space.contains(action):
            raise wrong("action", action, f"a row, 0 to {self.environment.n_actions - 1}")
        rng, x = self.np_random, self._actions[action]
        scores = self._actions @ self.theta_star
        luck, lateness = max(rng.random(), 2.0**-54), rng.random()  # 0 may be -infinity
        reward = float(reward_quantile(self.family, float(scores[action]), luck))
        tau = float(delay_quantile_of(self.delay, x, lateness, reward))
        self.round += 1
        self.missing += 1
        self._due.setdefault(arrival(self.round, tau), []).append((self.round, reward))
        arrived = self._due.pop(self.round, [])
        self.missing -= len(arrived)
        means = [float(mean(self.family, z)) for z in scores.tolist()]
        self._actions = sample(self._run, self.dim, rng)
        info = self._info(arrived, max(means) - means[action])
        truncated = self.round >= self.horizon
        return self._actions.copy(), sum(y for _, y in arrived), False, truncated, info

    def _info(self, arrived: list[tuple[int, float]], regret: float) -> Info:
        # Lists: a vector of environments takes it that arrays of all of them have one shape.
        return {
            "arrivals": {"round": [t for t, _ in arrived], "reward": [y for _, y in arrived]},
            "round": self.round,
            "missing": self.missing,
            "regret": regret,
        }


gymnasium.register(NAME, f"{__name__}:LateRewards")
