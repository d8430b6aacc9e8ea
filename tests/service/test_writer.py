"""Group commit: who waits for whom."""

import asyncio

import pytest

from belated.core.events import Status
from belated.ledger.events import START, Draft, Kind, Outcome
from belated.ledger.protocol import NewBanditError
from belated.service import writer as writing
from belated.service.writer import Writer

DRAFT = Draft(Kind.CONFIGURED, "shop", b"", 1)
WRONG = Draft(Kind.REWARDED, "new", b"", 1)


class Bandits:
    """Counts commits instead of making them, in a log in which there is never anything new."""

    position, at_once, released = START, 500, ()

    def __init__(self):
        self.commits = []
        self.ledger = self

    def follow(self, position, at_once):
        return [], position

    def commit(self, drafts, follower):
        self.commits.append(len(drafts))
        return [Outcome(Status.ACCEPTED)] * len(drafts)


async def request(writer, drafts=1, pause=0.0):
    writer.open_requests += 1
    try:
        await asyncio.sleep(pause)
        return await writer.write([DRAFT] * drafts)
    finally:
        writer.open_requests -= 1


def together(use):
    bandits, told = Bandits(), []
    writer = Writer(bandits, told=lambda wrote, _: told.append(wrote))
    asyncio.run(use(writer, bandits))
    assert told == [True] * len(bandits.commits)
    return bandits.commits


def test_requests_that_come_one_after_the_other_share_a_commit(monkeypatch):
    """Each is begun when the one before is under way, as when they are read from sockets."""
    monkeypatch.setattr(writing, "WINDOW", 1e9)  # however slow the machine is

    async def use(writer, bandits):
        tasks = []
        for _ in range(40):
            tasks.append(asyncio.create_task(request(writer)))
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    assert together(use) == [40]


def test_a_lone_request_waits_for_nobody(monkeypatch):
    monkeypatch.setattr(writing, "WINDOW", 1e9)

    async def use(writer, bandits):
        for _ in range(3):
            task = asyncio.create_task(request(writer))
            for _ in range(6):  # a few rounds of the event loop, and no clock
                await asyncio.sleep(0)
            assert task.done()

    assert together(use) == [1, 1, 1]


@pytest.mark.parametrize(("window", "commits"), [(0.0, [1, 1]), (30.0, [2])])
def test_a_slow_request_is_waited_for_but_not_for_long(monkeypatch, window, commits):
    monkeypatch.setattr(writing, "WINDOW", window)

    async def use(writer, bandits):
        await asyncio.gather(request(writer), request(writer, pause=0.05))

    assert together(use) == commits


def test_a_full_queue_is_written_at_once(monkeypatch):
    monkeypatch.setattr(writing, "WINDOW", 1e9)
    monkeypatch.setattr(writing, "MOST_ALONE", 10)

    async def use(writer, bandits):
        slow = asyncio.create_task(request(writer, pause=0.05))
        outcomes = await request(writer, drafts=10)
        assert len(outcomes) == 10
        assert bandits.commits == [10]
        await slow

    assert together(use) == [10, 1]


def test_transactions_are_large_while_nobody_decides(monkeypatch):
    """An upload at night is quick; by day, no decision waits for one of its large transactions."""
    monkeypatch.setattr(writing, "MOST_DRAFTS", 10)
    monkeypatch.setattr(writing, "MOST_ALONE", 40)
    clock = [1000.0]
    monkeypatch.setattr(writing, "monotonic", lambda: clock[0])
    bandits = Bandits()

    async def use():
        writer = Writer(bandits)
        await writer.write([DRAFT] * 100)
        upload = writer.write([DRAFT] * 60)
        await writer.write([Draft(Kind.DECIDED, "shop", b"", 1)])
        await upload
        clock[0] += writing.LATELY - 0.1
        await writer.write([DRAFT] * 30)
        clock[0] += 0.1
        await writer.write([DRAFT] * 30)

    asyncio.run(use())
    by_night, by_day, evening, night = [40, 40, 20], [11] + [10] * 5, [10] * 3, [30]
    assert bandits.commits == by_night + by_day + evening + night


@pytest.mark.parametrize("error", [ValueError("a NUL"), NewBanditError("new")], ids=repr)
def test_what_one_request_does_wrong_is_told_to_nobody_else(error):
    """Nor to the writer of nothing, who only looks for news and would take the store for down."""
    bandits = Bandits()

    def commit(drafts, follower):
        if any(draft.bandit == "new" for draft in drafts):
            raise error
        return Bandits.commit(bandits, drafts, follower)

    bandits.commit = commit

    async def use():
        writer = Writer(bandits)
        writes = [writer.write(drafts) for drafts in ([DRAFT], [WRONG], [], [DRAFT, DRAFT])]
        return await asyncio.gather(*writes, return_exceptions=True)

    accepted = Outcome(Status.ACCEPTED)
    assert asyncio.run(use()) == [[accepted], error, [], [accepted, accepted]]


def test_who_waits_for_a_commit_is_told_though_somebody_else_cannot_be(caplog):
    """They waited for ever, and so did everybody after them."""

    def told(wrote, seen_at):
        raise OSError("the board is gone")

    async def use():
        writer = Writer(Bandits(), told=told)
        writer.open_requests = 3
        many = [DRAFT] * (writing.MOST_ALONE + 1)  # the rest of them goes back into the queue
        return [
            len(outcomes)
            for outcomes in await asyncio.gather(*map(writer.write, [[DRAFT], many, []]))
        ]

    assert asyncio.run(use()) == [1, writing.MOST_ALONE + 1, 0]
    assert "the board is gone" in caplog.text
