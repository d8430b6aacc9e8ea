"""TLS at the door: the limits hold during a handshake, too."""

import asyncio
import shutil
import signal
import socket
import ssl
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from test_accepting import Echo, loop, received, run, until  # noqa: F401 - a fixture among them

from belated.client import AsyncClient, Client
from belated.edge.scoring import content_of
from belated.service.http import accepting
from belated.service.http.connections import Connections
from belated.service.http.limits import Limits
from belated.service.http.tls import new_context
from belated.service.serving import ServeSettings, serve
from support.certificates import new_certificate
from support.serving import CONFIG, ended, serving

pytestmark = pytest.mark.skipif(not accepting.IS_POSSIBLE, reason="there is no door here")

CROWD = 50
OPTIONS = ("tls-certificate", "tls-key")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return new_certificate(tmp_path_factory.mktemp("tls"))


def hello(pair):
    """The first bytes of a client, after which it would wait for the service."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=pair[0]).wrap_bio(incoming, outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


async def opened(pair, **limits):
    listener = socket.create_server(("127.0.0.1", 0), backlog=200)
    listener.setblocking(False)
    connections = Connections(Limits(**limits))
    running = asyncio.get_running_loop()
    entrance = accepting.Door(running, listener, Echo, connections, new_context(*pair))
    return entrance, listener.getsockname(), connections


async def echoed(address, pair):
    """What comes back over a new connection, and the certificate that was presented."""
    trusting = ssl.create_default_context(cafile=pair[0])
    reader, writer = await asyncio.open_connection(
        *address, ssl=trusting, server_hostname="localhost"
    )
    writer.write(b"hello")
    answer = await reader.readexactly(5)
    subject = writer.get_extra_info("peercert")["subject"][0][0][1]
    writer.close()
    return answer, subject


async def next_part(connection, size=1):
    """What comes next, nothing at the end, which is a reset where a byte was not read before."""
    try:
        return await received(connection, size)
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize("first", ["a byte", "all"])
def test_who_stalls_in_a_handshake_is_counted_and_cut_in_time(loop, pair, first):  # noqa: F811
    async def use():
        entrance, address, connections = await opened(pair, header_seconds=0.5)
        sent = hello(pair) if first == "all" else b"\x16"
        with ExitStack() as stack:
            crowd = [stack.enter_context(socket.create_connection(address)) for _ in range(CROWD)]
            for one in crowd:
                one.sendall(sent)

            def handshakes():
                return [one for one in connections.open if type(one) is accepting.Handshake]

            await until(lambda: len(handshakes()) == CROWD)
            assert len(connections.waiting) == CROWD
            assert await echoed(address, pair) == (b"hello", "service")  # others go on
            assert len(Echo.made) == 1, "who stalls has no protocol"
            await until(lambda: not handshakes())
            assert connections.cut == {"whose TLS handshake failed": CROWD}
            for one in crowd:
                while await next_part(one, 10_000):  # the first part of the service's own
                    pass
        entrance.close()

    run(loop, use())


def test_in_a_handshake_the_oldest_is_cut_in_favour_of_a_new_one(loop, pair):  # noqa: F811
    async def use():
        entrance, address, connections = await opened(pair, max_connections=3)
        with ExitStack() as stack:
            crowd = [stack.enter_context(socket.create_connection(address)) for _ in range(3)]
            for one in crowd:
                one.sendall(b"\x16")
            kinds = lambda: [type(one) for one in connections.open]  # noqa: E731
            await until(lambda: kinds() == [accepting.Handshake] * 3)
            assert await echoed(address, pair) == (b"hello", "service")
            assert connections.cut == {"closed in favour of new connections": 1}
            ends = [asyncio.create_task(next_part(one)) for one in crowd]
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            assert [task.result() for task in done] == [b""]
        entrance.close()

    run(loop, use())


def test_plain_http_at_a_door_with_tls_is_no_error_of_ours(loop, pair, caplog):  # noqa: F811
    async def use():
        entrance, address, connections = await opened(pair)
        with socket.create_connection(address) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while await next_part(plain, 100):  # an alert
                pass
        await until(lambda: connections.cut == {"whose TLS handshake failed": 1})
        entrance.close()

    run(loop, use())
    assert caplog.messages == []


WRONG = [(made, o) for made in ("missing", "no PEM", "of another") for o in OPTIONS]


@pytest.mark.parametrize(("made", "option"), [*WRONG, ("with a password", "tls-key")])
def test_an_error_names_the_option_and_the_file(tmp_path, pair, option, made):
    files = dict(zip(OPTIONS, pair, strict=True))
    path = str(tmp_path / "file.pem")
    if made == "no PEM":
        (tmp_path / "file.pem").write_text("words")
    elif made == "of another":
        shutil.copy(new_certificate(tmp_path, "other")[option == "tls-key"], path)
    elif made == "with a password":
        command = [
            "openssl",
            "ec",
            "-in",
            pair[1],
            "-out",
            path,
            "-aes256",
            "-passout",
            "pass:1234",
        ]
        subprocess.run(command, check=True, capture_output=True)
    files[option] = path
    said = option if made != "of another" else "tls-key"
    with pytest.raises(ValueError, match=f"^{said} = ") as error:
        new_context(*files.values())
    assert path in str(error.value)


def test_both_options_or_none(pair):
    for settings, missing in (
        (ServeSettings(ledger="memory:", port=0, tls_certificate=pair[0]), "tls-key"),
        (ServeSettings(ledger="memory:", port=0, tls_key=pair[1]), "tls-certificate"),
    ):
        with pytest.raises(ValueError, match=f"^{missing} = None: expected a PEM file"):
            serve(settings)


def test_a_client_needs_a_file_of_certificates(tmp_path):
    for client in (Client, AsyncClient):
        with pytest.raises(ValueError, match=r"ca_file = .*: expected a PEM file"):
            client("https://localhost", ca_file=str(tmp_path / "missing.pem"))


def test_a_service_with_tls_its_limits_and_a_renewed_certificate(tmp_path, pair, monkeypatch):
    certificate, key = tmp_path / "service.pem", tmp_path / "service.key"
    shutil.copy(pair[0], certificate)
    shutil.copy(pair[1], key)
    (tmp_path / "bandits.toml").write_text(CONFIG)
    options = ["--tls-certificate", str(certificate), "--tls-key", str(key)]
    options += ["--config", "bandits.toml", "--header-seconds", "1"]
    with serving(*options, cwd=tmp_path) as (process, url):
        address = "127.0.0.1", int(url.rstrip("/").rpartition(":")[2])
        with ExitStack() as stack:
            crowd = [stack.enter_context(socket.create_connection(address)) for _ in range(CROWD)]
            for one in crowd:
                one.sendall(b"\x16\x03")
            with Client(url, ca_file=str(certificate)) as client:
                assert client.decide("plain").logged
            assert {one.recv(1) for one in crowd} == {b""}  # when the time was over
        with pytest.raises(ConnectionError, match="certificate"), Client(url, retries=0) as client:
            client.decide("plain")
        with monkeypatch.context() as patched:
            patched.setenv("SSL_CERT_FILE", str(certificate))  # for commands, which have no option
            with Client(url, retries=0) as client:
                assert client.decide("plain").logged
            assert content_of(f"{url.rstrip('/')}/v1/bandits/plain/model").startswith(b"{")
        slow = ssl.create_default_context(cafile=pair[0]).wrap_socket(
            socket.create_connection(address), server_hostname="localhost"
        )
        with slow:
            slow.sendall(b"GET / HTTP/1.1\r\n")
            assert slow.recv(12) == b"HTTP/1.1 408"
        renewed = new_certificate(tmp_path, "renewed")
        shutil.copy(renewed[0], certificate)  # half of it: the old one stays
        process.send_signal(signal.SIGHUP)
        line = process.stderr.readline()
        while "nothing was reloaded" not in line:  # first, what was cut
            line = process.stderr.readline()
        assert f"tls-key = {str(key)!r}" in line
        assert ssl.get_server_certificate(address) == Path(pair[0]).read_text()
        shutil.copy(renewed[1], key)
        changed = CONFIG.replace("dim = 2", "dim = 2\nexploration = 0.25")
        (tmp_path / "bandits.toml").write_text(changed)
        process.send_signal(signal.SIGHUP)
        line = "reloaded: bandits plain changed; the certificate was read again\n"
        assert process.stderr.readline() == line
        with Client(url, ca_file=renewed[0]) as client:
            assert client.decide("plain").logged
            assert client.bandit("plain").settings["exploration"] == 0.25
        assert ended(process)[0] == 0
