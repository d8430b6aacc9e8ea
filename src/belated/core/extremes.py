"""Bounds on parameters: beyond them the arithmetic still runs, but nothing is learnt any more.

No sensible setting comes near them. A number beyond them is a slip of the keyboard or of a unit,
better refused now than noticed in a model that never moves. The environment variable
``BELATED_LARGEST`` raises the bound for those who mean such a number.
"""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from belated.core.arguments import wrong

VARIABLE = "BELATED_LARGEST"
LARGEST = 1e12
NOT_TINY = ("lam", "m1", "prior_sd")  # close to 0 these are as bad as huge
ITS_OWN_BOUND = ("max_reward",)

_recorded: ContextVar[bool] = ContextVar("recorded", default=False)


def largest() -> float:
    """Returns the largest value that a parameter may have."""
    text = os.environ.get(VARIABLE, "")
    try:
        return float(text) if text else LARGEST
    except ValueError:
        raise wrong(VARIABLE, text, "a number such as 1e20") from None


def refuse_extremes(*given: Any) -> None:
    """Raises where a policy or family, as the user gave it, has a parameter beyond the bound.

    Values derived from the family are not checked, nor are values from a file or a log: these were
    accepted when they were written.
    """
    if are_recorded():
        return
    most = largest()
    for params in given:
        values: dict[str, Any]
        values = {} if isinstance(params, type) else getattr(params, "_asdict", dict)()
        for name, value in values.items():
            if not isinstance(value, float) or not math.isfinite(value) or name in ITS_OWN_BOUND:
                continue
            least = 1.0 / most if name in NOT_TINY else 0.0
            if not least <= abs(value) <= most:
                raised = f"{VARIABLE}={max(abs(value), 1.0 / max(abs(value), 1e-300)):.0e}"
                raise wrong(
                    name,
                    value,
                    f"a number from {least:g} to {most:g}; beyond, hardly anything would be "
                    f"learnt. {raised} in the environment raises the bound",
                )


def are_recorded() -> bool:
    """Returns whether parameters are read back at the moment, within ``recorded``."""
    return _recorded.get()


@contextmanager
def recorded() -> Iterator[None]:
    """A context where ``refuse_extremes`` refuses nothing: values read back were accepted once."""
    token = _recorded.set(True)
    try:
        yield
    finally:
        _recorded.reset(token)
