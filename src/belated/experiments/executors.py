"""Executors that play the worlds: threads, processes, Dask, Ray, or one of the user's own."""

import logging
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from multiprocessing import active_children, get_context
from typing import Any, ParamSpec, TypeVar

from belated.core.arguments import whole, wrong_type
from belated.core.extras import extra
from belated.registry import hint

P = ParamSpec("P")
T = TypeVar("T")

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # on Windows, SIGTERM cannot be caught either


def open_executor(
    spec: str | Executor | None = None, threads: int = 1
) -> AbstractContextManager[Executor]:
    """Returns the executor that ``spec`` names, to be used in a ``with`` statement.

    Parameters
    ----------
    spec : str, Executor or None
        ``"threads"`` (the default), ``"processes"``, ``"dask"`` or ``"ray"`` on this machine,
        ``"tcp://host:port"`` for a Dask scheduler that is already there, or an executor, which is
        used as it is and not shut down.
    threads : int
        The number of threads or of worker processes on this machine.

    Returns
    -------
    context manager of a concurrent.futures.Executor
        Leaving it ends everything that it has started.

    Examples
    --------
    >>> with open_executor(threads=2) as executor:
    ...     executor.submit(pow, 2, 5).result()
    32
    """
    whole("threads", threads)
    if isinstance(spec, Executor):
        return nullcontext(spec)
    name = "threads" if spec is None else spec
    if not isinstance(name, str):
        raise wrong_type("executor", name, "a name or an Executor")
    if name.startswith(("tcp://", "tls://")):
        return _scheduler(name)
    openers: dict[str, Callable[[int], AbstractContextManager[Executor]]] = {
        "threads": ThreadPoolExecutor,
        "processes": _processes,
        "dask": _dask,
        "ray": _ray,
    }
    if name not in openers:
        expected = f"one of {', '.join(openers)}, or tcp://host:port of a Dask scheduler"
        raise ValueError(f"executor = {name!r}: expected {expected}{hint(name, openers)}")
    return openers[name](threads)


@contextmanager
def _processes(workers: int) -> Iterator[Executor]:
    """Processes with one thread of linear algebra each: more would compete for the same cores."""
    before = set(active_children())
    spawn = get_context("spawn")  # a forked process would inherit locks that nobody opens
    with (
        _environment(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")),
        ProcessPoolExecutor(workers, spawn, initializer=_ignore_interrupts) as pool,
    ):
        try:
            yield pool
        except BaseException:
            for process in set(active_children()) - before:
                process.kill()  # the pool would wait for worlds under way
            raise


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables of the environment, which new processes get, and set them back at the end."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _dask(workers: int) -> Iterator[Executor]:
    with extra("dask"):
        import distributed
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # any free port; None would take 8787
            scheduler_kwargs={"dashboard": False},
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.register_worker_callbacks(_ignore_interrupts)
        try:
            yield client.get_executor(pure=False)
        except BaseException:
            _close_at_once(client, cluster)
            raise


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C, which reaches every process of the terminal: the parent handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _close_at_once(client: Any, cluster: Any) -> None:
    """Kill the workers: Dask would wait seconds for their worlds, and complain of each."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    for nanny in cluster.workers.values():
        nanny.auto_restart = False
        with suppress(ProcessLookupError, TypeError):  # it is gone already, or has no process yet
            os.kill(nanny.pid, KILL)
    client.close()
    cluster.close()
    logger.setLevel(level)


@contextmanager
def _scheduler(address: str) -> Iterator[Executor]:
    with extra("dask"):
        import distributed
    with distributed.Client(address) as client:
        yield client.get_executor(pure=False)


@contextmanager
def _ray(workers: int) -> Iterator[Executor]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody asked to be counted
    with extra("ray"):
        import ray
    ours = not ray.is_initialized()
    if ours:
        ray.init(
            "local",
            num_cpus=workers,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,  # its messages on starting are no news to the user
        )
    try:
        yield RayExecutor(ray)
    finally:
        if ours:
            ray.shutdown()


class RayExecutor(Executor):
    """Ray as an executor. A call whose worker process dies is made again, up to three times.

    Parameters
    ----------
    ray : module
        The module ``ray``, initialised.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._call = ray.remote(max_retries=3)(_call)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function in a worker process; cancelling ends it there even after it has begun."""
        reference = self._call.remote(fn, args, kwargs)
        future: Future[T] = Future()
        reference.future().add_done_callback(partial(_hand_over, future))

        def cancel(done: Future[T]) -> None:
            if done.cancelled():
                self._ray.cancel(reference, force=True)

        future.add_done_callback(cancel)
        return future


def _call(function: Callable[..., T], args: Any, kwargs: Any) -> T:
    return function(*args, **kwargs)


def _hand_over(future: Future[T], done: Future[T]) -> None:
    """Give ``future`` the outcome of ``done``; an error is the one raised, not Ray's wrapper."""
    if not future.set_running_or_notify_cancel():
        return
    error = done.exception()
    if error is None:
        future.set_result(done.result())
    else:
        future.set_exception(getattr(error, "cause", None) or error)
