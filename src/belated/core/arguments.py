"""Checks of the arguments a user passes in: each error names the argument, its value and what fits.

NumPy is imported by the functions that need it: the client checks numbers and does without.
"""

import math
from collections import namedtuple
from collections.abc import Callable
from decimal import Decimal
from functools import wraps
from numbers import Integral, Real
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

LARGEST_WHOLE = 2**53  # up to here every whole number is a float

NORM_ROUNDING = 1.0 + 1e-6  # a unit vector computed in single precision may exceed 1 by this much

WIDEST = 4_096  # features: the covariance of as many takes 134 MB, an inverse several seconds


def shown(value: object) -> str:
    """Returns the ``repr`` of a value, shortened so that it does not drown the message."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def wrong(name: str, value: object, expected: str) -> ValueError:
    """Returns the error for a value that does not fit."""
    return ValueError(f"{name} = {shown(value)}: expected {expected}")


def wrong_type(name: str, value: object, expected: str) -> TypeError:
    """Returns the error for a value of a type that cannot fit."""
    return TypeError(f"{name} = {shown(value)}: expected {expected}, got {type(value).__name__}")


def refuse_wide(dim: int) -> None:
    """Raises where there are more features than a covariance can be kept of."""
    if dim > WIDEST:
        raise wrong(
            "dim",
            dim,
            f"at most {WIDEST} features; hash a column into fewer, as in "
            'Features(hashed={"user": 256})',
        )


def _number(name: str, value: object, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise wrong_type(name, value, expected)
    try:
        return float(value)
    except OverflowError:  # an int such as 10**400
        raise wrong(name, "a huge int", expected) from None


def number(name: str, value: object) -> float:
    """Returns ``value`` as a finite float, or raises."""
    result = _number(name, value, "a finite number")
    if not math.isfinite(result):
        raise wrong(name, value, "a finite number")
    return result


def positive(name: str, value: object) -> float:
    """Returns ``value`` as a finite float above zero, or raises."""
    result = _number(name, value, "a number above 0")
    if not 0.0 < result < math.inf:
        raise wrong(name, value, "a finite number above 0")
    return result


def not_negative(name: str, value: object) -> float:
    """Returns ``value`` as a finite float, zero or more, or raises."""
    result = _number(name, value, "a number, 0 or more")
    if not 0.0 <= result < math.inf:
        raise wrong(name, value, "a finite number, 0 or more")
    return result


def probability(name: str, value: object) -> float:
    """Returns ``value`` as a float strictly between zero and one, or raises."""
    result = _number(name, value, "a number between 0 and 1")
    if not 0.0 < result < 1.0:
        raise wrong(name, value, "a number strictly between 0 and 1")
    return result


def whole(name: str, value: object, least: int = 1) -> int:
    """Returns ``value`` as an int, ``least`` or more, or raises."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise wrong_type(name, value, f"a whole number, {least} or more")
    if int(value) < least:
        raise wrong(name, value, f"a whole number, {least} or more")
    if int(value) > LARGEST_WHOLE:
        raise wrong(name, value, f"a whole number, {LARGEST_WHOLE} at most")
    return int(value)


def count(name: str, value: object) -> int:
    """Returns ``value`` as an int, zero or more, or raises."""
    return whole(name, value, least=0)


def flag(name: str, value: object) -> bool:
    """Returns ``value`` if it is True or False, and raises otherwise."""
    if not isinstance(value, bool):
        raise wrong_type(name, value, "True or False")
    return value


def at_least(least: float) -> Callable[[str, object], float]:
    """Returns a check for finite floats, which refuses those so small that rounding drowns them."""

    def check(name: str, value: object) -> float:
        result = positive(name, value)
        if result < least:
            raise wrong(name, value, f"{least:g} or more: rounding allows no less")
        return result

    return check


# Types of parameters that declare their check, as in ``lam: Positive | None = None``.
Positive = Annotated[float, positive]
NotNegative = Annotated[float, not_negative]
Probability = Annotated[float, probability]
Tolerance = Annotated[float, at_least(1e-12)]
Whole = Annotated[int, whole]
Count = Annotated[int, count]
Flag = Annotated[bool, flag]


def any_number(value: Any) -> float:
    """Returns a scalar of any library as a float; refuses text, which merely converts."""
    if not isinstance(value, float | Real | Decimal):
        import numpy as np

        kind = getattr(getattr(value, "dtype", None), "kind", "O")
        if np.ndim(value) or kind not in "fiub" or value is np.ma.masked:
            raise TypeError
    return float(value)


def array_of_numbers(name: str, values: Any) -> "NDArray[np.float64]":
    """Returns ``values`` as a new array of floats, contiguous and writable."""
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

    Construction applies the checks that the types of the fields declare, and then the method
    ``checked``, where there is one: it returns the tuple with its values normalised, or raises.
    ``_replace`` goes around the checks, as with every NamedTuple; ``checked(params)`` applies them
    again. Two tuples are equal only if they are of one type: bare tuples would make
    Exponential(9) == Uniform(9).
    """
    construct: Callable[..., Any] = cls.__new__

    @wraps(construct)
    def construct_checked(params_type: type[T], *args: Any, **kwargs: Any) -> Any:
        for name in kwargs.keys() & set(getattr(params_type, "derived", ())):
            own = ", ".join(params_type._fields)  # type: ignore[attr-defined]
            raise wrong(name, kwargs[name], f"no value: {cls.__name__} derives it, from {own}")
        return checked(construct(params_type, *args, **kwargs))

    def equal(self: Any, other: Any) -> bool:
        return type(self) is type(other) and all(map(_same, self, other))

    def digest(self: Any) -> int:
        return hash((type(self), *(str(value) for value in self)))

    declared = {name: _declared(hint) for name, hint in cls.__annotations__.items()}
    cls.declared_checks = {name: check for name, check in declared.items() if check}  # type: ignore[attr-defined]
    cls.__new__ = construct_checked  # type: ignore[assignment]
    cls.__eq__ = equal  # type: ignore[method-assign]
    cls.__ne__ = lambda self, other: not equal(self, other)  # type: ignore[method-assign]
    cls.__hash__ = digest  # type: ignore[method-assign]
    return cls


def checked(params: T) -> T:
    """Returns ``params`` with its values normalised by the checks it declares, or raises."""
    new: Any = params
    declared = getattr(params, "declared_checks", {})
    values = {name: check(name, getattr(params, name)) for name, check in declared.items()}
    new = new._replace(**values) if values else new
    own = getattr(new, "checked", None)
    return new if own is None else own()


def _declared(hint: Any) -> Callable[[str, Any], Any] | None:
    """Returns the check in the type of a field; it lets None pass where the type does."""
    alternatives = (hint, *get_args(hint))
    checks = [check for part in alternatives for check in getattr(part, "__metadata__", ())]
    if not checks:
        return None
    check = checks[0]
    if type(None) not in alternatives:
        return check
    return lambda name, value: None if value is None else check(name, value)


def derives(*names: str) -> Callable[[type[T]], type[T]]:
    """Class decorator, above ``parameters``: names the constants that nobody sets.

    These are derived from the parameters and from what is known of the problem. Kernels see an
    object of ``cls.Resolved``, a subclass whose fields are the parameters and after them the
    derived constants; ``resolved`` makes it. Its ``repr`` shows the parameters only.
    """

    def decorate(cls: type[T]) -> type[T]:
        made: Any = cls
        own = len(made._fields)
        body = {
            "__slots__": (),
            "__module__": cls.__module__,
            "__qualname__": f"{cls.__qualname__}.Resolved",  # types pickle by name
            "__repr__": lambda self: repr(made._make(self[:own])),
            "parameters_type": cls,
        }
        fields: Any = namedtuple(cls.__name__, (*made._fields, *names))  # type: ignore[misc]
        made.derived, made.Resolved = names, type(cls.__name__, (fields, cls), body)
        return cls

    return decorate


def resolved(params: T, **values: Any) -> T:
    """Returns ``params`` with these values, which may include the constants that it derives."""
    given: Any = params
    kind = getattr(type(given), "Resolved", type(given))
    made: T = kind(**{**given._asdict(), **values})
    return made


def _same(a: Any, b: Any) -> bool:
    import numpy as np

    return np.array_equal(a, b) if isinstance(a, np.ndarray) else bool(a == b)
