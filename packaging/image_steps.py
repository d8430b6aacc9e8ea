"""Runs the steps of the image outside a container: ``make image-steps``.

The steps are read from packaging/image/Dockerfile and run in order, in a scratch folder that
stands for the root of the image. Three things differ: the Python is the one that runs this file,
with its bytecode as it is, no user is made, and the service listens on a free port. pip needs an
index, as in the image. A variable with the name of a build argument, EXTRAS, is that argument.
"""

import json
import os
import re
import shlex
import socket
import string
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from belated.client import Client

ROOT = Path(__file__).parents[1]
DOCKERFILE = ROOT / "packaging" / "image" / "Dockerfile"
LEFT_OUT = {"FROM", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
LIBRARIES, KERNELS = "opt/belated", "var/cache/belated"  # what the image has beside its base
ASKED = 3.0  # CPU seconds of the service up to its first decision and its end
NOT_OURS = re.compile(r"BELATED_|NUMBA_|PYTHON|VIRTUAL_ENV")  # variables that an image has not


class Step(NamedTuple):
    """A command of the image, the folder in which it runs, and its environment."""

    command: str
    folder: Path
    environment: dict[str, str]


def instructions() -> list[list[str]]:
    """Returns the instructions of the Dockerfile, as pairs of a word and the rest."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    return [line.split(maxsplit=1) for line in text.replace("\\\n", " ").splitlines() if line]


def steps(scratch: Path) -> Iterator[Step]:
    """Yields the commands that build the image, and last the one that it starts."""
    environment = {k: v for k, v in os.environ.items() if not NOT_OURS.match(k)}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    folder, started = scratch, []
    for word, rest in instructions():
        there = re.sub(r"/(?=(?:build|opt|var)\b)", f"{scratch}/", rest)
        if word == "WORKDIR":
            folder = Path(there)
            folder.mkdir(parents=True, exist_ok=True)
        elif word == "ENV":
            for setting in shlex.split(there):
                name, _, value = setting.partition("=")
                value = string.Template(value).substitute(environment)
                environment = environment | {name: value}
        elif word == "ARG":
            name, given, value = there.partition("=")
            environment = {name: value} | environment if given else environment
        elif word == "COPY" and not rest.startswith("--from"):  # between stages: it is there
            *sources, target = there.split()
            named = [shlex.quote(str(ROOT / source)) for source in sources]
            yield Step(f"cp -r {' '.join(named)} {shlex.quote(target)}", folder, environment)
        elif word == "RUN" and not rest.startswith("useradd"):
            yield Step(there, folder, environment)
        elif word in ("ENTRYPOINT", "CMD"):
            started += json.loads(rest)
        elif word not in {*LEFT_OUT, "COPY", "RUN"}:
            raise ValueError(
                f"{DOCKERFILE.name}: {word}: expected an instruction that is known here"
            )
    yield Step(f"exec {shlex.join(started)}", folder, environment)


def health_check(port: int) -> list[str]:
    """Returns the command of the health check."""
    (check,) = (rest for word, rest in instructions() if word == "HEALTHCHECK")
    return json.loads(check[check.index("[") :].replace(":8787", f":{port}"))


def files_below(folder: Path) -> set[Path]:
    """Returns all files below a folder, but for links."""
    return {path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}


def megabytes(folder: Path) -> float:
    """Returns the size of all files below a folder."""
    return sum(path.stat().st_size for path in files_below(folder)) / 1e6


def cpu_seconds() -> float:
    """Returns what the processes that this one has started and waited for have worked."""
    times = os.times()
    return times.children_user + times.children_system


def start(step: Step, port: int) -> float:
    """Start the service, wait for its first decision, and print how long that took.

    Returns the CPU seconds of the service: on a machine that does much else at the time, the clock
    says nothing.
    """
    url = f"http://127.0.0.1:{port}"
    environment = step.environment | {"BELATED_SERVE_PORT": str(port)}
    make = "belated keys create admin --scope admin --scope decide --ledger $BELATED_SERVE_LEDGER"
    key = subprocess.check_output(make, shell=True, text=True, env=environment).strip()
    asked = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    begun = time.perf_counter()
    service = subprocess.Popen(step.command, shell=True, cwd=step.folder, env=environment)
    try:
        while service.poll() is None:
            try:
                asked.open(f"{url}/readyz", timeout=60)
                break
            except OSError:
                time.sleep(0.02)
        ready = time.perf_counter()
        with Client(url, key) as client:
            client.put_bandit("shop", {"family": "bernoulli", "dim": 1})
            client.change_actions("shop", {"a": [1.0]})
            client.decide("shop")
        decided = time.perf_counter()
        subprocess.run(health_check(port), check=True, env=environment)
    finally:
        of_others = cpu_seconds()
        service.terminate()
        service.wait(60)
    worked = cpu_seconds() - of_others
    times = f"ready {ready - begun:.2f} s after the start, first decision after"
    print(f"{times} {decided - begun:.2f} s; the service worked for {worked:.2f} s")
    return worked


def main() -> None:
    """Run all steps in a folder that is removed afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as scratch:
        *build, last = steps(Path(scratch))
        for command, folder, environment in build:
            print(command, flush=True)
            subprocess.run(command, shell=True, check=True, cwd=folder, env=environment)
        kernels = files_below(Path(scratch) / KERNELS)
        sizes = [megabytes(Path(scratch) / part) for part in (LIBRARIES, KERNELS)]
        print(f"{sizes[0]:.0f} MB of libraries and {sizes[1]:.0f} MB of kernels are in the image")
        worked = start(last, port)
        if files_below(Path(scratch) / KERNELS) != kernels:
            raise SystemExit(
                "the image lacks kernels of its first decision: they were compiled now"
            )
        if worked > ASKED:
            raise SystemExit(f"a start with one decision: expected {ASKED} CPU seconds at most")


if __name__ == "__main__":
    main()
