"""Attackers in a process of their own.

It has the lowest priority: attackers on another machine would not use the cores of the service.
"""

import os
import socket
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from support.serving import until

PAUSE = 0.0002  # seconds between connections: a few thousand in each second

HEAD = b"GET /v1/bandits HTTP/1.1\r\nHost: localhost\r\nX: "
POST = b"POST /v1/rewards HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
HALF = b"POST /v1/rewards HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"


def attackers():
    """A context manager; each attack below is submitted to it and returns when it is over."""
    return ProcessPoolExecutor(1, get_context("spawn"), initializer=os.nice, initargs=(19,))


def endless_headers(port, count):
    """Send headers until each connection is cut; returns the bytes that were sent."""
    return sum(_until_cut(port, HEAD, b"a" * 500_000) for _ in range(count))


def bodies_in_tiny_chunks(port, count):
    """Send a body byte by byte until each connection is cut; returns the bytes that were sent."""
    return sum(_until_cut(port, CHUNKED, b"1\r\n \r\n" * 80_000) for _ in range(count))


def _until_cut(port, begun, part):
    taken = 0
    with _connected(port) as connection:
        connection.sendall(begun)
        try:
            for _ in range(200):  # 100 MB on one connection, if it were let
                connection.sendall(part)
                taken += len(part)
        except ConnectionError:
            return taken
    raise AssertionError("nobody cut it")


def half_sent_requests(port, count, seconds):
    """Send half of as many headers and bodies; returns when all are closed, in time."""
    connections = []
    for part in [HEAD, HALF] * count:
        connection = _connected(port)
        connection.sendall(part)
        connections.append(connection)
        time.sleep(PAUSE)
    _until_open(connections, 0, seconds)


def idle_connections(port, count, most, pause):
    """Open connections; returns the seconds it took once at most so many of them are open."""
    connections, started = [], time.perf_counter()
    for _ in range(count):
        connections.append(_connected(port))
        if pause:  # no time at all takes the system longer than to open a connection
            time.sleep(pause)
    seconds = time.perf_counter() - started
    _until_open(connections, most, 60.0)
    return seconds


def _connected(port):
    return socket.create_connection(("127.0.0.1", port), timeout=60.0)


def _until_open(connections, most, seconds):
    """Return when at most so many of them are open."""

    def are_few():
        connections[:] = filter(_is_open, connections)
        return len(connections) <= most

    until(are_few, seconds)


def _is_open(connection):
    """Whether the other end has neither answered nor hung up."""
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return True
    except ConnectionError:
        pass
    connection.close()
    return False
