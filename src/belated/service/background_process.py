"""Long work in a process of its own, beside the one that answers requests.

A thread would not do: Python runs one thread at a time, and decisions would wait for it. The
process starts when it is first needed, works off one call after the other, and ends when none has
come for a while, or when the service is gone.
"""

import asyncio
import importlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

IDLE = 60.0  # seconds without a call after which the process ends
MOST_WAITING = 8  # calls
NICER = 10  # than the service: where cores are short, decisions come first


class TooManyCallsError(RuntimeError):
    """Raised when so many calls wait for their turn that another one is not taken."""


class BackgroundProcessError(RuntimeError):
    """The process failed, or the function that it called."""


class BackgroundProcess:
    """A process that calls functions of this package; what it is given and returns is JSON."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: ThreadPoolExecutor | None = None  # waits for the process
        self._waiting = 0
        self._stopped = threading.Event()

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Returns what a function at the top of a module returns, called in the process."""
        if self._waiting >= MOST_WAITING:
            raise TooManyCallsError(f"{self._waiting} calls wait already")
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "background")
        name = f"{function.__module__}:{function.__name__}"
        line = json.dumps([name, arguments], default=str).encode() + b"\n"  # a Path as text
        self._waiting += 1
        try:
            here = asyncio.get_running_loop()
            said = await here.run_in_executor(self._thread, self._ask, line)
        finally:
            self._waiting -= 1
        answer, error = json.loads(said)
        if error is not None:
            raise BackgroundProcessError(error)
        return answer

    def stop(self) -> None:
        """Give up what is under way."""
        self._stopped.set()
        process = self._process
        if process is not None:
            process.kill()
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        if self._process is not None:
            self._process.communicate()

    def _ask(self, line: bytes) -> bytes:
        """The answer to a call; a process that ended just now is replaced by another one."""
        for _ in range(2):
            if self._stopped.is_set():
                break
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(line)
                process.stdin.flush()
                said = process.stdout.readline()
            except OSError:
                said = b""
            if said.endswith(b"\n"):
                return said
            self._process = None
            process.communicate()
            if process.returncode != 0:
                raise BackgroundProcessError(f"the process ended with code {process.returncode}")
        raise BackgroundProcessError("the process ended")

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the service, which then stops this
            )
        return self._process


# ------------------------------------------------------------------------------- in the process


def main() -> None:
    """Answer calls until nobody asks any more."""
    if hasattr(os, "nice"):
        os.nice(NICER)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed by the way is no answer
    while select.select([0], [], [], IDLE)[0]:
        line = sys.stdin.buffer.readline()
        if not line:
            break  # the service is gone
        answers.write(json.dumps(_called(*json.loads(line))).encode() + b"\n")
        answers.flush()


def _called(name: str, arguments: list[Any]) -> tuple[Any, str | None]:
    try:
        module, _, function = name.partition(":")
        return getattr(importlib.import_module(module), function)(*arguments), None
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
