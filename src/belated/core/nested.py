"""Nested NamedTuples of arrays: stacking several of them, and viewing one item of the stack."""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from belated.core.jit import OPTIONS, as_part


def stacked(items: list[Any]) -> Any:
    """Returns one NamedTuple whose arrays have a leading axis over ``items``, all of one type."""
    first = items[0]
    if isinstance(first, tuple):
        return type(first)(*(stacked(list(parts)) for parts in zip(*items, strict=True)))
    return np.stack(items, out=aligned_empty((len(items), *first.shape), first.dtype))


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> Any:
    """Returns an array that begins on a cache line: vector instructions seldom straddle two."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def at(stack: Any, index: int) -> Any:
    """Returns item ``index`` of a stack as views, not copies; returns None for None.

    Works in kernels and in plain Python.
    """
    if stack is None:
        return None
    if isinstance(stack, tuple):
        return type(stack)(*(at(part, index) for part in stack))
    return stack[index]


@overload(at, strict=False, jit_options=as_part(OPTIONS))  # type: ignore[untyped-decorator]
def _compiled_at(stack: Any, index: Any) -> Any:
    if isinstance(stack, types.NoneType):
        return lambda stack, index: None
    if not isinstance(stack, types.BaseTuple):
        return lambda stack, index: stack[index]
    # Numba cannot build a NamedTuple in a loop over its fields: spell the fields out
    parts = ", ".join(f"at(stack[{i}], index)" for i in range(len(stack)))
    names = {"make": stack.instance_class, "at": at}
    exec(f"def item(stack, index): return make({parts})", names)
    return names["item"]
