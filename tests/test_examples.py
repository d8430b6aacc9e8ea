"""The skeletons that CONTRIBUTING.md offers do what they say."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    assert "satisfies everything" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.compiled
def test_own_policy_compiles():
    """Kernels written outside the package are compiled like its own."""
    path = next(p for p in EXAMPLES if p.stem == "epsilon_greedy")
    result = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        env={**os.environ, "NUMBA_DISABLE_JIT": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "satisfies everything" in result.stdout
