"""Checks of what a user passes in: each error names the argument, its value and what fits.

NumPy is imported by the functions that need it: the client checks numbers and does without.
"""

import math
from collections.abc import Callable
from decimal import Decimal
from functools import wraps
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

LARGEST_WHOLE = 2**53  # up to here every whole number is a float

NORM_ROUNDING = 1.0 + 1e-6  # a unit vector computed in single precision may exceed 1 by this much


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


def number(name: str, value: object) -> float:
    """``value`` as a finite float."""
    result = _number(name, value, "a finite number")
    if not math.isfinite(result):
        raise wrong(name, value, "a finite number")
    return result


def positive(name: str, value: object) -> float:
    """``value`` as a finite float above zero."""
    result = _number(name, value, "a number above 0")
    if not 0.0 < result < math.inf:
        raise wrong(name, value, "a finite number above 0")
    return result


def not_negative(name: str, value: object) -> float:
    """``value`` as a finite float, zero or more."""
    result = _number(name, value, "a number, 0 or more")
    if not 0.0 <= result < math.inf:
        raise wrong(name, value, "a finite number, 0 or more")
    return result


def probability(name: str, value: object) -> float:
    """``value`` as a float strictly between zero and one."""
    result = _number(name, value, "a number between 0 and 1")
    if not 0.0 < result < 1.0:
        raise wrong(name, value, "a number strictly between 0 and 1")
    return result


def whole(name: str, value: object, least: int = 1) -> int:
    """``value`` as an int, ``least`` or more."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise wrong_type(name, value, f"a whole number, {least} or more")
    if not least <= int(value) <= LARGEST_WHOLE:
        raise wrong(name, value, f"a whole number, {least} or more, {LARGEST_WHOLE} at most")
    return int(value)


def any_number(value: Any) -> float:
    """A scalar of any library as a float; what merely converts to one, such as text, is refused."""
    if not isinstance(value, float | Real | Decimal):
        import numpy as np

        kind = getattr(getattr(value, "dtype", None), "kind", "O")
        if np.ndim(value) or kind not in "fiub" or value is np.ma.masked:
            raise TypeError
    return float(value)


def array_of_numbers(name: str, values: Any) -> "NDArray[np.float64]":
    """``values`` as an array of floats of our own, contiguous and writable."""
    import numpy as np

    try:
        array = np.asarray(values)
    except ValueError as error:
        raise wrong(name, values, f"an array of numbers ({error})") from None
    if array.dtype.kind not in "fiub" or isinstance(values, np.ma.MaskedArray):
        got = f"{type(values).__name__} of {array.dtype}"
        raise wrong(name, values, f"an array of numbers, not {got}")
    return np.array(array, np.float64, order="C")


def parameters(cls: type[T]) -> type[T]:
    """Class decorator for the NamedTuples that families, policies, delays and the like are.

    Construction goes through the method ``checked``, where there is one: it returns the tuple with
    its values normalised, or raises. (``_replace`` goes around it, as with every NamedTuple.) And
    two are equal only if they are of one type: bare tuples would make Exponential(9) == Uniform(9).
    """
    construct: Callable[..., Any] = cls.__new__

    @wraps(construct)
    def construct_checked(params_type: type[T], *args: Any, **kwargs: Any) -> Any:
        new = construct(params_type, *args, **kwargs)
        return new.checked() if hasattr(new, "checked") else new

    def equal(self: Any, other: Any) -> bool:
        return type(self) is type(other) and all(map(_same, self, other))

    def digest(self: Any) -> int:
        return hash((type(self), *(str(value) for value in self)))

    cls.__new__ = construct_checked  # type: ignore[assignment]
    cls.__eq__ = equal  # type: ignore[method-assign]
    cls.__ne__ = lambda self, other: not equal(self, other)  # type: ignore[method-assign]
    cls.__hash__ = digest  # type: ignore[method-assign]
    return cls


def _same(a: Any, b: Any) -> bool:
    import numpy as np

    return np.array_equal(a, b) if isinstance(a, np.ndarray) else bool(a == b)
