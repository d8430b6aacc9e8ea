"""``make release``: what is built is used in a new environment, and what is amiss is refused."""

import subprocess
import sys
import tomllib
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
def test_what_is_built_is_ready(checks, tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    check = [sys.executable, str(SCRIPT), str(tmp_path)]
    result = subprocess.run(check, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "a bandit decides and learns" in result.stdout
    assert result.stdout.endswith("are ready, and nothing was published\n")
    forgetful = tmp_path / "forgetful"
    forgetful.mkdir()
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive, ZipFile(forgetful / wheel.name, "w") as copy:
        for name in archive.namelist():
            lines = archive.read(name).splitlines(keepends=True)
            copy.writestr(
                name, b"".join(one for one in lines if b"Requires-Dist: msgspec" not in one)
            )
    with pytest.raises(subprocess.CalledProcessError):
        checks.check_installed(forgetful / wheel.name, forgetful / "environment")


def test_a_module_is_used_beside_what_its_extras_bring(checks):
    class About:
        requires = (
            "rich>=13",
            "httpx2; extra == 'client'",
            "uvicorn[standard]; extra == 'service'",
        )

    needed = {extra: set(checks.closure(About(), {"", extra})) for extra in ("", "client")}
    assert {"rich", "Pygments"} <= needed[""]
    assert {"httpx2", "httpcore2"} <= needed["client"] - needed[""]
    assert "httptools" in checks.closure(About(), {"service"}), "an extra of a dependency"
    assert checks.extras_of("belated.bandit") == ""
    assert checks.extras_of("belated.service.http.api") == "service"
    assert checks.extras_of("belated.service.tracing") == "service,tracing"


def test_every_name_that_needs_an_extra_is_a_module_and_every_extra_is_there(checks):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for name, needed in checks.NEEDED.items():
        place = ROOT / "src" / Path(*name.split("."))
        assert place.is_dir() or place.with_suffix(".py").is_file(), name
        assert set(needed.split(",")) <= set(extras)


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
