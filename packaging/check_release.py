"""Checks an sdist and a wheel of belated before somebody publishes them: ``make release``.

Run it as ``python packaging/check_release.py FOLDER`` from the root of the repository. It needs no
network: in the new environment, dependencies are those of the environment that runs this file.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Iterable
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
USE = """
import importlib, pathlib, pkgutil, sys
import belated, belated.service.dashboard
from belated import Bandit, Bernoulli

home = pathlib.Path(belated.__file__).parent
assert home.is_relative_to(sys.prefix), f"belated is imported from {home}"
names = [m.name for m in pkgutil.walk_packages(belated.__path__, "belated.")]
for name in names:
    # Some libraries of peers are not in requirements.lock; __main__ is the command itself.
    if not name.startswith("belated.peers.") and not name.endswith("__main__"):
        importlib.import_module(name)
bandit = Bandit(2, family=Bernoulli(), window=60, default_reward=0.0)
decision = bandit.decide([[1.0, 0.0], [0.0, 1.0]])
assert bandit.learn(decision.id, 1.0) == 1
print(f"{len(names)} modules can be imported, and a bandit decides and learns")
"""


def main(folder: Path) -> None:
    """Check the one sdist and the one wheel in a folder; raise for the first fault."""
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    tracked = _git("ls-files")
    check_sdist(sdist, tracked)
    check_wheel(wheel, tracked)
    with tempfile.TemporaryDirectory() as scratch:
        check_same_wheel(sdist, wheel, Path(scratch) / "again")
        check_installed(wheel, Path(scratch) / "environment")
    print(f"{sdist.name} and {wheel.name} are ready, and nothing was published")


def check_sdist(sdist: Path, tracked: Iterable[str]) -> None:
    """Raise where an sdist holds a file that git does not know, or lacks one of the sources."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()} - {"", "PKG-INFO"}
    _expect_none("files in the sdist that git does not know", names - set(tracked))
    needed = {"LICENSE", "README.md", "CITATION.cff", *_sources(tracked)}
    _expect_none("files that the sdist lacks", needed - names)


def check_wheel(wheel: Path, tracked: Iterable[str]) -> None:
    """Raise unless a wheel holds the sources, the licence and its metadata, and nothing else."""
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    about = {name for name in names if ".dist-info/" in name}
    needed = {name.removeprefix("src/") for name in _sources(tracked)}
    _expect_none("files that the wheel lacks", needed - names)
    _expect_none("files in the wheel that are no sources", names - needed - about)
    if not any(name.endswith("/licenses/LICENSE") for name in about):
        raise ValueError("the wheel lacks the licence")


def check_same_wheel(sdist: Path, wheel: Path, folder: Path) -> None:
    """Raise unless the wheel that is built from the sdist is the same, byte for byte."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    if (folder / wheel.name).read_bytes() != wheel.read_bytes():
        raise ValueError("the wheel that is built from the sdist is another one")


def check_installed(wheel: Path, folder: Path) -> None:
    """Install a wheel into a new environment, and use it there: modules, a bandit, the command."""
    venv.create(folder, with_pip=True, symlinks=os.name != "nt")
    (packages,) = folder.glob("[Ll]ib/**/site-packages")
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    # A path in a .pth file comes last, and the .pth files that are in it are not read: the editable
    # installation of belated, which may be there, is not seen.
    (others,) = (path for path in sys.path if path.endswith("site-packages"))
    (packages / "dependencies.pth").write_text(f"{others}\n")
    install = [scripts / "pip", "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(install, check=True)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    clean["NUMBA_DISABLE_JIT"] = "1"  # machine code is for the tests
    for command in ([scripts / "python", "-c", USE], [scripts / "belated", "--version"]):
        subprocess.run(command, cwd=folder, env=clean, check=True)


def _sources(tracked: Iterable[str]) -> set[str]:
    return {name for name in tracked if name.startswith("src/")}


def _git(*args: str) -> list[str]:
    return subprocess.check_output(["git", *args], cwd=ROOT, text=True).splitlines()


def _expect_none(what: str, names: set[str]) -> None:
    if names:
        raise ValueError(f"{what}: {', '.join(sorted(names)[:5])} ({len(names)} in all)")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
