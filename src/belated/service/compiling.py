"""Compiles the kernels of bandits beside the service, and says which are there.

The compiler works under one lock and holds up every other thread. Where the result can be kept on
disk, two processes therefore do the work, one for choosing and one for learning, and the service
only loads what they made. Choosing is there first, and decisions need not wait for the rest.
"""

import asyncio
import gc
import logging
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from belated.core.cache import is_writable, one_at_a_time
from belated.ledger.spec import Spec
from belated.service.http.problems import Problem, ProblemType

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.learner.learner import Learner
    from belated.ledger.fold import Fold

log = logging.getLogger("belated.service")

COMPILING = ProblemType(503, "compiling", "Kernels are being compiled")
RETRY_AFTER = 1.0  # seconds
HALVES = ("choosing", "learning")  # of the work, for one process each


class Compiling:
    """Compiles the kernels of bandits, and knows which bandits wait for theirs.

    Parameters
    ----------
    done
        Is called on the event loop with the name of a bandit whose kernels have come.
    """

    def __init__(self, done: Callable[[str], None]) -> None:
        self._done = done
        self.names: set[str] = set()  # of bandits whose kernels are being compiled
        self.choosing: set[str] = set()  # of bandits that can decide, be they learning yet or not
        self._wanted: list[Fold] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stopped = False

    def prepare_now(self, fold: "Fold") -> bool:
        """Compile before this returns; True: the kernels of this bandit are there."""
        learner = fold.spec.learner()
        if not learner.is_compiled:
            self.names.add(fold.name)
            try:
                self.compile(fold.name, fold.spec, learner)
            finally:
                self.names.discard(fold.name)
        return True

    def compile(self, name: str, spec: Spec, learner: "Learner") -> None:
        """Compile the kernels of a learner with these settings, of a bandit that may go on."""
        with one_at_a_time():  # others may be compiling the same
            self._compile(name, spec, learner)

    def prepare(self, fold: "Fold") -> bool:
        """Returns whether the kernels of a bandit are there; if not, ``look`` sees to it."""
        is_compiled = fold.spec.learner().is_compiled
        if not is_compiled:
            self._wanted.append(fold)
        return is_compiled

    def look(self) -> None:
        """Begin to compile in the background what ``prepare`` found missing."""
        while self._wanted:
            beside = self._prepare_beside(self._wanted.pop())
            task = asyncio.get_running_loop().create_task(beside)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _prepare_beside(self, fold: "Fold") -> None:
        try:
            await asyncio.to_thread(self.prepare_now, fold)
        except Exception:
            if self._stopped:
                return
            log.exception("the kernels of bandit %r could not be compiled", fold.name)
        self._done(fold.name)

    def _compile(self, name: str, spec: Spec, learner: "Learner") -> None:
        from belated.core.jit import load_compiler

        if learner.is_compiled:
            return
        started = perf_counter()
        what = f"{spec.family['type']}, {spec.policy['type']}"
        log.warning("compiling the kernels of bandit %r (%s), once for this version", name, what)
        processes = self._start_processes(spec) if is_writable() else {}
        load_compiler()  # while they work
        for half in HALVES:
            if half in processes:
                self._wait_for(processes[half])
            if self._stopped:
                raise RuntimeError("the service was told to stop while it compiled")
            _warm_up(learner, half)
            if half == "choosing":
                self.choosing.add(name)
        log.warning("compiled the kernels of bandit %r in %.0f s", name, perf_counter() - started)

    def _start_processes(self, spec: Spec) -> "dict[str, subprocess.Popen[bytes]]":
        """Begin to fill the cache. Whatever goes wrong there, the service compiles itself then."""
        processes = {half: _process(half, spec) for half in HALVES}
        self._processes += processes.values()
        return processes

    def _wait_for(self, process: "subprocess.Popen[bytes]") -> None:
        said = process.communicate()[1]
        self._processes.remove(process)
        if process.returncode and not self._stopped:
            log.warning("a compiler failed: %s", said.decode(errors="replace")[-500:])

    async def get_ready(self, name: str, spec: Spec, known: "Fold | None") -> None:
        """Check the settings that a bandit is to have, and load or compile what it would lack."""
        learner = await asyncio.to_thread(checked_learner, spec)
        if known is not None and learner.half_life is not None and known.learner.half_life is None:
            # The bandit decides on while the kernels for forgetting are compiled.
            await asyncio.to_thread(self.compile, name, spec, learner)
        elif learner.is_compiled:
            await asyncio.to_thread(learner.warm_up)  # loads what is on disk

    async def stop(self) -> None:
        """Give up what is under way."""
        self._stopped = True
        for process in list(self._processes):
            process.kill()
        await asyncio.gather(*self._tasks)


def compiling_problem(what: str) -> Problem:
    """The answer to a request that has to wait."""
    return Problem(COMPILING, f"{what}. Try again in a moment.", retry_after=RETRY_AFTER)


def checked_learner(spec: Spec) -> "Learner":
    """A learner of these settings, which are checked, with the few kernels that show a bandit."""
    from belated.model.protocols import sqrt_beta

    learner = spec.learner()
    if learner.has_set:
        sqrt_beta(learner.policy, learner.state)
    return learner


def _process(half: str, spec: Spec) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-m", "belated.service.compiling", half],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the service, which then stops this
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(spec))
    process.stdin.close()
    process.stdin = None
    return process


def _warm_up(learner: "Learner", half: str) -> None:
    if half == "choosing":
        learner.warm_up_choosing()
    else:
        learner.warm_up_learning()


def _main() -> None:
    gc.disable()  # it would take a tenth of the time, and nothing here lives for long
    _warm_up(msgspec.json.decode(sys.stdin.buffer.read(), type=Spec).learner(), sys.argv[1])


if __name__ == "__main__":
    _main()
