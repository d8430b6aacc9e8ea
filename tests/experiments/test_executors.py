"""The same worlds on threads, processes, Dask and Ray, with workers that die."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pyarrow as pa
import pytest

from belated.experiments import running
from belated.experiments.executors import open_executor
from belated.experiments.running import run
from belated.experiments.store import Folder

SCHEMA = pa.schema([("world", pa.string()), ("process", pa.bool_()), ("value", pa.float64())])


class Toy(NamedTuple):
    """A world that tells which process plays it by a file in the folder ``plays``."""

    name: str
    work: float = 1.0
    plays: str = ""
    pause: float = 0.0


def play_toy(task, after_block):
    if task.plays:
        Path(task.plays, f"{task.name}.{os.getpid()}").touch()
    for _ in range(10):
        time.sleep(task.pause / 10)
        after_block(task.work / 10)
    return pa.table([[task.name] * 2, [True, False], [0.1 * len(task.name), task.work]], SCHEMA)


def fail(task, after_block):
    raise ZeroDivisionError(task.name)


def die(task, after_block):
    os.kill(os.getpid(), signal.SIGKILL)


def toys(count=8, **fields):
    return [Toy(f"run{i:03}", 1.0 + i, **fields) for i in range(count)]


def play_all(out, executor, tasks=None, play=play_toy):
    with Folder(out, {"seed": 1}, SCHEMA) as folder:
        return run(toys() if tasks is None else tasks, play, folder, executor, progress=False)


def results(out):
    return (out / "results.parquet").read_bytes()


@pytest.fixture
def whole(tmp_path):
    """Bytes of the results when one thread played all."""
    with open_executor(threads=1) as executor:
        play_all(tmp_path / "whole", executor)
    return results(tmp_path / "whole")


@pytest.fixture
def plays(tmp_path):
    (tmp_path / "plays").mkdir()
    return tmp_path / "plays"


@pytest.fixture
def processes():
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as executor:
        yield executor


@pytest.fixture(scope="module")
def dask():
    pytest.importorskip("distributed")
    with open_executor("dask", threads=2) as executor:
        yield executor


@pytest.fixture(scope="module")
def ray():
    pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))  # where workers find this module
        with open_executor("ray", threads=2) as executor:
            yield executor


def kill_first_player(plays, killed):
    """Kill a process that has begun to play a world, as soon as there is one."""
    while not (begun := list(plays.iterdir())):
        time.sleep(0.01)
    killed.append(begun[0].name)
    os.kill(int(begun[0].suffix[1:]), signal.SIGKILL)


def check_killed_worker(executor, tmp_path, plays, whole):
    """One of two workers is killed while it plays: its world is played again, by another."""
    killed: list[str] = []
    killer = Thread(target=kill_first_player, args=(plays, killed))
    killer.start()
    play_all(tmp_path / "out", executor, toys(plays=str(plays), pause=0.5))
    killer.join()
    again = killed[0].split(".")[0]
    assert len(list(plays.glob(f"{again}.*"))) == 2
    assert results(tmp_path / "out") == whole


def test_two_threads(tmp_path, whole):
    with open_executor("threads", threads=2) as executor:
        assert isinstance(executor, ThreadPoolExecutor)
        play_all(tmp_path / "out", executor)
    assert results(tmp_path / "out") == whole


@pytest.mark.slow
def test_processes(tmp_path, whole, processes):
    play_all(tmp_path / "out", processes)
    assert results(tmp_path / "out") == whole


def stopped_while_playing(plays):
    with open_executor("processes", threads=1) as executor:
        executor.submit(play_toy, Toy("long", plays=str(plays), pause=600.0), float)
        while not list(plays.iterdir()):
            time.sleep(0.01)
        raise KeyboardInterrupt


def one_thread(_):
    return [os.environ.get(name) for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")]


@pytest.mark.slow
def test_processes_by_name(tmp_path, whole, plays, monkeypatch):
    """They get one thread of linear algebra each, and are killed where a run ends early."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with open_executor("processes", threads=2) as executor:
        play_all(tmp_path / "out", executor)
        assert executor.submit(one_thread, 0).result() == ["1", "1"]
    assert results(tmp_path / "out") == whole
    assert one_thread(0) == [None, "7"]
    with pytest.raises(KeyboardInterrupt):
        stopped_while_playing(plays)
    assert not is_alive(int(next(plays.iterdir()).suffix[1:]))


@pytest.mark.slow
def test_dead_process_is_said(tmp_path, whole, processes):
    play_all(tmp_path / "out", processes, toys(3))
    with pytest.raises(RuntimeError, match=r"workers are gone \(BrokenProcessPool\); finished"):
        play_all(tmp_path / "out", processes, play=die)
    with open_executor() as executor:
        play_all(tmp_path / "out", executor)
    assert results(tmp_path / "out") == whole


@pytest.mark.slow
def test_worker_with_another_source_is_refused(tmp_path, monkeypatch, processes):
    monkeypatch.setattr(running, "source_digest", lambda: "another")
    with pytest.raises(RuntimeError, match="a worker has another version of belated"):
        play_all(tmp_path, processes)


@pytest.mark.slow
def test_dask(tmp_path, whole, dask):
    play_all(tmp_path / "out", dask)
    assert results(tmp_path / "out") == whole


@pytest.mark.slow
def test_dask_by_address(tmp_path, whole, dask):
    with open_executor(dask._client.scheduler.address) as executor:
        play_all(tmp_path / "out", executor)
    assert results(tmp_path / "out") == whole


@pytest.mark.slow
def test_dask_passes_errors_on(tmp_path, dask):
    with pytest.raises(ZeroDivisionError, match="run"):
        play_all(tmp_path, dask, play=fail)


@pytest.mark.slow
def test_dask_worker_killed(tmp_path, plays, whole, dask):
    check_killed_worker(dask, tmp_path, plays, whole)


@pytest.mark.slow
def test_ray(tmp_path, whole, ray):
    play_all(tmp_path / "out", ray)
    assert results(tmp_path / "out") == whole


@pytest.mark.slow
def test_ray_passes_errors_on(tmp_path, ray):
    with pytest.raises(ZeroDivisionError, match=r"^run00.$"):
        play_all(tmp_path, ray, play=fail)


@pytest.mark.slow
def test_ray_worker_killed(tmp_path, plays, whole, ray):
    check_killed_worker(ray, tmp_path, plays, whole)


@pytest.mark.slow
def test_ray_cancels_what_has_begun(plays, ray):
    future = ray.submit(play_toy, Toy("long", plays=str(plays), pause=600.0), float)
    while not list(plays.iterdir()):
        assert not future.done()
        time.sleep(0.01)
    assert future.cancel()
    process = int(next(plays.iterdir()).suffix[1:])
    end = time.monotonic() + 10
    while is_alive(process):
        assert time.monotonic() < end
        time.sleep(0.05)


def is_alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


SCRIPT = """
import sys
from pathlib import Path
from belated.experiments.executors import open_executor
from test_executors import play_all, toys
if __name__ == "__main__":
    try:
        with open_executor(sys.argv[1], threads=2) as executor:
            play_all(Path(sys.argv[2]), executor, toys(plays=sys.argv[3], pause=600.0))
    except KeyboardInterrupt:
        sys.exit("stopped")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_interrupt(tmp_path, plays, spec, module):
    """Ctrl-C, which a terminal sends to all processes, ends worlds under way, and quietly."""
    pytest.importorskip(module)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, script, spec, tmp_path / "out", plays],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(plays.iterdir()):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert errors == "stopped\n"
    workers, deadline = [int(file.suffix[1:]) for file in plays.iterdir()], time.monotonic() + 15
    while any(map(is_alive, workers)):  # Ray's need a moment longer than the process that ended
        assert time.monotonic() < deadline, "a world goes on for ten minutes"
        time.sleep(0.05)


def test_executor_of_the_user_is_left_open():
    with ThreadPoolExecutor(1) as own:
        with open_executor(own, threads=2) as executor:
            assert executor is own
        assert own.submit(pow, 2, 5).result() == 32


@pytest.mark.parametrize(("spec", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_missing_package(monkeypatch, spec, module):
    monkeypatch.setitem(sys.modules, module, None)
    with (
        pytest.raises(ModuleNotFoundError, match=rf"{module}.*pip install 'belated\[{spec}\]'$"),
        open_executor(spec, threads=1),
    ):
        pass


def test_unknown_executor():
    with pytest.raises(ValueError, match=r"'daks': expected one of .*; did you mean dask\?"):
        open_executor("daks", threads=1)
    with pytest.raises(TypeError, match="executor = 3: expected a name or an Executor"):
        open_executor(3, threads=1)
    with pytest.raises(ValueError, match="threads = 0"):
        open_executor("threads", threads=0)
