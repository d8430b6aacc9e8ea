"""The sweep over all open connections, which must not hold up the event loop."""

import asyncio

from belated.service.http.connections import AT_ONCE, Connections
from belated.service.http.limits import Limits


class Counted:
    """A connection that notes when it is looked at, and does then what it is told."""

    def __init__(self, checked, act=lambda: None):
        self.checked, self.act = checked, act

    def check(self, now):
        self.checked.append(self)
        self.act()

    def abort(self):
        raise AssertionError("nobody may close it")


def test_a_sweep_looks_at_some_connections_in_each_turn():
    connections, checked = Connections(Limits()), []

    async def turns():
        for _ in range(2 * AT_ONCE + 1):
            connections.add(Counted(checked))
        connections.sweep(0.0)
        numbers = [len(checked)]
        for _ in range(3):
            await asyncio.sleep(0)
            numbers.append(len(checked))
        return numbers

    assert asyncio.run(turns()) == [AT_ONCE, 2 * AT_ONCE, 2 * AT_ONCE + 1, 2 * AT_ONCE + 1]
    assert set(checked) == connections.open


def test_a_sweep_leaves_out_those_closed_meanwhile_and_goes_on_after_an_error():
    connections, checked, errors = Connections(Limits()), [], []

    def fail():
        raise RuntimeError("one of them")

    async def turns():
        asyncio.get_running_loop().set_exception_handler(lambda _, said: errors.append(said))
        for _ in range(4 * AT_ONCE):
            connections.add(Counted(checked, fail))
        asyncio.get_running_loop().call_soon(connections.sweep, 0.0)
        while len(checked) < 2:  # each turn ends with an error
            await asyncio.sleep(0)
        for connection in set(connections.open) - set(checked):
            connections.remove(connection)
        for _ in range(10):
            await asyncio.sleep(0)

    asyncio.run(turns())
    assert len(checked) == len(errors) == 2
