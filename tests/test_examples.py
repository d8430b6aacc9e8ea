"""The skeletons that CONTRIBUTING.md offers do what they say, through the door for authors."""

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import belated
from belated import extend

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    assert "satisfies everything" in capsys.readouterr().out


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_import_from_one_door(path):
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if hasattr(node, "module")]
    ours = {node.module for node in imports if node.module.startswith("belated")}
    assert "belated.extend" in ours
    assert ours <= {"belated", "belated.extend"}


def test_extend_says_all_it_has():
    public = {name for name in vars(extend) if name[0].isalpha()}
    assert public == set(extend.__all__)


def test_what_authors_are_told_to_register_comes_through_the_door():
    told = set(re.findall(r"@(\w+)\.case", (ROOT / "CONTRIBUTING.md").read_text()))
    assert {"choose", "refit", "refit_exactly", "revise"} <= told <= set(extend.__all__)


def test_own_environment_is_simulated():
    example = runpy.run_path(str(next(path for path in EXAMPLES if path.stem == "own_set")))
    results = belated.simulate(
        ["delayed-ofu-glm", "uniform"],
        delays=["constant:0"],
        dims=[4],
        environment=example["Blocks"](2),
        horizon=100,
        runs=1,
    )
    regret = results.frame().groupby("policy").regret.max()
    assert regret["delayed-ofu-glm"] < regret["uniform"]


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("name", ["epsilon_greedy", "own_estimator", "own_set"])
def test_own_kernels_compile(name):
    """Kernels written outside the package are compiled like its own."""
    path = next(path for path in EXAMPLES if path.stem == name)
    result = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        env={**os.environ, "NUMBA_DISABLE_JIT": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "satisfies everything" in result.stdout


@pytest.mark.compiled
def test_a_vector_that_is_not_contiguous_gets_one_line():
    program = (
        "import numpy as np\n"
        "from belated.extend import dot, kernel\n"
        "first_column = kernel(lambda A: dot(A[:, 0], A[0]))\n"
        "first_column(np.eye(3))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "NUMBA_DISABLE_JIT": "0"},
        capture_output=True,
        text=True,
    )
    last = result.stderr.splitlines()[-1]
    assert last.startswith("TypeError: dot: a is not contiguous (a column")
    assert last.endswith("pass a.copy()")
