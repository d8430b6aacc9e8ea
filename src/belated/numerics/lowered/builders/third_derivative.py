"""The third derivative of F, packed as in ``lowered/third_derivative.py``."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from belated.numerics.lowered.builders.lowering import (
    DOUBLE,
    INT,
    NOTHING,
    Variable,
    at,
    called,
    halved,
    load,
    load_up_to,
    spread,
    store,
)

EIGHT = 8  # doubles in a pack
BATCH = 8  # rewards that are added at once


def _build_pairs(builder: Any, x: Any, pairs: Any, d: Any) -> None:
    place = Variable(builder, INT(0))

    def some(packs: Any, number: Any, start: Any) -> None:
        for k, pack in enumerate(packs):
            product = builder.fmul(pack, spread(builder, number, EIGHT))
            store(builder, product, pairs, builder.add(start, INT(EIGHT * k)))

    def begin(i: Any) -> tuple[Any, Any]:
        """Returns x_i and where its pairs begin."""
        start = place.get()
        place.set(builder.add(start, builder.add(i, INT(1))))
        return load(builder, x, i, 1), start

    kept = []  # the first packs of x stay in registers
    for count in (1, 2, 3):
        start, end = INT(EIGHT * (count - 1)), INT(EIGHT * count)
        kept.append(load_up_to(builder, x, start, builder.sub(d, start)))
        end = builder.select(builder.icmp_signed("<", end, d), end, d)
        with cgutils.for_range_slice(builder, start, end, INT(1), INT) as (i, _):
            some(kept, *begin(i))
    with cgutils.for_range_slice(builder, INT(3 * EIGHT), d, INT(1), INT) as (i, _):
        number, begun = begin(i)
        end = builder.add(i, INT(1))
        with cgutils.for_range_slice(builder, INT(0), end, INT(EIGHT), INT) as (j, _):
            pack = load_up_to(builder, x, j, builder.sub(d, j))
            some([pack], number, builder.add(begun, j))
    builder.ret_void()


def _build_sweep(builder: Any, T3: Any, step: Any, out: Any, d: Any, columns: Any) -> None:
    pairs = at(builder, T3, builder.mul(d, columns))
    sums = at(builder, pairs, columns)
    zeros = ir.Constant(ir.VectorType(DOUBLE, EIGHT), [0.0] * EIGHT)
    with cgutils.for_range_slice(builder, INT(0), columns, INT(EIGHT), INT) as (q, _):
        store(builder, zeros, sums, q)
    begun = Variable(builder, INT(0))
    packs = [Variable(builder, zeros) for _ in range(2)]
    with cgutils.for_range(builder, d, intp=INT) as loop:
        row = at(builder, T3, builder.mul(loop.index, columns))
        number = spread(builder, load(builder, step, loop.index, 1), EIGHT)
        smaller = begun.get()  # columns with i < k; those with i = k follow
        end = builder.add(smaller, builder.add(loop.index, INT(1)))
        whole = builder.and_(smaller, INT(-2 * EIGHT))
        for pack in packs:
            pack.set(zeros)

        def take(q: Any, own: Any, others: Any, pack: Any) -> None:
            terms = builder.fmul(own, load(builder, pairs, q, EIGHT))
            pack.set(builder.fadd(pack.get(), terms))
            more = builder.fmul(others, number)
            store(builder, builder.fadd(load(builder, sums, q, EIGHT), more), sums, q)

        with cgutils.for_range_slice(builder, INT(0), whole, INT(2 * EIGHT), INT) as (q, _):
            for k, pack in enumerate(packs):
                place = builder.add(q, INT(EIGHT * k))
                own = load(builder, row, place, EIGHT)
                take(place, own, own, pack)
        with cgutils.for_range_slice(builder, whole, end, INT(2 * EIGHT), INT) as (q, _):
            for k, pack in enumerate(packs):
                place = builder.add(q, INT(EIGHT * k))
                own, others = (
                    load_up_to(builder, row, place, builder.sub(limit, place))
                    for limit in (end, smaller)
                )
                take(place, own, others, pack)
        both = builder.fadd(*(pack.get() for pack in packs))
        store(builder, halved(builder, both, builder.fadd), out, loop.index)
        begun.set(end)
    builder.ret_void()


def _add_weighted(builder: Any, pairs: Any, q: Any, rows: Any, weights: Any) -> None:
    """Adds all ``pairs``, weighted and in their order, to eight columns of each of ``rows``."""
    sums = [load(builder, row, q, EIGHT) for row in rows]
    for b, pair in enumerate(pairs):
        numbers = load(builder, pair, q, EIGHT)
        for r in range(len(rows)):
            sums[r] = builder.fadd(sums[r], builder.fmul(numbers, weights[r][b]))
    for row, numbers in zip(rows, sums, strict=True):
        store(builder, numbers, row, q)


def _build_thirds(builder: Any, x: Any, weights: Any, T3: Any, d: Any, columns: Any) -> None:
    def row(k: Any) -> Any:
        return at(builder, T3, builder.mul(k, columns))

    def weighted(k: Any) -> Any:
        """Returns the weights times the k-th number of their rows."""
        packs = []
        for b in range(BATCH):
            place = builder.add(builder.mul(INT(b), d), k)
            number = builder.fmul(load(builder, weights, INT(b), 1), load(builder, x, place, 1))
            packs.append(spread(builder, number, EIGHT))
        return packs

    def columns_from(start: Any, end: Any, rows: Any, packs: Any) -> None:
        with cgutils.for_range_slice(builder, start, end, INT(EIGHT), INT) as (q, _):
            _add_weighted(builder, pairs, q, rows, packs)

    pairs = [row(builder.add(d, INT(b))) for b in range(BATCH)]
    count = Variable(builder, INT(0))  # pairs of the rows so far
    # two rows at a time: each pair is read once for both
    even = builder.and_(d, INT(-2))
    with cgutils.for_range_slice(builder, INT(0), even, INT(2), INT) as (k, _):
        following = builder.add(k, INT(1))
        end = builder.add(count.get(), following)
        first, second = weighted(k), weighted(following)
        columns_from(INT(0), end, [row(k), row(following)], [first, second])
        whole = builder.and_(builder.add(end, INT(EIGHT - 1)), INT(-EIGHT))
        end = builder.add(end, builder.add(following, INT(1)))
        columns_from(whole, end, [row(following)], [second])
        count.set(end)
    with builder.if_then(builder.icmp_signed("<", even, d)):
        end = builder.add(count.get(), d)
        columns_from(INT(0), end, [row(even)], [weighted(even)])
    builder.ret_void()


def _build_squares(builder: Any, weights: Any, T3: Any, rows: Any, columns: Any) -> None:
    d = builder.sub(rows, INT(BATCH + 1))
    pairs = [at(builder, T3, builder.mul(builder.add(d, INT(b)), columns)) for b in range(BATCH)]
    row = at(builder, T3, builder.mul(builder.add(d, INT(BATCH)), columns))
    packs = [spread(builder, load(builder, weights, INT(b), 1), EIGHT) for b in range(BATCH)]
    count = builder.sdiv(builder.mul(d, builder.add(d, INT(1))), INT(2))
    with cgutils.for_range_slice(builder, INT(0), count, INT(EIGHT), INT) as (q, _):
        _add_weighted(builder, pairs, q, [row], [packs])
    builder.ret_void()


add_thirds = called(
    "thirds",
    NOTHING,
    _build_thirds,
    lambda x, weights, T3: [x.data, weights.data, T3.data, x.shape[1], T3.shape[1]],
)
add_squares = called(
    "squares", NOTHING, _build_squares, lambda weights, T3: [weights.data, T3.data, *T3.shape]
)
multiply_pairs = called(
    "pairs", NOTHING, _build_pairs, lambda x, pairs: [x.data, pairs.data, x.shape[0]]
)
sweep = called(
    "sweep",
    NOTHING,
    _build_sweep,
    lambda T3, step, out: [T3.data, step.data, out.data, step.shape[0], T3.shape[1]],
)
