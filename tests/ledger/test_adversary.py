"""What an adversary found in the ledger and the service: each test failed before its repair."""

import asyncio
import json
import logging
import threading
from urllib.parse import quote

import httpx2
import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedOFUGLM
from belated.core.events import Status
from belated.features import Features
from belated.ledger.events import START, Draft, Kind
from belated.ledger.ids import Ids
from belated.ledger.proposing import Ask
from belated.ledger.protocol import StoreUnavailableError
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.monitoring.histogram import AGES, Histogram
from belated.service.app import new_app
from belated.service.http import access_log as logs
from belated.service.service import Service
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
        self.transport = httpx2.ASGITransport(new_app(self.service))
        self.key = None

    def answers(self, *requests):
        """Answers to requests (method, path, body) that are sent at the same time."""

        async def send():
            headers = {} if self.key is None else {"X-API-Key": self.key}
            async with httpx2.AsyncClient(
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


def new_replica(ledger=None, names=("shop",)):
    replica = Replica(MemoryLedger() if ledger is None else ledger, clock=lambda: NOW, seed=1)
    for name in names:
        replica.configure(name, spec())
    return replica


def decide(replica, name="shop"):
    proposal = replica.propose(name, Ask(matrix=MATRIX))
    replica.commit([proposal.draft])
    return proposal.draft.id


def replayed(replica):
    again = Replica(replica.ledger)
    again.catch_up()
    return {name: fold.digest() for name, fold in again.folds.items()}


def digests(replica):
    return {name: fold.digest() for name, fold in replica.folds.items()}


# --------------------------------------------------------------- half taken in, live != replay


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("place", ["fold", "apply"])
def test_an_interrupted_fold_is_not_taken_in_twice(monkeypatch, error, place):
    """No memory for a longer history, or Ctrl-C: what is known must still be the fold of the log.

    Events that one bandit has taken in, and another one not, were given to both again.
    """
    replica = new_replica(names=("one", "two"))
    ids = [decide(replica, "one"), decide(replica, "two")]
    broken = replica.folds["two"]
    target = broken.learner if place == "fold" else broken

    def fail(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(target, place, fail)
        with pytest.raises(error):
            replica.reward([(id, 1.0) for id in ids])
    replica.catch_up()
    assert digests(replica) == replayed(replica)
    assert [fold.learner.n_observed for fold in replica.folds.values()] == [1, 1]
    ids = [decide(replica, "one"), decide(replica, "two")]
    assert replica.reward([(id, 0.0) for id in ids]) == [Status.ACCEPTED] * 2
    assert digests(replica) == replayed(replica)


def test_a_reward_without_a_decision_in_the_log_is_an_error_not_an_endless_search():
    fold = new_replica().folds["shop"]
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
    assert client.service.replica.folds["shop"].learner.n_observed == 1
    assert digests(client.service.replica) == replayed(client.service.replica)


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
    replica = new_replica(ledger)
    good, bad = (replica.propose("shop", Ask(matrix=MATRIX, request=text)).draft for text in "a\0")

    async def both():
        writer = Writer(replica, in_thread)
        return await asyncio.gather(
            writer.write([good]), writer.write([bad]), return_exceptions=True
        )

    outcomes, error = asyncio.run(both())
    assert isinstance(error, ValueError)
    assert [outcome.status for outcome in outcomes] == [Status.ACCEPTED]
    assert digests(replica) == replayed(replica)


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


def test_a_key_for_one_bandit_cannot_reward_the_next_decision_of_another():
    """A parked reward went to whichever bandit decided under its id."""
    replica = new_replica(names=("mine", "other"))
    draft = replica.propose("other", Ask(matrix=MATRIX)).draft
    assert replica.reward([(draft.id, 1.0)], bandit="mine") == [Status.UNKNOWN]
    replica.commit([draft])
    assert replica.folds["other"].learner.n_observed == 0


def test_the_access_log_does_not_tell_whose_data_were_erased(caplog):
    logs.logger.setLevel(logging.INFO)
    try:
        client = Client().shop()
        with caplog.at_level(logging.INFO, "belated.access"):
            client("DELETE", "/v1/bandits/shop/subjects/alice%40example.org")
    finally:
        logs.logger.setLevel(logging.NOTSET)
    *_, line = [json.loads(r.message) for r in caplog.records if r.name == "belated.access"]
    assert "alice" not in json.dumps(line)
    assert line["path"].startswith("/v1/bandits/shop/subjects/")


# ------------------------------------------------------------------------------------------ paths


@pytest.mark.parametrize("subject", ["a/b", "a%2Fb", "//", "ü b?c#d"])
def test_every_subject_can_be_erased(subject):
    client = Client().shop()
    decided = client.decide(subject=subject)
    client.decide(subject="a")
    path = f"/v1/bandits/shop/subjects/{quote(subject, safe='')}"
    assert client("DELETE", path) == {"decisions": 1}
    client("GET", f"/v1/decisions/{decided['decision_id']}", status=404)


def test_paths_of_strangers_are_not_remembered():
    """Subjects would stay in memory after their erasure, and long paths fill it."""
    client = Client().shop()
    client("DELETE", "/v1/bandits/shop/subjects/alice")
    for path in ("/v1/decisions/one-of-many", f"/v1/bandits/{'x' * 5000}"):
        client.answers(("GET", path, None))
    app = client.transport.app
    while not hasattr(app, "_known"):
        app = app.app
    assert not [path for path in app._known if b"alice" in path or b"many" in path or b"xx" in path]


# ----------------------------------------------------------------------------------------- memory


def test_commits_are_counted_not_collected():
    """One float a commit, for ever, where nobody scrapes /metrics."""
    client = Client().shop()
    for _ in range(5):
        client.decide()
    lengths = [len(v) for v in vars(client.service.writer).values() if isinstance(v, list)]
    assert max(lengths) == 0
    (answer,) = client.answers(("GET", "/metrics", None))
    assert "belated_commit_seconds_count 7.0" in answer.text


def test_looking_for_news_writes_nothing():
    """Twenty times a second, each replica drew a transaction number of PostgreSQL for it."""
    ledger = MemoryLedger()
    client = Client(ledger, in_thread=True).shop()
    commits, commit = [], ledger.commit
    ledger.commit = lambda drafts, accepts=None: commits.append(drafts) or commit(drafts, accepts)
    asyncio.run(client.service.follow())
    assert commits == []


# ------------------------------------------------------------------------------ threads, one file


def test_a_reader_in_another_thread_does_not_tear_the_tail(tmp_path):
    """What a ledger hands on without reading it back was changed outside its lock."""
    ledger = SQLiteLedger(tmp_path / "a.db")
    ledger.commit([Draft(Kind.KEYS, "", b"", NOW, body=b"0")])
    inside, seen = threading.Event(), []

    class Slow(list):
        """Lets the reader in where the tail is looked at, if it can come in."""

        def __getitem__(self, place):
            if threading.current_thread() is not reader:
                inside.set()
                reader.join(0.5)
            return super().__getitem__(place)

    def read():
        inside.wait(5.0)
        seen.extend(ledger.follow(START)[0])

    ledger._tail = Slow(ledger._tail)
    reader = threading.Thread(target=read)
    reader.start()
    ledger.commit([Draft(Kind.KEYS, "", b"", NOW, body=b"1")])
    reader.join(5.0)
    assert seen[0].body == b"0"
    assert [event.body for event in ledger.follow(START)[0]] == [b"0", b"1"]
    ledger.close()


# --------------------------------------------------------------------------------- Bandit(ledger=)


def test_opening_a_bandit_of_a_service_does_not_change_how_it_serves():
    ledger = MemoryLedger()
    served = {"mode": "shadow", "exploration": 0.1, "baseline": "a", "log_actions": True}
    Client(ledger).shop(fallback="b", **served)
    replica = Replica(ledger)
    replica.catch_up()
    before = replica.folds["shop"].spec
    Bandit(2, family=Bernoulli(), ledger=ledger, name="shop")
    replica.catch_up()
    assert replica.folds["shop"].spec == before


def test_opening_a_bandit_without_a_policy_keeps_the_one_it_has():
    ledger = MemoryLedger()
    Bandit(2, family=Bernoulli(), policy=DelayedOFUGLM(m1=2.0), ledger=ledger)
    again = Bandit(2, family=Bernoulli(), ledger=ledger)
    assert again.policy.m1 == 2.0
    with pytest.raises(ValueError, match=r"policy = .*adaptive-thompson.*: expected"):
        Bandit(2, family=Bernoulli(), policy="adaptive-thompson", ledger=ledger)


def test_contexts_of_numpy_are_as_good_as_those_of_python():
    features = Features(numeric=["hour"], categorical=["ad"])
    features.fit([{"ad": "a", "hour": 0}, {"ad": "b", "hour": 24}])
    ledger = MemoryLedger()
    bandit = Bandit(features=features, family=Bernoulli(), policy=DelayedOFUGLM(), ledger=ledger)
    bandit.decide([{"ad": "a"}, {"ad": "b"}], {"hour": np.int64(3)})
    (event,) = [e for e in ledger.follow(START)[0] if e.kind == Kind.DECIDED]
    assert b'{"hour":3}' in event.body


# ------------------------------------------------------------------------------- second reading


class InDoubt(MemoryLedger):
    """Commits, and loses the connection before it can say so."""

    broken = False

    def commit(self, drafts, accepts=None):
        outcomes = super().commit(drafts, accepts)
        if self.broken:
            raise StoreUnavailableError("connection lost")
        return outcomes


@pytest.mark.parametrize("fallback", ["", "a"])
def test_a_decision_that_nobody_was_told_is_cancelled(fallback):
    """It may have been written all the same, and then its window would close with a reward."""
    ledger = InDoubt()
    client = Client(ledger).shop(loop="conversion", window=60, fallback=fallback)
    ledger.broken = True
    client.decide(200 if fallback else 503)
    client.decide(200 if fallback else 503, request_id="r")
    ledger.broken = False
    asyncio.run(client.service.cancel_abandoned())
    told = kinds(ledger)[2:]
    if fallback:
        assert told == [Kind.DECIDED] * 2 + [Kind.CANCELLED] * 2
    else:  # the second will be asked for again
        assert told == [Kind.DECIDED] * 2 + [Kind.CANCELLED]
        assert client.decide(request_id="r")["retried"] is True
    asyncio.run(client.service.cancel_abandoned())
    assert Kind.CANCELLED not in kinds(ledger)[2 + len(told) :]


# -- counting


@pytest.mark.parametrize("loop_kind", ["explicit", "conversion"])
def test_a_late_reward_that_is_revised_in_time_is_no_longer_pending(loop_kind):
    now = [NOW]
    replica = Replica(MemoryLedger(), clock=lambda: now[0], seed=1)
    replica.configure("shop", spec(loop=loop_kind, window=10.0))
    fold = replica.folds["shop"]
    id = decide(replica)
    now[0] += 11 * SECOND  # late, but nobody has closed the window yet
    assert replica.reward([(id, 1.0)]) == [Status.EXPIRED]
    replica.commit([Draft(Kind.REVISED, "shop", id, now[0], 0.0)])
    replica.expire()
    assert fold.learner.n_observed == 1
    assert len(fold.pending) == fold.statistics.n_pending == 0
    assert fold.statistics.n_returned == 1
    assert digests(replica) == replayed(replica)


# -- names and numbers


@pytest.mark.parametrize("name", ["-", "_", "a-b_c"])
def test_what_the_api_calls_a_name_is_one(name):
    Client()("PUT", f"/v1/bandits/{name}", {"family": "bernoulli", "dim": 2}, 201)


def test_a_window_that_no_store_can_hold_is_refused():
    with pytest.raises(ValueError, match="window"):
        Bandit(2, family=Bernoulli(), policy=DelayedOFUGLM(), ledger=MemoryLedger(), window=1e14)


# -- another file in its place


def test_a_file_that_is_being_made_in_its_place_is_not_taken_for_its_own(tmp_path):
    """Without tables at the first look, and a ledger of somebody else's at the second."""
    path = tmp_path / "a.db"
    ours = SQLiteLedger(path)
    path.rename(tmp_path / "away.db")
    path.touch()
    draft = Draft(Kind.KEYS, "", b"", NOW, body=b"ours")
    with pytest.raises(StoreUnavailableError, match="no such table"):
        ours.commit([draft])
    other = SQLiteLedger(path)
    with pytest.raises(StoreUnavailableError, match="another ledger"):
        ours.commit([draft])
    assert other.behind(START) == 0
    other.close()
    ours.close()


# -- work that grows with the log


class Watched(bytearray):
    """Counts the bytes that are searched."""

    searched = 0

    def find(self, what, start, end):
        self.searched += min(end, len(self)) - start
        return super().find(what, start, end)


def test_a_late_reward_does_not_search_all_decisions():
    """Ten thousand of them in one request took minutes where there were a million decisions."""
    fold, now = new_replica().folds["shop"], [NOW]
    make, rng = Ids(lambda: now[0], seed=5), np.random.default_rng(5)
    ids = []
    for _ in range(100_000):
        now[0] += 10_000
        ids.append(make())
    blocks = [ids[k : k + 50] for k in range(0, len(ids), 50)]
    mixed = [id for block in blocks for id in rng.permutation(np.array(block, "V16")).tolist()]
    far = [make(), make()]  # of a clock that was days ahead
    mixed = [far[0], *mixed[:777], far[1], *mixed[777:]]
    fold.ids = Watched(b"".join(mixed))
    rows = [0, 1, 5, 778, 50_000, len(mixed) - 1]
    assert [fold._row(mixed[row]) for row in rows[1:3] + rows[4:]] == rows[1:3] + rows[4:]
    assert fold.ids.searched < 5 * 2 * 16 * 10_000
    assert [fold._row(mixed[row]) for row in rows] == rows


def test_pending_decisions_by_age():
    client = Client().shop()
    ids = [client.decide()["decision_id"] for _ in range(3)]
    client.now += 10 * SECOND
    client.decide()
    client.now += 1
    client.reward(ids[0], 1.0)
    fold = client.service.replica.folds["shop"]
    slow = Histogram(AGES)
    for _, pending in fold.pending.items():
        slow.add(client.now // SECOND - pending.time // SECOND)
    assert fold.pending.by_age(client.now).counts == slow.counts == [1, 2, 0, 0, 0, 0, 0, 0, 0]


def test_the_statistics_know_of_revisions():
    """Late rewards that revise were learnt, but the dashboard's reward curves lacked them."""
    now = [NOW]
    replica = Replica(MemoryLedger(), clock=lambda: now[0], seed=1)
    replica.configure("shop", spec(loop="conversion", window=10.0, late="revise"))
    id = decide(replica)
    now[0] += 11 * SECOND
    replica.expire()
    replica.reward([(id, 1.0)])
    fold = replica.folds["shop"]
    assert fold.learner.history.y[0] == 1.0
    assert fold.statistics.revisions.total == 1.0
    (totals,) = fold.statistics.actions.by_name.values()
    assert (totals.revision, totals.gained) == (1.0, 0)  # the window had brought the default
