"""What a new version of Numba or llvmlite may break has a plain twin, and one warning says so."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numba
import numpy as np
import pytest
from llvmlite import binding, ir

import belated
from belated.core.compiler import plain
from belated.core.jit import kernel
from belated.numerics.lowered.builders.lowering import DOUBLE, FLOAT, INT, Array
from belated.numerics.lowered.products import dot

SOURCE = Path(belated.__file__).parent
x = np.arange(1.0, 12.0)


def test_few_import_the_inner_parts_of_numba():
    """What they do can be done without them."""
    importers = {
        file.relative_to(SOURCE).parent.as_posix()
        for file in SOURCE.rglob("*.py")
        if re.search(r"^\s*(from|import) numba\.core", file.read_text(), re.MULTILINE)
    }
    assert importers == {"core/compiler", "numerics/lowered/builders"}


def length(x):
    return dot(x, x)


def refuse():
    raise AttributeError("no attribute 'pointee'")


@pytest.fixture
def compiling(tmp_path, monkeypatch):
    """Compile a kernel as a process that has just started; returns whether it was in the cache."""
    monkeypatch.setenv("BELATED_CACHE_DIR", str(tmp_path))

    def compile_with(*untried, asked=False):
        monkeypatch.setattr(plain, "_plain", asked)
        monkeypatch.setattr(plain, "_untried", list(untried))
        anew = kernel(length)
        assert anew(x) == length(x)
        return sum(anew.stats.cache_hits.values()) == 1

    return compile_with


@pytest.mark.compiled
def test_a_builder_that_fails_is_replaced_by_its_twin_with_one_warning(compiling):
    with pytest.warns(RuntimeWarning, match="no attribute 'pointee'") as caught:
        assert not compiling(refuse, refuse)
    assert len(caught) == 1
    assert f"numba {numba.__version__} with llvmlite" in str(caught[0].message)
    assert "Install a newer belated" in str(caught[0].message)
    assert plain.is_plain()


@pytest.mark.compiled
def test_the_cache_keeps_fast_and_plain_kernels_apart(compiling):
    assert not compiling()
    assert not compiling(asked=True)
    assert compiling()
    assert compiling(asked=True)


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:belated cannot use numba")
def test_a_process_that_falls_back_finds_what_another_one_compiled(compiling):
    assert not compiling(refuse)
    assert compiling(refuse)
    assert not compiling()


PRIVATE_NAME_GONE = """
import warnings
import numba.core.environment
del numba.core.environment.lookup_environment
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from belated.families import Bernoulli
    from belated.core.nested import at, stacked
    from belated.model.protocols import mean
    from belated.numerics.lowered.products import dot
import numpy as np
from belated.core.jit import kernel

@kernel
def check(family, stack, x):
    return mean(family, 0.0) + at(stack, 1)[0] + dot(x, x)

stack = stacked([np.zeros(2), np.ones(2)])
print(check(Bernoulli(), stack, np.full(3, 2.0)), *(w.message for w in caught))
"""


@pytest.mark.compiled
def test_without_a_private_part_of_numba_kernels_are_compiled_by_njit(tmp_path):
    file = tmp_path / "use.py"
    file.write_text(PRIVATE_NAME_GONE)
    result = subprocess.run(
        [sys.executable, file],
        env={**os.environ, "BELATED_CACHE_DIR": str(tmp_path), "NUMBA_DISABLE_JIT": "0"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    number, said = result.stdout.split(" ", 1)
    assert float(number) == 13.5
    assert said.count("cannot import name 'lookup_environment'") == 1
    assert "every kernel is compiled by numba.njit" in said
    assert not list(tmp_path.rglob("*.nbc"))


BUILDERS = {
    "products": {
        "dot": "vv",
        "matvec": "mvv",
        "quadratic": "mvv",
        "add_outer": "mdv",
        "inner_products": "vvvvvvvd",
    },
    "score_bounds": {
        "bound_all": "mvvffffm",
        "highest": "vi",
        "count_reaching": "vf",
        "reaching": "vif",
        "lowest": "i",
    },
    "third_derivative": {
        "add_thirds": "mvm",
        "add_squares": "vm",
        "multiply_pairs": "vv",
        "sweep": "mvv",
    },
}


@pytest.mark.parametrize(
    ("module", "name", "arguments"),
    [(module, *item) for module, names in BUILDERS.items() for item in names.items()],
)
def test_builders_need_no_pointers_that_know_their_element(module, name, arguments, monkeypatch):
    """As in a version of llvmlite without them, where reading one's element is an error."""
    for number in (ir.DoubleType, ir.FloatType, ir.IntType, ir.VectorType, ir.ArrayType):
        monkeypatch.setattr(number, "as_pointer", lambda self, addrspace=0: ir.PointerType())
    numbers = {"d": DOUBLE, "f": FLOAT, "i": INT}
    kinds = [numbers.get(kind, ir.PointerType()) for kind in arguments]
    function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), kinds), "use")
    builder = ir.IRBuilder(function.append_basic_block())
    shapes = {"v": (INT(16),), "m": (INT(16), INT(16))}
    given = [
        Array(value, shapes[kind]) if kind in shapes else value
        for value, kind in zip(function.args, arguments, strict=True)
    ]
    build = import_module(f"belated.numerics.lowered.builders.{module}")
    getattr(build, name)(builder, *given)
    builder.ret_void()
    assert "*" not in str(function.module)
    binding.parse_assembly(str(function.module)).verify()
