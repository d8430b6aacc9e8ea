"""Tools that the builders share: packs of numbers, loaded, stored and rearranged.

Pointers have no type of their own: every access says what it reads or writes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features, parse_assembly
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target

DOUBLE, FLOAT, INT = ir.DoubleType(), ir.FloatType(), ir.IntType(64)
NOTHING = ir.VoidType()


def has_feature(name: str) -> bool:
    """Returns whether this machine has a set of instructions; False where that is not known."""
    try:
        return bool(get_host_cpu_features().get(name))
    except RuntimeError:
        return False


MASKED_LOADS = has_feature("avx")  # part of a pack in one instruction


class Array(NamedTuple):
    """The address of the numbers of an array, and their count along each axis."""

    data: Any
    shape: tuple[Any, ...]


class Variable:
    """A number or a pack that changes; the compiler keeps it in a register."""

    def __init__(self, builder: Any, value: Any) -> None:
        self._builder, self._kind = builder, value.type
        self._place = cgutils.alloca_once_value(builder, value)

    def get(self) -> Any:
        """Returns the present value."""
        return self._builder.load(self._place, typ=self._kind)

    def set(self, value: Any) -> None:
        """Change it."""
        self._builder.store(value, self._place)


def lower(build: Callable[..., Any], context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Has ``build`` build a call of this signature in a kernel; it is given arrays as ``Array``."""
    arguments = []
    for value, kind in zip(args, sig.args, strict=True):
        if isinstance(kind, types.Array):
            array = context.make_array(kind)(context, builder, value)
            shape = tuple(builder.extract_value(array.shape, i) for i in range(kind.ndim))
            value = Array(array.data, shape)
        arguments.append(value)
    value = build(builder, *arguments)
    return context.get_dummy_value() if sig.return_type == types.none else value


def try_out(lower: Callable[..., Any], sig: Any) -> None:
    """Raises where a call of this signature cannot be built, or LLVM refuses the code."""
    context, module = cpu_target.target_context, ir.Module()
    kinds = [context.get_value_type(kind) for kind in sig.args]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), "try_out")
    builder = ir.IRBuilder(function.append_basic_block())
    lower(context, builder, sig, function.args)
    builder.ret_void()
    parse_assembly(str(module)).verify()


def called(
    name: str, result: Any, build: Callable[..., None], numbers: Callable[..., list[Any]]
) -> Callable[..., Any]:
    """Returns a builder of calls to a function, which is built once per module and never copied.

    ``numbers`` says which numbers of the arguments are handed over.
    """

    def builds(builder: Any, *arguments: Any) -> Any:
        given = numbers(*arguments)
        # of several functions with one name only one is ever linked
        full = f"belated.{name}.masked" if MASKED_LOADS else f"belated.{name}"
        function = builder.module.globals.get(full)
        if function is None:
            kinds = [ir.PointerType() if value.type.is_pointer else value.type for value in given]
            function = ir.Function(builder.module, ir.FunctionType(result, kinds), full)
            function.linkage = "linkonce_odr"
            function.attributes.add("noinline")
            build(ir.IRBuilder(function.append_basic_block()), *function.args)
        return builder.call(function, given)

    return builds


def shuffled(builder: Any, pack: Any, *places: int) -> Any:
    """Returns the numbers of ``pack`` in these places."""
    chosen = ir.Constant(ir.VectorType(ir.IntType(32), len(places)), list(places))
    return builder.shuffle_vector(pack, ir.Constant(pack.type, ir.Undefined), chosen)


def spread(builder: Any, number: Any, width: int) -> Any:
    """Returns ``number`` in all of ``width`` places; the number itself where ``width`` is 1."""
    if width == 1:
        return number
    vector = ir.VectorType(number.type, width)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.IntType(32)(0))
    return shuffled(builder, one, *[0] * width)


def halved(builder: Any, pack: Any, join: Callable[[Any, Any], Any]) -> Any:
    """Joins the lower half with the upper half until one number is left, and returns that."""
    width = getattr(pack.type, "count", 1)
    if width == 1:
        return pack
    while width > 1:
        width //= 2
        lower = shuffled(builder, pack, *range(width))
        pack = join(lower, shuffled(builder, pack, *range(width, 2 * width)))
    return builder.extract_element(pack, ir.IntType(32)(0))


def at(builder: Any, pointer: Any, index: Any, kind: Any = DOUBLE) -> Any:
    """Returns the address of number ``index`` of those at ``pointer``."""
    return builder.gep(pointer, [index], source_etype=kind)


def load(builder: Any, pointer: Any, index: Any, width: int, kind: Any = DOUBLE) -> Any:
    """Loads ``width`` numbers from ``pointer[index]`` on."""
    address = at(builder, pointer, index, kind)
    if width == 1:
        return builder.load(address, typ=kind)
    return builder.load(address, align=_size(kind), typ=ir.VectorType(kind, width))


def load_up_to(builder: Any, pointer: Any, index: Any, left: Any) -> Any:
    """Loads eight doubles, with zeros in place of all but the first ``left``."""
    vector = ir.VectorType(DOUBLE, 8)
    zeros = ir.Constant(vector, [0.0] * 8)
    if MASKED_LOADS:
        here = ir.Constant(ir.VectorType(INT, 8), list(range(8)))
        mask = builder.icmp_signed("<", here, spread(builder, left, 8))
        arguments = [at(builder, pointer, index), ir.IntType(32)(8), mask, zeros]
        kind = ir.FunctionType(vector, [ir.PointerType(), *(a.type for a in arguments[1:])])
        name = "llvm.masked.load.v8f64.p0"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)
    for sign, limit in ((">", INT(8)), ("<", INT(0))):
        left = builder.select(builder.icmp_signed(sign, left, limit), limit, left)
    # the last one, the two before it, the four before those: each is put in front
    pack, place = Variable(builder, zeros), Variable(builder, builder.add(index, left))
    for width in (1, 2, 4, 8):
        with builder.if_then(builder.icmp_signed("!=", builder.and_(left, INT(width)), INT(0))):
            place.set(builder.sub(place.get(), INT(width)))
            some = load(builder, pointer, place.get(), width)
            if width > 1:
                some = shuffled(builder, some, *(k % width for k in range(8)))
            else:
                some = spread(builder, some, 8)
            order = [*range(width), *range(8, 16 - width)]
            chosen = ir.Constant(ir.VectorType(ir.IntType(32), 8), order)
            pack.set(builder.shuffle_vector(some, pack.get(), chosen))
    return pack.get()


def store(builder: Any, pack: Any, pointer: Any, index: Any) -> None:
    """Stores ``pack`` at ``pointer[index]`` and the places after it."""
    kind = getattr(pack.type, "element", pack.type)
    builder.store(pack, at(builder, pointer, index, kind), align=_size(kind))


def store_up_to(builder: Any, pack: Any, pointer: Any, index: Any, left: Any) -> None:
    """Stores the first ``left`` of eight doubles, fewer than all, by fours, twos and ones.

    A store with a mask would be slow, and so would reading back what it stored.
    """
    place, rest = Variable(builder, index), Variable(builder, pack)
    for width in (4, 2, 1):
        with builder.if_then(builder.icmp_signed("!=", builder.and_(left, INT(width)), INT(0))):
            first = shuffled(builder, rest.get(), *range(width))
            if width == 1:
                first = builder.extract_element(first, ir.IntType(32)(0))
            store(builder, first, pointer, place.get())
            rest.set(shuffled(builder, rest.get(), *((k + width) % 8 for k in range(8))))
            place.set(builder.add(place.get(), INT(width)))


def _size(number: Any) -> int:
    return 8 if number == DOUBLE else 4


def multiplied_and_added(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """``a b + c`` of sixteen floats, rounded once where the machine does so."""
    kind = ir.FunctionType(c.type, [c.type] * 3)
    fused = cgutils.get_or_insert_function(builder.module, kind, "llvm.fmuladd.v16f32")
    return builder.call(fused, [a, b, c])
