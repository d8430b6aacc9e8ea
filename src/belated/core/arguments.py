"""Checks of what a user passes in: each error names the argument, its value and what fits."""

import math
from collections.abc import Callable
from functools import wraps
from numbers import Integral, Real
from typing import Any, TypeVar

T = TypeVar("T")

LARGEST_WHOLE = 2**53  # up to here every whole number is a float


def shown(value: object) -> str:
    """``repr``, cut where it would drown the message."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def wrong(name: str, value: object, expected: str) -> ValueError:
    """The error for a value that does not fit."""
    return ValueError(f"{name} = {shown(value)}: expected {expected}")


def wrong_type(name: str, value: object, expected: str) -> TypeError:
    """The error for a value of a type that cannot fit."""
    return TypeError(f"{name} = {shown(value)}: expected {expected}, got {type(value).__name__}")


def _number(name: str, value: object, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise wrong_type(name, value, expected)
    try:
        return float(value)
    except OverflowError:  # an int such as 10**400
        raise wrong(name, "a huge int", expected) from None


def positive(name: str, value: object) -> float:
    """``value`` as a finite float above zero."""
    number = _number(name, value, "a number above 0")
    if not 0.0 < number < math.inf:
        raise wrong(name, value, "a finite number above 0")
    return number


def not_negative(name: str, value: object) -> float:
    """``value`` as a finite float, zero or more."""
    number = _number(name, value, "a number, 0 or more")
    if not 0.0 <= number < math.inf:
        raise wrong(name, value, "a finite number, 0 or more")
    return number


def probability(name: str, value: object) -> float:
    """``value`` as a float strictly between zero and one."""
    number = _number(name, value, "a number between 0 and 1")
    if not 0.0 < number < 1.0:
        raise wrong(name, value, "a number strictly between 0 and 1")
    return number


def whole(name: str, value: object, least: int = 1) -> int:
    """``value`` as an int, ``least`` or more."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise wrong_type(name, value, f"a whole number, {least} or more")
    if not least <= int(value) <= LARGEST_WHOLE:
        raise wrong(name, value, f"a whole number, {least} or more, {LARGEST_WHOLE} at most")
    return int(value)


def checked(cls: type[T]) -> type[T]:
    """Class decorator for NamedTuples: construction goes through the method ``checked``.

    ``checked`` returns the tuple with its values normalised, or raises. ``_replace`` goes around
    it, as with every NamedTuple.
    """
    construct: Callable[..., Any] = cls.__new__

    @wraps(construct)
    def construct_checked(params_type: type[T], *args: Any, **kwargs: Any) -> Any:
        return construct(params_type, *args, **kwargs).checked()

    cls.__new__ = construct_checked  # type: ignore[assignment]
    return cls
