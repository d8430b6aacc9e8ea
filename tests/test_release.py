"""``make release``: what is built is used in a new environment, and what is amiss is refused."""

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "packaging" / "check_release.py"
TRACKED = ["src/belated/__init__.py", "src/belated/page.html", "README.md"]


@pytest.fixture(scope="module")
def checks():
    spec = spec_from_file_location("check_release", SCRIPT)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_what_is_built_is_ready(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    check = [sys.executable, str(SCRIPT), str(tmp_path)]
    result = subprocess.run(check, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "a bandit decides and learns" in result.stdout
    assert result.stdout.endswith("are ready, and nothing was published\n")


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        (["__init__.py"], "lacks: belated/page.html "),
        (["__init__.py", "page.html", "junk.pyc"], "no sources: belated/junk.pyc "),
        (["__init__.py", "page.html"], "lacks the licence"),
    ],
)
def test_a_wheel_that_is_amiss_is_refused(checks, tmp_path, names, refused):
    wheel = tmp_path / "belated.whl"
    with ZipFile(wheel, "w") as archive:
        for name in names:
            archive.writestr(f"belated/{name}", "")
        archive.writestr("belated-1.dist-info/METADATA", "")
    with pytest.raises(ValueError, match=refused):
        checks.check_wheel(wheel, TRACKED)
    with ZipFile(wheel, "w") as archive:
        for name in ["__init__.py", "page.html"]:
            archive.writestr(f"belated/{name}", "")
        archive.writestr("belated-1.dist-info/licenses/LICENSE", "")
    checks.check_wheel(wheel, TRACKED)
