"""Work in a thread of its own, for which the event loop waits a little.

Most work is done by then, and waiting for it costs less than going on meanwhile would. Where it
takes longer, whatever it is, requests that do not need its result are answered.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

WAIT = 0.01  # seconds for which the event loop waits; health must be answered within 0.05


class WorkThread:
    """A thread that does one piece of work after the other, for coroutines of one event loop."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)
        self._work: asyncio.Future[Any] | None = None  # for which the event loop did not wait

    @property
    def is_busy(self) -> bool:
        """True while work goes on that takes longer than the event loop waits."""
        return self._work is not None and not self._work.done()

    async def idle(self) -> None:
        """Returns when no work goes on; none begins before the caller awaits something else."""
        while self._work is not None and not self._work.done():
            await asyncio.wait([self._work])

    async def run(self, wait: float, function: Callable[..., T], *arguments: Any) -> T:
        """Returns what ``function`` returns; the event loop waits for it for ``wait`` seconds."""
        await self.idle()
        work = self._executor.submit(function, *arguments)
        with suppress(TimeoutError):
            work.exception(wait)
        if not work.done():
            going_on = self._work = asyncio.wrap_future(work)
            await asyncio.wait([going_on])  # whoever asked may be cancelled, the work is not
            return going_on.result()
        return work.result()
