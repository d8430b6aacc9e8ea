"""Functions that a kernel takes from ``builders/``, or compiles as they stand where that fails.

The two agree bit for bit (``bound_all``, in single precision, to its rounding), and so does plain
Python. ``core/compiler/plain.py`` decides which of them is used.
"""

from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any, TypeVar

from numba import types
from numba.extending import lower_builtin, overload, type_callable

from belated.core.compiler.plain import must_be_plain, try_later
from belated.core.jit import INLINED, LEAN, OPTIONS, as_part

F = TypeVar("F", bound=Callable[..., Any])

VECTOR, MATRIX = types.float64[::1], types.float64[:, ::1]  # contiguous
COARSE, COARSE_ROW = types.float32[:, ::1], types.float32[::1]
BUILDERS = "belated.numerics.lowered.builders"


def hand_built(result: Any, *kinds: Any, allocating: bool = False) -> Callable[[F], F]:
    """Decorator: in a kernel the builder of this name takes the place of the function.

    ``kinds`` are the only Numba types of the arguments that are accepted. An ``allocating``
    function makes arrays where it is compiled itself.
    """

    def fits(given: tuple[Any, ...]) -> bool:
        return len(given) == len(kinds) and all(map(_fits, given, kinds))

    def refuse_gaps(twin: Any, given: tuple[Any, ...]) -> None:
        for name, array, kind in zip(signature(twin).parameters, given, kinds, strict=True):
            if isinstance(kind, types.Array) and getattr(array, "layout", "C") != kind.layout:
                raise TypeError(
                    f"{twin.__name__}: {name} is not contiguous (a column, a slice with a step or "
                    f"a transpose): pass {name}.copy()"
                )

    def register(twin: F) -> F:
        def typed(*given: Any) -> Any:
            refuse_gaps(twin, given)
            return result if fits(given) and not must_be_plain() else None

        def plain(*given: Any) -> Any:
            return twin if fits(given) and must_be_plain() else None

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            build = getattr(import_module(f"{BUILDERS}.{module}"), twin.__name__)
            return import_module(f"{BUILDERS}.lowering").lower(build, context, builder, sig, args)

        module = twin.__module__.rpartition(".")[2]
        typed.__signature__ = signature(twin)  # type: ignore[attr-defined]
        type_callable(twin)(lambda context: typed)
        lower_builtin(twin, *(type(kind) for kind in kinds))(lower)
        options = as_part(OPTIONS if allocating else LEAN)
        overload(twin, strict=False, jit_options=options)(plain)
        try_later(lambda: import_module(f"{BUILDERS}.lowering").try_out(lower, result(*kinds)))
        return twin

    return register


def _fits(given: Any, kind: Any) -> bool:
    if not isinstance(kind, types.Array):
        return bool(types.unliteral(given) == kind)
    return isinstance(given, types.Array) and (
        (given.dtype, given.ndim, given.layout) == (kind.dtype, kind.ndim, kind.layout)
    )


def add_multiple(out: Any, numbers: Any, factor: Any) -> None:
    """``out += factor numbers``: by NumPy, or in a kernel by a loop, without a new array."""
    out += numbers * factor


@overload(add_multiple, strict=False, jit_options=as_part(INLINED))  # type: ignore[untyped-decorator]
def _add_multiple(out: Any, numbers: Any, factor: Any) -> Any:
    def loop(out: Any, numbers: Any, factor: Any) -> None:
        for i in range(out.shape[0]):
            out[i] += numbers[i] * factor

    return loop
