"""Functions chosen by the type of their first argument, at compile time and at call time.

Inside a kernel Numba makes the choice during type inference, so it costs nothing at run time.
Parameter types are NamedTuples, which pickle by name; compiled code therefore stays valid in the
disk cache, unlike code specialised on closures, function arguments or jitclasses.
"""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Protocol, TypeVar, cast

from numba import extending  # not "from numba.extending": a thread must wait for all of Numba

from belated.core.jit import INLINED, OPTIONS, as_part, is_lean, kernel

F = TypeVar("F", bound=Callable[..., Any])
R_co = TypeVar("R_co", covariant=True)


class Generic(Protocol[R_co]):
    """A function with one case per type of its first argument."""

    cases: dict[type, Callable[..., Any]]

    def __call__(self, params: Any, /, *args: Any) -> R_co:
        """Calls the case for the type of ``params``."""

    def case(self, *types: type) -> Callable[[F], F]:
        """Decorator that registers the case for these types."""


def generic(stub: Callable[..., R_co]) -> Generic[R_co]:
    """Make ``stub`` a generic function; add cases with ``@stub.case(ParamsType)``."""
    return _generic(stub, None)


def generic_with_default(stub: Callable[..., R_co]) -> Generic[R_co]:
    """Make ``stub`` a generic function that itself serves every type without a case."""
    return _generic(stub, kernel(stub))


def _generic(stub: Callable[..., R_co], default: Callable[..., R_co] | None) -> Generic[R_co]:
    cases: dict[type, Callable[..., Any]] = {}

    def call(params: Any, *args: Any) -> R_co:
        chosen: Any = cases.get(type(params), default)
        if chosen is None:
            known = ", ".join(sorted({t.__name__ for t in cases})) or "none"
            raise TypeError(
                f"{stub.__name__} has no case for {type(params).__name__} (known: {known}); "
                f"register one with @{stub.__name__}.case({type(params).__name__})"
            )
        return cast(R_co, chosen(params, *args))

    def resolve(lean: bool, params: Any) -> Any:
        chosen = cases.get(getattr(params, "instance_class", None), default)  # type: ignore[arg-type]
        if chosen is None or is_lean(chosen) is not lean:
            return None
        return chosen.py_func  # type: ignore[attr-defined]

    # Numba takes the options from here, not from the case: one overload for each kind
    @extending.overload(call, strict=False, jit_options=as_part(INLINED))  # type: ignore[untyped-decorator]
    def resolve_lean(params: Any, *args: Any) -> Any:
        return resolve(True, params)

    @extending.overload(call, strict=False, jit_options=as_part(OPTIONS))  # type: ignore[untyped-decorator]
    def resolve_allocating(params: Any, *args: Any) -> Any:
        return resolve(False, params)

    def case(*types: type) -> Callable[[F], F]:
        def register(function: F) -> F:
            compiled = kernel(getattr(function, "py_func", function))  # it may be a kernel already
            for params_type in types:
                cases[params_type] = compiled
                cases[getattr(params_type, "Resolved", params_type)] = compiled
            return compiled

        return register

    update_wrapper(call, stub)
    call.case, call.cases = case, cases  # type: ignore[attr-defined]
    return cast(Generic[R_co], call)
