"""What an adversary found in the ledger and the service: each test failed before its repair."""

import asyncio

import httpx
import numpy as np
import pytest

from belated import Bernoulli, DelayedOFUGLM
from belated.ledger.events import START, Draft, Kind, Status
from belated.ledger.ids import Ids
from belated.ledger.loop import Ask, Loop
from belated.ledger.memory import MemoryLedger
from belated.ledger.protocol import StoreUnavailableError
from belated.ledger.spec import Spec
from belated.service.app import new_app
from belated.service.running import Service
from belated.service.writer import Writer

SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND
ACTIONS = {"a": [0.6, 0.0], "b": [0.0, 0.8]}
MATRIX = np.array([[0.6, 0.0], [0.0, 0.8]])


class Client:
    """Calls the app in this process."""

    def __init__(self, ledger=None, ready=True, in_thread=False):
        self.now = NOW
        ledger = MemoryLedger() if ledger is None else ledger
        self.service = Service("memory://", ledger=ledger, clock=lambda: self.now, seed=1)
        self.service.writer.in_thread = in_thread
        if ready:
            self.service.read_log()
        self.transport = httpx.ASGITransport(new_app(self.service))
        self.key = None

    def answers(self, *requests):
        """Answers to requests (method, path, body) that are sent at the same time."""

        async def send():
            headers = {} if self.key is None else {"X-API-Key": self.key}
            async with httpx.AsyncClient(
                transport=self.transport, base_url="http://test", headers=headers
            ) as client:
                calls = [client.request(m, path, json=body) for m, path, body in requests]
                return await asyncio.gather(*calls)

        return asyncio.run(send())

    def __call__(self, method, path, body=None, status=200):
        (answer,) = self.answers((method, path, body))
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def shop(self, **settings):
        settings = {"family": "bernoulli", "dim": 2} | settings
        self("PUT", "/v1/bandits/shop", settings, 201)
        self("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS})
        return self

    def decide(self, status=200, **body):
        return self("POST", "/v1/bandits/shop/decisions", body, status)

    def reward(self, id, value):
        item = {"decision_id": id, "reward": value}
        return self("POST", "/v1/rewards", {"rewards": [item]})["statuses"][0]


def kinds(ledger):
    return [event.kind for event in ledger.follow(START)[0]]


def spec(**settings):
    return Spec.of(2, Bernoulli(), DelayedOFUGLM(), **settings)


def new_loop(ledger=None, names=("shop",)):
    loop = Loop(MemoryLedger() if ledger is None else ledger, clock=lambda: NOW, seed=1)
    for name in names:
        loop.configure(name, spec())
    return loop


def decide(loop, name="shop"):
    proposal = loop.propose(name, Ask(matrix=MATRIX))
    loop.commit([proposal.draft])
    return proposal.draft.id


def replayed(loop):
    again = Loop(loop.ledger)
    again.catch_up()
    return {name: fold.digest() for name, fold in again.folds.items()}


def digests(loop):
    return {name: fold.digest() for name, fold in loop.folds.items()}


# --------------------------------------------------------------- half taken in, live != replay


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("place", ["fold", "apply"])
def test_an_interrupted_fold_is_not_taken_in_twice(monkeypatch, error, place):
    """No memory for a longer history, or Ctrl-C: what is known must still be the fold of the log.

    Events that one bandit has taken in, and another one not, were given to both again.
    """
    loop = new_loop(names=("one", "two"))
    ids = [decide(loop, "one"), decide(loop, "two")]
    broken = loop.folds["two"]
    target = broken.learner if place == "fold" else broken

    def fail(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(target, place, fail)
        with pytest.raises(error):
            loop.reward([(id, 1.0) for id in ids])
    loop.catch_up()
    assert digests(loop) == replayed(loop)
    assert [fold.learner.n_observed for fold in loop.folds.values()] == [1, 1]
    ids = [decide(loop, "one"), decide(loop, "two")]
    assert loop.reward([(id, 0.0) for id in ids]) == [Status.ACCEPTED] * 2
    assert digests(loop) == replayed(loop)


def test_a_reward_without_a_decision_in_the_log_is_an_error_not_an_endless_search():
    fold = new_loop().folds["shop"]
    fold.ids += bytes(range(16))
    with pytest.raises(LookupError):
        fold._row(b"?" * 16)


# ------------------------------------------------------------------- durable, and said not to be


class Forgetful(MemoryLedger):
    """Writes, but cannot be read any more when told so."""

    unreadable = False

    def follow(self, after, limit=100_000):
        if self.unreadable:
            raise StoreUnavailableError("gone")
        return super().follow(after, limit)


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("fallback", ["", "a"])
def test_what_was_written_is_not_denied_where_it_cannot_be_read_back(fallback, in_thread):
    """Answered with 503 or the fallback, the caller plays something else than the log says."""
    ledger = Forgetful()
    client = Client(ledger, in_thread=in_thread).shop(fallback=fallback)
    ledger.unreadable = True
    answer = client.decide()
    assert answer["logged"] is True
    assert client.reward(answer["decision_id"], 1.0) == "accepted"
    ledger.unreadable = False
    asyncio.run(client.service.follow())
    assert kinds(ledger)[2:] == [Kind.DECIDED, Kind.REWARDED]
    assert client.service.loop.folds["shop"].learner.n_observed == 1
    assert digests(client.service.loop) == replayed(client.service.loop)


# ------------------------------------------------------------------- one request spoils another's


class Picky(MemoryLedger):
    """Cannot hold the text \\0, as PostgreSQL cannot."""

    def commit(self, drafts, accepts=None):
        if any("\0" in draft.request + draft.subject for draft in drafts):
            raise ValueError("cannot hold this")
        return super().commit(drafts, accepts)


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_draft_that_the_store_cannot_hold_fails_alone(in_thread):
    ledger = Picky()
    loop = new_loop(ledger)
    good, bad = (loop.propose("shop", Ask(matrix=MATRIX, request=text)).draft for text in "a\0")

    async def both():
        writer = Writer(loop, in_thread)
        return await asyncio.gather(
            writer.write([good]), writer.write([bad]), return_exceptions=True
        )

    outcomes, error = asyncio.run(both())
    assert isinstance(error, ValueError)
    assert [outcome.status for outcome in outcomes] == [Status.ACCEPTED]
    assert digests(loop) == replayed(loop)


def test_texts_that_no_store_can_hold_are_refused():
    client = Client(Picky()).shop()
    path = "/v1/bandits/shop/decisions"
    answers = client.answers(
        ("POST", path, {"request_id": "a\0b"}),
        ("POST", path, {"subject": "\0"}),
        ("DELETE", "/v1/bandits/shop/subjects/%00", None),
        ("POST", path, {"request_id": "fine"}),
    )
    assert [answer.status_code for answer in answers] == [422, 422, 422, 200]


# ----------------------------------------------------------------------------------- safe retries


@pytest.mark.parametrize("change", ["action withdrawn", "mode"])
def test_a_request_sent_again_gets_its_decision_though_the_bandit_has_changed(change):
    settings = {"mode": "shadow"} if change == "mode" else {}
    client = Client().shop(**settings)
    body = {"request_id": "r", **({"played": "a"} if settings else {"eligible": ["a"]})}
    first = client.decide(**body)
    if change == "mode":
        client("PUT", "/v1/bandits/shop", {"family": "bernoulli", "dim": 2})
    else:
        client("PATCH", "/v1/bandits/shop/actions", {"drop": ["a"]})
    again = client.decide(**body)
    assert (again["decision_id"], again["retried"]) == (first["decision_id"], True)
    client.decide(409, **{**body, "subject": "another body"})
    client.decide(422, **{**body, "request_id": "never seen"})


# ------------------------------------------------------------------------------------- propensities


def test_an_action_that_is_eligible_twice_is_refused():
    """It would be drawn twice as often as its propensity says."""
    client = Client().shop(exploration=0.5)
    client.decide(422, eligible=["a", "a", "b"])


# ------------------------------------------------------------------------------- who may see what


def test_nobody_is_let_in_before_the_keys_have_been_read():
    ledger = MemoryLedger()
    first = Client(ledger).shop()
    early = Ids(lambda: NOW, seed=9)()
    ledger.commit([Draft(Kind.REWARDED, "", early, NOW, 1.0)])
    first("POST", "/v1/keys", {"name": "k", "scopes": ["admin"]}, 201)
    first("GET", "/v1/parked", status=401)
    starting = Client(ledger, ready=False)
    for path in ("/v1/parked", "/v1/keys", "/v1/bandits", "/v1/dashboard"):
        problem = starting("GET", path, status=503)
        assert problem["type"] == "/problems/not-ready"
