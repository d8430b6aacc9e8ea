"""Packs: what they do in plain Python, and that kernels do the same."""

from inspect import signature

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError

from belated.core import packs
from belated.core.packs import (
    EIGHT,
    SIXTEEN,
    eight,
    how_many,
    larger,
    largest,
    lowest,
    only,
    put_eight,
    put_sixteen,
    put_up_to_eight,
    reaching,
    sixteen,
    total,
    up_to_eight,
    zeros,
)


def arithmetic(a, b, out, number):
    put_eight(out, 0, (eight(a, 0) * number - eight(b, 0)) * eight(a, 0) + (zeros() - number))


def part(a, b, out, number):
    put_up_to_eight(out, 1, up_to_eight(a, 1) * number + up_to_eight(b, 1))


def beyond(a, b, out, number):
    """Nothing is left there, but zeros."""
    out[0] = total(up_to_eight(a, 50) + number)
    put_up_to_eight(out, 50, up_to_eight(a, 0))


def sums(a, b, out, number):
    out[0] = total(up_to_eight(a, 0) * number)


def test_in_plain_python():
    a, b, out = np.arange(1.0, 12.0), np.full(11, 2.0), np.zeros(11)
    arithmetic(a, b, out, 3.0)
    assert np.array_equal(out, [*((3 * k - 2) * k - 3 for k in range(1, 9)), 0, 0, 0])
    out[:] = -1.0
    part(a[:4], b[:4], out[:4], 3.0)
    assert np.array_equal(out[:5], [-1, 8, 11, 14, -1])
    beyond(a, b, out, 2.0)
    assert out[0] == 16.0
    sums(a[:3], b, out, 2.0)
    assert out[0] == 12.0
    # halves on halves, not from left to right
    big = np.array([1e16, 1.0, 0.0, 0.0, -1e16, 1.0, 0.0, 0.0])
    assert total(big) == 2.0


def test_a_pack_is_a_copy():
    a, b = np.arange(8.0), np.arange(16.0, dtype=np.float32)
    for pack, source in ((eight(a, 0), a), (up_to_eight(a, 0), a), (sixteen(b, 0), b)):
        pack += 1.0
        assert source[0] == 0.0


def test_sixteen_in_plain_python():
    a = np.arange(16.0, dtype=np.float32)
    out = np.zeros(17, np.float32)
    put_sixteen(out, 1, larger(sixteen(a, 0), sixteen(a[::-1], 0)))
    assert np.array_equal(out[1:], np.maximum(a, a[::-1]))
    assert largest(a) == 15.0
    assert np.array_equal(only(a, 3, np.float32(-1.0)), [0, 1, 2] + [-1] * 13)
    assert np.array_equal(only(a, 16, np.float32(-1.0)), a)
    assert np.array_equal(only(a, -4, np.float32(-1.0)), [-1] * 16)
    assert reaching(a, np.float32(12.0)) == 0xF000
    assert reaching(a, np.float32(99.0)) == 0
    assert (how_many(0), how_many(0b1010), how_many(0xFFFF)) == (0, 2, SIXTEEN)
    assert (lowest(1), lowest(0b1010), lowest(0x8000)) == (0, 1, 15)


def floats(a, b, out, number):
    pack = sixteen(a, 1)
    put_sixteen(out, 0, larger(pack * number, sixteen(b, 0) - pack) + number)
    out[16] = largest(pack)
    bits = reaching(pack, number)
    out[17] = bits
    out[18] = how_many(bits)
    out[19] = lowest(bits | 0x8000)
    out[20] = reaching(pack, np.float32(1e9))


def cut(a, b, out, number):
    for count in range(-1, 18):
        put_sixteen(out, 16 * (count + 1), only(sixteen(a, 0), count, number))


def both(function, dtype, length, room):
    """What plain Python and a kernel leave in ``out``, which is longer than they should write."""
    rng = np.random.default_rng(length)
    a, b = (rng.standard_normal(length).astype(dtype) for _ in range(2))
    results = []
    for run in (function, njit(function)):
        out = np.full(room + 24, 7.0, dtype)
        run(a, b, out[:room], dtype(0.7))
        assert np.all(out[room:] == 7.0)
        results.append(out)
    return results


@pytest.mark.compiled
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("function", [part, beyond, sums], ids=lambda f: f.__name__)
def test_kernels_do_the_same_with_a_part(function, masked, monkeypatch):
    """At every length, with and without an instruction for it."""
    monkeypatch.setattr(packs, "MASKED_LOADS", masked)
    for length in range(1, 2 * EIGHT + 2):
        plain, fast = both(function, np.float64, length, length)
        assert np.array_equal(plain, fast), length


@pytest.mark.compiled
def test_arrays_that_do_not_lie_as_packs_do_are_refused():
    """They would be read wrongly: every second number, single precision."""
    load = njit(lambda a: total(up_to_eight(a, 0)))
    assert load(np.arange(4.0)) == 6.0
    for array in (np.arange(8.0)[::2], np.arange(4.0, dtype=np.float32), np.ones((2, 2))):
        with pytest.raises(TypingError):
            load(array)


@pytest.mark.compiled
def test_kernels_do_the_same_with_all():
    for function, dtype, length, room in (
        (arithmetic, np.float64, EIGHT, EIGHT),
        (floats, np.float32, SIXTEEN + 1, 21),
        (cut, np.float32, SIXTEEN, 19 * SIXTEEN),
    ):
        plain, fast = both(function, dtype, length, room)
        assert np.array_equal(plain, fast), function


def test_every_function_here_has_a_kernel_form():
    """None is left to plain Python alone."""
    from numba.core.typing.templates import builtin_registry

    known = {key for key, _ in builtin_registry.globals}
    for name, function in vars(packs).items():
        if getattr(function, "__module__", "") == packs.__name__ and name[0].islower():
            assert function in known, (name, signature(function))
