"""Eight doubles, or sixteen floats, at a time.

Loops over vectors of five or twenty numbers are too short for a compiler to vectorise well: what it
makes is for hundreds, and at these lengths only its odd ends run. Here a kernel says itself what is
done at once. In plain Python a pack is a NumPy array and the functions below are what they say; in
a kernel each becomes an instruction or a few. Results agree bit for bit, but for ``fused``.

Packs live in kernels only: between them travel arrays.
"""

import operator
from collections.abc import Callable
from inspect import signature
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import lower_builtin, models, register_model, type_callable

from belated.core.types import Coarse, Vector

F = TypeVar("F", bound=Callable[..., Any])

EIGHT, SIXTEEN = 8, 16


def _has_masked_loads() -> bool:
    """Whether this machine loads part of a pack in one instruction. If not known: no."""
    try:
        return bool(get_host_cpu_features().get("avx"))
    except RuntimeError:
        return False


MASKED_LOADS = _has_masked_loads()


def zeros() -> Any:
    """Eight zeros."""
    return np.zeros(EIGHT)


def eight(a: Vector, i: int) -> Any:
    """``a[i : i + 8]``, all of which must be there."""
    return a[i : i + EIGHT].copy()


def put_eight(a: Vector, i: int, pack: Any) -> None:
    """``a[i : i + 8] = pack``."""
    a[i : i + EIGHT] = pack


def up_to_eight(a: Vector, i: int) -> Any:
    """``a[i : i + 8]``, with zeros beyond the end of ``a``."""
    pack, numbers = np.zeros(EIGHT), a[i : i + EIGHT]
    pack[: numbers.shape[0]] = numbers
    return pack


def put_up_to_eight(a: Vector, i: int, pack: Any) -> None:
    """``a[i : i + 8] = pack``, as far as ``a`` goes."""
    a[i : i + EIGHT] = pack[: max(0, a.shape[0] - i)]


def total(pack: Any) -> float:
    """The sum of all eight: upper half on lower half, three times."""
    pack = pack[:4] + pack[4:]
    pack = pack[:2] + pack[2:]
    return float(pack[0] + pack[1])


def sixteen(a: Coarse, i: int) -> Any:
    """``a[i : i + 16]``, all of which must be there."""
    return a[i : i + SIXTEEN].copy()


def put_sixteen(a: Coarse, i: int, pack: Any) -> None:
    """``a[i : i + 16] = pack``."""
    a[i : i + SIXTEEN] = pack


def fused(a: Any, b: np.float32, c: Any) -> Any:
    """``a b + c`` of sixteen, rounded once where the machine does so; in plain Python twice."""
    return a * b + c


def only(pack: Any, count: int, other: np.float32) -> Any:
    """The first ``count`` of sixteen; ``other`` in place of the rest."""
    pack = pack.copy()
    pack[max(count, 0) :] = other
    return pack


def larger(a: Any, b: Any) -> Any:
    """One by one the larger of two; none is NaN."""
    return np.maximum(a, b)


def largest(pack: Any) -> np.float32:
    """Of all sixteen."""
    return pack.max()


def count_reaching(pack: Any, level: np.float32) -> int:
    """How many of sixteen are ``level`` or more."""
    return int(np.count_nonzero(pack >= level))


def first_reaching(pack: Any, level: np.float32) -> int:
    """Place of the first of sixteen that is ``level`` or more; 16 where none is."""
    hits = np.flatnonzero(pack >= level)
    return int(hits[0]) if hits.shape[0] else SIXTEEN


# ------------------------------------------------------------------------------ in a kernel


class Pack(types.Type):  # type: ignore[misc]  # Numba is untyped
    """Numba's type of a pack."""

    def __init__(self, dtype: Any, count: int, element: Any) -> None:
        self.dtype, self.vector = dtype, ir.VectorType(element, count)
        super().__init__(name=f"Pack({count} x {dtype})")


DOUBLES = Pack(types.float64, EIGHT, ir.DoubleType())
FLOATS = Pack(types.float32, SIXTEEN, ir.FloatType())


@register_model(Pack)
class _PackModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, pack: Pack) -> None:
        super().__init__(manager, pack, pack.vector)


def _in_kernels(function: Any, pack: Pack, result: Any, *arguments: Any) -> Callable[[F], F]:
    """Decorator: how a kernel does ``function`` with arguments of these types.

    Arrays must be contiguous and of the kind that ``pack`` is made of: it is loaded as it lies.
    """

    def fits(given: Any) -> bool:
        if isinstance(given, types.Array):
            return (given.dtype, given.ndim, given.layout) == (pack.dtype, 1, "C")
        return not isinstance(given, Pack) or given == pack

    def typed(*given: Any) -> Any:
        return result if all(map(fits, given)) else None

    typed.__signature__ = signature(function)  # type: ignore[attr-defined]
    type_callable(function)(lambda context: typed)
    return cast(Callable[[F], F], lower_builtin(function, *arguments))


def _integers(*values: int) -> Any:
    return ir.Constant(ir.VectorType(ir.IntType(32), len(values)), list(values))


def _shuffled(builder: Any, vector: Any, *places: int) -> Any:
    return builder.shuffle_vector(
        vector, ir.Constant(vector.type, ir.Undefined), _integers(*places)
    )


def _spread(context: Any, builder: Any, value: Any, given: Any, pack: Pack) -> Any:
    """A number in all places; a pack as it is."""
    if isinstance(given, Pack):
        return value
    number = context.cast(builder, value, given, pack.dtype)
    one = builder.insert_element(
        ir.Constant(pack.vector, ir.Undefined), number, ir.Constant(ir.IntType(32), 0)
    )
    return _shuffled(builder, one, *[0] * pack.vector.count)


def _before(builder: Any, count: Any, places: int) -> Any:
    """Mask of the places before ``count``, a 64-bit integer."""
    integers = ir.VectorType(ir.IntType(64), places)
    one = builder.insert_element(
        ir.Constant(integers, ir.Undefined), count, ir.Constant(ir.IntType(32), 0)
    )
    here = ir.Constant(integers, list(range(places)))
    return builder.icmp_signed("<", here, _shuffled(builder, one, *[0] * places))


def _address(context: Any, builder: Any, array: Any, given: Any, i: Any, vector: Any) -> Any:
    data = context.make_array(given)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [i]), vector.as_pointer())


def _length(context: Any, builder: Any, array: Any, given: Any) -> Any:
    return builder.extract_value(context.make_array(given)(context, builder, array).shape, 0)


def _intrinsic(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    kind = ir.FunctionType(result, [a.type for a in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def _halved(builder: Any, vector: Any, join: Any) -> Any:
    """Upper half joined with lower half until one number is left."""
    count = vector.type.count
    while count > 1:
        count //= 2
        lower = _shuffled(builder, vector, *range(count))
        upper = _shuffled(builder, vector, *range(count, 2 * count))
        vector = join(lower, upper)
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _register_arithmetic(operation: Any, instruction: str) -> None:
    def result(a: Any, b: Any) -> Any:
        if isinstance(a, Pack) and isinstance(b, Pack | types.Float):
            return a
        return b if isinstance(b, Pack) and isinstance(a, types.Float) else None

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        sides = [
            _spread(context, builder, a, given, sig.return_type)
            for a, given in zip(args, sig.args, strict=True)
        ]
        return getattr(builder, instruction)(*sides)

    type_callable(operation)(lambda context: result)
    for kinds in ((Pack, Pack), (Pack, types.Float), (types.Float, Pack)):
        lower_builtin(operation, *kinds)(lower)


_register_arithmetic(operator.add, "fadd")
_register_arithmetic(operator.sub, "fsub")
_register_arithmetic(operator.mul, "fmul")


@_in_kernels(zeros, DOUBLES, DOUBLES)
def _zeros(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return ir.Constant(DOUBLES.vector, [0.0] * EIGHT)


def _portions(count: int) -> list[tuple[int, int]]:
    """``count`` below 16 as a sum of 8, 4, 2 and 1: where each begins and ends."""
    ends = [(count & -portion, portion) for portion in (8, 4, 2, 1) if count & portion]
    return [(end - portion, end) for end, portion in ends]


def _by_count(builder: Any, left: Any, act: Callable[[int], Any]) -> list[tuple[Any, Any]]:
    """``act(left)`` where it is from 0 to 8, else the nearer: what each returns, and its block."""
    left = builder.select(builder.icmp_signed("<", left, left.type(0)), left.type(0), left)
    end, results = builder.append_basic_block("end"), []
    branches = builder.switch(left, builder.append_basic_block("whole"))
    for count in range(EIGHT + 1):
        if count < EIGHT:
            block = builder.append_basic_block(f"part{count}")
            branches.add_case(left.type(count), block)
        else:
            block = branches.default
        builder.position_at_end(block)
        results.append((act(count), builder.block))
        builder.branch(end)
    builder.position_at_end(end)
    return results


@_in_kernels(up_to_eight, DOUBLES, DOUBLES, types.Array, types.Integer)
def _up_to_eight(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    array, i = args
    nothing = ir.Constant(DOUBLES.vector, [0.0] * EIGHT)
    left = builder.sub(_length(context, builder, array, sig.args[0]), i)
    if MASKED_LOADS:
        address = _address(context, builder, array, sig.args[0], i, DOUBLES.vector)
        mask = _before(builder, left, EIGHT)
        arguments = [address, ir.Constant(ir.IntType(32), 8), mask, nothing]
        return _intrinsic(builder, "llvm.masked.load.v8f64.p0", DOUBLES.vector, arguments)

    def load(count: int) -> Any:
        pack = nothing
        for begin, end in _portions(count):
            part = ir.VectorType(ir.DoubleType(), end - begin)
            place = builder.add(i, ir.Constant(i.type, begin))
            address = _address(context, builder, array, sig.args[0], place, part)
            numbers = builder.load(address, align=8)
            spread = _shuffled(builder, numbers, *(k % (end - begin) for k in range(EIGHT)))
            here = _integers(*(k + EIGHT if begin <= k < end else k for k in range(EIGHT)))
            pack = builder.shuffle_vector(pack, spread, here)
        return pack

    results = _by_count(builder, left, load)
    pack = builder.phi(DOUBLES.vector)
    for value, block in results:
        pack.add_incoming(value, block)
    return pack


@_in_kernels(put_up_to_eight, DOUBLES, types.none, types.Array, types.Integer, Pack)
def _put_up_to_eight(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Never by a mask: such a store is slow, and so is reading back what it stored."""
    array, i, pack = args

    def store(count: int) -> None:
        for begin, end in _portions(count):
            numbers = _shuffled(builder, pack, *range(begin, end))
            place = builder.add(i, ir.Constant(i.type, begin))
            address = _address(context, builder, array, sig.args[0], place, numbers.type)
            builder.store(numbers, address, align=8)

    left = builder.sub(_length(context, builder, array, sig.args[0]), i)
    _by_count(builder, left, store)
    return context.get_dummy_value()


@_in_kernels(total, DOUBLES, types.float64, Pack)
def _total(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return _halved(builder, args[0], builder.fadd)


def _register_memory(load: Any, store: Any, pack: Pack, align: int) -> None:
    @_in_kernels(load, pack, pack, types.Array, types.Integer)
    def lower_load(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _address(context, builder, args[0], sig.args[0], args[1], pack.vector)
        return builder.load(address, align=align)

    @_in_kernels(store, pack, types.none, types.Array, types.Integer, Pack)
    def lower_store(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _address(context, builder, args[0], sig.args[0], args[1], pack.vector)
        builder.store(args[2], address, align=align)
        return context.get_dummy_value()


_register_memory(eight, put_eight, DOUBLES, 8)
_register_memory(sixteen, put_sixteen, FLOATS, 4)


@_in_kernels(fused, FLOATS, FLOATS, Pack, types.Any, Pack)
def _fused(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    arguments = [
        _spread(context, builder, a, given, FLOATS) for a, given in zip(args, sig.args, strict=True)
    ]
    return _intrinsic(builder, "llvm.fmuladd.v16f32", FLOATS.vector, arguments)


@_in_kernels(only, FLOATS, FLOATS, Pack, types.Integer, types.Float)
def _only(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    other = _spread(context, builder, args[2], sig.args[2], FLOATS)
    return builder.select(_before(builder, args[1], SIXTEEN), args[0], other)


@_in_kernels(larger, FLOATS, FLOATS, Pack, Pack)
def _larger_of(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return _larger(builder, *args)


@_in_kernels(largest, FLOATS, types.float32, Pack)
def _largest(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return _halved(builder, args[0], lambda a, b: _larger(builder, a, b))


def _reaching(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """One bit for each place, in a 64-bit integer."""
    level = _spread(context, builder, args[1], sig.args[1], FLOATS)
    hits = builder.bitcast(builder.fcmp_ordered(">=", args[0], level), ir.IntType(SIXTEEN))
    return builder.zext(hits, ir.IntType(64))


@_in_kernels(count_reaching, FLOATS, types.int64, Pack, types.Float)
def _count_reaching(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return builder.ctpop(_reaching(context, builder, sig, args))


@_in_kernels(first_reaching, FLOATS, types.int64, Pack, types.Float)
def _first_reaching(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    end = ir.Constant(ir.IntType(64), 1 << SIXTEEN)
    hits = builder.or_(_reaching(context, builder, sig, args), end)
    return builder.cttz(hits, ir.Constant(ir.IntType(1), 1))
