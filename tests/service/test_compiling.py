"""What a service does while the kernels of a bandit are being compiled."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx2
import pytest

from belated import Bernoulli, Gaussian
from belated.client import Client
from belated.client.calls import LONGEST_COMPILATION, Attempts
from belated.learner.learner import Learner
from belated.ledger import open_ledger
from belated.ledger.proposing import NOTHING_SAID
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.policies import AdaptiveThompson, Greedy
from belated.service import compiling
from belated.service.compiling import HALVES, Compiling
from belated.service.service import Service
from support.running_service import served

SHOP = {"family": "gaussian", "policy": "greedy", "dim": 2}
ACTIONS = {"a": [1.0, 0.0], "b": [0.0, 1.0]}


@pytest.fixture
def compiler(monkeypatch):
    """A compiler that takes until the event is set, as if nothing had ever been compiled."""
    done = threading.Event()
    monkeypatch.setattr(Learner, "is_compiled", property(lambda learner: done.is_set()))
    monkeypatch.setattr(Compiling, "_start_processes", lambda *_: dict.fromkeys(HALVES))
    monkeypatch.setattr(Compiling, "_wait_for", lambda *_: done.wait(60.0))
    yield done
    done.set()


def eventually(holds):
    for _ in range(1000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError


def test_a_new_bandit_is_there_at_once_and_decides_when_it_can(compiler, caplog):
    with served() as (url, _), httpx2.Client(base_url=url) as http:
        assert http.put("/v1/bandits/shop", json=SHOP).status_code == 202
        assert http.put("/v1/bandits/shop", json=SHOP).status_code == 202
        assert http.get("/v1/bandits/shop").json()["n_decided"] == 0
        changed = http.patch("/v1/bandits/shop/actions", json={"put": ACTIONS})
        assert changed.json() == {"actions": ACTIONS, "next": None}
        assert http.get("/readyz").json() == {"status": "ok", "events_behind": 0, "compiling": 1}
        refused = http.post("/v1/bandits/shop/decisions", json={})
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert refused.json()["type"] == "/problems/compiling"
        assert "'shop'" in refused.json()["detail"]
        threading.Timer(0.5, compiler.set).start()
        with Client(url, retries=0) as client:
            assert client.decide("shop").action == "a"
        assert http.put("/v1/bandits/shop", json=SHOP).status_code == 200
        assert http.get("/readyz").json()["compiling"] == 0
    first, second = caplog.messages
    assert "compiling the kernels of bandit 'shop' (gaussian, greedy)" in first
    assert "compiled the kernels of bandit 'shop' in" in second


def play(replica, rounds):
    for reward in range(rounds):
        proposal = replica.propose("shop", NOTHING_SAID)
        replica.commit([proposal.draft])
        replica.reward([(proposal.draft.id, float(reward))])


def test_what_others_write_meanwhile_is_taken_in_afterwards(tmp_path, compiler):
    """A replica that compiles comes to the same state as one that never had to."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with served(url) as (_, service):
        other = Replica(open_ledger(url))
        other.configure("shop", Spec.of(2, Gaussian(), Greedy()))
        other.register("shop", ACTIONS)
        play(other, 3)
        eventually(lambda: service.replica.position == other.position)
        held = service.replica.folds["shop"]
        assert (held.learner.n_decided, list(held.actions.listed)) == (0, ["a", "b"])
        other.register("shop", {"c": [0.5, 0.5]})
        play(other, 2)
        compiler.set()
        eventually(lambda: not service.replica.held)
        play(other, 1)
        eventually(lambda: service.replica.position == other.position)
        assert service.replica.folds["shop"].digest() == other.folds["shop"].digest()
        other.ledger.close()


def test_a_bandit_decides_before_it_can_learn(compiler, monkeypatch):
    """What was decided and rewarded while learning was compiled is taken in afterwards."""
    monkeypatch.setattr(Compiling, "_start_processes", lambda *_: {"learning": None})
    with served() as (url, service), Client(url, retries=0) as client:
        client.put_bandit("shop", SHOP)
        client.change_actions("shop", ACTIONS)
        decided = [client.decide("shop").decision_id for _ in range(3)]
        assert client.reward(decided[0], 1.0) == "accepted"
        assert service.replica.held
        assert client.bandit("shop").n_decided == 0
        compiler.set()
        eventually(lambda: not service.replica.held)
        state = client.bandit("shop")
        assert (state.n_decided, state.n_observed) == (3, 1)
        client.reward(decided[1], 0.0)
        assert client.bandit("shop").n_observed == 2


def test_a_start_says_what_it_waits_for(tmp_path, compiler):
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    replica = Replica(open_ledger(url))
    replica.configure("shop", Spec.of(2, Gaussian(), Greedy()))
    replica.ledger.close()
    service = Service(url)
    reading = threading.Thread(target=service.read_log)
    reading.start()
    eventually(lambda: service.compiling.names == {"shop"})
    with pytest.raises(compiling.Problem, match="being compiled") as refused:
        service.check_ready()
    assert refused.value.type is compiling.COMPILING
    compiler.set()
    reading.join()
    service.check_ready()
    assert not service.replica.held
    service.ledger.close()


def test_a_service_stops_while_it_compiles(compiler):
    with served() as (url, service), httpx2.Client(base_url=url) as http:
        assert http.put("/v1/bandits/shop", json=SHOP).status_code == 202
        threading.Timer(0.2, compiler.set).start()  # the processes are killed
    assert service.replica.held


def test_a_service_compiles_itself_where_nothing_can_be_kept(monkeypatch):
    done = []
    monkeypatch.setattr(Learner, "is_compiled", property(lambda learner: bool(done)))
    monkeypatch.setattr(Learner, "warm_up_learning", lambda learner: done.append(learner.family))
    monkeypatch.setattr(compiling, "is_writable", lambda: False)
    monkeypatch.setattr(Compiling, "_start_processes", lambda *_: pytest.fail("no place"))
    with served() as (url, _), Client(url, retries=0) as client:
        client.put_bandit("shop", SHOP)
        client.change_actions("shop", ACTIONS)
        assert client.decide("shop").action == "a"
    assert done == [Gaussian()]


def test_a_client_waits_for_a_compiler_whatever_its_retries():
    problem = {"type": "/problems/compiling", "title": "", "status": 503, "detail": ""}
    busy = httpx2.Response(503, json=problem, headers={"Retry-After": "1"})
    attempts = Attempts(0)
    pauses = [attempts.pause(busy) for _ in range(int(LONGEST_COMPILATION))]
    assert set(pauses[:-1]) == {1.0}
    assert pauses[-1] is None
    assert Attempts(0).pause(httpx2.Response(503, headers={"Retry-After": "1"})) is None


@pytest.mark.slow
@pytest.mark.compiled
def test_compilers_leave_what_the_service_needs(tmp_path, monkeypatch):
    """Two processes compile, and whatever the service then does compiles nothing more."""
    monkeypatch.setenv("BELATED_CACHE_DIR", str(tmp_path))
    compilers = Compiling(lambda name: None)
    for process in compilers._start_processes(Spec.of(2, Bernoulli(), AdaptiveThompson())).values():
        compilers._wait_for(process)
    kept = set(tmp_path.rglob("*.nbc"))
    assert kept
    tests = Path(__file__).parents[1]
    subprocess.run([sys.executable, "-m", "support.every_request"], cwd=tests, check=True)
    assert set(tmp_path.rglob("*.nbc")) == kept
