"""Notebooks run, and those in the repository are made from their sources."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
LARGEST = 150_000  # bytes


def test_notebooks_are_of_their_sources():
    jupytext = pytest.importorskip("jupytext")
    assert sorted({path.stem for path in FOLDER.glob("*.py")} - {"execute"}) == NAMES
    for name in NAMES:
        path = FOLDER / f"{name}.ipynb"
        assert path.stat().st_size < LARGEST, f"{name}: {path.stat().st_size} bytes"
        source, made = jupytext.read(FOLDER / f"{name}.py"), nbformat.read(path, 4)
        said = [(cell.cell_type, cell.source) for cell in source.cells]
        assert [(cell.cell_type, cell.source) for cell in made.cells] == said, (
            f"make notebooks: {name}"
        )
        outputs = [o for cell in made.cells if cell.cell_type == "code" for o in cell.outputs]
        assert outputs
        assert not [o for o in outputs if o.output_type == "error"]


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("name", NAMES)
def test_notebooks_run(name, tmp_path):
    command = [sys.executable, FOLDER / "execute.py", "--out", tmp_path, name]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
