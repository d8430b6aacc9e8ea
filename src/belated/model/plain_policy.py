"""The interface of a plain policy: see ``belated.engine.plain_lane`` for how to write one."""

from collections.abc import Callable
from copy import deepcopy
from inspect import signature
from numbers import Integral
from typing import Any, Protocol

import numpy as np

from belated.core.arguments import shown
from belated.core.types import Matrix, Vector


class OwnPolicy(Protocol):
    """The methods that an object must have to be a plain policy."""

    def choose(self, actions: Matrix, t: int) -> int:
        """Returns the row of ``actions`` to play in round ``t``, counted from 1."""

    @property
    def observe(self) -> Callable[..., None]:
        """Learns the reward of a decision: ``observe(x, y)`` or ``observe(x, y, t)``."""


def is_own(policy: object) -> bool:
    """True for a policy written in plain Python: an object with ``choose`` and ``observe``."""
    has = {name: callable(getattr(policy, name, None)) for name in ("start", "choose", "observe")}
    return has["start"] or (has["choose"] and has["observe"])


def holds_parameters_only(policy: object) -> bool:
    """True for a policy written in plain Python, whose player is created by ``start``."""
    return is_own(policy) and not callable(getattr(policy, "choose", None))


def started(policy: Any, dim: int, seed: np.random.SeedSequence | np.random.Generator) -> Any:
    """Returns the player for the first round: a copy, or the object that ``start`` returns."""
    copy: Any = deepcopy(policy)
    player = copy.start(dim, np.random.default_rng(seed)) if hasattr(copy, "start") else None
    return copy if player is None else player


def observer(player: Any) -> Callable[[Vector, float, int], None]:
    """Returns a function that tells the policy a reward, and its round if the policy asks."""
    observe = player.observe
    try:
        asks = "t" in signature(observe).parameters
    except ValueError:  # written in C, where parameters may have no names
        asks = False
    if asks:
        return lambda x, y, t: observe(x, y, t=t)
    return lambda x, y, t: observe(x, y)


def chosen_row(policy: OwnPolicy, actions: Matrix, t: int) -> int:
    """Returns the row that the policy chooses; raises where the answer is not a row."""
    answer: Any = policy.choose(actions.copy(), t)  # the policy may change its copy
    row = int(answer) if type(answer) is not bool and isinstance(answer, Integral) else -1
    if not 0 <= row < len(actions):
        raise ValueError(
            f"{type(policy).__name__}.choose(actions, t={t}) = {shown(answer)}: expected a row of "
            f"actions, a whole number from 0 to {len(actions) - 1}"
        )
    return row
