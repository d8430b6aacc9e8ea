"""The holdout: who is held out, what is played then, and what the log says of it."""

import math

import msgspec
import numpy as np
import pytest

from belated.ledger.events import START, Decided, Kind
from belated.ledger.holdout import is_held_out
from belated.ledger.proposing import NOTHING_SAID, Ask
from belated.ledger.stores.sqlite import SQLiteLedger
from support.replicas import explicit, new_replica, replayed, same

ACTIONS = {"a": [0.9, 0.0, 0.0], "b": [0.1, 0.0, 0.0], "c": [0.0, 0.2, 0.0]}


def holding_out(share=0.3, ledger=None, **settings):
    replica = new_replica(explicit(holdout=share, **settings), ledger)
    replica.register("shop", ACTIONS)
    return replica


def test_the_groups_do_not_change_between_versions():
    """The log of a running test must go on: these were computed once and for all."""
    held_out = [k for k in range(60) if is_held_out("shop", b"ann-%d" % k, 0.1)]
    assert held_out == [11, 16, 25, 49, 51]
    assert is_held_out("shop", bytes(range(16)), 0.997)  # its hash is 0.9968
    assert not is_held_out("shop", bytes(range(16)), 0.9968)


def test_a_larger_share_keeps_who_was_held_out():
    shares = [0.0, 0.05, 0.2, 0.5, 0.99]
    units = [b"%d" % k for k in range(4000)]
    groups = [{u for u in units if is_held_out("shop", u, share)} for share in shares]
    for share, group, larger in zip(shares, groups, [*groups[1:], set(units)], strict=True):
        assert group <= larger
        assert len(group) / 4000 == pytest.approx(share, abs=4 * math.sqrt(share / 4000))


def test_bandits_assign_independently():
    units = [b"%d" % k for k in range(4000)]
    both = sum(is_held_out("a", u, 0.3) and is_held_out("b", u, 0.3) for u in units)
    assert both / 4000 == pytest.approx(0.09, abs=4 * math.sqrt(0.09 * 0.91 / 4000))


def test_a_subject_stays_in_its_group_in_every_process():
    replica, other = holding_out(0.5), holding_out(0.5, exploration=0.1)
    for k in range(40):
        ask = Ask(subject=f"s{k}")
        groups = {r.propose("shop", ask).body.held_out for r in (replica, replica, other)}
        assert groups == {is_held_out("shop", b"s%d" % k, 0.5)}


def test_without_a_subject_it_is_the_decision_that_is_held_out():
    replica = holding_out(0.3)
    drawn = [replica.propose("shop", NOTHING_SAID) for _ in range(2000)]
    for draft, body in drawn:
        assert body.held_out == is_held_out("shop", draft.id, 0.3)
    share = np.mean([body.held_out for _, body in drawn])
    assert share == pytest.approx(0.3, abs=4 * math.sqrt(0.21 / 2000))


def test_no_name_of_a_baseline_means_a_uniform_draw():
    replica = holding_out(0.5)
    bodies = [replica.propose("shop", Ask(probabilities=True)).body for _ in range(3000)]
    held_out = [body for body in bodies if body.held_out]
    assert {body.propensity for body in held_out} == {1.0 / 3.0}
    assert {body.probabilities for body in held_out} == {(1.0 / 3.0,) * 3}
    shares = np.bincount([body.index for body in held_out]) / len(held_out)
    assert shares == pytest.approx([1 / 3] * 3, abs=4 * math.sqrt(2 / 9 / len(held_out)))
    others = [body for body in bodies if not body.held_out]
    assert {(body.action, body.propensity) for body in others} == {("a", 1.0)}


def test_a_baseline_with_a_name_is_played_wherever_it_can_be():
    replica = holding_out(0.5, baseline="b")
    subject = next(f"s{k}" for k in range(100) if is_held_out("shop", b"s%d" % k, 0.5))
    body = replica.propose("shop", Ask(subject=subject, probabilities=True)).body
    assert (body.action, body.propensity, body.probabilities) == ("b", 1.0, (0.0, 1.0, 0.0))
    assert np.frombuffer(body.x).tolist() == ACTIONS["b"]
    elsewhere = Ask(subject=subject, eligible=["a", "c"])
    bodies = [replica.propose("shop", elsewhere).body for _ in range(50)]
    assert {(body.action, body.propensity) for body in bodies} == {("a", 0.5), ("c", 0.5)}


def test_a_ranking_for_a_subject_is_held_out_as_a_whole():
    replica = holding_out(0.5, baseline="b")
    for k in range(20):
        bodies = [one.body for one in replica.propose_top("shop", Ask(subject=f"s{k}"), 3)]
        expected = is_held_out("shop", b"s%d" % k, 0.5)
        assert [body.held_out for body in bodies] == [expected] * 3
        assert not expected or bodies[0].action == "b"
        assert not expected or [b.propensity for b in bodies] == [1.0, 0.5, 1.0]


@pytest.mark.parametrize("on_disk", [False, True])
def test_live_equals_replayed_and_baselines_are_learnt_from(tmp_path, on_disk):
    replica = holding_out(0.4, SQLiteLedger(tmp_path / "x.db") if on_disk else None)
    rng = np.random.default_rng(1)
    for k in range(60):
        draft = replica.propose("shop", Ask(subject=f"s{k % 13}")).draft
        replica.commit([draft])
        replica.reward([(draft.id, float(rng.random() < 0.5))])
    assert replica.folds["shop"].learner.n_observed == 60
    assert same(replica, replayed(replica))
    events, _ = replica.ledger.follow(START, 1000)
    logged = [
        msgspec.msgpack.decode(e.body, type=Decided) for e in events if e.kind == Kind.DECIDED
    ]
    expected = [is_held_out("shop", body.subject.encode(), 0.4) for body in logged]
    assert [body.held_out for body in logged] == expected
    assert 0 < sum(expected) < 60


def test_a_log_without_a_holdout_says_nothing_of_one():
    """Digests and settings of earlier versions are the same, see also tests/test_version_0_1.py."""
    replica = new_replica(explicit())
    assert "holdout" not in replica.folds["shop"].spec.as_kept()
    assert replica.configure("shop", explicit(holdout=0.1))
    assert replica.folds["shop"].spec.as_kept()["holdout"] == 0.1
