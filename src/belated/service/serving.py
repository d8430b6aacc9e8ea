"""``belated serve``: settings, a server process or several, and what is refused at the door."""

import logging
import os
import re
import signal
import socket
import ssl
import sys
import threading
import time
import urllib.request
from contextlib import ExitStack, closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn
import uvicorn.config
import uvicorn.supervisors.multiprocess
from starlette.types import ASGIApp

from belated.core.arguments import positive, whole, wrong
from belated.core.extras import extra
from belated.ledger import open_ledger, snapshots
from belated.ledger.events import START, Kind
from belated.ledger.protocol import Ledger
from belated.ledger.replica import NAME, Replica
from belated.service.app import new_app
from belated.service.bandits_file import apply_config, read_limits
from belated.service.http.access import RateLimit
from belated.service.http.access_log import write_access_log
from belated.service.http.choosing_protocol import http_options
from belated.service.http.hosts import is_loopback
from belated.service.http.json_log import write_json_log
from belated.service.http.limits import Limits, make_room
from belated.service.http.tls import new_context
from belated.service.reloading import HANGUP, Reloading, is_terminal_gone
from belated.service.service import Service
from belated.service.snapshotting import Snapshots
from belated.service.workers import Board, end_with_parent, new_board

if TYPE_CHECKING:  # an extra
    from belated.service.tracing import Tracing

log = logging.getLogger("belated.service")

ENVIRONMENT = "BELATED_SERVE"  # how worker processes learn what to serve
DRAIN_SECONDS = 2  # for requests under way when the service is told to stop
SWITCH_SECONDS = 0.001  # after which a thread that works lets the event loop have its turn
WORKER_SECONDS = 15  # in which a worker must say that it is alive, or another takes its place
COLLECTOR = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
LOG_FORMATS = ("text", "json")
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # listens on all addresses: one to ask at


class ServeSettings(msgspec.Struct, kw_only=True):
    """The options of ``belated serve``."""

    ledger: str
    host: str = "127.0.0.1"
    port: int = 8787  # 0: any that is free
    workers: int = 1
    config: str | None = None
    without_keys: bool = False
    requests_per_second: float | None = None
    access_log: bool = False
    log_format: str = LOG_FORMATS[0]
    snapshots: str | None = None  # folder; beside the file of a SQLite ledger by default
    snapshot_every: int = 1_000_000  # events
    traces: bool = False  # or by the variables OTEL_...
    bandits: tuple[str, ...] = ()  # the only ones to serve; none named: all
    personalizer: str | None = None  # the bandit behind the Personalizer endpoints
    allowed_hosts: tuple[str, ...] = ()  # to which it answers without keys, beside this machine's
    tls_certificate: str | None = None  # PEM files
    tls_key: str | None = None
    limits: Limits = Limits()  # on what a request may cost
    in_force: Limits | None = None  # set by ``serve``: those of the file, else of the options
    board: str | None = None  # set by ``serve`` where there are several workers

    @property
    def only(self) -> frozenset[str] | None:
        """Names of the bandits to serve; None: all."""
        return frozenset(self.bandits) or None

    @property
    def tls(self) -> tuple[str, str] | None:
        """Certificate and key, if TLS is spoken."""
        if self.tls_certificate is None or self.tls_key is None:
            return None
        return self.tls_certificate, self.tls_key


def serve(settings: ServeSettings) -> None:
    """Serve until told to stop."""
    settings.port = free_port(settings.host, settings.port)
    _check(settings)
    _log_as(settings)
    limits = settings.in_force = settings.limits
    if settings.config is not None:
        limits = settings.in_force = read_limits(Path(settings.config), limits)
    with closing(open_ledger(settings.ledger)) as ledger:  # made or refused before a worker starts
        check_address(ledger, settings)
        if settings.config is not None:
            _configure(ledger, settings)
    make_room(limits)
    with ExitStack() as stack:
        if settings.workers > 1:
            settings.board = stack.enter_context(new_board())
        snapshotting = _snapshots(settings)
        if snapshotting is not None:
            stack.callback(snapshotting.stop)
        _run(settings, limits)


def _run(settings: ServeSettings, limits: Limits) -> None:
    """Run uvicorn, and announce when it serves."""
    os.environ[ENVIRONMENT] = msgspec.json.encode(settings).decode()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: threads only disturb
    threading.Thread(target=_announce, args=[settings], daemon=True).start()
    # uvicorn drains, and then hands on the signal that told it to: the end, and no failure
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    if HANGUP is not None:
        signal.signal(HANGUP, signal.SIG_IGN)  # until there is something to reload
    supervising: Any = uvicorn.supervisors.multiprocess
    supervising.Multiprocess.handle_hup = _pass_on_hangup  # its own starts all workers anew
    supervising.Process = Worker
    uvicorn.run(
        "belated.service.serving:app_from_environment",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        access_log=False,  # it would log query strings
        log_config=None if settings.log_format == "json" else uvicorn.config.LOGGING_CONFIG,
        log_level="warning",
        timeout_graceful_shutdown=DRAIN_SECONDS,
        timeout_worker_healthcheck=WORKER_SECONDS,
        server_header=False,
        proxy_headers=False,  # nobody looks at the address of a client
        lifespan="on",
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        **http_options(limits),
    )


def _pass_on_hangup(supervisor: Any) -> None:
    """Let every worker reload; called by uvicorn in the process that started them."""
    if is_terminal_gone():
        supervisor.should_exit.set()
        return
    for worker in supervisor.processes:
        if worker.pid is not None:
            os.kill(worker.pid, signal.SIGHUP)


class Worker(uvicorn.supervisors.multiprocess.Process):
    """A worker process whose end is told: uvicorn replaces one that dies without a word."""

    def kill(self) -> None:
        """Warn that it died or hangs, and kill it; called by uvicorn before it starts another."""
        code = self.exitcode
        if code is None:
            end = f"has not answered for {WORKER_SECONDS} s and is killed"
        elif code < 0:
            end = f"died of signal {-code} ({signal.strsignal(-code)})"
        else:
            end = f"ended with exit code {code}"
        log.warning("worker %s %s", self.pid, end)
        super().kill()


def app_from_environment() -> ASGIApp:
    """The app of a worker process."""
    settings = msgspec.json.decode(os.environ[ENVIRONMENT], type=ServeSettings)
    _log_as(settings)
    if settings.access_log:
        write_access_log(sys.stderr)
    sys.setswitchinterval(SWITCH_SECONDS)
    # Numba and all: a thread that imports it later would hold up the event loop
    import_module("belated.service.reward_bodies")
    service = Service(settings.ledger, snapshot_folder=_folder(settings), only=settings.only)
    rate = settings.requests_per_second
    limit = None if rate is None else RateLimit(rate, max(1.0, 2.0 * rate))
    # on a public address nobody is asked for whom a request is meant: keys guard that
    hosts = settings.allowed_hosts if is_loopback(settings.host) else None
    board = None
    if settings.board is not None:
        end_with_parent(settings.board)
        board = Board(settings.board)
    limits = settings.in_force or settings.limits
    reloading = Reloading(service, settings.config, settings.tls, settings.limits, limits, board)
    return new_app(
        service,
        limit,
        settings.personalizer,
        hosts,
        board,
        limits.max_body,
        reloading,
        _new_tracing(settings),
    )


def _new_tracing(settings: ServeSettings) -> "Tracing | None":
    """Returns the traces, where they are asked for by an option or by OpenTelemetry's variables."""
    told = os.environ.get
    collector = any(map(told, COLLECTOR)) and told("OTEL_TRACES_EXPORTER") != "none"
    if told("OTEL_SDK_DISABLED", "").lower() == "true" or not (settings.traces or collector):
        return None
    try:
        return _tracing()()
    except ModuleNotFoundError as error:
        log.warning("there are no traces: %s", error)
        return None


def _tracing() -> "type[Tracing]":
    with extra("tracing"):
        from belated.service.tracing import Tracing
    return Tracing


def _log_as(settings: ServeSettings) -> None:
    """Let the log be on stderr: of the service what happens, of all else what is amiss."""
    if settings.log_format == "json":
        write_json_log(sys.stderr)
    else:
        logging.basicConfig(format="%(message)s")  # the first call counts
    log.setLevel(logging.INFO)


# ------------------------------------------------------------------------------- before the start


def free_port(host: str, port: int) -> int:
    """The port, or a free one for 0; an error in a line where it cannot be had."""
    if not 0 <= port < 65536:
        raise wrong("port", port, "0 to 65535")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.create_server((host, port), family=family) as server:
            return int(server.getsockname()[1])
    except OSError as error:
        raise wrong("port", port, f"one that is free at {host} ({error.strerror})") from None


def _check(settings: ServeSettings) -> None:
    whole("workers", settings.workers)
    whole("snapshot-every", settings.snapshot_every)
    if settings.snapshots is not None and Path(settings.snapshots).is_file():
        raise wrong("snapshots", settings.snapshots, "a folder")
    if settings.log_format not in LOG_FORMATS:
        raise wrong("log-format", settings.log_format, f"one of {', '.join(LOG_FORMATS)}")
    settings.limits.check()
    if settings.requests_per_second is not None:
        positive("requests-per-second", settings.requests_per_second)
    if settings.traces:
        _tracing()
    for name in settings.bandits:
        if not re.fullmatch(NAME, name):
            raise wrong("bandits", name, "names of bandits, with commas in between")
    if settings.only and settings.personalizer and settings.personalizer not in settings.only:
        served = f"one of --bandits {','.join(settings.bandits)}"
        raise wrong("personalizer", settings.personalizer, served)
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None and key is not None:
        raise wrong("tls-certificate", None, f"a PEM file, as there is --tls-key {key}")
    if certificate is not None and key is None:
        raise wrong("tls-key", None, f"a PEM file, as there is --tls-certificate {certificate}")
    if settings.tls is not None:
        new_context(*settings.tls)
    for name in settings.allowed_hosts:
        if not re.fullmatch(r"[\w.-]+", name):
            raise wrong("allow-host", name, "a name such as shop.example, without scheme and port")
        if not is_loopback(settings.host):
            raise wrong("allow-host", name, f"none: at {settings.host}, every host is answered")
    if settings.ledger.startswith("memory:") and (settings.workers > 1 or settings.config):
        raise wrong("ledger", settings.ledger, "a file or PostgreSQL: no process shares its memory")


def check_address(ledger: Ledger, settings: ServeSettings) -> None:
    """Refuse to let the world in without keys."""
    if settings.without_keys or is_loopback(settings.host) or ledger.rare(Kind.KEYS, START):
        return
    raise wrong(
        "host",
        settings.host,
        "127.0.0.1 as long as there are no API keys; make one with `belated keys create`, "
        "or pass --without-keys",
    )


def _configure(ledger: Ledger, settings: ServeSettings) -> None:
    replica = Replica(ledger, only=settings.only)
    snapshots.load(replica, _folder(settings))
    apply_config(replica, Path(settings.config or ""))


def _folder(settings: ServeSettings) -> Path | None:
    told = settings.snapshots
    return snapshots.default_folder(settings.ledger) if told is None else Path(told)


def _snapshots(settings: ServeSettings) -> Snapshots | None:
    folder = _folder(settings)
    if folder is None:
        return None
    thread = Snapshots(settings.ledger, folder, settings.snapshot_every)
    thread.start()
    return thread


# --------------------------------------------------------------------------------- when it is ready


def _announce(settings: ServeSettings) -> None:
    """Say where the page is, once the log has been read."""
    until_ready(_address(settings, ANYWHERE.get(settings.host, settings.host)))
    print(f"dashboard and API: {_address(settings, settings.host)} (Ctrl-C stops)", flush=True)


def until_ready(url: str) -> None:
    """Wait for a service of this machine to have read its log, whatever its certificate says."""
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    direct = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=anybody)
    )
    while True:
        try:
            direct.open(f"{url}readyz", timeout=5.0).close()
            return
        except OSError:  # nobody listens yet, or 503
            time.sleep(0.05)


def _address(settings: ServeSettings, host: str) -> str:
    scheme = "http" if settings.tls is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}/"
