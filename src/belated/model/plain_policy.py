"""What a policy in plain Python is: see ``belated.engine.plain_lane`` for how to write one."""

from collections.abc import Callable
from copy import deepcopy
from inspect import signature
from numbers import Integral
from typing import Any, Protocol

import numpy as np

from belated.core.arguments import shown
from belated.core.types import Matrix, Vector


class OwnPolicy(Protocol):
    """What an object must have to be a policy."""

    def choose(self, actions: Matrix, t: int) -> int:
        """Row of ``actions`` to play in round ``t``, counted from 1."""

    @property
    def observe(self) -> Callable[..., None]:
        """``observe(x, y)`` or ``observe(x, y, t)``: the reward of a decision returned."""


def is_own(policy: object) -> bool:
    """Return whether it is a policy in plain Python: an object with ``choose`` and ``observe``."""
    has = {name: callable(getattr(policy, name, None)) for name in ("start", "choose", "observe")}
    return has["start"] or (has["choose"] and has["observe"])


def holds_parameters_only(policy: object) -> bool:
    """Return whether it is a policy in plain Python of which ``start`` has to make the player."""
    return is_own(policy) and not callable(getattr(policy, "choose", None))


def started(policy: Any, dim: int, seed: np.random.SeedSequence | np.random.Generator) -> Any:
    """Ready for the first round: a copy, or what ``start`` returns."""
    copy: Any = deepcopy(policy)
    player = copy.start(dim, np.random.default_rng(seed)) if hasattr(copy, "start") else None
    return copy if player is None else player


def observer(player: Any) -> Callable[[Vector, float, int], None]:
    """How to tell the policy of a reward, with the round of its decision if it asks for that."""
    observe = player.observe
    try:
        asks = "t" in signature(observe).parameters
    except ValueError:  # written in C, where parameters may have no names
        asks = False
    if asks:
        return lambda x, y, t: observe(x, y, t=t)
    return lambda x, y, t: observe(x, y)


def chosen_row(policy: OwnPolicy, actions: Matrix, t: int) -> int:
    """Ask the policy, and refuse an answer that is not a row."""
    answer: Any = policy.choose(actions.copy(), t)  # it may do with a copy as it likes
    row = int(answer) if type(answer) is not bool and isinstance(answer, Integral) else -1
    if not 0 <= row < len(actions):
        raise ValueError(
            f"{type(policy).__name__}.choose(actions, t={t}) = {shown(answer)}: expected a row of "
            f"actions, a whole number from 0 to {len(actions) - 1}"
        )
    return row
