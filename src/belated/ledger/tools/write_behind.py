"""Writing batches while the next ones are read: shared by imports and restores."""

import gc
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Batch = TypeVar("Batch")
Result = TypeVar("Result")


@contextmanager
def without_collector() -> Iterator[None]:
    """Switch the garbage collector off, which is a third of the work: imports make no cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def written_behind(
    write: Callable[[Batch], Result], batches: Iterable[Batch]
) -> Iterator[tuple[Batch, Result]]:
    """Yields each batch with what ``write`` returned; it writes while the next batch is read.

    Batches are written in their order, one at a time. An error of ``write`` is raised here.
    """
    with ThreadPoolExecutor(1) as thread:
        last: tuple[Batch, Future[Result]] | None = None
        for batch in batches:
            if last is not None:
                yield last[0], last[1].result()
            last = batch, thread.submit(write, batch)
        if last is not None:
            yield last[0], last[1].result()
