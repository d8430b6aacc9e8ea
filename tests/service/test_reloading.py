"""SIGHUP: the file of bandits is read again, and an error in it changes nothing."""

import asyncio
import json
import logging
import os
import signal
import ssl
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from test_workers import callers_by_worker, port_of

from belated.ledger.stores.memory import MemoryLedger
from belated.service.http import choosing_protocol
from belated.service.http.limits import Limits
from belated.service.reloading import Reloading
from belated.service.service import Service
from belated.service.workers import Board, new_board
from support.certificates import new_certificate
from support.service_client import BrokenLedger
from support.serving import CONFIG, ENVIRONMENT, ended, serving, until

EXPLORING = CONFIG.replace("dim = 2", "dim = 2\nexploration = 0.25")


@pytest.fixture(autouse=True)
def told(caplog):
    """What was reloaded is no warning."""
    caplog.set_level(logging.INFO, "belated.service")


def reloaded(tmp_path, *texts, ledger=None, limits=Limits(max_headers=50)):  # noqa: B008
    """The service after it has read its file again with each of the texts."""
    path = tmp_path / "bandits.toml"

    async def use():
        service = Service("memory://", ledger=ledger or MemoryLedger())
        service.read_log()
        reloading = Reloading(service, str(path), options=Limits(max_headers=50), limits=limits)
        for text in texts:
            path.write_text(text)
            await reloading.reload()
        return service

    return asyncio.run(use())


def test_what_differs_is_written_into_the_log_once(tmp_path, caplog):
    service = reloaded(tmp_path, CONFIG, CONFIG, EXPLORING)
    assert caplog.messages == [
        "reloaded: bandits shop, plain changed",
        "reloaded: there was nothing to change",
        "reloaded: bandits plain changed",
    ]
    assert {record.levelname for record in caplog.records} == {"INFO"}
    assert service.replica.folds["plain"].spec.exploration == 0.25
    assert service.replica.position.seq == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[bandits.shop", "bandits.toml: "),
        (EXPLORING.replace("window = 600", "window = true"), "bandits.shop.window: "),
        (EXPLORING + '\n[bandits.new]\nfamily = "poisson"', "bandits.new: "),
        (
            EXPLORING.replace('"bernoulli"', '"poisson"'),
            "bandits.shop: ",
        ),  # gives the past a meaning
    ],
)
def test_a_file_with_an_error_changes_nothing(tmp_path, caplog, text, said):
    service = reloaded(tmp_path, CONFIG, text)
    _, line = caplog.messages
    assert line.startswith("nothing was reloaded: ")
    assert said in line
    assert "\n" not in line
    assert caplog.records[-1].exc_info is None
    assert service.replica.folds["plain"].spec.exploration == 0.0
    assert service.replica.position.seq == 4


LIMITED = "[limits]\nheader_seconds = 3\nmax_body = 5_000\n"


@pytest.fixture
def connections(monkeypatch):
    monkeypatch.setenv(choosing_protocol.LIMITS, json.dumps(msgspec.to_builtins(Limits())))
    choosing_protocol.connections_here.cache_clear()
    yield choosing_protocol.connections_here()
    choosing_protocol.connections_here.cache_clear()


def test_limits_change_for_new_connections_as_far_as_they_can(tmp_path, caplog, connections):
    reloaded(tmp_path, CONFIG + LIMITED, CONFIG + LIMITED, CONFIG, limits=Limits())
    stays = "max_body cannot change before a restart"
    assert caplog.messages == [
        f"reloaded: bandits shop, plain changed; max_headers, header_seconds changed; {stays}",
        f"reloaded: {stays}",
        "reloaded: header_seconds changed",
    ]
    assert connections.limits == Limits(max_headers=50), "those of the options"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[limits]\nheaders = 3", "limits.headers: expected one of max_request_line, "),
        ("[limits]\nmax_headers = 0", "limits: max-headers = 0: expected"),
        ('[limits]\nmax_headers = "many"', "limits: Expected `int`, got `str`"),
        ("limits = 3", "limits = 3: expected a table [limits]"),
        ("[limits]\nmax_connections = 99_999_999_999", "max-connections"),
    ],
)
def test_limits_with_an_error_change_nothing(tmp_path, caplog, connections, text, said):
    service = reloaded(tmp_path, text + "\n" + EXPLORING)
    (line,) = caplog.messages
    assert line.startswith("nothing was reloaded: ")
    assert said in line
    assert connections.limits == Limits()
    assert not service.replica.folds


def test_without_a_store_nothing_changes(tmp_path, caplog):
    ledger = BrokenLedger()
    ledger.broken = True
    service = reloaded(tmp_path, CONFIG, ledger=ledger)
    assert "nothing was reloaded: no space left" in caplog.messages
    assert not service.replica.folds


def test_one_worker_writes_for_all(tmp_path):
    with new_board() as path:
        first = Board(path)
        assert first.leads()
        hold = "import sys; from belated.service.workers import Board; board = Board(sys.argv[1]);"
        hold += "print(board.leads(), flush=True); sys.stdin.readline(); print(board.leads())"
        command = [sys.executable, "-c", hold, path]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=ENVIRONMENT, **pipes) as second:
            assert second.stdout.readline() == "False\n"
            first.close()
            assert second.communicate("\n")[0] == "True\n", "the one before it is gone"


@pytest.mark.slow
def test_workers_reload_and_none_is_started_anew(tmp_path):
    old, new = (new_certificate(tmp_path, name) for name in ("old", "new"))
    files = [tmp_path / "service.pem", tmp_path / "service.key"]

    def install(pair):
        for source, file in zip(pair, files, strict=True):
            file.write_bytes(Path(source).read_bytes())

    install(old)
    (tmp_path / "bandits.toml").write_text(CONFIG)
    options = ["--workers", "2", "--config", "bandits.toml"]
    options += ["--tls-certificate", str(files[0]), "--tls-key", str(files[1])]
    with serving(*options, cwd=tmp_path) as (process, url), ExitStack() as stack:
        address, trusting = ("127.0.0.1", port_of(url)), ssl.create_default_context(cafile=old[0])
        callers = callers_by_worker(port_of(url), stack, tls=trusting)
        install(new)
        (tmp_path / "bandits.toml").write_text(EXPLORING)
        process.send_signal(signal.SIGHUP)
        lines = sorted(process.stderr.readline() for _ in callers)
        assert lines == [
            "reloaded: bandits plain changed; the certificate was read again\n",
            "reloaded: the certificate was read again\n",
        ]
        expected = Path(new[0]).read_text()
        assert {ssl.get_server_certificate(address) for _ in range(20)} == {expected}
        for caller in callers.values():  # on the connections from before
            until(lambda c=caller: exploration(c) == 0.25, 10.0)
        assert ended(process)[0] == 0


def exploration(caller):
    return caller("GET", "/v1/bandits/plain").body["settings"]["exploration"]


@pytest.mark.slow
def test_a_service_ends_with_its_terminal(tmp_path):
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "belated", "serve", "--port", "0"],
        env=ENVIRONMENT,
        cwd=tmp_path,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline().startswith("dashboard and API")
        process.send_signal(signal.SIGHUP)
        assert process.stderr.readline() == "reloaded: there was nothing to change\n"
        os.close(ours)
        os.close(theirs)
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=30) == 0
