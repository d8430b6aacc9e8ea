"""The consumer of streams: acknowledged after the commit, once in the log, bad ones put aside."""

import json
import logging
from threading import Event

import pytest

from belated import Bandit, Bernoulli, DelayedOFUGLM
from belated.client import ServiceError
from belated.core.events import Status
from belated.ledger.protocol import StoreUnavailableError
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.tools.reward_files import into_ledger
from belated.streams import consuming
from belated.streams.consuming import Message, consume
from belated.wire import ProblemDocument

MATRIX = [[0.6, 0.0], [0.0, 0.8]]


class ListStream:
    """A stream in memory: what is read and not finished comes again from ``restarted``."""

    def __init__(self, contents):
        self.waiting = [Message(k, content) for k, content in enumerate(contents)]
        self.at, self.aside, self.finished = 0, [], []

    def read(self, most):
        messages = self.waiting[self.at : self.at + most]
        self.at += len(messages)
        return messages

    def finish(self, messages, bad):
        self.aside += [(message.place, reason) for message, reason in bad]
        self.finished += [message.place for message in messages]

    def restarted(self):
        self.waiting = [m for m in self.waiting if m.place not in self.finished]
        self.at = 0
        return self


def made(n):
    ledger = MemoryLedger()
    bandit = Bandit(2, family=Bernoulli(), policy=DelayedOFUGLM(), ledger=ledger, name="shop")
    return bandit, ledger, [bandit.decide(MATRIX).id for _ in range(n)]


def reward(id, y=1.0, **more):
    return json.dumps({"decision_id": id, "reward": y, **more}).encode()


def run(stream, send, **options):
    return consume(stream, send, ended=Event(), once=True, **options)


def test_rewards_reach_the_log_and_bad_messages_do_not_stop_them():
    bandit, ledger, ids = made(4)
    contents = [
        reward(ids[0]),
        b"no json",
        {"decision_id": ids[1], "reward": 0.0},
        reward(ids[2], 7.0),
        reward("nobody"),
        b"[1]",
        reward(ids[0], 0.0),
        reward(ids[3], at="soon"),
        reward(ids[0]),
    ]
    stream = ListStream(contents)
    counts = run(stream, into_ledger(ledger, None)[1], batch=4)
    assert counts == {
        Status.ACCEPTED: 2, Status.DUPLICATE: 1, Status.INVALID: 4, Status.UNKNOWN: 1,
        Status.CONFLICT: 1,
    }  # fmt: skip
    assert bandit.n_observed == 2
    assert stream.finished == list(range(9))
    reasons = dict(stream.aside)
    assert sorted(reasons) == [1, 3, 4, 5, 6, 7]
    assert reasons[1].startswith("invalid: the message is not a JSON object")
    assert reasons[3].startswith("invalid: reward = 7.0: expected")
    assert reasons[4] == "unknown: this bandit has no decision of that id"
    assert reasons[6].startswith("conflict: ")
    assert reasons[7].startswith("invalid: at = 'soon'")


def test_after_a_crash_between_commit_and_acknowledgement_each_counts_once():
    bandit, ledger, ids = made(6)
    _, send = into_ledger(ledger, None)
    stream = ListStream(map(reward, ids))

    def crash(messages, bad):
        raise KeyboardInterrupt

    stream.finish = crash
    with pytest.raises(KeyboardInterrupt):
        run(stream, send, batch=4)
    assert bandit.n_observed == 4
    del stream.finish
    assert run(stream.restarted(), send, batch=4) == {Status.ACCEPTED: 2, Status.DUPLICATE: 4}
    assert bandit.n_observed == 6


def test_nothing_is_acknowledged_while_the_ledger_is_away(monkeypatch, caplog):
    monkeypatch.setattr(consuming, "FIRST_PAUSE", 0.001)
    bandit, ledger, ids = made(2)
    _, send = into_ledger(ledger, None)
    stream, failures = ListStream(map(reward, ids)), [
        StoreUnavailableError("no space left"), ConnectionError("away"),
        ServiceError(ProblemDocument("", "busy", 503, "")),
    ]  # fmt: skip

    def failing(given):
        assert stream.finished == []
        if failures:
            raise failures.pop()
        return send(given)

    with caplog.at_level(logging.WARNING):
        assert run(stream, failing) == {Status.ACCEPTED: 2}
    assert caplog.text.count("tried again") == 3
    assert bandit.n_observed == 2


def test_what_will_not_pass_is_raised_and_an_end_ends():
    _, _, ids = made(1)
    stream, ended = ListStream([reward(ids[0])]), Event()

    def forbidden(given):
        raise ServiceError(ProblemDocument("", "no", 403, ""))

    with pytest.raises(ServiceError):
        run(stream, forbidden)

    def away(given):
        ended.set()
        raise ConnectionError("away")

    assert consume(stream.restarted(), away, ended=ended) == {}
    assert stream.finished == []
