"""The real service in a process of its own, to kill, to stop and to break the store of."""

import json
import os
import socket
import ssl
import time
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from multiprocessing import get_context
from typing import Any, NamedTuple

import apsw
import msgspec

from belated.service import service as running
from belated.service import serving
from belated.service.service import Service
from belated.service.serving import ServeSettings, serve

# Forked from a process that has imported everything: a start takes a tenth of a second, not one.
_context = get_context("forkserver")
_context.set_forkserver_preload(["belated.service.serving", "belated.ledger.fold"])


class Gone(Exception):  # noqa: N818 - it is what happened, not a mistake
    """The server did not answer: whether it did what was asked is not known."""


class Answer(NamedTuple):
    status: int
    body: Any
    type: str


class Caller:
    """A client that holds on to its connection. Not for several threads at once."""

    def __init__(
        self,
        port: int,
        key: str | None = None,
        timeout: float = 30.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=timeout)
        if tls is not None:
            self._connection = HTTPSConnection("127.0.0.1", port, timeout=timeout, context=tls)
        self._headers = {"Content-Type": "application/json"}
        if key is not None:
            self._headers["X-API-Key"] = key

    def __call__(self, method: str, path: str, body: Any = None) -> Answer:
        content = None if body is None else json.dumps(body).encode()
        try:
            self._connection.request(method, path, content, self._headers)
            response = self._connection.getresponse()
            raw = response.read()
        except (OSError, HTTPException) as error:
            self._connection.close()
            raise Gone(str(error)) from None
        kind = response.headers.get("content-type", "").partition(";")[0]
        parsed = json.loads(raw) if kind.endswith("json") else raw.decode()
        return Answer(response.status, parsed, kind)

    def close(self) -> None:
        self._connection.close()


class LiveServer:
    """A server of ``ledger`` on a port of its own; a context manager that leaves nothing behind.

    ``breaking`` is a file: while it exists, every write of SQLite fails as the file says. Every
    ``follow_every`` seconds it looks at the log by itself.
    """

    def __init__(
        self,
        ledger: str,
        breaking: str | None = None,
        follow_every: float = running.FOLLOW_EVERY,
        **settings: Any,
    ) -> None:
        self.settings = ServeSettings(ledger=ledger, port=free_port(), **settings)
        self.breaking, self.follow_every = breaking, follow_every

    @property
    def port(self) -> int:
        return self.settings.port

    def __enter__(self) -> "LiveServer":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.is_alive():
            self.kill()

    def start(self) -> None:
        """Returns when requests are served."""
        self.process = _context.Process(
            target=_serve,
            args=(msgspec.json.encode(self.settings), self.breaking, self.follow_every),
            daemon=True,
        )
        self.process.start()
        caller = Caller(self.port)
        for _ in range(3000):
            try:
                if caller("GET", "/readyz").status == 200:
                    break
            except Gone:
                if not self.process.is_alive():
                    raise RuntimeError("the server did not start") from None
            time.sleep(0.01)
        else:
            raise RuntimeError("the server did not become ready")
        caller.close()

    def kill(self) -> None:
        """With SIGKILL."""
        self.process.kill()
        self.process.join()

    def stop(self, seconds: float = 10.0) -> int | None:
        """With SIGTERM; the exit code, None where it does not end in time."""
        self.process.terminate()
        self.process.join(seconds)
        return self.process.exitcode

    def call(self, method: str, path: str, body: Any = None) -> Answer:
        """One request on a connection of its own."""
        caller = Caller(self.port)
        try:
            return caller(method, path, body)
        finally:
            caller.close()

    def digests(self) -> tuple[list[int], dict[str, str]]:
        """How far the log was taken in, and the digest of every bandit there."""
        answer = self.call("GET", "/digests")
        return answer.body["position"], answer.body["digests"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


# ------------------------------------------------------------------------ in the server's process


def _serve(settings: bytes, breaking: str | None, follow_every: float) -> None:
    running.FOLLOW_EVERY = follow_every
    disk = None if breaking is None else BreakableDisk(breaking)  # gone when nobody holds it
    new_app = serving.new_app
    serving.new_app = lambda *given: WithDigests(new_app(*given), given[0])
    serve(msgspec.json.decode(settings, type=ServeSettings))
    del disk


class WithDigests:
    """The app, and the digests of its bandits at /digests."""

    def __init__(self, app: Any, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") != "/digests":
            await self.app(scope, receive, send)
            return
        await self.service.settled()  # as everybody who looks at the bandits
        replica = self.service.replica
        digests = {name: fold.digest() for name, fold in replica.folds.items()}
        body = json.dumps({"position": replica.position, "digests": digests}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class BreakableDisk(apsw.VFS):
    """The disk, until a file of this path appears: then nothing can be written."""

    def __init__(self, breaking: str) -> None:
        self.breaking = breaking
        super().__init__("breakable", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> "BreakableFile":
        return BreakableFile(self.breaking, name, flags)


class BreakableFile(apsw.VFSFile):
    def __init__(self, breaking: str, name: Any, flags: list[int]) -> None:
        self.breaking = breaking
        super().__init__("unix", name, flags)

    def _check(self) -> None:
        if os.path.exists(self.breaking):
            with open(self.breaking) as file:
                raise getattr(apsw, file.read().strip())("the disk is broken")

    def xWrite(self, data: bytes, offset: int) -> None:
        self._check()
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._check()
        super().xSync(flags)
