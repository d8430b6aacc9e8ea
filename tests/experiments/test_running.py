"""Many worlds, played, kept, stopped and gone on with."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from threading import Event
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from belated.experiments import store
from belated.experiments.running import run
from belated.experiments.store import Folder

SCHEMA = pa.schema([("world", pa.string()), ("round", pa.int64()), ("regret", pa.float64())])
SETTINGS = {"seed": 3, "rounds": 4, "delay": {"type": "exponential", "mean": 5.0}}


class Toy(NamedTuple):
    """A world of a few blocks; every play leaves a trace in the folder ``plays``."""

    name: str
    work: float = 4.0
    plays: str = ""
    pause: float = 0.0


def play_toy(task, after_block):
    if task.plays:
        Path(task.plays, f"{task.name}.{time.time_ns()}").touch()
    for _ in range(4):
        time.sleep(task.pause / 4)
        after_block(task.work / 4)
    regret = [sum(task.name.encode()) / (1 + i) for i in range(3)]
    return pa.table([[task.name] * 3, range(3), regret], SCHEMA)


def toys(count=6, **fields):
    return [Toy(f"d5-run{i:03}", 1.0 + i, **fields) for i in range(count)]


def played(plays):
    """Names of the worlds that were begun, sorted, with repetitions."""
    return sorted(file.name.split(".")[0] for file in Path(plays).iterdir())


def play_all(out, tasks, threads=2, play=play_toy):
    with Folder(out, SETTINGS, SCHEMA) as folder, ThreadPoolExecutor(threads) as executor:
        return run(tasks, play, folder, executor, progress=False)


def results(out):
    return (Path(out) / "results.parquet").read_bytes()


@pytest.fixture
def plays(tmp_path):
    (tmp_path / "plays").mkdir()
    return str(tmp_path / "plays")


@pytest.fixture
def whole(tmp_path):
    """Bytes of the results of a run that nothing disturbed."""
    play_all(tmp_path / "whole", toys())
    return results(tmp_path / "whole")


def test_results_are_the_worlds_in_order(tmp_path):
    table = play_all(tmp_path / "out", toys())
    assert table.column("world").to_pylist() == [t.name for t in toys() for _ in range(3)]
    assert pq.read_table(tmp_path / "out" / "results.parquet").equals(table)
    assert len(list((tmp_path / "out" / "parts").iterdir())) == 6
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["settings"] == SETTINGS
    assert {*manifest["versions"]} == {"belated", "numba", "numpy", "python", "source"}


def test_no_worlds_give_an_empty_table(tmp_path):
    assert play_all(tmp_path, []).schema == SCHEMA


def test_second_call_plays_nothing_and_more_worlds_only_the_new(tmp_path, plays, whole):
    play_all(tmp_path / "out", toys(4, plays=plays))
    play_all(tmp_path / "out", toys(4, plays=plays))
    assert len(played(plays)) == 4
    play_all(tmp_path / "out", toys(6, plays=plays))
    assert played(plays) == [t.name for t in toys()]
    assert results(tmp_path / "out") == whole


class ReorderedExecutor(Executor):
    """Finishes the calls in a given order."""

    def __init__(self, order):
        self.order, self.calls = order, []

    def submit(self, fn, /, *args):
        self.calls.append((Future(), fn, args))
        if len(self.calls) == len(self.order):
            for i in self.order:
                future, fn, args = self.calls[i]
                future.set_result(fn(*args))
        return self.calls[-1][0]


def test_order_of_finishing_does_not_matter(tmp_path_factory, whole):
    @settings(max_examples=30)
    @given(order=st.permutations(range(6)))
    def check(order):
        out = tmp_path_factory.mktemp("reordered")
        with Folder(out, SETTINGS, SCHEMA) as folder:
            run(toys(), play_toy, folder, ReorderedExecutor(order), progress=False)
        assert results(out) == whole

    check()


def test_large_worlds_go_first(tmp_path, plays):
    play_all(tmp_path / "out", toys(plays=plays), threads=1)
    begun = sorted(Path(plays).iterdir(), key=lambda file: file.suffix)
    assert [file.stem for file in begun] == [t.name for t in reversed(toys())]


def fail_on_third(task, after_block):
    if task.name == "d5-run003":
        raise ZeroDivisionError("third world")
    return play_toy(task, after_block)


def test_an_error_ends_the_run_and_finished_worlds_stay(tmp_path, plays, whole):
    with pytest.raises(ZeroDivisionError, match="third world"):
        play_all(tmp_path / "out", toys(plays=plays), threads=1, play=fail_on_third)
    kept = {part.stem for part in (tmp_path / "out" / "parts").iterdir()}
    assert {"d5-run004", "d5-run005"} <= kept < {t.name for t in toys()}
    before = played(plays)
    play_all(tmp_path / "out", toys(plays=plays))
    again = [name for name in kept if played(plays).count(name) > before.count(name)]
    assert again == []
    assert results(tmp_path / "out") == whole


def test_an_error_stops_the_worlds_under_way(tmp_path):
    begun, ended = Event(), []

    def play(task, after_block):
        if task.name == "fails":
            begun.wait(10)
            raise ZeroDivisionError
        begun.set()
        try:
            for _ in range(1000):
                time.sleep(0.01)
                after_block(0.0)
        finally:
            ended.append(task.name)

    start = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        play_all(tmp_path, [Toy("fails"), Toy("lasts")], play=play)
    assert ended == ["lasts"]
    assert time.monotonic() - start < 5


def test_wrong_columns_are_refused(tmp_path):
    def play(task, after_block):
        return pa.table({"other": [1]})

    with pytest.raises(TypeError, match=r"world d5-run00. gave other: int64"):
        play_all(tmp_path, toys(), play=play)


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a b"])
def test_names_that_are_no_file_names(tmp_path, name):
    with pytest.raises(ValueError, match="name of a task"):
        play_all(tmp_path, [Toy(name)])


def test_names_must_differ(tmp_path):
    with pytest.raises(ValueError, match="'A': expected a name that no other task has"):
        play_all(tmp_path, [Toy("a"), Toy("A")])


SCRIPT = """
import sys
from test_running import play_all, toys
try:
    play_all(sys.argv[1], toys(plays=sys.argv[2], pause=float(sys.argv[3])))
except KeyboardInterrupt:
    sys.exit("stopped")
"""


def start_run(out, plays, pause):
    """The run in a process of its own, returned when at least two worlds are finished."""
    arguments = [sys.executable, "-c", SCRIPT, str(out), plays, str(pause)]
    process = subprocess.Popen(
        arguments, cwd=Path(__file__).parent, stderr=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 30
    while len(list(Path(out).glob("parts/*.parquet"))) < 2:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.01)
    return process


@pytest.mark.slow
def test_kill_and_go_on(tmp_path, plays, whole):
    out = tmp_path / "out"
    process = start_run(out, plays, pause=0.6)
    process.kill()
    process.communicate()
    assert not (out / "results.parquet").exists()
    leftover = out / "parts" / f".belated-{'0' * 32}"
    leftover.touch()
    kept = {part.stem for part in out.glob("parts/*.parquet")}
    play_all(out, toys(plays=plays))
    assert [played(plays).count(name) for name in kept] == [1] * len(kept)
    assert results(out) == whole
    assert not leftover.exists()


@pytest.mark.slow
def test_interrupt_and_go_on(tmp_path, plays, whole):
    out = tmp_path / "out"
    process = start_run(out, plays, pause=0.6)
    begun = played(plays)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert time.monotonic() - start < 2  # half of it for Python to end
    assert errors == "stopped\n"
    assert process.returncode == 1
    assert len(played(plays)) <= len(begun) + 2  # what had not started did not start
    kept = {part.stem for part in out.glob("parts/*.parquet")}
    play_all(out, toys(plays=plays))
    assert [played(plays).count(name) for name in kept] == [1] * len(kept)
    assert results(out) == whole


def cut(data):
    return data[:-20]


def empty(data):
    return b""


def flip(data):
    return data[:40] + bytes([data[40] ^ 0xFF]) + data[41:]


@pytest.mark.parametrize("damage", [cut, empty, flip])
def test_damaged_part_is_played_again(tmp_path, plays, whole, damage):
    out = tmp_path / "out"
    play_all(out, toys(plays=plays))
    part = out / "parts" / "d5-run002.parquet"
    part.write_bytes(damage(part.read_bytes()))
    with pytest.warns(UserWarning, match=r"d5-run002.parquet is damaged .* played again"):
        play_all(out, toys(plays=plays))
    assert played(plays) == sorted([*(t.name for t in toys()), "d5-run002"])
    assert results(out) == whole


def test_part_of_another_world_or_experiment_is_played_again(tmp_path, whole):
    out, other = tmp_path / "out", tmp_path / "other"
    play_all(out, toys())
    (out / "parts" / "d5-run002.parquet").write_bytes(
        (out / "parts" / "d5-run001.parquet").read_bytes()
    )
    with pytest.warns(UserWarning, match=r"run002.parquet is foreign: its belated.task is not d5"):
        play_all(out, toys())
    with Folder(other, {**SETTINGS, "seed": 4}, SCHEMA) as folder:
        folder.write_part("d5-run003", play_toy(toys()[3], float))
    (other / "parts" / "d5-run003.parquet").replace(out / "parts" / "d5-run003.parquet")
    with pytest.warns(UserWarning, match=r"run003.parquet is foreign: its belated.experiment"):
        play_all(out, toys())
    assert results(out) == whole


def test_part_with_other_columns_is_played_again(tmp_path, whole):
    out = tmp_path / "out"
    with Folder(out, SETTINGS, pa.schema([("a", pa.int64())])) as folder:
        folder.write_part("d5-run002", pa.table({"a": [1]}))
    with pytest.warns(UserWarning, match=r"d5-run002.parquet has other columns"):
        play_all(out, toys())
    assert results(out) == whole


def contents(folder):
    return {str(file): file.read_bytes() for file in Path(folder).rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"seed": 4}, "seed is 3 there, 4 here"),
        ({"seed": 3.0}, "seed is 3 there, 3.0 here"),
        ({"delay": {"type": "exponential", "mean": 9.0}}, "delay.mean is 5.0 there, 9.0 here"),
        ({"delay": "never"}, "delay is {'mean': 5.0, 'type': 'exponential'} there, 'never' here"),
        ({"arms": 7}, "arms is absent there, 7 here"),
    ],
)
def test_another_experiment_is_refused(tmp_path, change, difference):
    play_all(tmp_path, toys())
    before = contents(tmp_path)
    with pytest.raises(ValueError) as error:
        Folder(tmp_path, SETTINGS | change, SCHEMA)
    assert str(error.value) == (
        f"{tmp_path} holds another experiment ({difference}); choose another --out"
    )
    assert contents(tmp_path) == before


def test_settings_are_compared_as_they_are_written(tmp_path):
    for dims in ((5, 10), [5, 10]):
        Folder(tmp_path, {"dims": dims}, SCHEMA).close()


def test_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("the only copy")
    with pytest.raises(ValueError, match="is not empty and holds no experiment; choose another"):
        Folder(tmp_path, SETTINGS, SCHEMA)
    with pytest.raises(ValueError, match="is not a folder; choose another --out"):
        Folder(tmp_path / "thesis.tex", SETTINGS, SCHEMA)
    assert contents(tmp_path) == {str(tmp_path / "thesis.tex"): b"the only copy"}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"format": "other", "version": 1, "settings": {}, "versions": {}}'],
)
def test_manifest_that_cannot_be_read(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ValueError, match=r"manifest.json (cannot be read|has format).*--out") as e:
        Folder(tmp_path, SETTINGS, SCHEMA)
    assert "\n" not in str(e.value)
    assert list(contents(tmp_path).values()) == [text.encode()]


def test_killed_before_the_manifest(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / f".belated-{'a' * 32}").touch()
    play_all(tmp_path, toys())
    assert not list(tmp_path.glob(".belated-*"))


def test_another_version_is_said(tmp_path, monkeypatch):
    play_all(tmp_path, toys())
    monkeypatch.setattr(store, "source_digest", lambda: "another")
    with pytest.warns(
        UserWarning, match=r"begun by another version \(source is '.*' there, 'another' here"
    ):
        Folder(tmp_path, SETTINGS, SCHEMA).close()


def test_one_run_at_a_time(tmp_path):
    with Folder(tmp_path, SETTINGS, SCHEMA):
        before = contents(tmp_path)
        with pytest.raises(RuntimeError, match="is in use by another run; wait for it to end"):
            Folder(tmp_path, SETTINGS, SCHEMA)
        assert contents(tmp_path) == before
    Folder(tmp_path, SETTINGS, SCHEMA).close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
# Since Python 3.12: our child does nothing but wait, so no thread's lock can hurt it.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_orphan_does_not_hold_the_lock(tmp_path):
    folder = Folder(tmp_path, SETTINGS, SCHEMA)
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    try:
        time.sleep(0.1)  # let the child close what it inherited
        folder.close()
        Folder(tmp_path, SETTINGS, SCHEMA).close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_bar_counts_work_and_worlds(tmp_path):
    def screen(tasks, terminal=True, progress=True):
        console = Console(file=StringIO(), force_terminal=terminal, color_system=None, width=120)
        with Folder(tmp_path, SETTINGS, SCHEMA) as folder, ThreadPoolExecutor(1) as executor:
            run(tasks, play_toy, folder, executor, progress, console)
        return console.file.getvalue()

    assert screen(toys(2), terminal=False) == ""
    shown = screen(toys(4, pause=0.4))
    assert "30% 2/4 worlds" in shown  # (1 + 2) / (1 + 2 + 3 + 4): resumed, counted as done
    assert "100% 4/4 worlds" in shown
    assert "-:--:-- left" in shown  # no speed yet: what is resumed does not count
    assert "0:00:00 left" in shown
    percentages = {word for word in shown.split() if word.endswith("%")}
    assert len(percentages) > 4  # moves within a world
    assert screen(toys(5), progress=False) == ""
