"""Playing many independent worlds on any executor: progress, resuming, stopping."""

from collections.abc import Callable, Sequence
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
    as_completed,
)
from datetime import timedelta
from re import fullmatch
from threading import Event
from typing import Protocol, Self, TypeAlias, TypeVar

import pyarrow as pa
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Task as Row
from rich.text import Text

from belated.core.arguments import wrong
from belated.core.cache import source_digest
from belated.experiments.store import Folder


class Task(Protocol):
    """One world to play: small, picklable, with a name of its own in the experiment."""

    @property
    def name(self) -> str:
        """Name of the part, made of letters, digits, ``.``, ``_`` and ``-``."""

    @property
    def work(self) -> float:
        """The amount of work, in any unit."""


AnyTask = TypeVar("AnyTask", bound=Task)
AfterBlock: TypeAlias = Callable[[float], None]  # gets the work done since it was last called
Play: TypeAlias = Callable[[AnyTask, AfterBlock], pa.Table]


class StoppedError(Exception):
    """Raised by ``after_block`` inside a world whose run is being stopped."""


def run(
    tasks: Sequence[AnyTask],
    play: Play[AnyTask],
    folder: Folder,
    executor: Executor,
    progress: bool = True,
    console: Console | None = None,
) -> pa.Table:
    """Play the worlds that are not finished yet, and join all into ``results.parquet``.

    Every world that finishes is on disk at once. After Ctrl-C, an error or a kill, the same call
    plays the worlds that are missing.

    Parameters
    ----------
    tasks : sequence of Task
        The worlds; the results stand in this order, whichever finishes first.
    play : function of a task and ``after_block``
        A module-level function that plays one world and returns its table. It calls
        ``after_block`` now and then with the work done since the last call, and does not catch
        the errors of ``after_block``.
    folder : Folder
        The folder of the parts.
    executor : concurrent.futures.Executor
        The executor that plays the worlds. It is not shut down.
    progress : bool
        Whether to show a bar, if ``console`` is a terminal.
    console : rich.console.Console, optional
        The console of the bar; standard error by default.

    Returns
    -------
    pyarrow.Table
        The rows of all worlds.
    """
    names = _checked_names(tasks)
    finished = folder.finished(names)
    # Large worlds first: a large one that starts last would leave the other workers idle.
    left = sorted((t for t in tasks if t.name not in finished), key=lambda t: t.work, reverse=True)
    console = console or Console(stderr=True)
    with Bar(tasks, finished, console, shown=progress and console.is_terminal) as bar:
        _play_all(left, play, folder, executor, bar)
    return folder.write_results(names)


def _checked_names(tasks: Sequence[Task]) -> list[str]:
    names = [task.name for task in tasks]
    seen: set[str] = set()
    for name in names:
        if not fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name):
            raise wrong("name of a task", name, "letters, digits, '.', '_' and '-'")
        if name.lower() in seen:  # some file systems do not tell a from A
            raise wrong("name of a task", name, "a name that no other task has")
        seen.add(name.lower())
    return names


def _play_all(
    tasks: Sequence[AnyTask], play: Play[AnyTask], folder: Folder, executor: Executor, bar: "Bar"
) -> None:
    stop = Event()
    under_way: dict[Future[pa.Table], AnyTask] = {}
    try:
        for task in tasks:
            # Only a thread can call back; other workers get a function that does nothing.
            if isinstance(executor, ThreadPoolExecutor):
                future = executor.submit(play, task, _follower(task, bar, stop))
            else:
                future = executor.submit(_play_elsewhere, play, task, source_digest())
            under_way[future] = task
        for future in as_completed(under_way):
            task = under_way.pop(future)
            folder.write_part(task.name, future.result())
            bar.finish(task)
    except (BrokenExecutor, CancelledError) as error:
        raise RuntimeError(
            f"the workers are gone ({type(error).__name__}); finished worlds are kept, the same "
            "call plays the others"
        ) from error
    finally:
        stop.set()
        for future in under_way:
            future.cancel()


def _follower(task: Task, bar: "Bar", stop: Event) -> AfterBlock:
    def after_block(amount: float) -> None:
        if stop.is_set():
            raise StoppedError
        bar.advance(task, amount)

    return after_block


def _play_elsewhere(play: Callable[..., pa.Table], task: Task, source: str) -> pa.Table:
    """Play in another process, perhaps on another machine, if it has the same source."""
    if source_digest() != source:
        raise RuntimeError("a worker has another version of belated; install this one there")
    return play(task, lambda amount: None)


class Bar:
    """Progress over all worlds, measured in work; worlds finished before do not count as speed.

    Parameters
    ----------
    tasks : sequence of Task
        All worlds.
    finished : set of str
        The names of the worlds that an earlier run has played.
    console : rich.console.Console
        The console of the bar.
    shown : bool
        Whether to show the bar.
    """

    def __init__(
        self, tasks: Sequence[Task], finished: set[str], console: Console, shown: bool
    ) -> None:
        columns = BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[worlds]} worlds")
        self._shown = shown  # not rich's `disable`, which ends with an empty line in rich 13
        self._progress = Progress(*columns, TimeElapsedColumn(), _TimeLeft(), console=console)
        self._done: dict[str, float] = {t.name: t.work for t in tasks if t.name in finished}
        self._finished, self._total = len(finished), len(tasks)
        resumed = sum(self._done.values())
        self._row = self._progress.add_task(
            "",
            total=sum(task.work for task in tasks),
            completed=resumed,  # type: ignore[arg-type] # an int by rich's stubs, any number in fact
            resumed=resumed,
            worlds=self._worlds(),
        )

    def __enter__(self) -> Self:
        if self._shown:
            self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._shown:
            self._progress.stop()

    def advance(self, task: Task, amount: float) -> None:
        """Count work done within a world, up to all of it."""
        done = self._done.get(task.name, 0.0)
        self._done[task.name] = min(done + amount, task.work)
        self._progress.advance(self._row, self._done[task.name] - done)

    def finish(self, task: Task) -> None:
        """Count a world as finished."""
        self.advance(task, task.work)
        self._finished += 1
        self._progress.update(self._row, worlds=self._worlds())

    def _worlds(self) -> str:
        return f"{self._finished}/{self._total}"


class _TimeLeft(ProgressColumn):
    """Time left at the mean speed of this run; rich's own column forgets after half a minute."""

    def render(self, task: Row) -> Text:
        """Returns the text of the column."""
        played = task.completed - task.fields["resumed"]
        if task.remaining is None or task.elapsed is None or played <= 0:
            return Text("-:--:-- left")
        seconds = round(task.elapsed * task.remaining / played)
        return Text(f"{timedelta(seconds=seconds)} left")
