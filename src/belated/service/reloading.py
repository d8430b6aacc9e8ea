"""Reload by SIGHUP: the config file and the certificate are read again, without a pause."""

import asyncio
import logging
import os
import signal
from pathlib import Path
from typing import Any

import msgspec

from belated.ledger.events import Kind
from belated.ledger.protocol import StoreUnavailableError
from belated.ledger.spec import Spec
from belated.service.bandits_file import config_drafts, read_limits
from belated.service.http.accepting import DoorLoop
from belated.service.http.choosing_protocol import LIMITS, connections_here
from belated.service.http.limits import Limits, make_room
from belated.service.http.tls import new_context
from belated.service.service import Service
from belated.service.workers import Board

log = logging.getLogger("belated.service")

HANGUP = getattr(signal, "SIGHUP", None)  # Windows has none
FIXED = ("idle_seconds", "max_body")  # limits that uvicorn or every operation was made with
_ON_TERMINAL = os.isatty(0)


class Reloading:
    """Reads again what a service was started with, each time that it is told to.

    Everything is checked before anything is changed. An error is one line of the log, and then all
    stays as it was.

    Parameters
    ----------
    service
        The service.
    config
        The file of its bandits and limits, if it has one.
    tls
        Certificate and key, if it speaks TLS.
    options
        Limits for which the file names none.
    limits
        Those with which the service was started.
    board
        Of its workers, one of which writes for all.
    """

    def __init__(
        self,
        service: Service,
        config: str | None = None,
        tls: tuple[str, str] | None = None,
        options: Limits = Limits(),  # noqa: B008 - it is frozen
        limits: Limits = Limits(),  # noqa: B008
        board: Board | None = None,
    ) -> None:
        self._service, self._config, self._tls, self._board = service, config, tls, board
        self._options, self._limits = options, limits
        self._one_by_one = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()  # the event loop does not hold on to them

    def listen(self) -> None:
        """Reload at every SIGHUP from now on; to be called by the event loop of the process."""
        if HANGUP is not None:
            asyncio.get_running_loop().add_signal_handler(HANGUP, self._begin)

    def _begin(self) -> None:
        if is_terminal_gone():
            os.kill(os.getpid(), signal.SIGTERM)
            return
        task = asyncio.get_running_loop().create_task(self.reload())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def reload(self) -> None:
        """Read everything again."""
        async with self._one_by_one:
            try:
                self._service.check_ready()
                context = None if self._tls is None else new_context(*self._tls)
                limits = self._read_limits()
                said = await self._change_bandits()
            except Exception as error:  # whatever a file may hold, the service goes on
                expected = isinstance(error, (ValueError, OSError, StoreUnavailableError))
                log.error("nothing was reloaded: %s", error, exc_info=None if expected else error)
                return
            said += self._change_limits(limits)
            if context is not None:
                said.append(_present(context))
            log.info("reloaded: %s", "; ".join(said) or "there was nothing to change")

    def _read_limits(self) -> Limits:
        if self._config is None:
            return self._limits
        limits = read_limits(Path(self._config), self._options)
        make_room(limits)
        return limits

    def _change_limits(self, wanted: Limits) -> list[str]:
        """Let new connections have these limits; returns what was done, in words."""
        old, fixed = self._limits, FIXED if LIMITS in os.environ else Limits.__struct_fields__
        differ = [f for f in Limits.__struct_fields__ if getattr(wanted, f) != getattr(old, f)]
        changes = {name: getattr(wanted, name) for name in differ if name not in fixed}
        said = [f"{', '.join(changes)} changed"] if changes else []
        if changes:
            self._limits = connections_here().limits = msgspec.structs.replace(old, **changes)
        kept = [name for name in differ if name in fixed]
        return said + ([f"{', '.join(kept)} cannot change before a restart"] if kept else [])

    async def _change_bandits(self) -> list[str]:
        """Let the bandits be as the file says; returns what was done, in words."""
        if self._config is None or not (self._board is None or self._board.leads()):
            return []
        service, path = self._service, Path(self._config)
        await service.catch_up()
        for draft in config_drafts(service.replica, path):
            if draft.kind is Kind.CONFIGURED:
                spec = msgspec.json.decode(draft.body, type=Spec)
                await service.compiling.get_ready(
                    draft.bandit, spec, service.replica.folds.get(draft.bandit)
                )
        await service.catch_up()  # compiling may have taken a while
        drafts = config_drafts(service.replica, path)
        if drafts:
            await service.write(drafts)
        changed = dict.fromkeys(draft.bandit for draft in drafts)
        return [f"bandits {', '.join(changed)} changed"] if changed else []


def _present(context: Any) -> str:
    """Let new connections meet this certificate; returns what was done, in words."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, DoorLoop):
        return "the certificate is read at the start alone here, and stays"
    for door in loop.doors:
        door.tls = context
    return "the certificate was read again"


def is_terminal_gone() -> bool:
    """Returns whether the terminal on which this process was started has been closed.

    A program that was started there ends with it, and SIGHUP is how it learns of that.
    """
    return _ON_TERMINAL and not os.isatty(0)
