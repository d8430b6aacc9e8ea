"""``belated serve``: settings, a server process or several, and what is refused at the door."""

import ipaddress
import os
import signal
import sys
from pathlib import Path

import msgspec
import uvicorn
from starlette.types import ASGIApp

from belated.core.arguments import wrong
from belated.ledger import open_ledger
from belated.ledger.events import START, Kind
from belated.service.access import RateLimit
from belated.service.app import new_app
from belated.service.logs import write_access_log
from belated.service.running import Service

ENVIRONMENT = "BELATED_SERVE"  # how worker processes learn what to serve
DRAIN_SECONDS = 2  # for requests under way when the service is told to stop


class ServeSettings(msgspec.Struct, kw_only=True):
    """What ``belated serve`` was told."""

    ledger: str
    host: str = "127.0.0.1"
    port: int = 8787
    workers: int = 1
    without_keys: bool = False
    requests_per_second: float | None = None
    access_log: bool = False
    snapshots: str | None = None


def serve(settings: ServeSettings) -> None:
    """Serve until told to stop."""
    check_address(settings)
    os.environ[ENVIRONMENT] = msgspec.json.encode(settings).decode()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: threads only disturb
    # uvicorn answers what is under way, then raises the signal again: to be told is no failure
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    uvicorn.run(
        "belated.service.serving:app_from_environment",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        access_log=False,  # it would log query strings
        log_level="warning",
        timeout_graceful_shutdown=DRAIN_SECONDS,
        server_header=False,
        proxy_headers=False,  # nobody looks at the address of a client
        lifespan="on",
    )


def app_from_environment() -> ASGIApp:
    """The app of a worker process."""
    settings = msgspec.json.decode(os.environ[ENVIRONMENT], type=ServeSettings)
    if settings.access_log:
        write_access_log(sys.stderr)
    folder = None if settings.snapshots is None else Path(settings.snapshots)
    service = Service(settings.ledger, snapshot_folder=folder)
    rate = settings.requests_per_second
    return new_app(service, None if rate is None else RateLimit(rate, max(1.0, 2.0 * rate)))


def check_address(settings: ServeSettings) -> None:
    """Refuse to let the world in without keys."""
    if settings.without_keys or _is_private(settings.host):
        return
    ledger = open_ledger(settings.ledger)
    try:
        if not ledger.rare(Kind.KEYS, START):
            raise wrong(
                "host",
                settings.host,
                "127.0.0.1 as long as there are no API keys; make one with `belated keys create`, "
                "or pass --without-keys",
            )
    finally:
        ledger.close()


def _is_private(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
