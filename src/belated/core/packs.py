"""Eight doubles, or sixteen floats, at a time.

Loops over vectors of five or twenty numbers are too short for a compiler to vectorise well: what it
makes is for hundreds, and at these lengths only its odd ends run. Here a kernel says itself what is
done at once. In plain Python a pack is a NumPy array and the functions below are what they say; in
a kernel each becomes an instruction or a few. Results agree bit for bit.

Packs live in kernels only: between them travel arrays.
"""

import operator
from collections.abc import Callable
from inspect import signature
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import lower_builtin, models, register_model, type_callable

from belated.core.lowering import INT, halved, has_feature, shuffled, spread
from belated.core.types import Coarse, Vector

F = TypeVar("F", bound=Callable[..., Any])

EIGHT, SIXTEEN = 8, 16


MASKED_LOADS = has_feature("avx")  # part of a pack in one instruction


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


def reaching(pack: Any, level: np.float32) -> int:
    """Which of sixteen are ``level`` or more: one bit each, that of the first the lowest."""
    return int(np.packbits(pack >= level, bitorder="little").view(np.uint16)[0])


def how_many(bits: int) -> int:
    """Bits that are set."""
    return bits.bit_count()


def lowest(bits: int) -> int:
    """Place of the lowest bit that is set; one is."""
    return (bits & -bits).bit_length() - 1


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


def _spread(context: Any, builder: Any, value: Any, given: Any, pack: Pack) -> Any:
    """A number in all places; a pack as it is."""
    if isinstance(given, Pack):
        return value
    return spread(builder, context.cast(builder, value, given, pack.dtype), pack.vector.count)


def _before(builder: Any, count: Any, places: int) -> Any:
    """Mask of the places before ``count``, a 64-bit integer."""
    here = ir.Constant(ir.VectorType(INT, places), list(range(places)))
    return builder.icmp_signed("<", here, spread(builder, count, places))


def _address(context: Any, builder: Any, array: Any, given: Any, i: Any, vector: Any) -> Any:
    data = context.make_array(given)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [i]), vector.as_pointer())


def _length(context: Any, builder: Any, array: Any, given: Any) -> Any:
    return builder.extract_value(context.make_array(given)(context, builder, array).shape, 0)


def _intrinsic(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    kind = ir.FunctionType(result, [a.type for a in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


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
            wide = shuffled(builder, numbers, *(k % (end - begin) for k in range(EIGHT)))
            here = [k + EIGHT if begin <= k < end else k for k in range(EIGHT)]
            places = ir.Constant(ir.VectorType(ir.IntType(32), EIGHT), here)
            pack = builder.shuffle_vector(pack, wide, places)
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
            numbers = shuffled(builder, pack, *range(begin, end))
            place = builder.add(i, ir.Constant(i.type, begin))
            address = _address(context, builder, array, sig.args[0], place, numbers.type)
            builder.store(numbers, address, align=8)

    left = builder.sub(_length(context, builder, array, sig.args[0]), i)
    _by_count(builder, left, store)
    return context.get_dummy_value()


@_in_kernels(total, DOUBLES, types.float64, Pack)
def _total(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return halved(builder, args[0], builder.fadd)


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


@_in_kernels(only, FLOATS, FLOATS, Pack, types.Integer, types.Float)
def _only(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    other = _spread(context, builder, args[2], sig.args[2], FLOATS)
    return builder.select(_before(builder, args[1], SIXTEEN), args[0], other)


@_in_kernels(larger, FLOATS, FLOATS, Pack, Pack)
def _larger_of(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return _larger(builder, *args)


@_in_kernels(largest, FLOATS, types.float32, Pack)
def _largest(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return halved(builder, args[0], lambda a, b: _larger(builder, a, b))


@_in_kernels(reaching, FLOATS, types.int64, Pack, types.Float)
def _reaching(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    level = _spread(context, builder, args[1], sig.args[1], FLOATS)
    hits = builder.bitcast(builder.fcmp_ordered(">=", args[0], level), ir.IntType(SIXTEEN))
    return builder.zext(hits, INT)


@_in_kernels(how_many, FLOATS, types.int64, types.Integer)
def _how_many(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return builder.ctpop(args[0])


@_in_kernels(lowest, FLOATS, types.int64, types.Integer)
def _lowest(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))
