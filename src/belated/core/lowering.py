"""Functions that a kernel calls and that are written in the compiler's own terms.

For the few loops that most of the time is spent in, where what a compiler makes of a loop in Python
is not what the machine can do. Such a function has a twin in NumPy, under whose name it is called;
the two agree bit for bit.
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
COARSE = types.float32[:, ::1]


def has_feature(name: str) -> bool:
    """Whether this machine has a set of instructions. If not known: no."""
    try:
        return bool(get_host_cpu_features().get(name))
    except RuntimeError:
        return False


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
            return bool(given == kind)
        return isinstance(given, types.Array) and (
            (given.dtype, given.ndim, given.layout) == (kind.dtype, kind.ndim, kind.layout)
        )

    def typed(*given: Any) -> Any:
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


def load_up_to(builder: Any, pointer: Any, index: Any, width: int, left: Any) -> Any:
    """The same of doubles, with zeros in place of all but the first ``left``."""
    vector = ir.VectorType(DOUBLE, width)
    here = ir.Constant(ir.VectorType(INT, width), list(range(width)))
    mask = builder.icmp_signed("<", here, spread(builder, left, width))
    address = builder.bitcast(builder.gep(pointer, [index]), vector.as_pointer())
    zeros = ir.Constant(vector, [0.0] * width)
    arguments = [address, ir.IntType(32)(8), mask, zeros]
    kind = ir.FunctionType(vector, [argument.type for argument in arguments])
    name = f"llvm.masked.load.v{width}f64.p0"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def store(builder: Any, pack: Any, pointer: Any, index: Any) -> None:
    """``pointer[index]`` and those after it become ``pack``."""
    address = builder.bitcast(builder.gep(pointer, [index]), pack.type.as_pointer())
    builder.store(pack, address, align=_size(pointer.type.pointee))


def store_up_to(builder: Any, pack: Any, pointer: Any, index: Any, left: Any) -> None:
    """The same of a part: of less than eight doubles the first ``left``, by fours, twos and ones.

    Not by a mask: such a store is slow, and so is reading back what it stored.
    """
    wide = pack.type.count
    place = cgutils.alloca_once_value(builder, index)
    rest = cgutils.alloca_once_value(builder, pack)
    while wide > 1:
        wide //= 2
        with builder.if_then(builder.icmp_signed("!=", builder.and_(left, INT(wide)), INT(0))):
            now, at = builder.load(rest), builder.load(place)
            first = shuffled(builder, now, *range(wide))
            if wide == 1:
                first = builder.extract_element(first, ir.IntType(32)(0))
            store(builder, first, pointer, at)
            count = pack.type.count
            builder.store(shuffled(builder, now, *((k + wide) % count for k in range(count))), rest)
            builder.store(builder.add(at, INT(wide)), place)


def _size(number: Any) -> int:
    return 8 if number == DOUBLE else 4


def multiplied_and_added(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """``a b + c`` of sixteen floats, rounded once where the machine does so."""
    kind = ir.FunctionType(c.type, [c.type] * 3)
    fused = cgutils.get_or_insert_function(builder.module, kind, "llvm.fmuladd.v16f32")
    return builder.call(fused, [a, b, c])
