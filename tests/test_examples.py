"""The skeletons that CONTRIBUTING.md offers do what they say, through the door for authors."""

import ast
import os
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import belated
from belated import extend
from support.needed import missing

ROOT = Path(__file__).parents[1]
REAL_LOG = ROOT / "examples" / "open_bandit_dataset.py"
EXAMPLES = sorted(set((ROOT / "examples").glob("*.py")) - {REAL_LOG})


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


def write_plays(path, rng, shares, rates):
    """Writes a log of three items with the columns of the Open Bandit Dataset."""
    path.parent.mkdir(parents=True)
    items = rng.choice(3, 3_000, p=shares)
    clicks = rng.random(3_000) < rates[items]
    rows = [
        f"2019-11-24 00:00:{k % 60:02d}+00:00,{item},{1 + k % 3},{int(click)},{shares[item]}\n"
        for k, (item, click) in enumerate(zip(items, clicks, strict=True))
    ]
    path.write_text("timestamp,item_id,position,click,propensity_score\n" + "".join(rows))


def test_a_real_log_is_evaluated_beside_the_truth(tmp_path, monkeypatch, capsys):
    """Files like those of the dataset, of a world whose truth is known."""
    rng, rates = np.random.default_rng(1), np.array([0.05, 0.1, 0.3])
    shares = {"random": np.full(3, 1 / 3), "bts": np.array([0.1, 0.1, 0.8])}
    for policy, plays in shares.items():
        for campaign in ("all", "men", "women"):
            write_plays(tmp_path / policy / campaign / f"{campaign}.csv", rng, plays, rates)
    monkeypatch.setattr(sys, "argv", [str(REAL_LOG), str(tmp_path)])
    runpy.run_path(str(REAL_LOG), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == ["| all", "| men", "| women"]
    for line in lines:
        played, ours, really = (float(cell.split("%")[0]) for cell in line.split(" | ")[1:])
        assert played == pytest.approx(15.0, abs=3.0)
        assert ours == pytest.approx(25.5, abs=4.5)
        assert really == pytest.approx(25.5, abs=3.5)


@pytest.mark.slow
def test_the_table_of_the_real_log_is_on_its_page(monkeypatch, capsys):
    if find_spec("obp") is None:
        missing("obp, whose wheel has the dataset, is not installed: pip install --no-deps obp")
    monkeypatch.setattr(sys, "argv", [str(REAL_LOG)])
    runpy.run_path(str(REAL_LOG), run_name="__main__")
    table = capsys.readouterr().out
    assert table.count("\n") == 5
    assert table in (ROOT / "docs" / "how-to" / "evaluate.md").read_text()


def test_the_dataset_is_not_there(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(REAL_LOG)])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    runpy.run_path(str(REAL_LOG), run_name="__main__")
    assert "obp is not installed" in capsys.readouterr().out


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
