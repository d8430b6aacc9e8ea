"""Batches are written by a thread while the next ones are read."""

import gc
import threading
from contextlib import suppress

import pytest

from belated.ledger.tools.write_behind import without_collector, written_behind


def test_the_next_batch_is_read_while_one_is_written():
    reading, seen = threading.Event(), []

    def batches():
        yield 1
        reading.set()
        yield 2

    def write(batch):
        assert reading.wait(60.0), "nobody reads on"
        seen.append(batch)
        return 10 * batch

    assert list(written_behind(write, batches())) == [(1, 10), (2, 20)]
    assert seen == [1, 2]


def test_nothing_is_written_after_an_error():
    written = []

    def write(batch):
        written.append(batch)
        if batch == 2:
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        list(written_behind(write, range(1, 6)))
    assert written == [1, 2]


def test_nothing_is_written_for_somebody_who_does_not_go_on():
    written = []
    for batch, _ in written_behind(written.append, range(1, 6)):
        if batch == 2:
            break
    assert written == [1, 2]


def test_no_batches():
    assert list(written_behind(str, [])) == []


def test_the_collector_is_as_before():
    states = [gc.isenabled()]
    with suppress(KeyError), without_collector():
        states.append(gc.isenabled())
        raise KeyError
    assert [*states, gc.isenabled()] == [True, False, True]
