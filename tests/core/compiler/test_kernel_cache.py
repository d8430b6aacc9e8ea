"""Compiled kernels on disk: what one process leaves behind never harms another one."""

import os
import pickle
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path

import pytest

from belated.core.jit import kernel
from belated.numerics.special import sigmoid

EXAMPLES = Path(__file__).parents[3] / "examples"


def python(folder, code):
    """Returns what a process of its own prints; its working folder and cache are ``folder``."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "BELATED_CACHE_DIR": str(folder / "cache"), "NUMBA_DISABLE_JIT": "0"},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


DELAY = """
import numpy as np
from belated.model.protocols import delay_quantile_of
{imports}
print(delay_quantile_of({delay}, np.zeros(2), 0.5, 0.0) > 0.0)
"""


@pytest.mark.compiled
def test_a_class_of_the_users_is_nothing_to_other_processes(tmp_path):
    """Its module cannot be imported from elsewhere, and nothing tries to."""
    (tmp_path / "weibull_delays.py").write_text((EXAMPLES / "weibull_delays.py").read_text())
    own = DELAY.format(imports="from weibull_delays import Weibull", delay="Weibull()")
    assert python(tmp_path, own) == "True"
    (tmp_path / "weibull_delays.py").unlink()
    other = DELAY.format(
        imports="from belated.worlds.delays import Exponential", delay="Exponential(3.0)"
    )
    assert python(tmp_path, other) == "True"


@pytest.mark.slow
@pytest.mark.compiled
def test_commands_work_after_a_class_of_the_users_was_simulated(tmp_path):
    """As it was reported: the class is in one folder, the command is called in another one."""
    (tmp_path / "weibull_delays.py").write_text((EXAMPLES / "weibull_delays.py").read_text())
    python(
        tmp_path,
        "from belated import simulate\n"
        "from weibull_delays import Weibull\n"
        "simulate(['greedy'], ['gaussian'], delays=[Weibull()], runs=1, horizon=50)",
    )
    (tmp_path / "weibull_delays.py").unlink()
    command = ["simulate", "--policy", "greedy", "--runs", "1", "--horizon", "50"]
    python(
        tmp_path,
        f"import sys\nfrom belated.commands.main import main\nsys.argv[1:] = {command}\nmain()",
    )
    assert (tmp_path / "simulation" / "results.parquet").exists()


def with_checksum(content):
    return blake2b(content, digest_size=32).digest() + content


class FromElsewhere:
    """Pickles as a class of a module that is not there."""

    def __reduce__(self):
        return (sys.intern, ("x",))


def of_a_missing_module():
    return pickle.dumps(FromElsewhere(), 0).replace(b"sys\nintern", b"nowhere\nintern")


DAMAGES = {
    "truncated": lambda entry: entry[: len(entry) // 2],
    "empty": lambda entry: b"",
    "half-written": lambda entry: entry[:-1000] + bytes(1000),
    "foreign": lambda entry: with_checksum(of_a_missing_module()),
    "of another key": lambda entry: with_checksum(pickle.dumps(("another key", ()))),
    "of another shape": lambda entry: with_checksum(pickle.dumps("neither key nor kernel")),
}


def use_anew():
    """Use a kernel as a process that has just started; returns the number of cache hits."""
    anew = kernel(sigmoid.py_func)
    assert anew(0.0) == 0.5
    return sum(anew.stats.cache_hits.values())


@pytest.fixture
def entry(tmp_path, monkeypatch):
    """The file of a kernel in a cache of its own."""
    monkeypatch.setenv("BELATED_CACHE_DIR", str(tmp_path))
    assert use_anew() == 0
    assert use_anew() == 1
    (file,) = tmp_path.rglob("*.nbc")
    return file


@pytest.mark.compiled
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_entry_is_a_miss_and_is_mended(entry, damage):
    entry.write_bytes(damage(entry.read_bytes()))
    assert use_anew() == 0
    assert use_anew() == 1


@pytest.mark.compiled
def test_an_entry_that_cannot_be_read_is_a_miss_and_is_mended(entry, monkeypatch):
    def refuse(file):
        raise PermissionError(file)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuse)
        assert use_anew() == 0
    assert use_anew() == 1


@pytest.mark.compiled
def test_an_entry_that_cannot_be_written_is_a_miss(entry):
    entry.unlink()
    entry.mkdir()  # cannot be replaced by a file
    assert use_anew() == 0
    assert use_anew() == 0
    assert list(entry.parent.iterdir()) == [entry], "nothing unfinished is left"


IN_THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numba
from belated.core.jit import kernel
import functions

THREADS = 8
together = Barrier(THREADS)

def make(thread):
    made = []
    for function in functions.ALL[thread::THREADS]:
        together.wait()
        numba.config.CACHE_DIR = ""  # as in a process that has just started
        together.wait()
        made.append(kernel(function))
    return made

with ThreadPoolExecutor(THREADS) as pool:
    kernels = [k for made in pool.map(make, range(THREADS)) for k in made]
for k in kernels[:10]:
    k(1)
print(*{k.stats.cache_path for k in kernels}, numba.config.CACHE_DIR, sep="\\n")
"""


@pytest.mark.compiled
def test_threads_that_make_kernels_leave_files_in_the_cache_only(tmp_path):
    """Modules are imported by several threads of a service that starts."""
    lines = [f"def f{i}(x): return x + {i}" for i in range(800)]
    lines += ["ALL = [" + ", ".join(f"f{i}" for i in range(800)) + "]"]
    (tmp_path / "functions.py").write_text("\n".join(lines))
    (place,) = python(tmp_path, IN_THREADS).splitlines()  # and Numba's setting is as it was
    assert tmp_path / "cache" in Path(place).parents
    files = list(tmp_path.rglob("*.nb*"))
    assert len(files) == 10
    assert {file.parent for file in files} == {Path(place)}


@kernel
def refuse_negative(x):
    if x < 0.0:
        raise ValueError("x is negative")
    return x


@kernel
def root(x):
    return refuse_negative(x) ** 0.5


@pytest.mark.compiled
def test_a_kernel_within_a_kernel_is_not_compiled_by_itself(tmp_path, monkeypatch):
    """It can raise, also where the outer kernel comes from the cache, and can still be called."""
    monkeypatch.setenv("BELATED_CACHE_DIR", str(tmp_path))
    for hits in (0, 1):
        outer = kernel(root.py_func)
        assert outer(4.0) == 2.0
        with pytest.raises(ValueError, match="x is negative"):
            outer(-1.0)
        assert sum(outer.stats.cache_hits.values()) == hits
    assert not refuse_negative.overloads
    assert len(list(tmp_path.rglob("*.nbc"))) == 1
    assert refuse_negative(3.0) == 3.0
