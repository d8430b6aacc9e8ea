"""Checks an sdist and a wheel of belated before somebody publishes them: ``make release``.

Run it as ``python packaging/check_release.py FOLDER`` from the root of the repository. It needs no
network: in the new environment, dependencies are links to those of the environment that runs this
file, and only what the metadata of the wheel asks for is there.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from itertools import groupby
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
# Extras that modules with these names need, the longest name first that fits; others need none.
NEEDED = {
    "belated.client": "client",
    "belated.commands.compare_worlds": "experiments",
    "belated.commands.demo_service": "service",
    "belated.edge": "client",
    "belated.experiments": "experiments",
    "belated.ledger.stores.postgres": "postgres",
    "belated.logs": "experiments",
    "belated.service": "service",
    "belated.service.tracing": "service,tracing",
    "belated.streams": "streams",
    "belated.worlds.late_rewards": "gymnasium",
}
IMPORT = """
import importlib, pathlib, sys
import belated

home = pathlib.Path(belated.__file__).parent
assert home.is_relative_to(sys.prefix), f"belated is imported from {home}"
for name in sys.argv[1:]:
    importlib.import_module(name)
"""
USE = """
from belated import Bandit, Bernoulli

bandit = Bandit(2, family=Bernoulli(), window=60, default_reward=0.0)
decision = bandit.decide([[1.0, 0.0], [0.0, 1.0]])
assert bandit.learn(decision.id, 1.0) == 1
print("a bandit decides and learns")
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
    """Install a wheel into a new environment, and use it there: modules, a bandit, the command.

    Every module is imported beside what its extras bring, and nothing else.
    """
    venv.create(folder, with_pip=True, symlinks=os.name != "nt")
    (packages,) = folder.glob("[Ll]ib/**/site-packages")
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    install = [scripts / "pip", "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(install, check=True)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    clean["NUMBA_DISABLE_JIT"] = "1"  # machine code is for the tests
    (about,) = packages.glob("belated-*.dist-info")
    needed = closure(Distribution.at(about), {""})
    link(needed.values(), packages)
    for command in ([scripts / "python", "-c", USE], [scripts / "belated", "--version"]):
        subprocess.run(command, cwd=folder, env=clean, check=True)
    for extras, modules in groupby(sorted(modules_of(wheel), key=extras_of), extras_of):
        names, added = list(modules), folder / "extras" / (extras or "none")
        with_extras = closure(Distribution.at(about), {"", *extras.split(",")})
        link((with_extras[name] for name in with_extras.keys() - needed.keys()), added)
        command = [scripts / "python", "-c", IMPORT, *names]
        environment = clean | {"PYTHONPATH": str(added)}
        subprocess.run(command, cwd=folder, env=environment, check=True)
        print(f"{len(names)} modules can be imported with the extras: {extras or 'none'}")


def modules_of(wheel: Path) -> list[str]:
    """Returns the modules that can be imported, but for the adapters of peers.

    Some libraries of peers are not in requirements.lock, and __main__ is the command itself.
    """
    with ZipFile(wheel) as archive:
        files = [Path(name) for name in archive.namelist() if name.endswith(".py")]
    names = [".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files]
    left_out = ("belated.peers.", "belated.__main__")
    return [name for name in names if not name.startswith(left_out)]


def extras_of(module: str) -> str:
    """Returns the extras that a module needs, with commas in between."""
    fitting = [name for name in NEEDED if module.startswith(name)]
    return NEEDED[max(fitting, key=len)] if fitting else ""


def closure(about: Distribution, extras: set[str]) -> dict[str, Distribution]:
    """Returns by name what a distribution needs with some extras, and all that this needs in turn.

    Raises where something of it is not in the environment that runs this file.
    """
    found: dict[tuple[str, str], Distribution] = {}
    waiting = [(about, extra) for extra in extras]
    while waiting:
        needing, extra = waiting.pop()
        for one in map(Requirement, needing.requires or ()):
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                for wanted in {"", *one.extras} - {e for name, e in found if name == one.name}:
                    found[one.name, wanted] = distribution(one.name)
                    waiting.append((found[one.name, wanted], wanted))
    return {one.name: one for one in found.values()}


def link(distributions: Iterable[Distribution], folder: Path) -> None:
    """Make links to all files of some distributions, but for their commands, in a folder.

    Distributions may share a package, such as opentelemetry: folders are new, and files are links.
    """
    for one in distributions:
        for file in one.files or ():
            if ".." not in file.parts:
                place = folder / file
                place.parent.mkdir(parents=True, exist_ok=True)
                if os.name == "nt":  # where not everybody may make links
                    shutil.copyfile(one.locate_file(file), place)
                else:
                    place.symlink_to(one.locate_file(file))


def _sources(tracked: Iterable[str]) -> set[str]:
    return {name for name in tracked if name.startswith("src/")}


def _git(*args: str) -> list[str]:
    return subprocess.check_output(["git", *args], cwd=ROOT, text=True).splitlines()


def _expect_none(what: str, names: set[str]) -> None:
    if names:
        raise ValueError(f"{what}: {', '.join(sorted(names)[:5])} ({len(names)} in all)")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
