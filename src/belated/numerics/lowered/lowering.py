"""Functions that a kernel calls and that are written in the compiler's own terms.

For the few loops that most of the time is spent in, where what a compiler makes of a loop in Python
is not what the machine can do. Such a function has a twin in NumPy, under whose name it is called;
the two agree bit for bit (``bound_all``, in single precision, to its rounding).
"""

from collections.abc import Callable
from inspect import signature
from typing import Any, NamedTuple, TypeVar

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import lower_builtin, type_callable

F = TypeVar("F", bound=Callable[..., Any])

DOUBLE, FLOAT, INT = ir.DoubleType(), ir.FloatType(), ir.IntType(64)
VECTOR, MATRIX = types.float64[::1], types.float64[:, ::1]  # contiguous
COARSE, COARSE_ROW = types.float32[:, ::1], types.float32[::1]


def has_feature(name: str) -> bool:
    """Whether this machine has a set of instructions. If not known: no."""
    try:
        return bool(get_host_cpu_features().get(name))
    except RuntimeError:
        return False


MASKED_LOADS = has_feature("avx")  # part of a pack in one instruction


class Array(NamedTuple):
    """Where the numbers of an array are, and how many along each axis."""

    data: Any
    shape: tuple[Any, ...]


def called_kernel(twin: Any, result: Any, *kinds: Any) -> Callable[[F], F]:
    """Decorator: how a kernel does ``twin``, given a builder and the arguments.

    Kinds are Numba's types of the arguments; what is an array comes as an ``Array``.
    """

    def fits(given: Any, kind: Any) -> bool:
        if not isinstance(kind, types.Array):
            return bool(types.unliteral(given) == kind)
        return isinstance(given, types.Array) and (
            (given.dtype, given.ndim, given.layout) == (kind.dtype, kind.ndim, kind.layout)
        )

    def typed(*given: Any) -> Any:
        for name, array, kind in zip(signature(twin).parameters, given, kinds, strict=True):
            if isinstance(kind, types.Array) and getattr(array, "layout", "C") != kind.layout:
                raise TypeError(
                    f"{twin.__name__}: {name} is not contiguous (a column, a slice with a step or "
                    f"a transpose): pass {name}.copy()"
                )
        return result if all(map(fits, given, kinds)) else None

    def register(build: F) -> F:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            arguments = []
            for value, given, kind in zip(args, sig.args, kinds, strict=True):
                if isinstance(kind, types.Array):
                    array = context.make_array(given)(context, builder, value)
                    shape = tuple(builder.extract_value(array.shape, i) for i in range(kind.ndim))
                    value = Array(array.data, shape)
                arguments.append(value)
            value = build(builder, *arguments)
            return context.get_dummy_value() if result == types.none else value

        typed.__signature__ = signature(twin)  # type: ignore[attr-defined]
        type_callable(twin)(lambda context: typed)
        lower_builtin(twin, *(type(kind) for kind in kinds))(lower)
        return build

    return register


def call(
    builder: Any, name: str, result: Any, arguments: list[Any], build: Callable[..., None]
) -> Any:
    """Call a function that is built where the module has none, and not copied into its callers."""
    name += ".masked" if MASKED_LOADS else ""  # of one name only one is ever linked
    function = builder.module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        function = ir.Function(builder.module, kind, name)
        function.linkage = "linkonce_odr"
        function.attributes.add("noinline")
        build(ir.IRBuilder(function.append_basic_block()), *function.args)
    return builder.call(function, arguments)


def shuffled(builder: Any, pack: Any, *places: int) -> Any:
    """The numbers of ``pack`` in these places."""
    chosen = ir.Constant(ir.VectorType(ir.IntType(32), len(places)), list(places))
    return builder.shuffle_vector(pack, ir.Constant(pack.type, ir.Undefined), chosen)


def spread(builder: Any, number: Any, width: int) -> Any:
    """``number`` in all of ``width`` places; itself, where that is one."""
    if width == 1:
        return number
    vector = ir.VectorType(number.type, width)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.IntType(32)(0))
    return shuffled(builder, one, *[0] * width)


def halved(builder: Any, pack: Any, join: Callable[[Any, Any], Any]) -> Any:
    """Lower half joined with upper half until one number is left."""
    width = getattr(pack.type, "count", 1)
    if width == 1:
        return pack
    while width > 1:
        width //= 2
        lower = shuffled(builder, pack, *range(width))
        pack = join(lower, shuffled(builder, pack, *range(width, 2 * width)))
    return builder.extract_element(pack, ir.IntType(32)(0))


def load(builder: Any, pointer: Any, index: Any, width: int) -> Any:
    """``width`` numbers from ``pointer[index]`` on."""
    address, number = builder.gep(pointer, [index]), pointer.type.pointee
    if width == 1:
        return builder.load(address)
    vector = ir.VectorType(number, width)
    return builder.load(builder.bitcast(address, vector.as_pointer()), align=_size(number))


def load_up_to(builder: Any, pointer: Any, index: Any, left: Any) -> Any:
    """Eight doubles, with zeros in place of all but the first ``left``."""
    vector = ir.VectorType(DOUBLE, 8)
    zeros = ir.Constant(vector, [0.0] * 8)
    if MASKED_LOADS:
        here = ir.Constant(ir.VectorType(INT, 8), list(range(8)))
        mask = builder.icmp_signed("<", here, spread(builder, left, 8))
        address = builder.bitcast(builder.gep(pointer, [index]), vector.as_pointer())
        arguments = [address, ir.IntType(32)(8), mask, zeros]
        kind = ir.FunctionType(vector, [argument.type for argument in arguments])
        name = "llvm.masked.load.v8f64.p0"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)
    pack = cgutils.alloca_once_value(builder, zeros)
    numbers, place = builder.bitcast(pack, DOUBLE.as_pointer()), cgutils.alloca_once(builder, INT)
    builder.store(INT(0), place)
    for width in (8, 4, 2, 1):
        at = builder.load(place)
        with builder.if_then(builder.icmp_signed(">=", builder.sub(left, at), INT(width))):
            some = load(builder, pointer, builder.add(index, at), width)
            store(builder, some, numbers, at)
            builder.store(builder.add(at, INT(width)), place)
        if width == 8:  # no more than eight
            at = builder.load(place)
            left = builder.select(builder.icmp_signed("==", at, INT(8)), INT(8), left)
    return builder.load(pack)


def store(builder: Any, pack: Any, pointer: Any, index: Any) -> None:
    """``pointer[index]`` and those after it become ``pack``."""
    address = builder.bitcast(builder.gep(pointer, [index]), pack.type.as_pointer())
    builder.store(pack, address, align=_size(pointer.type.pointee))


def store_up_to(builder: Any, pack: Any, pointer: Any, index: Any, left: Any) -> None:
    """The first ``left`` of eight doubles, less than all, by fours, twos and ones.

    Not by a mask: such a store is slow, and so is reading back what it stored.
    """
    place = cgutils.alloca_once_value(builder, index)
    rest = cgutils.alloca_once_value(builder, pack)
    for width in (4, 2, 1):
        with builder.if_then(builder.icmp_signed("!=", builder.and_(left, INT(width)), INT(0))):
            now, at = builder.load(rest), builder.load(place)
            first = shuffled(builder, now, *range(width))
            if width == 1:
                first = builder.extract_element(first, ir.IntType(32)(0))
            store(builder, first, pointer, at)
            builder.store(shuffled(builder, now, *((k + width) % 8 for k in range(8))), rest)
            builder.store(builder.add(at, INT(width)), place)


def _size(number: Any) -> int:
    return 8 if number == DOUBLE else 4


def multiplied_and_added(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """``a b + c`` of sixteen floats, rounded once where the machine does so."""
    kind = ir.FunctionType(c.type, [c.type] * 3)
    fused = cgutils.get_or_insert_function(builder.module, kind, "llvm.fmuladd.v16f32")
    return builder.call(fused, [a, b, c])
