"""The distribution belated-client: the client in an environment that has nothing else."""

import json
import os
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import belated
from belated.client import Client
from support.running_service import served

ROOT = Path(__file__).parents[2]

SCRIPT = """
import json, sys
from belated.client import Client

loaded = {name: module.__file__ for name, module in sys.modules.items() if "belated" in name}
with Client(sys.argv[1]) as client:
    registered = client.decide("shop")
    rows = client.decide("shop", matrix=[[1, 0.0], (0.5, 1 / 3)])
    features = client.story(rows.decision_id).features
    status = client.reward(registered.decision_id, 1.0)
try:
    from belated import Bandit
except ModuleNotFoundError as error:
    refused = str(error)
heavy = sorted({"numpy", "numba", "llvmlite", "apsw", "typer", "starlette"} & set(sys.modules))
told = [registered.action, rows.index, features, status, refused, heavy, loaded]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT / "packaging/client", check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    return file


def needed(requirements):
    """Distributions that these requirements bring, theirs included."""
    found = {}
    queue = [Requirement(text) for text in requirements]
    while queue:
        requirement = queue.pop()
        name, marker = canonicalize_name(requirement.name), requirement.marker
        if name not in found and (marker is None or marker.evaluate({"extra": ""})):
            found[name] = distribution(name)
            queue += [Requirement(text) for text in found[name].requires or ()]
    return found


def environment(folder, wheel):
    """A new environment with the wheel and what it needs; returns its Python and the folder."""
    venv.create(folder, symlinks=os.name != "nt")
    (packages,) = folder.glob("[Ll]ib/**/site-packages")
    with ZipFile(wheel) as file:
        file.extractall(packages)
        (metadata,) = (name for name in file.namelist() if name.endswith("METADATA"))
        lines = file.read(metadata).decode().splitlines()
    wanted = [line.removeprefix("Requires-Dist: ") for line in lines if "Requires-Dist" in line]
    for one in needed(wanted).values():
        for top in {path.parts[0] for path in one.files} - {"..", "__pycache__"}:
            (packages / top).symlink_to(one.locate_file(top))
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python"), packages


def test_the_client_alone_makes_a_decision(wheel, tmp_path):
    """Neither NumPy nor Numba is there; what is not there says what to install."""
    python, packages = environment(tmp_path / "env", wheel)
    here = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with served() as (url, _):
        with Client(url) as client:
            client.put_bandit("shop", {"family": "bernoulli", "dim": 2})
            client.change_actions("shop", {"a": [1.0, 0.0], "b": [0.0, 1.0]})
        result = subprocess.run(
            [python, "-W", "error", "-c", SCRIPT, url], env=here, capture_output=True, text=True
        )
    assert result.returncode == 0, result.stderr
    action, index, features, status, refused, heavy, loaded = json.loads(result.stdout)
    assert action in ("a", "b")
    assert features == [[1.0, 0.0], [0.5, 1 / 3]][index]
    assert status == "accepted"
    assert refused.endswith("pip install 'belated'")
    assert heavy == []
    files = {Path(file) for file in loaded.values()}
    assert files == set(packages.glob("belated/**/*.py")), "exactly what it needs"


def test_the_client_alone_is_that_of_belated(wheel):
    """The same version and files, so that both can be installed; the same bounds."""
    with ZipFile(wheel) as file:
        for name in file.namelist():
            if name.startswith("belated/"):
                assert file.read(name) == (ROOT / "src" / name).read_bytes()
    assert wheel.name.startswith(f"belated_client-{belated.__version__}-")
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    alone = tomllib.loads((ROOT / "packaging/client/pyproject.toml").read_text())["project"]
    given = [*whole["dependencies"], *whole["optional-dependencies"]["client"]]
    assert set(alone["dependencies"]) <= set(given)
    assert set(whole["optional-dependencies"]["client"]) <= set(alone["dependencies"])
    assert alone["requires-python"] == whole["requires-python"]
