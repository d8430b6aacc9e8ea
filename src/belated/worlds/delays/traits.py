"""Questions about a delay: does it depend on the reward, or on the action?"""

from belated.core.arguments import (
    wrong,
)
from belated.model.protocols import delay_quantile, delay_quantile_of


def is_delay(value: object) -> bool:
    """Returns whether ``value`` is the law of a delay."""
    return type(value) in delay_quantile.cases or type(value) in delay_quantile_of.cases


def is_informative(delay: object) -> bool:
    """Returns whether the delay depends on the reward, which every confidence set here excludes."""
    return bool(getattr(delay, "informative", False))


def dim_of(delay: object) -> int:
    """Length of the actions that the delay depends on; 0 where it does not depend on them."""
    return int(getattr(delay, "dim", 0))


def is_known_in_advance(delay: object) -> bool:
    """Returns whether the delay depends on neither reward nor action: it can be drawn before."""
    return not is_informative(delay) and dim_of(delay) == 0


def check_dim(delay: object, dim: int) -> None:
    """Raises where the delay depends on actions of another length."""
    if dim_of(delay) not in (0, dim):
        raise wrong("delay", delay, f"weights for actions of {dim} numbers, not {dim_of(delay)}")
