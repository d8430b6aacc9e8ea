"""Bandit(ledger=...): the same calls, and nothing lost."""

import inspect
import os
import signal
import subprocess
import sys
import time
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from belated import (
    Bandit,
    Bernoulli,
    ConflictingRewardError,
    DelayedOFUGLM,
    Gaussian,
    UnknownDecisionError,
)
from belated.features import Features
from belated.ledger import StoreUnavailableError, rules
from belated.ledger.events import START, Draft, Kind
from belated.ledger.ids import from_text
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.stores.postgres import PostgresLedger
from belated.ledger.stores.sqlite import SQLiteLedger

ACTIONS = [[0.6, 0.0], [0.0, 0.8], [0.3, 0.3]]


def shop(ledger, **settings):
    return Bandit(
        dim=2, family=Bernoulli(), policy=DelayedOFUGLM(), seed=1, ledger=ledger, **settings
    )


def test_a_ledger_opened_by_names_is_that_of_the_objects():
    ledger = MemoryLedger()
    first = Bandit(2, family="bernoulli", policy="delayed-ofu-glm", ledger=ledger)
    first.learn(first.decide(ACTIONS).id, 1)
    assert shop(ledger).n_observed == 1


def test_equals_a_bandit_without_ledger(tmp_path):
    durable = shop(f"sqlite:///{tmp_path}/a.db")
    plain = Bandit(dim=2, family=Bernoulli(), policy=DelayedOFUGLM(), seed=1)
    rng, waiting = np.random.default_rng(3), []
    for k in range(60):
        actions = rng.normal(size=(5, 2)) / 4
        a, b = durable.decide(actions), plain.decide(actions)
        assert (a.index, a.score, a.estimate, a.width) == (b.index, b.score, b.estimate, b.width)
        waiting.append((a.id, b.id, float(k % 2)))
        if k % 4 == 0:
            a_id, b_id, y = waiting.pop(int(rng.integers(len(waiting))))
            assert durable.learn(a_id, y) == plain.learn(b_id, y) == 1
            assert durable.learn(a_id, y) == plain.learn(b_id, y) == 0
    assert np.array_equal(durable.theta, plain.theta)
    assert durable.fingerprint() == plain.fingerprint()
    assert durable.n_missing == plain.n_missing
    assert durable.interval([0.1, 0.1]) == plain.interval([0.1, 0.1])


def test_goes_on_after_a_restart(tmp_path):
    url = f"sqlite:///{tmp_path}/a.db"
    first = shop(url)
    decisions = [first.decide(ACTIONS) for _ in range(5)]
    first.learn(decisions[0].id, 1.0)
    before = first.fingerprint()
    first.close()
    second = shop(url)
    assert second.fingerprint() == before
    assert second.learn([(d.id, 0.0) for d in decisions[1:]]) == 4
    assert second.n_missing == 0


CHILD = """
import sys
import time
sys.path.insert(0, sys.argv[2])
from test_durable import ACTIONS, shop
bandit = shop(sys.argv[1])
for k in range(10**9):
    decision = bandit.decide(ACTIONS)
    print("decided", decision.id, flush=True)
    if k % 2:
        bandit.learn(decision.id, 1.0)
        print("rewarded", decision.id, flush=True)
"""


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path):
    url = f"sqlite:///{tmp_path}/a.db"
    acknowledged = {"decided": set(), "rewarded": set()}
    for k in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, url, str(Path(__file__).parent)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        )
        with child:
            for line in child.stdout:
                kind, id = line.split()
                acknowledged[kind].add(id)
                if len(acknowledged["decided"]) >= 40 * (k + 1):
                    child.send_signal(signal.SIGKILL)
                    break
    bandit = shop(url)
    assert bandit.n_decided >= len(acknowledged["decided"]) >= 120
    for id in acknowledged["decided"]:
        new = bandit.learn(id, 1.0)
        assert new == 0 or id not in acknowledged["rewarded"]


def test_conversions_wait_for_their_window():
    ledger = MemoryLedger()
    bandit = shop(ledger, window=0.05, default_reward=0.0)
    decisions = [bandit.decide(ACTIONS) for _ in range(2)]
    bandit.learn(decisions[0].id, 1.0)
    assert bandit.n_observed == 0

    time.sleep(0.1)
    bandit.decide(ACTIONS)
    assert bandit.n_observed == 2
    kinds = [event.kind for event in ledger.follow(START)[0]]
    assert kinds.count(Kind.EXPIRED) == 2


def test_errors_leave_everything_as_it_was(tmp_path):
    ledger = SQLiteLedger(tmp_path / "a.db")
    bandit = shop(ledger)
    first, second = bandit.decide(ACTIONS), bandit.decide(ACTIONS)
    bandit.learn(first.id, 1.0)
    before = bandit.fingerprint()
    with pytest.raises(ConflictingRewardError, match=r"reward = 0.0 .*expected 1.0"):
        bandit.learn([(second.id, 1.0), (first.id, 0.0)])
    with pytest.raises(ConflictingRewardError):
        bandit.learn([(second.id, 1.0), (second.id, 0.0)])
    with pytest.raises(UnknownDecisionError, match="id = 7"):
        bandit.learn([(second.id, 1.0), (7, 1.0)])
    with pytest.raises(UnknownDecisionError, match=r"pass decision\.id"):
        bandit.learn(second, 1.0)
    stranger = shop(MemoryLedger()).decide(ACTIONS)
    with pytest.raises(UnknownDecisionError):
        bandit.learn([(second.id, 1.0), (stranger.id, 1.0)])
    with pytest.raises(ValueError, match="a whole number from 0 to 1"):
        bandit.learn([(second.id, 0.5)])
    with pytest.raises(ValueError, match="norm"):
        bandit.decide([[3.0, 0.0]])
    assert bandit.fingerprint() == before
    with pytest.raises(TypeError, match="cannot be copied"):
        deepcopy(bandit)
    with pytest.raises(ValueError, match=r"family = .*another name"):
        Bandit(dim=2, family=Gaussian(sd=1.0), policy=DelayedOFUGLM(), ledger=ledger)
    with pytest.raises(ValueError, match=r"expected sqlite:///file\.db"):
        shop("shop.db")


def test_a_refused_bandit_leaves_no_file(tmp_path):
    for wrong in ({"family": "gaussian:-1"}, {"policy": 3}, {"max_norm": 1e60}):
        usual = {"family": "bernoulli", "policy": "delayed-ofu-glm"}
        with pytest.raises((TypeError, ValueError)):
            Bandit(2, **usual | wrong, ledger=f"sqlite:///{tmp_path}/a.db")
    assert list(tmp_path.iterdir()) == []


def test_a_refused_reward_is_judged_once(monkeypatch):
    ledger, judged = MemoryLedger(), []
    bandit = shop(ledger)
    first, second = bandit.decide(ACTIONS), bandit.decide(ACTIONS)
    bandit.learn(first.id, 1.0)
    judge = rules.judge
    monkeypatch.setattr(rules, "judge", lambda *facts: judged.append(facts) or judge(*facts))
    with pytest.raises(ConflictingRewardError, match=r"expected 1\.0"):
        bandit.learn([(second.id, 1.0), (first.id, 0.0)])
    assert len(judged) == 2


def test_features_and_contexts(tmp_path):
    features = Features(numeric=["price"], categorical=["ad"], interactions=[("price", "ad")])
    rows = [{"price": 1.0, "ad": "a"}, {"price": 3.0, "ad": "b"}]
    features.fit(rows)

    def new():
        return Bandit(
            family=Gaussian(sd=1.0),
            policy=DelayedOFUGLM(),
            features=features,
            ledger=f"sqlite:///{tmp_path}/a.db",
        )

    first = new()
    decision = first.decide([{"ad": "a"}, {"ad": "b"}], {"price": 2.0})
    first.learn(decision.id, 0.3)
    assert new().fingerprint() == first.fingerprint()


# -------------------------------------------------------------------------- settings in the log


def spec_of(ledger):
    replica = Replica(ledger)
    replica.catch_up()
    return replica.folds["bandit"].spec


def configured(ledger):
    return sum(event.kind == Kind.CONFIGURED for event in ledger.follow(START)[0])


def test_what_is_not_named_stays_as_in_the_log():
    ledger = MemoryLedger()
    shop(ledger, window=3600.0, late="revise")
    before = spec_of(ledger)
    shop(ledger)
    assert spec_of(ledger) == before
    assert (before.window, before.late, configured(ledger)) == (3600.0, "revise", 1)
    shop(ledger, window=60.0)
    assert (spec_of(ledger).window, spec_of(ledger).late) == (60.0, "revise")
    shop(ledger, late="keep")
    assert (spec_of(ledger).window, spec_of(ledger).late) == (60.0, "keep")
    shop(ledger, window=None)  # None is a value as any other
    assert spec_of(ledger).window is None
    assert configured(ledger) == 4


def test_a_conversion_loop_stays_one():
    ledger = MemoryLedger()
    shop(ledger, window=3600.0, default_reward=1.0)
    before = spec_of(ledger)
    shop(ledger)
    shop(ledger, default_reward=1)
    assert spec_of(ledger) == before
    assert (before.loop, before.default_reward, configured(ledger)) == ("conversion", 1.0, 1)
    with pytest.raises(ValueError, match=r"default_reward = None: expected 1.0, as the log has it"):
        shop(ledger, default_reward=None)
    with pytest.raises(ValueError, match="window = None: expected seconds"):
        shop(ledger, window=None)
    assert spec_of(ledger) == before


def test_settings_of_a_service_stay():
    ledger = MemoryLedger()
    spec = Spec.of(2, Bernoulli(), DelayedOFUGLM(), default_reward=1.0, exploration=0.5)
    Replica(ledger).configure("bandit", spec)
    for settings in ({}, {"default_reward": None}, {"window": None, "late": "keep"}):
        shop(ledger, **settings)
    assert spec_of(ledger) == spec
    with pytest.raises(ValueError, match=r"default_reward = 1.0: expected None, as the log has it"):
        shop(ledger, window=1.0, default_reward=1.0)


def test_a_new_bandit_gets_the_usual_settings():
    ledger = MemoryLedger()
    shop(ledger)
    assert spec_of(ledger) == Spec.of(2, Bernoulli(), DelayedOFUGLM())
    assert "window: float | " in str(inspect.signature(Bandit))
    assert "= AS_IN_LOG" in str(inspect.signature(Bandit))
    Bandit(2, family=Bernoulli(), policy=DelayedOFUGLM(), window=None, late="keep")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"late": "sometimes"}, "late = 'sometimes': expected 'keep' or 'revise'"),
        ({"window": "3600"}, "window = '3600': expected a number"),
        ({"window": -1.0}, "window = -1.0: expected"),
        ({"window": 9.0, "default_reward": "no"}, "default_reward = 'no': expected a finite"),
        ({"window": 9.0, "default_reward": 0.5}, "default_reward = 0.5: expected"),
    ],
)
def test_bad_settings_leave_no_trace(settings, said):
    ledger = MemoryLedger()
    with pytest.raises((ValueError, TypeError), match=said):
        shop(ledger, **settings)
    assert ledger.follow(START)[0] == []


# ------------------------------------------------------------------------ several at one ledger


def rewards_of(ledger, *decisions):
    return [[event.value for event in ledger.story(from_text(d.id))[1:]] for d in decisions]


def interrupted(ledger, method, rival):
    """A ledger into which a rival writes, once, when one of its methods begins."""
    usual = getattr(ledger, method)

    def first_the_rival(*args):
        setattr(ledger, method, usual)
        rival()
        return usual(*args)

    setattr(ledger, method, first_the_rival)


POSTGRES = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("postgres", "postgres, within the transaction")
]


@pytest.fixture(params=["memory", "sqlite", *POSTGRES])
def contested(request, tmp_path):
    """A bandit, the name of the method in which another writes, and the ledger of that one."""
    if request.param == "memory":
        ledger = rival = MemoryLedger()
    elif request.param == "sqlite":
        ledger, rival = (SQLiteLedger(tmp_path / "a.db") for _ in range(2))
    else:
        url, schema = request.getfixturevalue("postgres").url, f"contested_{time.time_ns()}"
        ledger, rival = (PostgresLedger(url, schema=schema) for _ in range(2))
    yield shop(ledger), ledger, "_write" if "within" in request.param else "commit", rival
    ledger.close()
    rival.close()


@pytest.mark.parametrize("kind", [Kind.REWARDED, Kind.CANCELLED])
def test_a_conflict_that_comes_in_between_is_no_silent_loss(contested, kind):
    bandit, ledger, method, rival = contested
    first, second = bandit.decide(ACTIONS), bandit.decide(ACTIONS)

    def write():
        value = 0.0 if kind == Kind.REWARDED else None
        rival.commit([Draft(kind, "", from_text(second.id), time.time_ns() // 1000, value)])

    interrupted(ledger, method, write)
    expected = "0.0" if kind == Kind.REWARDED else "none: it was cancelled"
    with pytest.raises(ConflictingRewardError, match=f"reward = 1.0 .*expected {expected}"):
        bandit.learn([(first.id, 1.0), (second.id, 1.0)])
    value = [0.0] if kind == Kind.REWARDED else [None]
    assert rewards_of(rival, first, second) == [[], value]  # all or none
    assert bandit.learn(first.id, 1.0) == 1
    assert rewards_of(rival, first) == [[1.0]]


def test_the_same_reward_in_between_is_no_conflict(contested):
    bandit, ledger, method, rival = contested
    first, second = bandit.decide(ACTIONS), bandit.decide(ACTIONS)

    def write():
        rival.commit([Draft(Kind.REWARDED, "", from_text(second.id), time.time_ns() // 1000, 1.0)])

    interrupted(ledger, method, write)
    assert bandit.learn([(first.id, 1.0), (second.id, 1.0)]) == 1
    assert rewards_of(rival, first, second) == [[1.0], [1.0]]


def test_a_decision_that_is_erased_in_between_is_unknown():
    ledger = MemoryLedger()
    bandit = shop(ledger)
    decision = bandit.decide(ACTIONS)
    ledger._subjects["bandit", "she"] = [from_text(decision.id)]
    interrupted(ledger, "commit", lambda: ledger.forget("bandit", "she", 1))
    with pytest.raises(UnknownDecisionError):
        bandit.learn(decision.id, 1.0)


LOOKS = {
    "theta": lambda bandit: bandit.theta.tolist(),
    "W": lambda bandit: bandit.W.tolist(),
    "V": lambda bandit: bandit.V.tolist(),
    "n_decided": lambda bandit: bandit.n_decided,
    "n_observed": lambda bandit: bandit.n_observed,
    "n_missing": lambda bandit: bandit.n_missing,
    "sqrt_beta": lambda bandit: bandit.sqrt_beta,
    "radius": lambda bandit: bandit.radius,
    "certificate": lambda bandit: bandit.certificate,
    "interval": lambda bandit: bandit.interval([0.1, 0.1]),
    "fingerprint": lambda bandit: bandit.fingerprint(),
}


def live_a_little(bandit, reward=1.0):
    """Something of everything happens: decisions, and a reward for one of them."""
    decisions = [bandit.decide(ACTIONS) for _ in range(3)]
    bandit.learn(decisions[0].id, reward)


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_what_is_known_rests_on_the_present_log(look, tmp_path):
    here, there = (shop(f"sqlite:///{tmp_path}/a.db") for _ in range(2))
    live_a_little(there)
    before = look(here)
    live_a_little(there, 0.0)
    assert look(here) == look(there) != before


def test_decisions_and_saved_files_rest_on_the_present_log(tmp_path):
    here, there = (shop(f"sqlite:///{tmp_path}/a.db") for _ in range(2))
    live_a_little(there)
    theta = there.theta
    decision = here.decide(ACTIONS)
    assert decision.estimate == pytest.approx(theta @ ACTIONS[decision.index], rel=1e-12)
    assert decision.estimate != 0.0  # as it would be for a bandit that knows nothing
    live_a_little(there)
    here.save(tmp_path / "saved")
    assert Bandit.load(tmp_path / "saved").fingerprint() == there.fingerprint()


def test_settings_that_another_changes_count_at_once():
    ledger = MemoryLedger()
    here = shop(ledger)
    shop(ledger, window=60.0)
    here.decide(ACTIONS)
    event = ledger.follow(START)[0][-1]
    assert (event.kind, event.due - event.time) == (Kind.DECIDED, 60_000_000)


def test_the_store_is_needed_until_the_bandit_is_closed(tmp_path):
    ledger = SQLiteLedger(tmp_path / "a.db")
    here, there = shop(ledger), shop(f"sqlite:///{tmp_path}/a.db")
    live_a_little(here)
    known = here.fingerprint()
    live_a_little(there)
    assert "n_observed=1, n_missing=2" in repr(here)  # as it was read last
    ledger.close()
    with pytest.raises(StoreUnavailableError):
        _ = here.theta
    assert "n_observed=1, n_missing=2" in repr(here)
    here.close()
    assert here.fingerprint() == known


# --------------------------------------------------------------------------- guardrail outcomes


def test_an_outcome_is_kept_and_not_learnt():
    ledger = MemoryLedger()
    bandit = shop(ledger)
    id = bandit.decide(ACTIONS).id
    before = bandit.fingerprint()
    assert bandit.note_outcome(id, "complaint", 1)
    assert not bandit.note_outcome(id, "complaint", 1.0)
    assert bandit.note_outcome(id, "complaint", 2.0, event_id="second")
    assert bandit.fingerprint() == before
    assert bandit.n_missing == 1
    assert bandit.learn(id, 1.0) == 1
    kinds = [event.kind for event in ledger.story(from_text(id))]
    assert kinds == [Kind.DECIDED, Kind.OUTCOME, Kind.OUTCOME, Kind.REWARDED]


def test_outcomes_that_are_refused_leave_no_trace():
    ledger = MemoryLedger()
    bandit = shop(ledger)
    id = bandit.decide(ACTIONS).id
    bandit.note_outcome(id, "calls", 1.0)
    n = ledger.behind(START)
    for call, error, said in (
        ((id, "calls", 2.0), ConflictingRewardError, "value = 2.0 of 'calls' .* expected 1.0"),
        ((id, "", 2.0), ValueError, "name = '': expected a text of 1 to 200 characters"),
        ((id, "calls", "many"), (TypeError, ValueError), "value = 'many': expected"),
        ((id, "calls", float("inf")), ValueError, "value = inf: expected"),
        (("nobody", "calls", 2.0), UnknownDecisionError, "id = 'nobody': expected the id"),
    ):
        with pytest.raises(error, match=said):
            bandit.note_outcome(*call)
    with pytest.raises(ValueError, match="expected no time after now"):
        bandit.note_outcome(id, "visits", 1.0, at="2999-01-01T00:00:00Z")
    assert ledger.behind(START) == n
    with pytest.raises(TypeError, match="expected with window= or ledger= only"):
        Bandit(dim=2, family=Bernoulli()).note_outcome(1, "calls", 1.0)
